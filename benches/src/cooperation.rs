//! How long the controller takes over a window in which all switches of a fat-tree have counted
//! flows, each choosing by itself.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::num::NonZeroU16;
use std::path::Path as FilePath;
use std::sync::Arc;

use calumma_analysis::run::AnySide;
use calumma_analysis::{
    AnyAnalysis, Collected, Delivery, Deployment, EpochHead, HashKeys, Node, NodeEnd, Published,
    System,
};
use calumma_cfs::frames::{OFFER, Setup, Window};
use calumma_cfs_analysis::{Cfs, Optimum, Room, Total};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::packet::Packet;
use calumma_plane::worker::Path;
use calumma_sketch::{FlowKey, HashFamily, HashKey, Hashes, HyperLogLog, WideKey};
use calumma_topology::{LinkQuality, Routes, Topology};
use calumma_wire::{Role, Side, SideKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::cfs::{EPOCH_NS, HASH_KEY, Switch, frames};
use crate::measure::{Case, Watch};

/// Where a packet's TTL is.
const TTL: usize = 14 + 8;

fn clock() -> EpochClock {
    EpochClock::new(EPOCH_NS, Guards::default()).expect("a valid clock")
}

/// A window of all switches of a network, as they send it, and the controller's analysis.
#[derive(Debug)]
pub struct Cooperation {
    name: &'static str,
    analysis: Box<dyn AnyAnalysis>,
    /// What each switch sends.
    sent: Vec<(Arc<Node>, Side)>,
    /// Flows of all tables.
    entries: usize,
    room: Tables,
}

/// What all tables have, as the analysis finds how many flows they have room for.
#[derive(Debug)]
struct Tables {
    rooms: Vec<Room>,
    /// The hashes of each flow that is in any, and the switches in whose tables it is.
    flows: Vec<(Hashes, Vec<usize>)>,
    /// How many flows there are.
    total: Total,
}

impl Tables {
    fn of(windows: &[(Window, Setup)], family: &HashFamily, flows: usize) -> Self {
        let mut counted: BTreeMap<WideKey, Vec<usize>> = BTreeMap::new();
        for (at, (window, _)) in windows.iter().enumerate() {
            window.entries.iter().for_each(|it| counted.entry(it.key).or_default().push(at));
        }
        let room = |(window, setup): &(Window, Setup)| Room {
            entries: setup.sizes(window.alpha.unwrap_or(0)).entries.into(),
            passed: window.flows.clone(),
            counted: HyperLogLog::new(setup.hll_bits),
        };
        let flow = |(key, switches): (WideKey, Vec<usize>)| (family.hash(&key), switches);
        let (rooms, total) = (windows.iter().map(room).collect(), flows as f64);
        let total = Total { flows: total, low: 0.995 * total, high: 1.005 * total };
        Self { rooms, flows: counted.into_iter().map(flow).collect(), total }
    }

    fn optimum(&self) -> Optimum {
        let mut rooms = self.rooms.clone();
        for (hashes, switches) in &self.flows {
            switches.iter().for_each(|&switch| rooms[switch].counted.insert(hashes));
        }
        let flows = self.flows.iter().map(|(_, switches)| switches.iter().copied());
        Optimum::within(rooms, flows, (self.total, self.flows.len() as u64))
    }
}

impl Cooperation {
    /// 80 switches with 10,000 entries each, and so many flows as there are entries. Most packets
    /// pass five switches.
    pub fn full() -> Self {
        let section = json!({ "entries": 10_000, "residual": "none" });
        Self::of("full", "fat-tree:8", 800_000, section)
    }

    /// The same where what tables have no room for is in residuals, of fewer flows, so that these
    /// decode.
    pub fn decoded() -> Self {
        Self::of("decoded", "fat-tree:8", 640_000, json!({ "entries": 10_000 }))
    }

    /// A window of flows of one packet each between the edges of a network.
    ///
    /// # Panics
    /// When there is no such network, or the system does not take the section.
    fn of(name: &'static str, topology: &str, flows: usize, section: Value) -> Self {
        let topology = Topology::load(topology, FilePath::new("."), LinkQuality::default());
        let topology = topology.expect("a topology of a known shape");
        let node = |(at, name): (usize, &String)| {
            let role = if topology.is_edge(at) { Role::Edge } else { Role::Transit };
            Arc::new(Node { name: name.clone(), role, id: at as u16 + 1 })
        };
        let nodes: Vec<_> = topology.names().iter().enumerate().map(node).collect();
        let hash_keys = HashKeys::new(HashKey::from_bytes(HASH_KEY));
        let id = NonZeroU16::MIN;
        let deployment = Deployment {
            section: &section,
            hash_keys: &hash_keys,
            clock: clock(),
            nodes: &nodes,
            id,
        };
        let analysis = Cfs.start(&deployment).expect("a valid section").expect("CFS is on");
        let switch = |node: &Arc<Node>| {
            let setup = analysis.setup(node, OFFER.highest).setup;
            let setup = Setup::decode(&setup).expect("the setup of a node");
            (Switch::of((node.role, node.id), setup, Vec::new()), setup)
        };
        let (mut switches, setups): (Vec<_>, Vec<_>) = nodes.iter().map(switch).unzip();
        for (way, keys) in ways(&topology, flows) {
            let mut packets = frames(&keys);
            for (hop, &at) in way.iter().enumerate() {
                let path = match hop {
                    0 if way.len() == 1 => Path::Cross,
                    0 => Path::Enter,
                    _ if hop + 1 == way.len() => Path::Leave,
                    _ => Path::Transit,
                };
                switches[at].record(path, &mut packets);
                packets.iter_mut().for_each(|packet| packet.bytes_mut()[TTL] -= 1);
            }
        }
        let sent: Vec<_> =
            nodes.into_iter().zip(switches.into_iter().map(Switch::deliver)).collect();
        let window = |((_, side), setup): (&(Arc<Node>, Side), Setup)| {
            (Window::decode(&side.body, &setup).expect("a window of a switch"), setup)
        };
        let windows: Vec<_> = sent.iter().zip(setups).map(window).collect();
        let entries = windows.iter().map(|(window, _)| window.entries.len()).sum();
        let room = Tables::of(&windows, &hash_keys.newest().family, flows);
        Self { name, analysis, sent, entries, room }
    }

    /// Reads and checks what all switches have sent.
    fn read(&self) -> Vec<AnySide> {
        let read = |(node, side): &(Arc<Node>, Side)| {
            self.analysis.decode(node, OFFER.highest, side.clone()).expect("a window of a switch")
        };
        self.sent.iter().map(read).collect()
    }

    /// The report on it, with its JSON.
    fn report(&mut self, read: Vec<AnySide>) -> Published {
        let deliver = |((node, side), window): (&(Arc<Node>, Side), AnySide)| {
            let mut sides = vec![(side.side, Some(window))];
            if node.role == Role::Edge {
                let empty =
                    Side { side: SideKind::Ingress, body: Vec::new(), packets: 0, ..side.clone() };
                let empty =
                    self.analysis.decode(node, OFFER.highest, empty).expect("an empty side");
                sides.push((SideKind::Ingress, Some(empty)));
            }
            let end = NodeEnd { late_packets: Some(0), ..NodeEnd::default() };
            Delivery { node: node.clone(), sides, doubts: Vec::new(), end }
        };
        let epoch = self.sent.first().map_or(0, |(_, side)| side.epoch);
        let nodes = self.sent.iter().zip(read).map(deliver).collect();
        let length_ms = self.analysis.window() * EPOCH_NS / 1_000_000;
        let head = EpochHead { epoch, start_unix_ns: clock().start_of(epoch), length_ms };
        self.analysis.analyse(Collected { head, nodes, topology: None }).expect("a report is JSON")
    }

    /// How fast what switches send is read and checked, and how long all that follows takes, up to
    /// the report's JSON; and what of that it takes to find how many flows tables have room for by
    /// what passed each switch, where ways are not known.
    pub fn cases(this: &std::cell::RefCell<Self>) -> [Case<'_>; 3] {
        let name = |what: &str| format!("controller.cfs.{}.{what}", this.borrow().name);
        let take = Case::new(&name("take.mentries_s"), "M/s", move || {
            let of = this.borrow();
            let watch = Watch::start();
            black_box(of.read());
            of.entries as f64 * 1e3 / watch.nanos()
        });
        let analyse = Case::new(&name("analyse.ms"), "ms", move || {
            let mut of = this.borrow_mut();
            let read = of.read();
            let watch = Watch::start();
            black_box(of.report(read));
            watch.nanos() / 1e6
        });
        let optimum = Case::new(&name("optimum.ms"), "ms", move || {
            let of = this.borrow();
            let watch = Watch::start();
            black_box(of.room.optimum());
            watch.nanos() / 1e6
        });
        [take, analyse, optimum]
    }
}

/// So many flows between hosts of a network, by the switches of their ways.
fn ways(topology: &Topology, flows: usize) -> BTreeMap<Vec<usize>, Vec<FlowKey>> {
    let routes = Routes::new(topology);
    let hosts = topology.hosts().iter().enumerate();
    let hosts: Vec<usize> = hosts.flat_map(|(edge, &hosts)| vec![edge; hosts as usize]).collect();
    let mut rng = StdRng::seed_from_u64(8);
    let mut ways: BTreeMap<Vec<usize>, Vec<FlowKey>> = BTreeMap::new();
    for flow in 0..flows as u32 {
        let [from, to] = [(); 2].map(|()| rng.random_range(0..hosts.len()));
        let Some(way) = routes.way(hosts[from], hosts[to], rng.random()) else { continue };
        let address = |host: usize| 0x0A00_0000 | host as u32;
        // Two numbers of 16 bits for each flow, so that no two are one.
        let key = FlowKey::from_words(address(from), address(to), flow, 17);
        ways.entry(way.switches().collect()).or_default().push(key);
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_a_network_is_read_and_reported() {
        let section = json!({ "entries": 256, "residual": "none" });
        let mut network = Cooperation::of("tiny", "leaf-spine:4x2", 2_000, section);
        let read = network.read();
        let report: Value = serde_json::from_str(&network.report(read).json).unwrap();
        assert_eq!(report["nodes"].as_array().map(Vec::len), Some(6), "{report}");
        let coverage = report["coverage"].as_f64().unwrap();
        assert!((0.6..0.78).contains(&coverage), "{coverage}");
        assert!(network.entries > 1_000, "{}", network.entries);
        // Six tables of 256 entries, and 2,000 flows.
        let of_report = report["optimum"].as_f64().unwrap();
        let alone = network.room.optimum().share.value;
        assert!((0.74..0.77).contains(&of_report) && (alone - of_report).abs() < 0.01, "{alone}");
    }
}
