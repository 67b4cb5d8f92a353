//! A network of made-up windows, as its nodes deliver them, and the report on each.

#![allow(dead_code, reason = "every test crate uses a part of it")]

use std::sync::Arc;

use calumma_analysis::{
    AnyAnalysis, Collected, Deployment, EpochHead, Flow, HashKeys, Node, NodeEnd, System,
    SystemReport,
};
use calumma_analysis::{Delivery, run::AnySide};
use calumma_cfs::frames::{
    Ends, Entry, OFFER, ROWS_GUARD, Setup, Totals, Unentered, WORDS_SINCE, Window, salt,
};
use calumma_cfs_analysis::{Cfs, Found};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::table::{Rank, Refused};
use calumma_sketch::{FlowKey, HashKey, Hashes, HyperLogLog, KeyKind, WideKey};
use calumma_topology::Place;
use calumma_wire::{Role, Side, SideKind, SystemId};
use serde_json::json;

pub(crate) const EPOCHS: u64 = 20;
pub(crate) const UNCLAIMED: u8 = 2;

/// Two edges with two transit switches between them, and their controller.
pub(crate) struct Network {
    pub(crate) keys: HashKeys,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) analysis: Box<dyn AnyAnalysis>,
    /// What each node kept in the window.
    pub(crate) windows: Vec<Window>,
    pub(crate) late: Vec<Option<u64>>,
    /// Why what each counts is in doubt.
    pub(crate) doubts: Vec<Vec<String>>,
    /// Nodes with the version before that in which words follow from wide keys.
    pub(crate) older: Vec<usize>,
    /// Nodes whose tables have rows.
    pub(crate) rows: Vec<usize>,
    pub(crate) window: u64,
}

pub(crate) fn key(flow: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0002, 0x0A01_0000 + flow, 7 << 16 | 53, 17)
}

/// A flow's count in a report: where, packets, and whether they are all.
pub(crate) fn count_of(report: &SystemReport<Found>, flow: u32) -> Option<(&str, u64, bool)> {
    let flow = Flow::from(&key(flow));
    let count = report.findings.flows.iter().find(|count| count.flow == flow)?;
    Some((&count.at, count.packets, count.exact))
}

/// Flows that lost packets: from where to where, and how many.
pub(crate) fn lost(report: &SystemReport<Found>) -> Vec<(Flow, String, String, u64)> {
    let losses = report.findings.losses.iter();
    losses
        .map(|loss| {
            let Place { from, to } = loss.place.clone();
            (loss.flow, from, to, loss.lost)
        })
        .collect()
}

fn setup() -> Setup {
    Setup { entries: 256, hll_bits: 8, filter_bits: 256 * 64, ..Setup::default() }
}

impl Network {
    pub(crate) fn new(section: serde_json::Value) -> Self {
        Self::of(&["e1", "e2", "s1", "s2"], section)
    }

    /// The same of these nodes: edges are those whose names begin with an e.
    pub(crate) fn of(names: &[&str], section: serde_json::Value) -> Self {
        let keys = HashKeys::new(HashKey::from_bytes([9; 32]));
        let node = |(at, name): (usize, &&str)| {
            let role = if name.starts_with('e') { Role::Edge } else { Role::Transit };
            Arc::new(Node { name: (*name).to_owned(), role, id: at as u16 + 1 })
        };
        let nodes: Vec<_> = names.iter().enumerate().map(node).collect();
        let mut of_section = json!({ "entries": 256, "hll_bits": 8 });
        let more = section.as_object().cloned().unwrap_or_default();
        of_section.as_object_mut().unwrap().extend(more);
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let deployment = Deployment {
            section: &of_section,
            hash_keys: &keys,
            clock,
            nodes: &nodes,
            id: std::num::NonZeroU16::MIN,
        };
        let analysis = Cfs.start(&deployment).unwrap().unwrap();
        let (windows, late, doubts) = (Vec::new(), Vec::new(), Vec::new());
        let (older, rows, window) = (Vec::new(), Vec::new(), 1000);
        let mut network =
            Self { keys, nodes, analysis, windows, late, doubts, older, rows, window };
        network.begin();
        network
    }

    /// The next window, in which nothing has passed.
    pub(crate) fn begin(&mut self) {
        self.window += 1;
        let empty = Window {
            keys: KeyKind::Ipv4,
            hash_key: self.keys.newest().id,
            routes_changed: false,
            limit: None,
            theta: None,
            alpha: None,
            overrides: None,
            totals: Totals::default(),
            flows: HyperLogLog::new(8),
            entries: Vec::new(),
            uncounted: None,
            suspects: None,
            ends: None,
        };
        self.windows = vec![empty; self.nodes.len()];
        let filter = Refused::from_words(&[0; 32 * Refused::LEAST_WORDS]).unwrap();
        let sums = Some(Unentered::default());
        let ends = Ends { entered: vec![filter.clone()], left: vec![filter], sums };
        for (node, window) in self.nodes.iter().zip(&mut self.windows) {
            window.ends = (node.role == Role::Edge).then(|| ends.clone());
        }
        self.late = vec![Some(0); self.nodes.len()];
        self.doubts = vec![Vec::new(); self.nodes.len()];
    }

    pub(crate) fn position(&self, node: &str) -> usize {
        self.nodes.iter().position(|of| of.name == node).unwrap()
    }

    pub(crate) fn at(&mut self, node: &str) -> &mut Window {
        let at = self.position(node);
        &mut self.windows[at]
    }

    /// Lets a node count so many packets of a flow.
    pub(crate) fn count(&mut self, node: &str, flow: u32, packets: u64) -> &mut Entry {
        let at = self.position(node);
        let (sides, ttl) = match node {
            "e1" => (Entry::ENTERED, 64),
            "e2" => (Entry::LEFT, 62),
            _ => (Entry::PASSED, 63),
        };
        self.count_of(at, &key(flow), packets, (sides, ttl))
    }

    /// The same of any flow, which comes on these sides and with this TTL.
    pub(crate) fn count_of(
        &mut self,
        at: usize,
        key: &FlowKey,
        packets: u64,
        (sides, ttl): (u8, u8),
    ) -> &mut Entry {
        let hashes = self.words_at(at, key);
        let family = self.keys.newest().family.clone();
        let seeds = (setup().seed(self.window), salt(self.nodes[at].id));
        let grade = setup().grade_of(&family, &hashes, seeds, ttl);
        let window = &mut self.windows[at];
        window.flows.insert(&hashes);
        window.totals.packets += packets;
        window.totals.admitted += 1;
        window.entries.push(Entry {
            key: WideKey::from(*key),
            packets,
            bytes: 100 * packets,
            rank: Rank::new(UNCLAIMED, grade),
            ttl,
            differences: 0,
            looped: 0,
            first_us: 0,
            last_us: 10,
            sides,
            local: false,
            exact: true,
        });
        window.entries.last_mut().unwrap()
    }

    /// Lets a node see packets of a flow that its table has no room for.
    pub(crate) fn refuse(&mut self, node: &str, flow: u32, packets: u64) {
        let at = self.position(node);
        let side = match node {
            "e1" => Entry::ENTERED,
            "e2" => Entry::LEFT,
            _ => Entry::PASSED,
        };
        self.refuse_of(at, &key(flow), packets, side);
    }

    /// The same of any flow, which comes on these sides.
    pub(crate) fn refuse_of(&mut self, at: usize, key: &FlowKey, packets: u64, sides: u8) {
        let (words, hashes) = (self.words_at(at, key), self.keys.newest().family.hash(key));
        let window = &mut self.windows[at];
        window.flows.insert(&words);
        for ends in window.ends.iter_mut() {
            ends.sums.iter_mut().for_each(|sums| sums.add(&hashes, sides, packets));
            for (side, filters) in
                [(Entry::ENTERED, &mut ends.entered), (Entry::LEFT, &mut ends.left)]
            {
                let filters = filters.iter_mut().filter(|_| sides & side != 0);
                filters.for_each(|filter| filter.insert(&hashes));
            }
        }
        window.totals.packets += packets;
        window.totals.refused_packets += packets;
        window.totals.refused += 1;
    }

    pub(crate) fn side(&self, at: usize, side: SideKind) -> Side {
        let mut window = self.windows[at].clone();
        window.entries.sort_by_key(|entry| entry.key);
        // What the node's version has.
        let setup = self.setup_at(at);
        window.suspects = setup.guard.then(|| window.suspects.unwrap_or_default());
        window.alpha = setup.alpha_moves.then(|| window.alpha.unwrap_or_default());
        window.overrides = setup.overrides.then(|| window.overrides.unwrap_or_default());
        window.ends = window.ends.filter(|_| setup.ends);
        for ends in window.ends.iter_mut() {
            ends.sums = ends.sums.filter(|_| setup.sums);
        }
        let (packets, body) = match side {
            SideKind::Ingress => (0, Vec::new()),
            _ => (window.totals.packets, window.encode()),
        };
        let (epoch, system) = (self.window * EPOCHS, SystemId::CFS);
        Side { system, epoch, side, stall_ns: 0, packets, counters: Vec::new(), body }
    }

    pub(crate) fn decode(&self, at: usize, side: Side) -> Result<AnySide, String> {
        self.analysis.decode(&self.nodes[at], self.version_of(at), side)
    }

    fn version_of(&self, at: usize) -> u8 {
        match (self.older.contains(&at), self.rows.contains(&at)) {
            (true, _) => WORDS_SINCE - 1,
            (_, true) => ROWS_GUARD,
            (false, false) => OFFER.highest,
        }
    }

    /// What a node measures by.
    pub(crate) fn setup_at(&self, at: usize) -> Setup {
        let setup = self.analysis.setup(&self.nodes[at], self.version_of(at)).setup;
        Setup::decode(&setup).unwrap()
    }

    /// The hashes that a flow's words follow from at a node.
    fn words_at(&self, at: usize, key: &FlowKey) -> Hashes {
        let family = &self.keys.newest().family;
        if self.version_of(at) < WORDS_SINCE {
            family.hash(key)
        } else {
            family.hash(&WideKey::from(*key))
        }
    }

    /// The report on the window, in which the nodes that are sealed deliver.
    pub(crate) fn report(&mut self) -> SystemReport<Found> {
        let kinds = |role| match role {
            Role::Edge => &[SideKind::Ingress, SideKind::Egress][..],
            _ => &[SideKind::Transit],
        };
        let delivery = |(at, node): (usize, &Arc<Node>)| {
            let is_there = self.late[at].is_some();
            let side = |&kind: &SideKind| {
                (kind, is_there.then(|| self.decode(at, self.side(at, kind)).unwrap()))
            };
            Delivery {
                node: node.clone(),
                sides: kinds(node.role).iter().map(side).collect(),
                doubts: self.doubts[at].clone(),
                end: NodeEnd { late_packets: self.late[at], ..NodeEnd::default() },
            }
        };
        let head = EpochHead { epoch: self.window * EPOCHS, start_unix_ns: 0, length_ms: 1000 };
        let nodes = self.nodes.iter().enumerate().map(delivery).collect();
        let published = self.analysis.analyse(Collected { head, nodes, topology: None }).unwrap();
        let read = Cfs.read(&published.json).expect("a line of cfs");
        let read: &SystemReport<Found> = read.as_type().unwrap();
        let report: &SystemReport<Found> = published.report.as_type().unwrap();
        assert_eq!(serde_json::to_string(read).unwrap(), published.json);
        report.clone()
    }
}
