//! Simulated networks: what is reported as certain is what happened.

use std::path::Path;

use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_controller::analyse::Tasks;
use calumma_controller::report::{DecodeState, NetworkState};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::HashKey;
use calumma_testbed::carrier::Carrier;
use calumma_testbed::simulate::{Detail, Lcores, Outcome, Setup, Simulation, SwitchClock, Systems};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};

pub(crate) fn setup(detail: Detail, seed: u64) -> Setup {
    let layout = Layout::default();
    Setup {
        attention: Attention::healthy(&layout, 512),
        layout,
        planner: None,
        hash_key: HashKey::from_bytes([7; 32]),
        clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
        tasks: Tasks::default(),
        losses_only: false,
        grace_ns: 200_000_000,
        detail,
        switches: Vec::new(),
        lcores: Lcores::default(),
        probes: false,
        carrier: Carrier::default(),
        seed,
        systems: Systems::default(),
    }
}

pub(crate) fn ill() -> Attention {
    Attention {
        t_h: 400,
        t_l: 20,
        sample_rate: SampleRate::new(0.4).unwrap(),
        partition: Partition { hh: 1024, hl: 2560, ll: 512 },
    }
}

fn network(setup: Setup, jitter_us: f64) -> Simulation {
    let quality = LinkQuality { jitter_us, ..LinkQuality::default() };
    let topology = Topology::load("fat-tree:4x2", Path::new("."), quality).unwrap();
    let clocks = SwitchClock::draw(setup.seed, 4, 500.0, 20.0);
    Simulation::new(setup, topology, clocks).unwrap()
}

fn run(simulation: &mut Simulation, epochs: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..epochs {
        outcomes.extend(simulation.run_epoch().unwrap());
    }
    outcomes.extend(simulation.finish().unwrap());
    let numbers: Vec<u64> = outcomes.iter().map(|outcome| outcome.report.epoch).collect();
    assert_eq!(numbers, (0..epochs).collect::<Vec<_>>());
    for Outcome { report, truth, .. } in &outcomes {
        assert_eq!(truth.contradicts(report), None, "epoch {}", report.epoch);
    }
    outcomes
}

fn traffic(flows: u32) -> Traffic {
    Traffic {
        flows,
        victims: 0.1,
        churn: 0.05,
        tcp: 0.5,
        sizes: Sizes::Hadoop,
        ..Traffic::default()
    }
}

#[test]
fn every_loss_is_named_in_a_healthy_network_of_four_edges() {
    let mut simulation = network(setup(Detail::Runs, 1), 0.0);
    simulation.set_traffic(vec![traffic(10_000)]).unwrap();
    let outcomes = run(&mut simulation, 10);
    for Outcome { report, truth, .. } in &outcomes {
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(report.decode.hl, DecodeState::Complete);
        let lost: u64 = report.loss.iter().map(|loss| loss.lost).sum();
        assert_eq!((lost, report.loss.len()), (truth.lost(), truth.victims()));
        assert!(truth.victims() > 100, "{}", truth.victims());
    }
}

#[test]
fn what_is_sampled_and_what_is_heavy_is_named_in_an_ill_network() {
    let mut simulation = network(Setup { attention: ill(), ..setup(Detail::Runs, 2) }, 0.0);
    let sizes = Sizes::Dctcp;
    let victims = 0.2;
    simulation.set_traffic(vec![Traffic { sizes, victims, ..traffic(12_000) }]).unwrap();
    for Outcome { report, truth, .. } in run(&mut simulation, 5) {
        assert!(report.complete && report.state == NetworkState::Ill);
        assert_eq!(
            (report.decode.hl, report.decode.ll),
            (DecodeState::Complete, DecodeState::Complete)
        );
        assert!(report.loss.len() < truth.victims());
    }
}

#[test]
fn packets_one_by_one_and_runs_of_them_give_the_same_reports() {
    for attention in [setup(Detail::Runs, 3).attention, ill()] {
        let of = |detail| {
            let setup = Setup { attention, ..setup(detail, 3) };
            let mut simulation = network(setup, 0.0);
            simulation.set_traffic(vec![traffic(2000)]).unwrap();
            run(&mut simulation, 4)
        };
        let (runs, packets) = (of(Detail::Runs), of(Detail::Packets { spread: 0.0 }));
        for (runs, packets) in runs.iter().zip(&packets) {
            assert_eq!(runs.report, packets.report);
        }
        assert!(runs.iter().all(|outcome| outcome.report.complete));
    }
}

#[test]
fn a_hardware_edge_in_the_place_of_a_software_one_changes_no_report() {
    for (attention, detail) in
        [(setup(Detail::Runs, 9).attention, Detail::Runs), (ill(), Detail::Packets { spread: 0.5 })]
    {
        let of = |name| {
            let setup = Setup { attention, ..setup(detail, 9) };
            let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
            let clocks = SwitchClock::draw(setup.seed, 2, 500.0, 20.0);
            let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
            let sizes = Sizes::Constant(30);
            simulation.set_traffic(vec![Traffic { sizes, ..traffic(250) }]).unwrap();
            run(&mut simulation, 4)
        };
        for (software, hardware) in of("pair").iter().zip(&of("pair e1=tofino")) {
            let [software, hardware] = [&software.report, &hardware.report];
            assert!(hardware.complete && hardware.losses_are_decoded());
            assert!(!hardware.loss.is_empty());
            assert_eq!(software.loss, hardware.loss);
            for (software, hardware) in software.edges.iter().zip(&hardware.edges) {
                assert_eq!(software.packets_in, hardware.packets_in);
                assert_eq!(software.heavy_hitters, hardware.heavy_hitters);
                assert_eq!(software.hh_load_factor, hardware.hh_load_factor);
            }
        }
    }
}

#[test]
fn packets_that_overtake_one_another_are_counted_all_the_same() {
    let mut simulation = network(setup(Detail::Packets { spread: 0.5 }, 4), 300.0);
    simulation.set_traffic(vec![traffic(1500)]).unwrap();
    let outcomes = run(&mut simulation, 5);
    assert!(outcomes.iter().all(|outcome| outcome.report.complete));
    assert!(outcomes.iter().any(|outcome| outcome.truth.lost() > 1000));
}

#[test]
fn what_links_double_is_reported_as_too_much_and_makes_up_for_what_they_lose() {
    let runs = (Detail::Runs, 7);
    let packets = (Detail::Packets { spread: 0.5 }, 8);
    for ((detail, seed), samples) in [(runs, false), (packets, false), (packets, true)] {
        let quality = LinkQuality { loss: 0.005, duplicate: 0.01, ..LinkQuality::default() };
        let topology = Topology::load("fat-tree:4x2", Path::new("."), quality).unwrap();
        let clocks = SwitchClock::draw(seed, 4, 500.0, 20.0);
        let sample_rate = if samples { ill().sample_rate } else { SampleRate::ALL };
        let attention = Attention { sample_rate, ..ill() };
        let setup = Setup { attention, ..setup(detail, seed) };
        let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
        simulation.set_traffic(vec![Traffic { victims: 0.0, ..traffic(1500) }]).unwrap();
        let outcomes = run(&mut simulation, 5);
        let decoded = outcomes.iter().filter(|outcome| outcome.report.losses_are_decoded());
        let (mut lost, mut surplus) = (0, 0);
        for Outcome { report, truth, .. } in decoded {
            assert!(truth.lost() > 0 && truth.doubled() > 0);
            lost += report.loss.len();
            surplus += report.surplus.len();
            // Copies of packets that are encoded nowhere may be anybody's, with rewritten marks.
            let is_named = report.causes.iter().any(|cause| cause.reason.contains("a mark of 0"));
            assert_eq!(is_named, samples, "{:?}", report.causes);
        }
        if samples {
            assert_eq!((lost, surplus), (0, 0), "each may be a packet whose mark was rewritten");
        } else {
            assert!(lost > 50 && surplus > 50, "{lost} victims, {surplus} with packets too many");
        }
    }
}

#[test]
fn clocks_too_far_apart_make_epochs_incomplete_and_not_wrong() {
    let mut simulation = network(setup(Detail::Runs, 5), 0.0);
    simulation.set_traffic(vec![traffic(2000)]).unwrap();
    // Beyond the clock guard of a millisecond and the flight guard of ten, in either direction.
    for offset_ns in [-30e6, -13e6, 13e6, 30e6] {
        simulation.set_clock(2, Some(offset_ns), None);
        let mut outcomes = Vec::new();
        for _ in 0..12 {
            outcomes.extend(simulation.run_epoch().unwrap());
        }
        for Outcome { report, truth, .. } in &outcomes[6..] {
            assert_eq!(truth.contradicts(report), None, "{offset_ns}: epoch {}", report.epoch);
            assert!(!report.complete, "{offset_ns}: epoch {}", report.epoch);
        }
    }
}

/// A clock that was seconds off is set right, back or ahead: its edge measures with the others
/// again soon after, and not once its old time has come, or after it has made up for the epochs
/// between.
#[test]
fn an_edge_whose_clock_is_set_right_begins_anew() {
    for (kind, by_ns) in [("", 30e9), ("", -30e9), (" e1=tofino", 30e9), (" e1=tofino", -30e9)] {
        let topology = format!("pair{kind}");
        let topology = Topology::load(&topology, Path::new("."), LinkQuality::default()).unwrap();
        let clocks = SwitchClock::draw(9, 2, 500.0, 20.0);
        let mut simulation = Simulation::new(setup(Detail::Runs, 9), topology, clocks).unwrap();
        simulation.set_traffic(vec![traffic(50)]).unwrap();
        let mut outcomes = Vec::new();
        for epoch in 0..50 {
            match epoch {
                5 => simulation.set_clock(0, Some(by_ns), None),
                10 => simulation.set_clock(0, Some(0.0), None),
                _ => {}
            }
            outcomes.extend(simulation.run_epoch().unwrap());
        }
        let complete: Vec<u64> = outcomes
            .iter()
            .filter(|outcome| outcome.report.complete)
            .map(|outcome| outcome.report.epoch)
            .collect();
        let again = complete[4];
        assert!((32..37).contains(&again), "{kind} {by_ns}: {complete:?}");
        let expected: Vec<u64> = (0..4).chain(again..49).collect();
        assert_eq!(complete, expected, "{kind} {by_ns}");
        for Outcome { report, truth, .. } in &outcomes {
            assert_eq!(truth.contradicts(report), None, "{kind} {by_ns}: epoch {}", report.epoch);
        }
    }
}

#[test]
fn a_restarted_edge_and_an_absent_controller_come_back() {
    let mut simulation = network(setup(Detail::Runs, 6), 0.0);
    simulation.set_traffic(vec![traffic(2000)]).unwrap();
    let mut outcomes = Vec::new();
    for epoch in 0..60 {
        match epoch {
            10 => simulation.restart(1),
            30 => simulation.set_controller(false).unwrap(),
            40 => simulation.set_controller(true).unwrap(),
            _ => {}
        }
        outcomes.extend(simulation.run_epoch().unwrap());
    }
    outcomes.extend(simulation.finish().unwrap());
    for Outcome { report, truth, .. } in &outcomes {
        assert_eq!(truth.contradicts(report), None, "epoch {}", report.epoch);
    }
    let complete = |from: u64, to: u64| {
        let within = |outcome: &&Outcome| (from..to).contains(&outcome.report.epoch);
        outcomes.iter().filter(within).filter(|outcome| outcome.report.complete).count() as u64
    };
    assert_eq!(complete(0, 9), 9);
    assert_eq!(complete(10, 12), 0);
    assert!(complete(16, 27) == 11 && complete(52, 60) == 8, "measuring goes on");
    let reported = |epoch| outcomes.iter().any(|outcome| outcome.report.epoch == epoch);
    assert!(reported(33) && reported(45), "edges hold what nobody collects");
}
