//! Nodes and the controller come and go, systems are switched on and off, and packets flow all the
//! while: none of them is lost for it, and no report says what is not so.

use std::collections::BTreeMap;
use std::path::Path;

use calumma_controller::attention::Bounds;
use calumma_sketch::{HashKey, KeyKind, WideKey};
use calumma_testbed::simulate::{
    Detail, EpochTruth, Outcome, Setup, Simulation, SwitchClock, SystemOutcome,
};
use calumma_testbed::topology::{LinkQuality, Segment, Topology};
use calumma_testbed::workload::{Sizes, Traffic};
use proptest::prelude::*;

use crate::{counts, passed, report, setup};

/// A Tofino tells no flows of IPv6 apart.
const TOPOLOGY: &str = "leaf-spine:2x2 s1=software s2=tofino";
const DUAL_STACK: &str = "leaf-spine:2x2 s1=software s2=software";
const NODES: usize = 4;

/// Epochs in which something happens, and those after them, when all is as it was.
const EPOCHS: u64 = 18;
const AFTER: u64 = 16;

/// Systems that may run.
const SYSTEMS: [&[&str]; 4] = [&[], &["hops"], &["chamelemon"], &["chamelemon", "hops"]];

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A node is started anew.
    Restart(usize),
    /// A node can reach the controller no longer, or again.
    Reachable(usize, bool),
    /// The controller goes, or comes.
    Controller(bool),
    /// These of [`SYSTEMS`] are to run.
    Switch(usize),
    /// The controller changes the hash key.
    RotateKey(u8),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..NODES).prop_map(Event::Restart),
        2 => ((0..NODES), any::<bool>()).prop_map(|(node, can)| Event::Reachable(node, can)),
        1 => any::<bool>().prop_map(Event::Controller),
        6 => (0..SYSTEMS.len()).prop_map(Event::Switch),
        4 => any::<u8>().prop_map(Event::RotateKey),
    ]
}

/// A network, and what happens to it.
#[derive(Clone, Debug)]
struct Story {
    /// What happens at the beginning of which epoch.
    events: Vec<(u64, Event)>,
    keys: KeyKind,
    detail: Detail,
    plans: bool,
    seed: u64,
}

fn stories() -> impl Strategy<Value = Story> {
    let events = prop::collection::vec((1..EPOCHS, events()), 1..10);
    let keys = prop::sample::select(vec![KeyKind::Ipv4, KeyKind::Dual]);
    let detail = prop::sample::select(vec![Detail::Runs, Detail::Packets { spread: 0.9 }]);
    (events, keys, detail, any::<bool>(), 0u64..1000)
        .prop_map(|(events, keys, detail, plans, seed)| Story { events, keys, detail, plans, seed })
}

/// What was reported.
struct Told {
    of_chamelemon: Vec<Outcome>,
    of_hops: Vec<SystemOutcome>,
}

impl Story {
    fn topology(&self) -> Topology {
        let name = if self.keys == KeyKind::Dual { DUAL_STACK } else { TOPOLOGY };
        let quality = LinkQuality { jitter_us: 300.0, loss: 0.01, ..LinkQuality::default() };
        Topology::load(name, Path::new("."), quality).unwrap()
    }

    /// Plays it to the end.
    fn play(&self) -> Told {
        let setup = setup(self.detail, self.keys, self.seed);
        let planner = self.plans.then(|| Bounds::of(&setup.layout));
        let clocks = SwitchClock::draw(self.seed, NODES, 400.0, 20.0);
        let setup = Setup { planner, ..setup };
        let mut simulation = Simulation::new(setup, self.topology(), clocks).unwrap();
        let ipv6 = if self.keys == KeyKind::Dual { 0.3 } else { 0.0 };
        let (sizes, victims) = (Sizes::Constant(25), 0.3);
        let traffic = Traffic { flows: 30, victims, sizes, ipv6, churn: 0.1, ..Traffic::default() };
        simulation.set_traffic(vec![traffic]).unwrap();

        let mut told = Told { of_chamelemon: Vec::new(), of_hops: Vec::new() };
        let mut wanted = SYSTEMS[3];
        for epoch in 0..EPOCHS + AFTER {
            for (_, event) in self.events.iter().filter(|(at, _)| *at == epoch) {
                match *event {
                    Event::Restart(node) => simulation.restart(node),
                    Event::Reachable(node, can) => simulation.set_reachable(node, can),
                    Event::Controller(runs) => simulation.set_controller(runs).unwrap(),
                    Event::Switch(at) => wanted = SYSTEMS[at],
                    Event::RotateKey(byte) => {
                        simulation.rotate_key(HashKey::from_bytes([byte; 32])).unwrap();
                    }
                }
            }
            if epoch == EPOCHS {
                (0..NODES).for_each(|node| simulation.set_reachable(node, true));
                simulation.set_controller(true).unwrap();
                wanted = SYSTEMS[3];
            }
            // Refused while one still reports its last epochs, and tried again then.
            let _ = simulation.switch(wanted);
            told.of_chamelemon.extend(simulation.run_epoch().unwrap());
        }
        told.of_chamelemon.extend(simulation.finish().unwrap());
        told.of_hops = simulation.take_reports();
        told.of_hops.retain(|outcome| outcome.epoch < EPOCHS + AFTER);
        told
    }
}

impl Told {
    /// What happened to the packets, epoch by epoch, as far as anything was reported.
    fn packets(&self) -> BTreeMap<u64, Vec<Packets>> {
        let of_hops = self.of_hops.iter().map(|outcome| (outcome.epoch, &outcome.truth[0]));
        let of_chamelemon =
            self.of_chamelemon.iter().map(|outcome| (outcome.report.epoch, &outcome.truth));
        of_hops.chain(of_chamelemon).map(|(epoch, truth)| (epoch, packets(truth))).collect()
    }
}

/// A flow, how many packets it sent, how many were delivered, and where others were lost.
type Packets = (WideKey, u32, u32, Vec<(Segment, u32)>);

fn packets(truth: &EpochTruth) -> Vec<Packets> {
    let flow = |of: &calumma_testbed::simulate::FlowTruth| {
        let mut losses = of.losses.clone();
        losses.sort_unstable();
        (of.key, of.packets, of.delivered, losses)
    };
    let mut flows: Vec<Packets> = truth.flows.iter().map(flow).collect();
    flows.sort_unstable();
    flows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..Default::default() })]

    #[test]
    fn whatever_comes_and_goes_no_packet_is_lost_for_it_and_no_report_is_wrong(story in stories()) {
        let topology = story.topology();
        let told = story.play();
        let undisturbed = Story { events: Vec::new(), ..story.clone() }.play();

        // Each packet fares as it would have fared.
        let (fared, would) = (told.packets(), undisturbed.packets());
        prop_assert_eq!(would.len() as u64, EPOCHS + AFTER);
        for (epoch, packets) in &fared {
            prop_assert_eq!(packets, &would[epoch], "epoch {}", epoch);
        }

        // Complete is what happened.
        prop_assert!(told.of_hops.is_sorted_by(|a, b| a.epoch < b.epoch));
        for outcome in told.of_hops.iter().filter(|outcome| report(outcome).complete) {
            let seen = counts(outcome);
            prop_assert_eq!(seen, passed(&topology, &outcome.truth), "epoch {}", outcome.epoch);
        }
        prop_assert!(told.of_chamelemon.is_sorted_by(|a, b| a.report.epoch < b.report.epoch));
        for Outcome { report, truth, .. } in &told.of_chamelemon {
            prop_assert_eq!(truth.contradicts(report), None, "epoch {}", report.epoch);
        }

        // What was undisturbed is complete, and so is what comes after.
        let complete = |told: &Told, from: u64| {
            let of_hops = told.of_hops.iter().filter(|outcome| outcome.epoch >= from);
            let of_chamelemon = told.of_chamelemon.iter().filter(|of| of.report.epoch >= from);
            let of_hops: Vec<bool> = of_hops.map(|outcome| report(outcome).complete).collect();
            let of_chamelemon: Vec<bool> = of_chamelemon.map(|of| of.report.complete).collect();
            [of_hops, of_chamelemon]
        };
        let all = vec![true; (EPOCHS + AFTER) as usize];
        prop_assert_eq!(complete(&undisturbed, 0), [all.clone(), all]);
        // A switch that was started while ChameleMon was off measures by keys of both families,
        // and keeps to them until it is started again.
        if story.keys == KeyKind::Dual {
            let last = vec![true; 4];
            prop_assert_eq!(complete(&told, EPOCHS + AFTER - 4), [last.clone(), last]);
        }
    }
}
