//! Telemetry reports as a collector reads them (P4.org's Telemetry Report Format, version 2.0), by
//! code of its own: nothing here is shared with switches.

use std::net::IpAddr;

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Which part of the node has made it.
    pub hardware: u8,
    /// Its number among that part's.
    pub sequence: u32,
    /// The node.
    pub node: u32,
    /// What it reports, packet by packet.
    pub reports: Vec<Report>,
}

/// A report on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// D: the sink dropped it.
    pub dropped: bool,
    /// Q: it was in a congested queue.
    pub congested: bool,
    /// F: its flow is tracked.
    pub tracked: bool,
    /// The domain of what follows.
    pub domain: u16,
    /// Why it is reported.
    pub reasons: Vec<&'static str>,
    /// Where its latency is inflated, and the latency in nanoseconds.
    pub inflated: Option<(u32, u32)>,
    /// Its latency at the sink, in nanoseconds.
    pub latency_ns: Option<u32>,
    /// When it came to the sink, in nanoseconds since the Unix epoch.
    pub ingress_ns: Option<u64>,
    /// And left it.
    pub egress_ns: Option<u64>,
    /// Its first bytes, from the IP header on.
    pub packet: Vec<u8>,
    /// Node and latency of each hop of its stack, the source's first, where hops say these two.
    pub hops: Vec<(u32, u32)>,
}

/// Names of the reasons, the highest bit's first.
const REASONS: [&str; 5] = ["inflated", "path_change", "loop", "heavy_hitter", "tracked"];

/// Words that RepMdBits adds, by bit.
const WORDS: [usize; 16] = [1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1];

fn word(of: &[u8], at: usize) -> Result<u32, String> {
    let four = of.get(4 * at..).and_then(|rest| rest.first_chunk::<4>());
    four.map(|four| u32::from_be_bytes(*four)).ok_or_else(|| format!("there is no word {at}"))
}

fn long(of: &[u8], at: usize) -> Result<u64, String> {
    Ok(u64::from(word(of, at)?) << 32 | u64::from(word(of, at + 1)?))
}

impl Collected {
    /// Reads a datagram with reports on INT and packets of IP.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(datagram: &[u8]) -> Result<Self, String> {
        let first = word(datagram, 0)?;
        if first >> 28 != 2 {
            return Err(format!("version {}", first >> 28));
        }
        let node = word(datagram, 1)?;
        let (mut rest, mut reports) = (&datagram[8..], Vec::new());
        while !rest.is_empty() {
            let len = 4 * (1 + (word(rest, 0)? >> 16 & 0xFF) as usize);
            let Some((report, others)) = rest.split_at_checked(len) else {
                return Err(format!("a report of {len} bytes, of which {} are there", rest.len()));
            };
            reports.push(Report::read(report)?);
            rest = others;
        }
        if reports.is_empty() {
            return Err("no report".to_owned());
        }
        let (hardware, sequence) = ((first >> 22 & 0x3F) as u8, first & 0x3F_FFFF);
        Ok(Self { hardware, sequence, node, reports })
    }
}

impl Report {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let first = word(bytes, 0)?;
        let (kind, inner, metadata) =
            (first >> 28, first >> 24 & 0xF, (first >> 8 & 0xFF) as usize);
        if kind != 1 || !matches!(inner, 4 | 5) || first & 0x1F != 0 {
            return Err(format!("a report that begins with {first:08x}"));
        }
        let flag = |bit: u32| first >> bit & 1 == 1;
        let (baseline, specific) = (word(bytes, 1)? >> 16, word(bytes, 2)?);
        let domain = (word(bytes, 1)? & 0xFFFF) as u16;
        let mut report = Self {
            dropped: flag(7),
            congested: flag(6),
            tracked: flag(5),
            domain,
            reasons: Vec::new(),
            inflated: None,
            latency_ns: None,
            ingress_ns: None,
            egress_ns: None,
            packet: Vec::new(),
            hops: Vec::new(),
        };
        let mut at = 3;
        for (bit, words) in WORDS.into_iter().enumerate() {
            if baseline >> (15 - bit) & 1 == 0 {
                continue;
            }
            match bit {
                2 => report.latency_ns = Some(word(bytes, at)?),
                4 => report.ingress_ns = Some(long(bytes, at)?),
                5 => report.egress_ns = Some(long(bytes, at)?),
                _ => {}
            }
            at += words;
        }
        if specific & !0xC000_0000 != 0 {
            return Err(format!("DSMdBits and DSMdstatus {specific:08x}"));
        }
        if specific >> 31 == 1 {
            let reasons = word(bytes, at)?;
            let named = REASONS.iter().enumerate();
            let named = named.filter(|(bit, _)| reasons >> (31 - bit) & 1 == 1);
            report.reasons = named.map(|(_, name)| *name).collect();
            at += 1;
        }
        if specific >> 30 & 1 == 1 {
            report.inflated = Some((word(bytes, at)?, word(bytes, at + 1)?));
            at += 2;
        }
        if at != 3 + metadata {
            return Err(format!("{metadata} words of metadata, and bits for {}", at - 3));
        }
        report.packet = bytes.get(4 * at..).unwrap_or_default().to_vec();
        if report
            .packet
            .first()
            .is_some_and(|first| u32::from(first >> 4) != if inner == 5 { 6 } else { 4 })
        {
            return Err(format!("a packet of another kind than {inner}"));
        }
        report.hops = report.stack().unwrap_or_default();
        Ok(report)
    }

    /// The addresses, ports and protocol of its packet; ports only of TCP and UDP.
    pub fn flow(&self) -> Option<(IpAddr, IpAddr, u16, u16, u8)> {
        let ip = &self.packet;
        let (protocol, at) = self.transport()?;
        let address = |at: usize, is_long: bool| -> Option<IpAddr> {
            let bytes = ip.get(at..)?;
            Some(match is_long {
                false => IpAddr::from(*bytes.first_chunk::<4>()?),
                true => IpAddr::from(*bytes.first_chunk::<16>()?),
            })
        };
        let is_long = ip.first()? >> 4 == 6;
        let [src, dst] = if is_long { [8, 24] } else { [12, 16] };
        let port = |at: usize| Some(u16::from_be_bytes(*ip.get(at..)?.first_chunk()?));
        Some((address(src, is_long)?, address(dst, is_long)?, port(at)?, port(at + 2)?, protocol))
    }

    /// Protocol and place of the header behind IP's, extension headers aside.
    fn transport(&self) -> Option<(u8, usize)> {
        let ip = &self.packet;
        match ip.first()? >> 4 {
            4 => Some((*ip.get(9)?, usize::from(ip[0] & 15) * 4)),
            _ => Some((*ip.get(6)?, 40)),
        }
    }

    /// The hops of a stack of nodes and latencies behind TCP's fixed header or UDP's, source first.
    fn stack(&self) -> Option<Vec<(u32, u32)>> {
        let (protocol, at) = self.transport()?;
        let bytes = self.packet.get(at + if protocol == 6 { 20 } else { 8 }..)?;
        let shim = word(bytes, 0).ok()?;
        let words = (shim >> 16 & 0xFF) as usize;
        let is_stack = shim >> 24 == 0x10 && word(bytes, 2).ok()? >> 16 == 0xA000 && self.tracked;
        if !is_stack || words < 3 {
            return None;
        }
        let hop = |at: usize| Some((word(bytes, at).ok()?, word(bytes, at + 1).ok()?));
        (0..(words - 3) / 2).rev().map(|number| hop(4 + 2 * number)).collect()
    }
}
