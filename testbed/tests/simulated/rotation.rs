//! The hash key changes: by command, in networks of either kind of edge.

use std::path::Path;

use calumma_sketch::HashKey;
use calumma_testbed::simulate::{Detail, Outcome, Simulation, SwitchClock};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};

use crate::simulation::setup;

/// Plays epochs in the course of which the key is changed before the 10th, and edges and the
/// controller do as `disturb` says; no report may be wrong. Gives which epochs are complete, and
/// the first one by the new key.
fn play(name: &str, disturb: impl Fn(&mut Simulation, u64)) -> (Vec<bool>, u64) {
    let topology = Topology::load(name, Path::new("."), LinkQuality::default()).unwrap();
    let edges = topology.edges().len();
    let clocks = SwitchClock::draw(3, edges, 500.0, 20.0);
    let setup = setup(Detail::Packets { spread: 0.9 }, 3);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let (sizes, victims) = (Sizes::Constant(20), 0.3);
    simulation
        .set_traffic(vec![Traffic { flows: 60, sizes, victims, churn: 0.05, ..Traffic::default() }])
        .unwrap();
    let (mut outcomes, mut from) = (Vec::new(), None);
    for epoch in 0..40 {
        disturb(&mut simulation, epoch);
        if epoch == 10 {
            from = simulation.rotate_key(HashKey::from_bytes([99; 32])).unwrap();
        }
        outcomes.extend(simulation.run_epoch().unwrap());
    }
    outcomes.extend(simulation.finish().unwrap());
    for Outcome { report, truth, .. } in &outcomes {
        assert_eq!(truth.contradicts(report), None, "{name}: epoch {}", report.epoch);
    }
    let complete = outcomes.iter().map(|outcome| outcome.report.complete).collect();
    (complete, from.expect("the key changes"))
}

#[test]
fn software_edges_lose_no_epoch() {
    let (complete, from) = play("fat-tree:4x2", |_, _| {});
    assert_eq!(complete, [true; 40]);
    assert!((12..=14).contains(&from), "{from}");
}

/// A Tofino's hash units and tables are of one key: it finishes its last epochs by the old one, is
/// loaded with the new one, and begins two epochs later.
#[test]
fn a_tofino_loses_the_epochs_that_it_is_loaded_in_and_no_other() {
    let (complete, from) = play("pair e1=tofino", |_, _| {});
    let lost: Vec<u64> =
        (0..).zip(&complete).filter(|(_, whole)| !**whole).map(|(at, _)| at).collect();
    assert!(!lost.is_empty() && lost.len() <= 4, "{lost:?}");
    assert!(lost.iter().all(|epoch| (from..from + 4).contains(epoch)), "{lost:?} from {from} on");
}

/// An edge that is cut off learns of the new key when it is back: what it has measured by the old
/// one since is of no use, and all goes on from there.
#[test]
fn an_edge_that_was_away_begins_anew_by_the_new_key() {
    let (complete, from) = play("fat-tree:4x2", |simulation, epoch| match epoch {
        8 => simulation.set_reachable(2, false),
        20 => simulation.set_reachable(2, true),
        _ => {}
    });
    // What it held when it was cut off is lost as well.
    assert!(complete[..7].iter().all(|whole| *whole), "{complete:?}");
    assert!(complete[from as usize..20].iter().all(|whole| !whole), "{complete:?}");
    assert!(complete[28..].iter().all(|whole| *whole), "{complete:?}");
}

/// A controller that is started again knows both keys: what edges hold is read by the key of its
/// epoch.
#[test]
fn a_controller_that_starts_again_reads_each_epoch_by_its_own_key() {
    let (complete, _) = play("fat-tree:4x2", |simulation, epoch| match epoch {
        11 => simulation.set_controller(false).unwrap(),
        18 => simulation.set_controller(true).unwrap(),
        _ => {}
    });
    let whole = complete.iter().filter(|whole| **whole).count();
    assert!(whole >= 38, "{complete:?}");
}
