//! Captured packets put together: what each host sent and received, and each packet's way.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use calumma_analysis::Flow;

use super::packet::Frame;
use super::{Part, Wire};
use crate::capture::Capture;
use crate::topology::Topology;
use crate::workload::{host_address, host_address6};

/// By how much a switch's clock may be ahead of the one that captures go by.
const CLOCK_NS: u64 = 1_000_000;

/// A packet at a switch.
#[derive(Clone, Copy, Debug)]
struct Passing {
    wire: Wire,
    at_ns: u64,
    tos: u8,
}

/// A packet, by what no switch changes; more than one where several are alike.
#[derive(Debug)]
struct Packet {
    flow: Flow,
    passings: Vec<Passing>,
}

/// A way through the network: switches with the time of arrival and departure at each.
type Way = Vec<(usize, [u64; 2])>;

/// What captures say.
#[derive(Debug)]
pub(in crate::live) struct Observed {
    names: Vec<String>,
    /// The edge of each host.
    edges: HashMap<IpAddr, usize>,
    packets: HashMap<u64, Packet>,
    /// By content: packets that hosts sent less those that came.
    sent: HashMap<u64, i64>,
    delivered: Vec<Frame>,
    /// Packets that came to hosts with a stack that no host had sent.
    pub leaked: u64,
    /// Packets that came to hosts with other bytes than they were sent with.
    pub changed: u64,
    /// Packets that hosts sent, and that came to hosts.
    pub moved: [u64; 2],
    /// Of each host with a sink of its own, by the place of its wire: the sink's name, and the
    /// packets that came to that with a stack.
    to_sinks: BTreeMap<(usize, usize), (String, u64)>,
    /// Every packet that left the network, when it had entered it: epoch bit, time, flow, way.
    ways: Vec<(u8, u64, Flow, Way)>,
}

/// A flow in some windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfFlow {
    /// Packets that came to the edge where they left.
    pub packets: u64,
    /// Those by each path.
    pub paths: BTreeMap<Vec<String>, u64>,
    /// By switch.
    pub hops: BTreeMap<String, OfHop>,
    /// By the switches at both ends of a link: how long packets were between the wires there, in
    /// nanoseconds.
    pub links: BTreeMap<[String; 2], Vec<u64>>,
}

/// A flow at a switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfHop {
    /// Its packets.
    pub packets: u64,
    /// How long they were between the wires on both sides of it, in nanoseconds.
    pub residences_ns: Vec<u64>,
}

impl OfHop {
    /// The mean residence, in microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        let sum: u64 = self.residences_ns.iter().sum();
        let known = self.residences_ns.len();
        (known > 0).then(|| sum as f64 / known as f64 / 1e3)
    }

    /// What so large a share of the packets don't exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let mut sorted = self.residences_ns.clone();
        sorted.sort_unstable();
        let at = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(at.max(1) - 1).map(|&ns| ns as f64 / 1e3)
    }
}

impl Observed {
    pub(super) fn new(topology: &Topology) -> Self {
        let mut edges: HashMap<IpAddr, usize> = HashMap::new();
        for (edge, &hosts) in topology.hosts().iter().enumerate() {
            for host in 0..hosts {
                edges.insert(host_address(edge, host).into(), edge);
                edges.insert(host_address6(edge, host).into(), edge);
            }
        }
        let sinks = topology.host_sinks();
        let sinks = sinks.map(|(edge, host, name)| ((edge, host as usize), (name, 0)));
        Self {
            names: topology.names().to_vec(),
            edges,
            to_sinks: sinks.collect(),
            packets: HashMap::new(),
            sent: HashMap::new(),
            delivered: Vec::new(),
            leaked: 0,
            changed: 0,
            moved: [0; 2],
            ways: Vec::new(),
        }
    }

    /// Packets that came to hosts' own sinks with a stack, by the sink's name.
    pub(super) fn to_sinks(&self) -> BTreeMap<String, u64> {
        self.to_sinks.values().cloned().collect()
    }

    /// Reads the capture of a wire. Packets that no host sent to another, as those of routers, are
    /// left out.
    pub(super) fn read(&mut self, wire: Wire, file: &Path) -> Result<()> {
        let mut capture = Capture::open(file)?;
        while let Some(record) = capture.next_record()? {
            let Some(frame) = Frame::read(record.bytes) else { continue };
            self.note(wire, record.timestamp_ns, frame);
        }
        Ok(())
    }

    fn note(&mut self, wire: Wire, at_ns: u64, frame: Frame) {
        let Frame { flow, tos, identity, of_host, content, has_stack, .. } = frame;
        let ends = (self.edges.get(&flow.src), self.edges.get(&flow.dst));
        let (Some(&from), Some(&to)) = ends else { return };
        let is_at_host = wire.is_host && wire.part != Part::Switch;
        if is_at_host && from == wire.switch {
            *self.sent.entry(content).or_default() += 1;
            self.moved[0] += 1;
        }
        if is_at_host && to == wire.switch {
            self.delivered.push(frame);
            self.moved[1] += 1;
        }
        if wire.part == Part::Host {
            return;
        }
        if wire.part == Part::Switch
            && to == wire.switch
            && has_stack
            && let Some((_, packets)) = self.to_sinks.get_mut(&(wire.switch, wire.port))
        {
            *packets += 1;
        }
        let is_of_host = is_at_host || wire.is_host && from == wire.switch;
        let packet = self.packets.entry(if is_of_host { of_host } else { identity });
        let packet = packet.or_insert_with(|| Packet { flow, passings: Vec::new() });
        packet.passings.push(Passing { wire, at_ns, tos });
    }

    /// Puts together what all captures have.
    pub(super) fn settle(&mut self) {
        for frame in std::mem::take(&mut self.delivered) {
            let left = self.sent.entry(frame.content).or_default();
            *left -= 1;
            let is_own = *left >= 0;
            self.leaked += u64::from(!is_own && frame.has_stack);
            self.changed += u64::from((!is_own && !frame.has_stack) || !frame.is_sound);
        }
        for packet in std::mem::take(&mut self.packets).into_values() {
            let ends = (self.edges.get(&packet.flow.src), self.edges.get(&packet.flow.dst));
            let (Some(&from), Some(&to)) = ends else { continue };
            self.ways.extend(
                ways(&packet, from, to)
                    .map(|(bit, entered_ns, way)| (bit, entered_ns, packet.flow, way)),
            );
        }
    }

    /// What left the network of each flow, of those packets whose epoch, by their mark, is within
    /// these; `length_ns` is an epoch's.
    pub(super) fn within(&self, [first, last]: [u64; 2], length_ns: u64) -> BTreeMap<Flow, OfFlow> {
        let mut flows: BTreeMap<Flow, OfFlow> = BTreeMap::new();
        for (bit, entered_ns, flow, way) in &self.ways {
            let now = (entered_ns + CLOCK_NS) / length_ns;
            let epoch = now - (now.wrapping_sub(u64::from(*bit)) & 1);
            if !(first..=last).contains(&epoch) {
                continue;
            }
            let of = flows.entry(*flow).or_default();
            of.packets += 1;
            let path = way.iter().map(|(switch, _)| self.names[*switch].clone()).collect();
            *of.paths.entry(path).or_default() += 1;
            for (switch, [arrived, left]) in way {
                let hop = of.hops.entry(self.names[*switch].clone()).or_default();
                hop.packets += 1;
                hop.residences_ns.push(left.saturating_sub(*arrived));
            }
            for ends in way.windows(2) {
                let [(from, [_, left]), (to, [arrived, _])] = ends else { continue };
                let names = [from, to].map(|switch| self.names[*switch].clone());
                of.links.entry(names).or_default().push(arrived.saturating_sub(*left));
            }
        }
        flows
    }
}

/// The ways of packets that are alike from one edge to another: the mark's bit behind the first,
/// when that was, and the switches. Where some of them were lost, which of them left is not known.
fn ways(packet: &Packet, from: usize, to: usize) -> impl Iterator<Item = (u8, u64, Way)> + use<> {
    let mut switches: BTreeMap<usize, BTreeMap<Wire, Vec<Passing>>> = BTreeMap::new();
    for passing in &packet.passings {
        let of_switch = switches.entry(passing.wire.switch).or_default();
        of_switch.entry(passing.wire).or_default().push(*passing);
    }
    let mut all: Vec<(u8, u64, Way)> = Vec::new();
    let left = switches.get(&to).map_or(0, |wires| {
        wires.iter().filter(|(wire, _)| wire.is_host).map(|(_, of)| of.len()).sum()
    });
    let mut lists: Vec<(usize, Vec<[u64; 2]>)> = Vec::new();
    let mut marks: Vec<(u8, u64)> = Vec::new();
    for (&switch, wires) in &switches {
        let wires: Vec<&Vec<Passing>> = wires.values().collect();
        let [one, other] = wires[..] else { return all.into_iter() };
        let sorted = |of: &[Passing]| {
            let mut of = of.to_vec();
            of.sort_by_key(|passing| passing.at_ns);
            of
        };
        let (mut arrived, mut went) = (sorted(one), sorted(other));
        let earlier = |of: &[Passing]| of.first().map_or(u64::MAX, |of| of.at_ns);
        if earlier(&went) < earlier(&arrived) {
            std::mem::swap(&mut arrived, &mut went);
        }
        if arrived.len() != went.len() {
            return all.into_iter();
        }
        if switch == from {
            marks = went.iter().map(|passing| (passing.tos >> 7, passing.at_ns)).collect();
        }
        let times = arrived.iter().zip(&went).map(|(one, two)| [one.at_ns, two.at_ns]);
        lists.push((switch, times.collect()));
    }
    if marks.len() != left || left == 0 {
        return all.into_iter();
    }
    for (number, (bit, entered_ns)) in marks.iter().enumerate() {
        let mut way: Way = lists
            .iter()
            .filter(|(_, times)| times.len() == left)
            .map(|(switch, times)| (*switch, times[number]))
            .collect();
        way.sort_by_key(|(_, [arrived, _])| *arrived);
        all.push((*bit, *entered_ns, way));
    }
    all.into_iter()
}
