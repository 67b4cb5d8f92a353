//! The hash key changes while packets flow: no epoch of ChameleMon's is lost for it on software
//! switches, and none of any other system's anywhere.

use std::path::Path;

use calumma_sketch::{HashKey, KeyKind};
use calumma_testbed::simulate::{Detail, Outcome, Simulation, SwitchClock};
use calumma_testbed::topology::{LinkQuality, Topology};
use calumma_testbed::workload::{Sizes, Traffic};

use crate::{counts, passed, report, setup};

const EPOCHS: u64 = 60;

/// When the key is changed; some of it between two epochs of which packets are under way.
const ROTATIONS: [u64; 2] = [10, 35];

#[test]
fn a_change_of_the_hash_key_costs_no_epoch_and_no_window() {
    for (keys, name, seed) in [
        (KeyKind::Ipv4, "leaf-spine:2x2 s1=software s2=tofino", 1),
        (KeyKind::Dual, "leaf-spine:2x2 s1=software s2=software", 2),
    ] {
        let quality = LinkQuality { jitter_us: 300.0, loss: 0.01, ..LinkQuality::default() };
        let topology = Topology::load(name, Path::new("."), quality).unwrap();
        let setup = setup(Detail::Packets { spread: 0.9 }, keys, seed);
        let clocks = SwitchClock::draw(seed, 4, 400.0, 20.0);
        let mut simulation = Simulation::new(setup, topology.clone(), clocks).unwrap();
        let traffic = Traffic {
            flows: 30,
            victims: 0.3,
            sizes: Sizes::Constant(25),
            churn: 0.1,
            ..Traffic::default()
        };
        simulation.set_traffic(vec![traffic]).unwrap();

        let (mut outcomes, mut changed) = (Vec::new(), Vec::new());
        for epoch in 0..EPOCHS {
            if ROTATIONS.contains(&epoch) {
                let key = HashKey::from_bytes([epoch as u8; 32]);
                changed.extend(simulation.rotate_key(key).unwrap());
            }
            outcomes.extend(simulation.run_epoch().unwrap());
        }
        outcomes.extend(simulation.finish().unwrap());
        assert_eq!(changed.len(), ROTATIONS.len());
        assert!(changed.iter().zip(ROTATIONS).all(|(at, asked)| (asked..asked + 5).contains(at)));

        assert_eq!(outcomes.len() as u64, EPOCHS);
        for Outcome { report, truth, .. } in &outcomes {
            assert!(report.complete, "epoch {}: {:?}", report.epoch, report.incomplete_because);
            assert!(report.losses_are_exact() && !report.loss.is_empty(), "{}", report.epoch);
            assert_eq!(truth.contradicts(report), None, "epoch {}", report.epoch);
        }
        let of_hops = simulation.take_reports();
        assert!(of_hops.len() as u64 >= EPOCHS);
        for outcome in of_hops.iter().filter(|outcome| outcome.epoch < EPOCHS) {
            assert!(report(outcome).complete, "epoch {}", outcome.epoch);
            let passed = passed(&topology, &outcome.truth);
            assert_eq!(counts(outcome), passed, "epoch {}", outcome.epoch);
        }
    }
}
