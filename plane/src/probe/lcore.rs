//! What an lcore does with probes: it notes headers of packets that hosts send, marks probes that
//! it is to send, and takes out those that arrive.
//!
//! None of it is in the way of other packets. Headers are noted when the control thread asks; a
//! probe is looked for only among packets of its protocol, which are read header by header anyway.

use std::cell::Cell;
use std::net::IpAddr;

use super::{Headers, Probe, ProbeKey, addresses, is_like_one};
use crate::carrier::Mark;
use crate::packet::Packet;
use crate::sync::{Receiver, Sender, bounded};

/// What an lcore may have found before the control thread looks; the rest is forgotten.
const WAITING: usize = 1024;

/// Packets that begin like a probe of which an lcore computes the tag, in so long: anybody can send
/// such packets, and each costs two ChaCha20 blocks. Real ones are some hundred a second.
const MOST_READ: u32 = 64;
const READ_NS: u64 = 1_000_000;

/// What an lcore has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromLcore {
    /// Headers of a packet that a host has sent.
    Sample(Sample),
    /// A probe that has arrived.
    Seen(Seen),
}

/// Headers of a packet that a host has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The headers.
    pub headers: Headers,
    /// The position, among the lcore's ports, of the one that it was received by.
    pub port: usize,
}

/// A probe that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it says of itself.
    pub probe: Probe,
    /// The mark that it arrived with, if it has one that is valid.
    pub arrived: Option<Mark>,
    /// When it arrived, in nanoseconds since the Unix epoch.
    pub received_ns: u64,
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
}

/// The control thread's end of what an lcore has found.
#[derive(Debug)]
pub struct ProbeLine(Receiver<FromLcore>);

impl ProbeLine {
    /// What was found since this was asked last.
    pub fn found(&self) -> impl Iterator<Item = FromLcore> {
        self.0.try_iter().take(WAITING)
    }
}

/// How an lcore treats probes; by default, as packets like any other.
#[derive(Debug, Default)]
pub struct LcoreProbes {
    key: Option<ProbeKey>,
    /// The one before it: other edges may still send by it.
    before: Option<ProbeKey>,
    outbox: Option<Sender<FromLcore>>,
    /// Whether headers are to be noted.
    wanted: bool,
    /// The mark of the probe that is being sent.
    sending: Option<Mark>,
    /// Since when payloads are counted whose tags were computed, and how many they are.
    read: Cell<(u64, u32)>,
    /// The time of the burst under way.
    pub(crate) now_ns: u64,
}

impl LcoreProbes {
    /// An lcore's, and the control thread's end of what it finds.
    pub fn new() -> (Self, ProbeLine) {
        let (outbox, found) = bounded(WAITING);
        (Self { outbox: Some(outbox), ..Self::default() }, ProbeLine(found))
    }

    /// Sets the key of the session, and keeps the one before. Without any, whatever looks like a
    /// probe is taken out.
    pub fn set_key(&mut self, key: Option<ProbeKey>) {
        self.before = self.key.take().filter(|_| key.is_some());
        self.key = key;
    }

    /// Asks for the headers of a packet that a host sends from now on.
    pub fn want_sample(&mut self) {
        self.wanted = true;
    }

    /// Whether headers are asked for.
    #[inline]
    pub fn wants_sample(&self) -> bool {
        self.wanted
    }

    /// Notes the headers of one of the packets that were received from hosts by port `port`.
    #[cold]
    pub fn sample<P: Packet>(&mut self, packets: &[P], port: usize) {
        let Some(outbox) = &self.outbox else { return };
        // Any of them, so that no flow is always missed.
        let any = (self.now_ns >> 10) as usize % packets.len().max(1);
        let packet = packets.get(any).and_then(|packet| Headers::of(packet.bytes()));
        if let Some(headers) = packet {
            let sample = Sample { headers, port };
            self.wanted = outbox.try_send(FromLcore::Sample(sample)).is_err();
        }
    }

    /// The packets that follow are probes of this switch's own, with this mark, until it is
    /// [over](Self::sent).
    pub fn send(&mut self, mark: Mark) {
        self.sending = Some(mark);
    }

    /// The packets that follow are others' again.
    pub fn sent(&mut self) {
        self.sending = None;
    }

    /// The mark of the probe that is being sent.
    #[inline]
    pub fn sending(&self) -> Option<Mark> {
        self.sending
    }

    /// The probe that a payload is; `Some(None)` where it begins like one and no key is set, or too
    /// many came to look at it; and `None` where it is none.
    pub(crate) fn read(&self, payload: &[u8]) -> Option<Option<Probe>> {
        if !is_like_one(payload) {
            return None;
        }
        let (mut since_ns, mut read) = self.read.get();
        if self.now_ns.abs_diff(since_ns) >= READ_NS {
            (since_ns, read) = (self.now_ns, 0);
        }
        let key = self.key.as_ref().filter(|_| read < MOST_READ);
        self.read.set((since_ns, read.saturating_add(1)));
        match key {
            Some(key) => {
                let before = || Probe::read(payload, self.before.as_ref()?);
                Probe::read(payload, key).or_else(before).map(Some)
            }
            None => Some(None),
        }
    }

    /// Says that a probe has arrived in a packet whose IP header is the first of `ip`.
    pub(crate) fn saw(&self, probe: Probe, arrived: Option<Mark>, ip: &[u8]) {
        let (source, destination) = addresses(ip);
        let received_ns = self.now_ns;
        let seen = Seen { probe, arrived, received_ns, source, destination };
        if let Some(outbox) = &self.outbox {
            // Where there is no room, it is as if it had been lost.
            let _ = outbox.try_send(FromLcore::Seen(seen));
        }
    }
}
