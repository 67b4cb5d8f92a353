//! The INT stacks of a capture's packets, for who looks what switches have put into them.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use calumma_plane::carrier::Carrier;
use calumma_plane::int::header::{Original, Seen, ip_offset, look, tos};
use calumma_plane::int::strip::read;
use calumma_plane::int::{Domains, Hop, MARKER, Stack, UNKNOWN};
use calumma_plane::packet::Frame;
use serde::{Deserialize, Serialize};

use crate::capture::Capture;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketStack {
    /// Its number in the capture, from 1 on.
    pub packet: u64,
    /// When it was captured, in nanoseconds since the Unix epoch.
    pub at_unix_ns: u64,
    /// Its stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<ReadStack>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<String>,
}

/// A stack as it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadStack {
    /// The number of the deployment that put it in.
    pub domain: u16,
    /// The DSCP that the packet came with from its host, where nothing but that marks the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// The UDP port that its host has sent it to, where a UDP port marks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_port: Option<u16>,
    /// The IP protocol that its host has sent it by, where it has its stack behind a UDP header of
    /// its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_protocol: Option<u8>,
    /// What each hop says: the instruction bitmap.
    pub instructions: u16,
    /// Hops that may still be pushed.
    pub remaining: u8,
    /// Bytes of shim, header and hops.
    pub bytes: usize,
    /// Whether a switch could not push its hop.
    pub partial: bool,
    /// Whether the sink is to drop the packet.
    pub discard: bool,
    /// Its hops, from the source on.
    pub hops: Vec<ReadHop>,
}

/// What a hop says; null where it can't tell, or was not asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadHop {
    /// The switch's number.
    pub node: u32,
    /// How long it had the packet.
    pub latency_ns: Option<u32>,
    /// How many waited in its queue.
    pub queued: Option<u32>,
    /// When the packet arrived, by its clock.
    pub ingress_unix_ns: Option<u64>,
    /// When it departed.
    pub egress_unix_ns: Option<u64>,
}

impl From<Hop> for ReadHop {
    fn from(hop: Hop) -> Self {
        let Hop { node, latency_ns, queued, ingress_ns, egress_ns, .. } = hop;
        let number = |of: u32| Some(of).filter(|&of| of != UNKNOWN);
        let time = |of: u64| Some(of).filter(|&of| of != u64::MAX);
        Self {
            node,
            latency_ns: number(latency_ns),
            queued: number(queued),
            ingress_unix_ns: time(ingress_ns),
            egress_unix_ns: time(egress_ns),
        }
    }
}

/// The stack of a packet that was `wire_len` bytes long and begins with these.
///
/// # Errors
/// Why it has none.
pub fn stack_of(bytes: &[u8], wire_len: usize) -> Result<ReadStack, &'static str> {
    let packet = Frame::new(bytes.to_vec()).cut_from(wire_len);
    let offset = ip_offset(bytes, Carrier::default()).ok_or("it is no IP packet")?;
    if tos(&packet, offset) & MARKER == 0 {
        return Err("bit 4 of its ToS byte or traffic class is not set");
    }
    let found = match look(&packet, offset, Domains::ANY) {
        Seen::Stack(found) => found,
        Seen::Foreign => return Err("what stands behind its L4 header is no shim and header"),
        Seen::Malformed => {
            return Err(
                "its stack can't be taken out: lengths disagree, or the headers before it are damaged",
            );
        }
        Seen::Fragment => {
            return Err("it is a fragment: a stack can't be distinguished from payload");
        }
    };
    let mut stack = Stack::EMPTY;
    read(&packet, &found, &mut stack);
    let header = found.header;
    let (mut dscp, mut original_port, mut original_protocol) = (None, None, None);
    match header.original {
        Original::Dscp(of) => dscp = Some(of),
        Original::Port(of) => original_port = Some(of),
        Original::Protocol(of) => original_protocol = Some(of),
    }
    Ok(ReadStack {
        domain: header.domain,
        dscp,
        original_port,
        original_protocol,
        instructions: header.instructions.bits(),
        remaining: header.remaining,
        bytes: header.size(),
        partial: stack.is_partial || header.is_partial(),
        discard: header.is_discarded(),
        hops: stack.hops().map(ReadHop::from).collect(),
    })
}

/// Writes a JSON object for each packet of a capture, a line each.
///
/// # Errors
/// Where the capture can't be read any further, or nothing can be written.
pub fn write_all(trace: &Path, out: &mut impl Write) -> Result<()> {
    let named = || trace.display().to_string();
    let mut capture = Capture::open(trace).with_context(named)?;
    let mut packet = 0;
    while let Some(record) = capture.next_record().with_context(named)? {
        packet += 1;
        let read = stack_of(record.bytes, record.original_len as usize);
        let none = read.as_ref().err().map(|why| (*why).to_owned());
        let at_unix_ns = record.timestamp_ns;
        let line = PacketStack { packet, at_unix_ns, stack: read.ok(), none };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
