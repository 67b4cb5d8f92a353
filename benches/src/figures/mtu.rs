//! Which packets have room for stacks: how many switches a packet names by its size, where the
//! links between switches take no more than hosts send.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_plane::Carrier;
use calumma_plane::int::header::{Seen, ip_offset, look, set_marker, tos};
use calumma_plane::int::push::{self, NotCarried};
use calumma_plane::int::strip::{Goes, read, strip};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions, Stack};
use calumma_plane::packet::{Frame, Packet};
use calumma_testbed::capture::Capture;

use super::Setup;
use super::latency::HOPS;

pub(super) const FIGURE: Figure<Setup> = Figure {
    name: "sketchint-mtu",
    title: "SketchINT: coverage by packet size, at an MTU of 1500 and of 9000 bytes",
    claim: "Beyond the paper, which does not say what becomes of packets that have no room for what \
            switches add to them.",
    measure,
};

/// Longest IP packets of links.
const MTUS: [usize; 2] = [1500, 9000];

/// The switches that push: all but the sink.
const PUSH: usize = HOPS - 1;

/// Hops that a stack may have.
const MOST: u8 = 6;

const ETHERNET: usize = 14;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// So many switches are named in its stack, all or not.
    With(usize),
    /// It went without.
    Without(NotCarried),
}

/// What switches ask for, by name.
const ASKED: [(&str, u16); 2] = [
    ("node and latency, 8 bytes a hop", Instructions::NODE | Instructions::LATENCY),
    (
        "and both timestamps, 24 bytes a hop",
        Instructions::NODE | Instructions::LATENCY | Instructions::INGRESS | Instructions::EGRESS,
    ),
];

/// The way of a network's packets by its switches, whose links take IP packets of `mtu` bytes.
struct Way {
    mtu: usize,
    switches: Vec<Insertion>,
}

impl Way {
    fn new(mtu: usize, bits: u16) -> Result<Self> {
        let instructions = Instructions::new(bits).context("instructions")?;
        let domain = 51_728_u16.try_into()?;
        let switch = |node: u16| {
            let node = node.try_into()?;
            Ok(Insertion { domain, node, instructions, hops: MOST, udp_port: None })
        };
        Ok(Self { mtu, switches: (1..=PUSH as u16).map(switch).collect::<Result<_>>()? })
    }

    /// Sends a packet from a host to another; `None` where it is no IP packet.
    ///
    /// # Errors
    /// Where a switch made it longer than a link takes, or its host did not get what was sent.
    fn send(&self, bytes: &[u8]) -> Result<Option<Came>> {
        let Some(offset) = ip_offset(bytes, Carrier::default()) else { return Ok(None) };
        let mut frame = Frame::with_headroom(256, bytes);
        let dscp = tos(&frame, offset) >> 2;
        set_marker(&mut frame, offset, false);
        let mut came = None;
        for (at, insertion) in self.switches.iter().enumerate() {
            let hop = Hop { node: insertion.node.get().into(), latency_ns: 1000, ..Hop::UNKNOWN };
            if at == 0 {
                if let Err(why) =
                    push::source(&mut frame, offset, (insertion, &hop), dscp, self.mtu)
                {
                    came = Some(Came::Without(why));
                    break;
                }
            } else if let Seen::Stack(found) = look(&frame, offset, Domains::ANY) {
                push::transit(&mut frame, &found, &hop, self.mtu);
            }
            let len = ip_len(frame.bytes(), offset);
            ensure!(len.is_some_and(|len| len <= self.mtu), "a packet of {len:?} bytes");
        }
        if let Some(came) = came {
            return Ok(Some(came));
        }
        let Seen::Stack(found) = look(&frame, offset, Domains::ANY) else {
            anyhow::bail!("the sink finds no stack in a packet of {} bytes", bytes.len());
        };
        let mut stack = Stack::EMPTY;
        read(&frame, &found, &mut stack);
        ensure!(strip(&mut frame, offset, &found, Goes::ToHost), "the stack can't be taken out");
        ensure!(frame.bytes() == bytes, "a host did not get the bytes that were sent");
        Ok(Some(Came::With(stack.len())))
    }
}

/// The length of an IP packet as its header at `offset` has it, where that is there.
fn ip_len(bytes: &[u8], offset: usize) -> Option<usize> {
    let header = bytes.get(offset..offset + 6)?;
    let [at_2, at_4] = [2, 4].map(|at| u16::from_be_bytes([header[at], header[at + 1]]).into());
    Some(if header[0] >> 4 == 6 { 40 + at_4 } else { at_2 })
}

/// A TCP packet over IPv4 of so many bytes from the IP header on.
fn packet(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET + len];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[22..34].copy_from_slice(&[64, 6, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
    bytes[46] = 0x50;
    bytes
}

/// Packets of a capture by what became of them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: u64,
    /// All switches are named, or some, or it had no room, or another reason to go without.
    came: [u64; 4],
}

const OUTCOMES: [&str; 4] = ["all switches", "some switches", "too long", "other reasons"];

impl Counts {
    fn add(&mut self, came: Came) {
        self.all += 1;
        self.came[match came {
            Came::With(PUSH) => 0,
            Came::With(_) => 1,
            Came::Without(NotCarried::Mtu) => 2,
            Came::Without(_) => 3,
        }] += 1;
    }

    fn share(&self, outcome: usize) -> f64 {
        self.came[outcome] as f64 / self.all.max(1) as f64
    }
}

/// The packets of a capture sent over links of each MTU, those that fit it; and the sizes of all of
/// them, from the IP header on. Bytes that were not captured are zero, and what is behind the IP
/// packet is left out. `None` without the capture.
fn of_capture(file: &Path, most: usize) -> Result<Option<([Counts; 2], Vec<usize>)>> {
    if !file.exists() {
        return Ok(None);
    }
    let ways = [Way::new(MTUS[0], ASKED[0].1)?, Way::new(MTUS[1], ASKED[0].1)?];
    let (mut counts, mut sizes) = ([Counts::default(); 2], Vec::new());
    let mut capture = Capture::open(file)?;
    let mut bytes = Vec::new();
    while let Some(record) = capture.next_record()? {
        let Some(offset) = ip_offset(record.bytes, Carrier::default()) else { continue };
        let Some(size) = ip_len(record.bytes, offset).filter(|&size| size > 0) else { continue };
        let is_whole = offset + size <= record.original_len as usize;
        if !is_whole || size > MTUS[1] || sizes.len() >= most {
            continue;
        }
        bytes.clear();
        bytes.extend_from_slice(record.bytes);
        bytes.resize(offset + size, 0);
        sizes.push(size);
        for (way, counts) in ways.iter().zip(&mut counts) {
            let came = if size <= way.mtu { way.send(&bytes)? } else { None };
            came.into_iter().for_each(|came| counts.add(came));
        }
    }
    sizes.sort_unstable();
    Ok(Some((counts, sizes)))
}

fn measure(setup: &Setup) -> Result<Drawn> {
    let mut charts = Vec::new();
    let mut sentences = Vec::new();
    for (mtu, title) in MTUS.into_iter().zip(["(a) MTU 1500", "(b) MTU 9000"]) {
        let size = Axis::linear("bytes of the IP packet");
        let mut chart = Chart::new(title, size, Axis::linear("switches named, of 4"));
        for (name, bits) in ASKED {
            let way = Way::new(mtu, bits)?;
            let named = |len: usize| {
                let came = way.send(&packet(len))?;
                let named = if let Some(Came::With(named)) = came { named } else { 0 };
                Ok((len, named, matches!(came, Some(Came::With(_)))))
            };
            let all: Vec<(usize, usize, bool)> =
                (mtu - 150..=mtu).map(named).collect::<Result<_>>()?;
            let whole = all.iter().filter(|of| of.1 == PUSH).map(|of| of.0).max();
            let carried = all.iter().filter(|of| of.2).map(|of| of.0).max();
            sentences.push(format!(
                "MTU {mtu}, {name}: all {PUSH} switches up to {} bytes, a stack up to {}",
                whole.context("no packet has room")?,
                carried.context("no packet has room")?
            ));
            let points = all.iter().map(|of| (of.0 as f64, of.1 as f64)).collect();
            chart = chart.with(Series::ours(name, points));
        }
        charts.push(chart);
    }
    let file = setup.data.join("mixed-captures.pcap");
    let traced = of_capture(&file, setup.choose(usize::MAX, 20_000))?;
    let skipped = format!("There is no {}: real packets are not in it.", file.display());
    let Some((counts, sizes)) = traced else {
        return Ok(sentences
            .into_iter()
            .fold(Drawn::new(charts), Drawn::measured)
            .because(skipped));
    };
    let share = Axis::linear("share of the packets");
    let mut bars =
        Chart::bars("(c) public captures", MTUS.map(|mtu| format!("MTU {mtu}")).to_vec(), share);
    for (outcome, name) in OUTCOMES.into_iter().enumerate() {
        let points = counts.iter().zip(0..).map(|(of, at)| (f64::from(at), of.share(outcome)));
        bars = bars.with(Series::ours(name, points.collect()));
    }
    for (mtu, of) in MTUS.iter().zip(&counts) {
        let shares = OUTCOMES.iter().enumerate();
        let shares = shares.map(|(at, name)| format!("{name} {:.2} %", 100.0 * of.share(at)));
        sentences.push(format!(
            "of {} captured IP packets up to {mtu} bytes: {}",
            of.all,
            shares.collect::<Vec<_>>().join(", ")
        ));
    }
    let cumulated = sizes.iter().enumerate().filter(|(at, size)| sizes.get(at + 1) != Some(size));
    let cumulated =
        cumulated.map(|(at, &size)| (size as f64, (at + 1) as f64 / sizes.len() as f64));
    let axis = Axis::linear("share of the packets up to it");
    let chart = Chart::new("(d) sizes of captured packets", Axis::log("bytes"), axis);
    charts.extend([bars, chart.with(Series::new("mixed captures", cumulated.collect()))]);
    Ok(sentences
        .into_iter()
        .fold(Drawn::new(charts), Drawn::measured)
        .because(format!(
            "Each packet goes through the switch's own code for source, {} transits and sink, with a stack \
             of at most {MOST} hops on links that take no more than hosts send; the host gets the bytes \
             that were sent. Other reasons are fragments and protocols without a place for a stack. The \
             backbone's capture has no sizes.",
            PUSH - 1
        )))
}
