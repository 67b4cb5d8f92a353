//! Clocks that are set at any instants by any time, where packets are few: a flow that is counted
//! in another epoch at one of its two edges than at the other makes no late packets to show it by.

use std::path::Path;

use calumma_chamelemon::{Attention, Layout};
use calumma_sketch::Level;
use calumma_testbed::simulate::{Detail, Outcome, Setup, Simulation, SwitchClock};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use calumma_testenv::are_sweeps_large;
use proptest::prelude::*;

use crate::simulation::setup;

const EPOCHS: u64 = 100;
const LENGTH_NS: u64 = 50_000_000;

/// A clock is set: in which epoch, how long after its beginning, at which edge, and by how much;
/// `None` sets it right.
type Step = (u64, u64, usize, Option<i64>);

/// Two edges, as `kind` says, and one packet an epoch at most, between any two hosts.
fn sparse(seed: u64, kind: &str) -> Simulation {
    let layout = Layout {
        upstream_buckets: 256,
        downstream_buckets: 192,
        classifier: vec![Level::new(8, 512)],
        ..Layout::default()
    };
    let setup = Setup {
        attention: Attention::healthy(&layout, 64),
        layout,
        ..setup(Detail::Packets { spread: 0.0 }, seed)
    };
    let quality = LinkQuality { loss: 0.3, ..LinkQuality::default() };
    let topology = Topology::load(kind, Path::new("."), quality).unwrap();
    let clocks = SwitchClock::draw(seed, 2, 500.0, 20.0);
    Simulation::new(setup, topology, clocks).unwrap()
}

/// What is reported while clocks are set; a packet enters in every epoch that `sends` says.
fn outcomes(
    mut simulation: Simulation,
    steps: &[Step],
    sends: impl Fn(u64) -> bool,
) -> Vec<Outcome> {
    let mut off_ns = [0; 2];
    let mut outcomes = Vec::new();
    for epoch in 0..EPOCHS {
        let flows = u32::from(sends(epoch));
        let traffic =
            Traffic { flows, churn: 1.0, sizes: Sizes::Constant(1), ..Traffic::default() };
        simulation.set_traffic(vec![traffic]).unwrap();
        for &(_, after_ns, edge, by_ns) in steps.iter().filter(|step| step.0 == epoch) {
            let by_ns = by_ns.unwrap_or(-off_ns[edge]);
            off_ns[edge] += by_ns;
            simulation.step_clock(edge, after_ns, by_ns);
        }
        outcomes.extend(simulation.run_epoch().unwrap());
    }
    outcomes.extend(simulation.finish().unwrap());
    outcomes
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let by_ns = prop_oneof![
        2 => (-5_000_000_000_i64..5_000_000_000).prop_map(Some),
        2 => (-200_000_000_i64..200_000_000).prop_map(Some),
        1 => (-12_000_000_i64..12_000_000).prop_map(Some),
        2 => Just(None),
    ];
    let step = (1..EPOCHS - 10, 0..LENGTH_NS, 0..2_usize, by_ns);
    prop::collection::vec(step, 1..5).prop_map(|mut steps| {
        steps.sort_unstable();
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if are_sweeps_large() { 1000 } else { 48 }))]

    #[test]
    fn whatever_clocks_are_set_to_what_is_reported_as_certain_is_what_happened(
        seed in 0u64..1 << 32,
        steps in steps(),
        every in 1u64..4,
        kind in prop::sample::select(vec!["pair", "pair e1=tofino"]),
    ) {
        let simulation = sparse(seed, kind);
        let outcomes = outcomes(simulation, &steps, |epoch| epoch.is_multiple_of(every));
        for Outcome { report, truth, .. } in outcomes {
            prop_assert_eq!(truth.contradicts(&report), None, "epoch {}", report.epoch);
        }
    }
}

/// What the test above demands is not met by saying nothing.
#[test]
fn epochs_are_complete_again_soon_after_a_clock_is_set_right() {
    for by_ns in [-3_000_000_000, -40_000_000, -3_000_000, 3_000_000, 40_000_000, 3_000_000_000] {
        let steps = [(10, 7_000_000, 0, Some(by_ns)), (20, 31_000_000, 0, None)];
        let outcomes = outcomes(sparse(5, "pair"), &steps, |_| true);
        let complete: Vec<u64> = outcomes
            .iter()
            .filter(|outcome| outcome.report.complete)
            .map(|outcome| outcome.report.epoch)
            .collect();
        assert!((0..8).all(|epoch| complete.contains(&epoch)), "{by_ns}: {complete:?}");
        assert!((10..40).all(|epoch| !complete.contains(&epoch)), "{by_ns}: {complete:?}");
        assert!((50..EPOCHS).all(|epoch| complete.contains(&epoch)), "{by_ns}: {complete:?}");
        let reasons: Vec<&String> =
            outcomes[9..30].iter().flat_map(|outcome| &outcome.report.incomplete_because).collect();
        let was_set = reasons.iter().any(|reason| reason.contains("its clock was set"));
        assert!(was_set, "{by_ns}: {reasons:?}");
    }
}
