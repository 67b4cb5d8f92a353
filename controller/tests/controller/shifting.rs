//! Attention as an operator meets it: it shifts by itself, is set by hand and released, and every
//! change can be read up.

use calumma_chamelemon::frames::Message;
use calumma_controller::report::PlanReport;

use crate::stories::{Controller, Edge, PATIENT, PATIENT_BY_ONE_SECRET};
use crate::world::{World, flow};

/// 1,200 victim flows: more than the reserve of 512 buckets an array should hold.
fn lossy(world: &mut World) {
    for n in 0..1200 {
        world.send((0, 1), flow(n), 3, |position| position == 1);
    }
}

/// Lets both edges measure an epoch, and gives what was planned from it.
fn measure(controller: &Controller, edges: &mut [Edge; 2], epoch: u64) -> PlanReport {
    let mut world = edges[0].world(epoch);
    lossy(&mut world);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    let report = controller.report(epoch);
    assert!(report.complete, "{:?}", report.incomplete_because);
    report.plan.expect("a plan from every epoch")
}

fn join(controller: &Controller) -> [Edge; 2] {
    [Edge::join(controller, "e1"), Edge::join(controller, "e2")]
}

fn audit_lines(path: &std::path::Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn attention_shifts_is_held_by_hand_and_released() {
    let folder = std::env::temp_dir().join(format!("calumma-shifting-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let audit = folder.join("attention.jsonl");
    let shifting = format!("[shifting]\naudit = '{}'", audit.display());
    let controller = Controller::start(&format!("{PATIENT_BY_ONE_SECRET}\n{shifting}"));
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 8;

    let plan = measure(&controller, &mut edges, first);
    assert!(plan.applied && plan.config.hl_buckets > 512, "{plan:?}");
    assert!(plan.reasons[0].contains("expanded from 512"), "{plan:?}");
    for edge in &mut edges {
        let Some(Message::Reconfigure { effective_epoch, attention }) = edge.receive() else {
            panic!("a reconfiguration")
        };
        assert_eq!(effective_epoch, plan.effective_epoch);
        assert_eq!(attention.partition.hl, plan.config.hl_buckets);
        edge.attention = attention;
    }
    let settled = measure(&controller, &mut edges, first + 1);
    assert_eq!((settled.config, settled.applied), (plan.config, false));
    assert!(settled.reasons.is_empty());

    let (status, _) = controller.post("/api/v1/attention", r#"{"hl_buckets": 2048}"#);
    assert_eq!(status, 200);
    assert_eq!(controller.get("/api/v1/attention")["held"], true);
    for edge in &mut edges {
        let Some(Message::Reconfigure { attention, .. }) = edge.receive() else {
            panic!("by hand")
        };
        edge.attention = attention;
    }
    let wished = measure(&controller, &mut edges, first + 2);
    assert!(!wished.applied && wished.reasons[0].contains("compressed from 2048"), "{wished:?}");

    controller.post("/api/v1/attention/release", "");
    let released = measure(&controller, &mut edges, first + 3);
    assert!(released.applied, "{released:?}");
    let status = controller.get("/api/v1/attention");
    assert_eq!((&status["held"], &status["mode"]), (&false.into(), &"shift".into()));
    assert_eq!(status["since_epoch"], released.effective_epoch);

    let lines = audit_lines(&audit);
    let by: Vec<_> = lines.iter().map(|line| line["by"].as_str().unwrap()).collect();
    assert_eq!(by, ["planner", "operator", "planner-not-applied", "planner"]);
    assert_eq!(lines[0]["from"]["hl_buckets"], 512);
    assert_eq!(lines[0]["reasons"][0], plan.reasons[0].as_str());
    drop(controller.stop());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_dry_run_says_what_it_would_do_and_a_static_controller_plans_nothing() {
    let controller =
        Controller::start(&format!("{PATIENT_BY_ONE_SECRET}\n[shifting]\nmode = 'dry-run'"));
    let mut edges = join(&controller);
    let first = edges[0].recent_epoch() - 1;
    for epoch in [first, first + 1] {
        let plan = measure(&controller, &mut edges, epoch);
        assert!(!plan.applied && plan.config.hl_buckets > 512, "{plan:?}");
    }
    assert_eq!(controller.get("/api/v1/attention")["config"]["hl_buckets"], 512);

    let controller = Controller::start(&format!("{PATIENT}\n[shifting]\nmode = 'static'"));
    let mut edges = join(&controller);
    let epoch = edges[0].recent_epoch();
    let mut world = edges[0].world(epoch);
    lossy(&mut world);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    assert_eq!(controller.report(epoch).plan, None);
}
