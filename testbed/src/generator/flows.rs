//! Which packets: flows, how often each is drawn, and how long its packets are.

use std::str::FromStr;

use anyhow::{Result, ensure};
use calumma_controller::report::Flow;
use calumma_sketch::FlowKey;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes of a frame's beginning that are made beforehand: a cache line, with all headers in it.
pub(super) const HEAD: usize = 64;

/// Draws after which the sequence begins anew.
const SEQUENCE: usize = 1 << 21;

const UDP: u8 = 17;
const ETHERNET: usize = 14;

/// Flows and how packets are drawn from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Number of flows.
    pub flows: usize,
    /// How often each is drawn.
    pub popularity: Popularity,
    /// Length of packets.
    pub sizes: Sizes,
    /// The same seed sends the same packets.
    pub seed: u64,
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

/// Length of packets in bytes, from the Ethernet header to the end of the payload, without the frame check sequence.
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
    /// The beginning of each flow's frames.
    pub(super) heads: Vec<Head>,
    /// Length of each flow's frames.
    pub(super) lengths: Vec<u16>,
    /// The flows of packets, in order; sent round and round.
    pub(super) sequence: Vec<u32>,
}

impl Frames {
    /// Makes them.
    ///
    /// # Errors
    /// Where there is no flow, or more than 2^24.
    pub(super) fn new(mix: &Mix) -> Result<Self> {
        let Mix { flows, popularity, sizes, seed } = *mix;
        ensure!((1..=1 << 24).contains(&flows), "{flows} flows: give 1 to {}", 1 << 24);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lengths: Vec<u16> = (0..flows).map(|flow| sizes.of(flow)).collect();
        let heads =
            lengths.iter().enumerate().map(|(at, &length)| head(&key(at, seed), length)).collect();
        let sequence = match popularity {
            Popularity::Uniform => (0..SEQUENCE).map(|_| rng.random_range(0..flows)).collect(),
            Popularity::Zipf(exponent) => zipf(flows, exponent, &mut rng),
        };
        let sequence = sequence.into_iter().map(|flow| flow as u32).collect();
        Ok(Self { heads, lengths, sequence })
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

/// Flow number `at` of a mix: all are distinct, and lie in 10.0.0.0/8 as a data centre's do.
pub(super) fn flow(at: usize, seed: u64) -> Flow {
    (&key(at, seed)).into()
}

fn key(at: usize, seed: u64) -> FlowKey {
    // 4,096 hosts at either side, and source ports for the rest.
    let host = |net: u8, number: usize| [10, net, (number >> 8) as u8, number as u8].into();
    let net = (seed % 100) as u8;
    let (src, dst) = (host(net, at % 4096), host(net + 100, at * 2_654_435_761 % 4096));
    FlowKey::v4(src, dst, 1024 + (at / 4096) as u16, 4000, UDP)
}

/// The beginning of a flow's frames of `length` bytes: Ethernet, IPv4, UDP without checksum.
fn head(flow: &FlowKey, length: u16) -> Head {
    let mut head = [0; HEAD];
    head[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    head[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let ip_length = length - ETHERNET as u16;
    let ip = &mut head[ETHERNET..ETHERNET + 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_length.to_be_bytes());
    ip[8] = 64;
    ip[9] = flow.protocol();
    ip[12..16].copy_from_slice(&flow.src().octets());
    ip[16..20].copy_from_slice(&flow.dst().octets());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp = &mut head[ETHERNET + 20..ETHERNET + 28];
    udp[..2].copy_from_slice(&flow.sport().to_be_bytes());
    udp[2..4].copy_from_slice(&flow.dport().to_be_bytes());
    udp[4..6].copy_from_slice(&(ip_length - 20).to_be_bytes());
    Head(head)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use calumma_edge::parse::{Parsed, parse};

    fn mix(flows: usize, popularity: Popularity, sizes: Sizes) -> Mix {
        Mix { flows, popularity, sizes, seed: 3 }
    }

    #[test]
    fn every_flow_is_another_and_the_edge_reads_it_from_its_frames() {
        let frames = Frames::new(&mix(50_000, Popularity::Uniform, Sizes::Imix)).unwrap();
        let mut seen = HashSet::new();
        for (at, (head, &length)) in frames.heads.iter().zip(&frames.lengths).enumerate() {
            let mut frame = head.0.to_vec();
            frame.resize(length.into(), 0);
            let Parsed::Flow { key, .. } = parse(&frame, frame.len()) else {
                panic!("flow {at} is not understood");
            };
            assert_eq!(key, super::key(at, 3));
            assert!(seen.insert(key), "flow {at} was there before");
        }
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
