//! Which packets: flows, how often each is drawn, and how long its packets are.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Result, ensure};
use calumma_controller::report::Flow;
use calumma_sketch::{Key, WideKey};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::stacks::Stacks;
use crate::workload::frame;

/// Bytes of a frame's beginning that are made beforehand: a cache line, with all headers in it. Of
/// packets with an INT stack twice as many.
pub(super) const HEAD: usize = 64;

/// Draws after which the sequence begins anew.
const SEQUENCE: usize = 1 << 21;

const UDP: u8 = 17;

/// Flows and how packets are drawn from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Number of flows.
    pub flows: usize,
    /// How often each is drawn.
    pub popularity: Popularity,
    /// Length of packets.
    pub sizes: Sizes,
    /// Share of the flows that are IPv6; the others are IPv4.
    pub ipv6: f64,
    /// The INT stacks of packets, as if these had come by other switches. They come on top of the
    /// lengths.
    pub stacks: Option<Stacks>,
    /// The same seed sends the same packets.
    pub seed: u64,
}

impl Mix {
    /// Bytes of the longest packet.
    pub(super) fn largest(&self) -> usize {
        self.sizes.largest() + self.stacks.map_or(0, |stacks| stacks.bytes().into())
    }
}

/// How often each flow is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// All alike.
    Uniform,
    /// The flow of rank r as often as r to the power of minus this.
    Zipf(f64),
}

impl FromStr for Popularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("zipf:") {
            None if text == "uniform" => Ok(Self::Uniform),
            None => Err(format!("{text}: give uniform, or zipf: and an exponent")),
            Some(exponent) => match exponent.parse() {
                Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(Self::Zipf(exponent)),
                _ => Err(format!("{exponent}: a Zipf exponent is a number from 0 to 10")),
            },
        }
    }
}

/// Length of packets in bytes, from the Ethernet header to the end of the payload, without the
/// frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All as long.
    Fixed(u16),
    /// The simple Internet mix: 7 of 12 flows send 64 bytes, 4 send 594, 1 sends 1518.
    Imix,
}

/// The simple Internet mix, a flow in turn.
const IMIX: [u16; 12] = [64, 64, 594, 64, 64, 594, 64, 594, 64, 64, 594, 1518];

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "imix" => Ok(Self::Imix),
            Ok(size) if (64..=1518).contains(&size) => Ok(Self::Fixed(size)),
            _ => Err(format!("{text}: give a length from 64 to 1518 bytes, or imix")),
        }
    }
}

impl Sizes {
    /// The longest packet.
    pub fn largest(self) -> usize {
        match self {
            Self::Fixed(size) => size.into(),
            Self::Imix => 1518,
        }
    }

    fn of(self, flow: usize) -> u16 {
        match self {
            Self::Fixed(size) => size,
            Self::Imix => IMIX[flow % IMIX.len()],
        }
    }
}

/// A frame's beginning, in a cache line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Head(pub(super) [u8; HEAD]);

/// All frames, and the order in which they are sent.
#[derive(Debug)]
pub(super) struct Frames {
    /// The beginning of each flow's frames: so many lines after each other.
    pub(super) heads: Vec<Head>,
    pub(super) lines: usize,
    /// Length of each flow's frames.
    pub(super) lengths: Vec<u16>,
    /// The flows of packets, in order; sent round and round.
    pub(super) sequence: Vec<u32>,
}

impl Frames {
    /// Makes them.
    ///
    /// # Errors
    /// Where there is no flow, or more than 2^24, or the share of IPv6 is none.
    pub(super) fn new(mix: &Mix) -> Result<Self> {
        let Mix { flows, popularity, sizes, ipv6, stacks, seed } = *mix;
        ensure!((1..=1 << 24).contains(&flows), "{flows} flows: give 1 to {}", 1 << 24);
        ensure!((0.0..=1.0).contains(&ipv6), "ipv6 = {ipv6}: a share from 0 to 1");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        stacks.iter().try_for_each(Stacks::check)?;
        let mut lengths: Vec<u16> = (0..flows).map(|flow| sizes.of(flow)).collect();
        let plain = lengths.iter().enumerate().map(|(at, &length)| head(&key(at, mix), length));
        let (heads, lines) = match stacks {
            None => (plain.collect(), 1),
            Some(stacks) => {
                let with_stacks = plain.enumerate().map(|(at, head)| {
                    let length = usize::from(lengths[at]);
                    let frame = stacks.put(at, &head.0[..length.min(HEAD)], lengths[at])?;
                    let mut lines = [Head([0; HEAD]); 2];
                    let bytes = lines.each_mut().map(|line| &mut line.0);
                    for (line, bytes) in bytes.into_iter().zip(frame.chunks(HEAD)) {
                        line[..bytes.len()].copy_from_slice(bytes);
                    }
                    Ok(lines)
                });
                let heads = with_stacks.collect::<Result<Vec<_>>>()?.into_flattened();
                lengths.iter_mut().for_each(|length| *length += stacks.bytes());
                (heads, 2)
            }
        };
        let sequence = match popularity {
            Popularity::Uniform => (0..SEQUENCE).map(|_| rng.random_range(0..flows)).collect(),
            Popularity::Zipf(exponent) => zipf(flows, exponent, &mut rng),
        };
        let sequence = sequence.into_iter().map(|flow| flow as u32).collect();
        Ok(Self { heads, lines, lengths, sequence })
    }
}

fn zipf(flows: usize, exponent: f64, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=flows)
        .map(|rank| {
            total += (rank as f64).powf(-exponent);
            total
        })
        .collect();
    (0..SEQUENCE)
        .map(|_| {
            let drawn = rng.random_range(0.0..total);
            cumulated.partition_point(|&sum| sum <= drawn).min(flows - 1)
        })
        .collect()
}

/// Flow number `at` of a mix: all are distinct, and lie in 10.0.0.0/8 or fd00::/16 as a data
/// centre's do.
pub(super) fn flow(at: usize, mix: &Mix) -> Flow {
    (&key(at, mix)).into()
}

fn key(at: usize, mix: &Mix) -> WideKey {
    // 4,096 hosts at either side, and source ports for the rest.
    let net = (mix.seed % 100) as u16;
    let (src, dst) = ((net, at % 4096), (net + 100, at * 2_654_435_761 % 4096));
    let port = 1024 + (at / 4096) as u16;
    // One after another as evenly as the share allows.
    let ipv6_before = |flows: usize| (flows as f64 * mix.ipv6) as usize;
    if ipv6_before(at + 1) > ipv6_before(at) {
        let host =
            |(net, number): (u16, usize)| Ipv6Addr::new(0xFD00, 0, 0, net, 0, 0, 0, number as u16);
        return WideKey::v6(host(src), host(dst), port, 4000, UDP);
    }
    let host = |(net, number): (u16, usize)| {
        Ipv4Addr::new(10, net as u8, (number >> 8) as u8, number as u8)
    };
    WideKey::v4(host(src), host(dst), port, 4000, UDP)
}

/// The beginning of a flow's frames of `length` bytes, all between the same two Ethernet addresses.
/// Their UDP checksum is left out: what follows is what the mbuf held before.
fn head(flow: &WideKey, length: u16) -> Head {
    let mut frame = frame(flow, length);
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let udp = if flow.addresses().0.is_ipv4() { 34 } else { 54 };
    frame[udp + 6..udp + 8].fill(0);
    let mut head = Head([0; HEAD]);
    head.0[..frame.len()].copy_from_slice(&frame);
    head
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::stacks::MORE;
    use super::*;
    use calumma_edge::parse::{Parsed, parse};
    use calumma_plane::int::header::{Seen, look};
    use calumma_plane::int::strip::read;
    use calumma_plane::int::{Domains, Stack};
    use std::num::NonZeroU16;

    fn mix(flows: usize, popularity: Popularity, sizes: Sizes) -> Mix {
        Mix { flows, popularity, sizes, ipv6: 0.25, stacks: None, seed: 3 }
    }

    #[test]
    fn every_flow_is_another_and_the_edge_reads_it_from_its_frames() {
        let mix = mix(50_000, Popularity::Uniform, Sizes::Imix);
        let frames = Frames::new(&mix).unwrap();
        let (mut seen, mut ipv6) = (HashSet::new(), 0);
        for (at, (head, &length)) in frames.heads.iter().zip(&frames.lengths).enumerate() {
            let mut frame = head.0.to_vec();
            frame.resize(length.into(), 0);
            let key = match parse(&frame, frame.len()) {
                Parsed::Flow { key, .. } => key.into(),
                Parsed::Flow6 { key, .. } => {
                    ipv6 += 1;
                    WideKey::from_bytes(key)
                }
                _ => panic!("flow {at} is not understood"),
            };
            assert_eq!(key, super::key(at, &mix));
            assert!(seen.insert(key), "flow {at} was there before");
        }
        assert_eq!(ipv6, 12_500);
    }

    #[test]
    fn packets_have_the_stacks_that_switches_put_in() {
        let domain = NonZeroU16::new(7).unwrap();
        for hops in [1, 5, 6] {
            let stacks = Some(Stacks { hops, domain });
            let mix = Mix { stacks, ..mix(100, Popularity::Uniform, Sizes::Imix) };
            let frames = Frames::new(&mix).unwrap();
            let mut nodes = HashSet::new();
            for (lines, &length) in frames.heads.chunks(frames.lines).zip(&frames.lengths) {
                let mut bytes = lines.iter().flat_map(|line| line.0).collect::<Vec<_>>();
                bytes.resize(length.into(), 0);
                let frame = calumma_plane::packet::Frame::new(bytes);
                let Seen::Stack(found) = look(&frame, 14, Domains::ANY) else {
                    panic!("no stack");
                };
                assert_eq!((found.header.domain, found.header.remaining), (7, MORE));
                let mut stack = Stack::EMPTY;
                read(&frame, &found, &mut stack);
                assert_eq!(stack.len(), usize::from(hops));
                nodes.extend(stack.hops().map(|hop| hop.node));
            }
            assert_eq!(nodes.len(), 2 * usize::from(hops));
        }
        let stacks = Some(Stacks { hops: 7, domain });
        let refused = Frames::new(&Mix { stacks, ..mix(1, Popularity::Uniform, Sizes::Imix) });
        assert!(refused.unwrap_err().to_string().contains("7 hops: give 1 to 6"));
    }

    #[test]
    fn zipf_prefers_the_first_flows_and_uniform_none() {
        let count = |popularity| {
            let frames = Frames::new(&mix(1000, popularity, Sizes::Fixed(64))).unwrap();
            frames.sequence.iter().filter(|&&flow| flow == 0).count()
        };
        let uniform = count(Popularity::Uniform);
        assert!((1_900..2_300).contains(&uniform), "{uniform} of {SEQUENCE}");
        // The first of 1000 has 1/H(1000, 1.1) = 18 % of the packets.
        let zipf = count(Popularity::Zipf(1.1)) as f64 / SEQUENCE as f64;
        assert!((0.17..0.20).contains(&zipf), "{zipf}");
    }

    #[test]
    fn what_can_not_be_sent_is_refused_with_the_remedy() {
        assert!("zipf:x".parse::<Popularity>().unwrap_err().contains("0 to 10"));
        assert!("pareto".parse::<Popularity>().unwrap_err().contains("zipf:"));
        assert!("63".parse::<Sizes>().unwrap_err().contains("64 to 1518"));
        assert!(Frames::new(&mix(0, Popularity::Uniform, Sizes::Imix)).is_err());
    }
}
