//! A software edge and a Tofino, and packets that no sketch holds: the Tofino keeps them by flow as
//! the software edge does, so that losses stay exact.

use std::path::Path;

use calumma_controller::report::StrayKind;
use calumma_testbed::simulate::{Detail, Outcome, Simulation, SwitchClock};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};

use crate::simulation::setup;

const EPOCHS: u64 = 16;

/// Plays such a network, with packets that routers within it send; no report may be wrong.
fn play(kinds: &str, links: LinkQuality, strangers: Option<Traffic>) -> Vec<Outcome> {
    let topology = Topology::load(kinds, Path::new("."), links).unwrap();
    let clocks = SwitchClock::draw(3, 2, 500.0, 20.0);
    let setup = setup(Detail::Packets { spread: 0.9 }, 3);
    let mut simulation = Simulation::new(setup, topology, clocks).unwrap();
    let ordinary =
        Traffic { flows: 60, sizes: Sizes::Constant(20), victims: 0.3, ..Traffic::default() };
    simulation.set_traffic([ordinary].into_iter().chain(strangers).collect()).unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..EPOCHS {
        outcomes.extend(simulation.run_epoch().unwrap());
    }
    outcomes.extend(simulation.finish().unwrap());
    for Outcome { report, truth, .. } in &outcomes {
        assert_eq!(truth.contradicts(report), None, "{kinds}: epoch {}", report.epoch);
    }
    outcomes
}

/// Packets that a router sends with that ToS byte, of four flows, so many of each in an epoch.
fn strangers(tos: u8, packets: u32) -> Option<Traffic> {
    let (sizes, inside) = (Sizes::Constant(packets), Some(tos));
    Some(Traffic { flows: 4, sizes, inside, ..Traffic::default() })
}

/// Packets of a kind that the edges have kept, and those of them whose flow is not known.
fn kept(outcomes: &[Outcome], what: StrayKind) -> [u64; 2] {
    let strays = outcomes.iter().flat_map(|outcome| &outcome.report.strays);
    strays
        .filter(|of| of.what == what)
        .fold([0; 2], |sum, of| [sum[0] + of.packets, sum[1] + of.beyond])
}

/// Epochs that are whole, and those of them whose losses are all exact.
fn exact(outcomes: &[Outcome]) -> [usize; 2] {
    let whole = outcomes.iter().map(|outcome| &outcome.report).filter(|of| of.complete);
    let all = whole.clone().filter(|of| {
        !of.loss.is_empty() && of.loss.iter().all(|loss| !loss.at_least && !loss.partial)
    });
    [whole.count(), all.count()]
}

#[test]
fn losses_are_exact_where_strangers_have_a_mark_without_buckets() {
    for (tos, what) in [(0x20, StrayKind::Misfit), (0xC0, StrayKind::Late)] {
        for kinds in ["pair", "pair e2=tofino", "pair e1=tofino e2=tofino"] {
            let outcomes = play(kinds, LinkQuality::default(), strangers(tos, 30));
            let [packets, beyond] = kept(&outcomes, what);
            assert!(packets > 100 && beyond == 0, "{kinds}: {packets} {beyond}");
            let (all, [whole, exact]) = (outcomes.len(), exact(&outcomes));
            assert_eq!(whole, all, "{kinds}, {tos:#04x}");
            assert!(exact > all * 3 / 4, "{kinds}, {tos:#04x}: {exact} of {all}");
        }
    }
}

#[test]
fn losses_are_bounds_where_strangers_are_more_than_a_tofino_says_in_an_epoch() {
    let outcomes = play("pair e2=tofino", LinkQuality::default(), strangers(0x20, 1500));
    let [packets, beyond] = kept(&outcomes, StrayKind::Misfit);
    assert!(beyond > 1000 && packets > beyond + 1000, "{packets} {beyond}");
    let [_, exact] = exact(&outcomes);
    assert!(exact < outcomes.len() * 2 / 3, "{exact}");
}

#[test]
fn late_packets_spoil_no_epoch() {
    let links = LinkQuality { late: 0.005, late_ms: [20.0, 45.0], ..LinkQuality::default() };
    let [software, tofino] = ["pair", "pair e1=tofino e2=tofino"].map(|kinds| {
        let outcomes = play(kinds, links, None);
        let [packets, beyond] = kept(&outcomes, StrayKind::Late);
        assert!(packets > 10 && beyond == 0, "{kinds}: {packets} {beyond}");
        exact(&outcomes)[0]
    });
    assert_eq!([software, tofino], [EPOCHS as usize; 2]);
}
