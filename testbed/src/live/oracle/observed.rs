//! Captured packets put together: what each host sent and received, and each packet's way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use calumma_analysis::Flow;

use super::packet::Frame;
use super::{Part, Wire};
use crate::capture::Capture;
use crate::topology::Topology;
use crate::workload::{host_address, host_address6};

/// By how much a switch's clock may be ahead of the one that captures go by.
const CLOCK_NS: u64 = 1_000_000;

/// Nanoseconds of all captures that are read together. Hosts send packets that are alike, but not
/// so soon after each other: the kernel counts 65,536 identifications up before one comes again.
const SLICE_NS: u64 = 10_000_000_000;

/// How long after a packet came to a wire it is surely on none any more.
const UNDER_WAY_NS: u64 = 4_000_000_000;

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
    /// Packets that came to hosts, and when.
    delivered: Vec<(u64, Frame)>,
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
    /// When there were packets of a flow of which some left and some were lost, all alike: which of
    /// them, nobody can tell.
    unknown: Vec<(Flow, [u64; 2])>,
}

/// A capture that is read.
struct Reading {
    wire: Wire,
    file: PathBuf,
    capture: Capture<BufReader<File>>,
    /// The packet that is next, and when it was on the wire.
    next: Option<(u64, Frame)>,
}

impl Reading {
    fn open(wire: Wire, file: &Path) -> Result<Self> {
        let capture = Capture::open(file).with_context(|| file.display().to_string())?;
        let mut reading = Self { wire, file: file.to_owned(), capture, next: None };
        reading.go_on()?;
        Ok(reading)
    }

    /// Goes on to the next packet that can be read.
    fn go_on(&mut self) -> Result<()> {
        self.next = loop {
            let record = self.capture.next_record();
            let record = record.with_context(|| self.file.display().to_string())?;
            let Some(record) = record else { break None };
            if let Some(frame) = Frame::read(record.bytes) {
                break Some((record.timestamp_ns, frame));
            }
        };
        Ok(())
    }
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
            unknown: Vec::new(),
        }
    }

    /// Packets that came to hosts' own sinks with a stack, by the sink's name.
    pub(super) fn to_sinks(&self) -> BTreeMap<String, u64> {
        self.to_sinks.values().cloned().collect()
    }

    /// Reads the captures of wires, some seconds of all of them at a time. Packets that no host
    /// sent to another, as those of routers, are left out.
    pub(super) fn read(&mut self, files: &[(Wire, PathBuf)]) -> Result<()> {
        let open = |(wire, file): &(Wire, PathBuf)| Reading::open(*wire, file);
        let mut all = files.iter().map(open).collect::<Result<Vec<_>>>()?;
        while let Some(from_ns) = all.iter().filter_map(|of| Some(of.next?.0)).min() {
            let until_ns = from_ns + SLICE_NS;
            for reading in &mut all {
                while let Some((at_ns, frame)) = reading.next.filter(|of| of.0 < until_ns) {
                    self.note(reading.wire, at_ns, frame);
                    reading.go_on()?;
                }
            }
            self.settle(until_ns - UNDER_WAY_NS);
        }
        self.settle(u64::MAX);
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
            self.delivered.push((at_ns, frame));
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

    /// Puts together what captures have of packets that were on no wire since `before_ns`.
    fn settle(&mut self, before_ns: u64) {
        for (_, frame) in self.delivered.extract_if(.., |(at_ns, _)| *at_ns < before_ns) {
            let left = self.sent.entry(frame.content).or_default();
            *left -= 1;
            let is_own = *left >= 0;
            if *left == 0 {
                self.sent.remove(&frame.content);
            }
            self.leaked += u64::from(!is_own && frame.has_stack);
            self.changed += u64::from((!is_own && !frame.has_stack) || !frame.is_sound);
        }
        let is_gone = |packet: &Packet| packet.passings.iter().all(|of| of.at_ns < before_ns);
        for (_, packet) in self.packets.extract_if(|_, packet| is_gone(packet)) {
            let ends = (self.edges.get(&packet.flow.src), self.edges.get(&packet.flow.dst));
            let (Some(&from), Some(&to)) = ends else { continue };
            let before = self.ways.len();
            self.ways.extend(
                ways(&packet, from, to)
                    .map(|(bit, entered_ns, way)| (bit, entered_ns, packet.flow, way)),
            );
            let times = || packet.passings.iter().map(|of| of.at_ns);
            let has_left = packet.passings.iter().any(|of| of.wire.is_host && of.wire.switch == to);
            if let Some((first, last)) = times().min().zip(times().max())
                && self.ways.len() == before
                && has_left
            {
                self.unknown.push((packet.flow, [first, last]));
            }
        }
    }

    /// Flows of which it is not known how many packets left in these epochs.
    pub(super) fn unknown(&self, [first, last]: [u64; 2], length_ns: u64) -> BTreeSet<Flow> {
        let (from_ns, to_ns) = (first.saturating_sub(1) * length_ns, (last + 2) * length_ns);
        let is_within = |of: &&(Flow, [u64; 2])| of.1[0] < to_ns && of.1[1] >= from_ns;
        self.unknown.iter().filter(is_within).map(|of| of.0).collect()
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

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use calumma_sketch::WideKey;

    use super::*;
    use crate::capture::PcapWriter;
    use crate::topology::LinkQuality;
    use crate::workload::frame;

    const LENGTH_NS: u64 = 100_000_000;

    /// A packet that is lost behind its first edge, and another one like it that is not.
    fn observed([lost_ns, came_ns]: [u64; 2], key: &WideKey) -> Observed {
        let topology =
            Topology::load("leaf-spine:2x1", Path::new("."), LinkQuality::default()).unwrap();
        let folder = format!("observed-{}-{came_ns}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let packet = frame(key, 60).to_vec();
        // 10 us are between two wires.
        let wires = [(0, true, 2), (0, false, 2), (1, false, 1), (1, true, 1)];
        let written = wires.into_iter().enumerate().map(|(at, (switch, is_host, packets))| {
            let path = folder.join(format!("{at}.pcap"));
            let file = BufWriter::new(File::create(&path).unwrap());
            let mut writer = PcapWriter::new(file).unwrap();
            for from_ns in &[lost_ns, came_ns][2 - packets..] {
                writer.write(from_ns + 10_000 * at as u64, packet.len() as u32, &packet).unwrap();
            }
            writer.finish().unwrap();
            (Wire { switch, port: 0, is_host, part: Part::All }, path)
        });
        let mut observed = Observed::new(&topology);
        observed.read(&written.collect::<Vec<_>>()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((observed.moved, observed.leaked, observed.changed), ([2, 1], 0, 0));
        observed
    }

    #[test]
    fn a_packet_that_is_like_one_that_was_lost_before_has_its_own_way() {
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17);
        let (lost_ns, came_ns) = (1_000_000_000_000, 1_060_000_000_000);
        let at_once = observed([lost_ns, lost_ns + 1_000_000], &key);
        let epoch = lost_ns / LENGTH_NS;
        assert!(at_once.within([epoch, epoch], LENGTH_NS).is_empty());
        assert!(at_once.unknown([epoch, epoch], LENGTH_NS).contains(&Flow::from(&key)));
        assert!(at_once.unknown([epoch + 2, epoch + 9], LENGTH_NS).is_empty());
        let observed = observed([lost_ns, came_ns], &key);
        let epoch = came_ns / LENGTH_NS;
        let flows = observed.within([epoch, epoch], LENGTH_NS);
        let of = &flows[&Flow::from(&key)];
        assert_eq!(of.packets, 1);
        assert_eq!(of.hops["e2"].residences_ns, [10_000]);
        let epoch = lost_ns / LENGTH_NS;
        assert!(observed.within([epoch, epoch], LENGTH_NS).is_empty());
        assert!(observed.unknown([epoch, epoch], LENGTH_NS).is_empty());
    }
}
