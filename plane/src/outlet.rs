//! Single packets that lcores hand on to a thread that reports them: the first bytes of each, as it
//! arrived, and what is said of it.
//!
//! Each lcore has a ring that is made once and never waited for: a packet that finds it full is
//! counted. The thread asks for what there is from time to time, so that no lcore wakes anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use calumma_sketch::{BURST, Key};

use crate::flows::Flows;
use crate::int::report::Summary;
use crate::packet::Packet;
use crate::parse::detail::{digest, ip_fields};
use crate::sync::{Receiver, Sender, bounded};

/// Most bytes of a packet that are handed on.
pub const MOST_BYTES: usize = 256;

/// Packets that a ring holds.
const RING: usize = 1024;

/// A packet that is to be reported.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The switch's number.
    pub node: u32,
    /// What is said of it.
    pub summary: Summary,
    len: u16,
    bytes: [u8; MOST_BYTES],
}

impl Sample {
    /// A packet with these bytes, from its IP header on; at most [`MOST_BYTES`] are kept.
    pub fn new(node: u32, summary: Summary, packet: &[u8]) -> Self {
        let mut bytes = [0; MOST_BYTES];
        let len = packet.len().min(MOST_BYTES);
        bytes[..len].copy_from_slice(&packet[..len]);
        Self { node, summary, len: len as u16, bytes }
    }

    /// Its first bytes, from the IP header on.
    pub fn packet(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What has become of packets that were to be reported.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reports that were sent.
    pub sent: AtomicU64,
    /// Reports that were not sent, since there are to be no more in a second.
    pub limited: AtomicU64,
    /// Reports that were not sent, since they found a ring full or the host's network did not take
    /// them.
    pub dropped: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    lcores: Vec<Sender<Sample>>,
    next: AtomicUsize,
    most_bytes: usize,
    tracked: u32,
    counts: Counts,
}

/// The outlets of a switch's lcores; none where it reports nothing.
#[derive(Clone, Debug, Default)]
pub struct Outlets(Option<Arc<Shared>>);

impl Outlets {
    /// The outlets of so many lcores, and what the thread has of each. `most_bytes` of a packet are
    /// handed on; `tracked` of 2^32 packets are drawn, all where all bits are set.
    pub fn new(lcores: usize, most_bytes: usize, tracked: u32) -> (Self, Vec<Receiver<Sample>>) {
        let (lcores, rings) = (0..lcores.max(1)).map(|_| bounded(RING)).unzip();
        let (next, counts) = (AtomicUsize::new(0), Counts::default());
        let most_bytes = most_bytes.min(MOST_BYTES);
        (Self(Some(Arc::new(Shared { lcores, next, most_bytes, tracked, counts }))), rings)
    }

    /// The outlet of the next lcore, in turns.
    pub fn of_lcore(&self) -> Option<Outlet> {
        let shared = self.0.clone()?;
        let next = shared.next.fetch_add(1, Ordering::Relaxed) % shared.lcores.len();
        Some(Outlet { ring: shared.lcores[next].clone(), shared })
    }

    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// What has become of packets that were to be reported.
    pub fn counts(&self) -> Option<&Counts> {
        self.0.as_ref().map(|shared| &shared.counts)
    }

    /// What has become of packets that were to be reported, by name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let Some(Counts { sent, limited, dropped }) = self.counts() else { return Vec::new() };
        let named = [("sent", sent), ("limited", limited), ("dropped", dropped)];
        let of = |(name, count): (&str, &AtomicU64)| {
            (format!("sketchint.reports.{name}"), count.load(Ordering::Relaxed))
        };
        named.map(of).into()
    }
}

impl PartialEq for Outlets {
    /// Whether both are the same.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// What an lcore hands packets on by.
#[derive(Debug)]
pub struct Outlet {
    ring: Sender<Sample>,
    shared: Arc<Shared>,
}

impl Outlet {
    /// Whether a packet with this word is drawn.
    #[inline]
    pub fn draws(&self, word: u32) -> bool {
        word < self.shared.tracked || self.shared.tracked == u32::MAX
    }

    /// Whether any packet may be drawn.
    #[inline]
    pub fn draws_any(&self) -> bool {
        self.shared.tracked > 0
    }

    /// Hands a packet on.
    pub fn hand_on(&self, sample: Sample) {
        if self.ring.try_send(sample).is_err() {
            self.shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Room for the first bytes of a burst's packets.
    pub fn fronts(&self) -> Fronts {
        Fronts {
            most: self.shared.most_bytes,
            lens: [0; BURST],
            lowered: 0,
            bytes: Box::new([[0; MOST_BYTES]; BURST]),
        }
    }
}

/// The first bytes of a burst's packets from their IP headers on, by position, as they were before
/// the switch took marks and stacks out. Made once and filled anew with each burst.
#[derive(Debug)]
pub struct Fronts {
    most: usize,
    lens: [u16; BURST],
    /// A bit for each packet whose TTL is one less than received.
    lowered: u32,
    bytes: Box<[[u8; MOST_BYTES]; BURST]>,
}

impl Fronts {
    /// Keeps those of some packets of a burst. Packets at the positions in `lowered` have a TTL
    /// that is one less than received.
    pub(crate) fn keep<K: Key, P: Packet>(
        &mut self,
        packets: &[P],
        flows: &Flows<K>,
        lowered: u32,
    ) {
        for &(at, offset) in flows.places() {
            let (at, offset) = (usize::from(at), usize::from(offset));
            let packet = packets.get(at).map_or(&[][..], Packet::bytes);
            // Bytes behind the IP packet are Ethernet's.
            let len = ip_fields(packet, offset).len as usize;
            let ip = packet.get(offset..).unwrap_or_default();
            let len = len.min(ip.len()).min(self.most);
            let Some((bytes, kept)) = self.bytes.get_mut(at).zip(self.lens.get_mut(at)) else {
                continue;
            };
            bytes[..len].copy_from_slice(&ip[..len]);
            *kept = len as u16;
            self.lowered = self.lowered & !(1 << at) | lowered & 1 << at;
        }
    }

    /// Those of the packet at a position.
    fn of(&self, at: usize) -> &[u8] {
        let len = self.lens.get(at).map_or(0, |&len| usize::from(len));
        self.bytes.get(at).map_or(&[], |bytes| &bytes[..len])
    }

    /// A number that packets of a flow that differ have in common only by chance.
    pub fn digest(&self, at: usize) -> u64 {
        digest(self.of(at), 0)
    }

    /// The packet at a position, as it arrived, to be reported.
    pub fn sample(&self, at: usize, node: u32, summary: Summary) -> Sample {
        let mut sample = Sample::new(node, summary, self.of(at));
        if self.lowered >> (at % BURST) & 1 == 1 {
            raise_ttl(&mut sample.bytes[..usize::from(sample.len)]);
        }
        sample
    }
}

/// Gives an IP packet the TTL or hop limit that it had before a router lowered it by one, and the
/// checksum (RFC 1624).
fn raise_ttl(ip: &mut [u8]) {
    match ip.first().map(|first| first >> 4) {
        Some(4) if ip.len() >= 20 => {
            ip[8] = ip[8].saturating_add(1);
            let sum = u32::from(!u16::from_be_bytes([ip[10], ip[11]])) + 0x0100;
            let sum = (sum & 0xFFFF) + (sum >> 16);
            let [high, low] = (!(sum as u16)).to_be_bytes();
            (ip[10], ip[11]) = (high, low);
        }
        Some(6) if ip.len() >= 40 => ip[7] = ip[7].saturating_add(1),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use calumma_sketch::FlowKey;
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::checksum;
    use crate::packet::Frame;

    /// A packet of IPv4 with these bytes in the header, and a right checksum.
    fn ipv4(fill: u8, ttl: u8) -> Vec<u8> {
        let mut ip = vec![fill; 28];
        (ip[0], ip[2], ip[3], ip[8], ip[10], ip[11]) = (0x45, 0, 28, ttl, 0, 0);
        let sum = checksum(&ip[..20]).to_be_bytes();
        (ip[10], ip[11]) = (sum[0], sum[1]);
        ip
    }

    proptest! {
        #[test]
        fn packets_are_handed_on_as_they_arrived(fill: u8, ttl in 1_u8..255, most in 20_usize..40) {
            let (outlets, rings) = Outlets::new(1, most, 0);
            let outlet = outlets.of_lcore().unwrap();
            let mut fronts = outlet.fronts();
            let arrived = ipv4(fill, ttl + 1);
            // As a router has them, behind Ethernet and with what fills its frame.
            let frame = |ip: &[u8]| Frame::new([&[0; 14][..], ip, &[0xEE; 9]].concat());
            let packets = [frame(&ipv4(fill, ttl)), frame(&arrived)];
            let mut flows = Flows::<FlowKey>::new();
            (0..2).for_each(|at| flows.push(FlowKey::default(), at, 14));
            fronts.keep(&packets, &flows, 0b01);
            for at in 0..2 {
                outlet.hand_on(fronts.sample(at, 7, Summary::new(1)));
                let got = rings[0].try_recv().unwrap();
                prop_assert_eq!((got.packet(), got.node), (&arrived[..most.min(28)], 7));
            }
        }
    }

    #[test]
    fn a_full_ring_counts_and_never_waits() {
        let (outlets, rings) = Outlets::new(2, 128, u32::MAX);
        let of_lcores = [(); 2].map(|()| outlets.of_lcore().unwrap());
        for _ in 0..RING + 3 {
            of_lcores[0].hand_on(Sample::new(1, Summary::new(1), &[0x45; 300]));
        }
        of_lcores[1].hand_on(Sample::new(1, Summary::new(1), &[]));
        assert_eq!([rings[0].len(), rings[1].len()], [RING, 1]);
        let counted: Vec<u64> = outlets.named().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counted, [0, 0, 3]);
        assert!(of_lcores[0].draws(u32::MAX) && of_lcores[0].draws_any());
        assert_eq!(rings[0].try_recv().unwrap().packet().len(), MOST_BYTES);
        assert!(Outlets::default().of_lcore().is_none() && Outlets::default().named().is_empty());
    }
}
