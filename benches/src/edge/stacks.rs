//! What SketchINT costs an lcore on its own: at the source, at a switch between edges and at the
//! sink, from what a port has received to what a port has taken. The same code as in a switch, on
//! packets in plain memory with room before them, in the first-level cache.

use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_edge::measure::Measurement;
use calumma_edge::packet::Packet;
use calumma_edge::worker::{Departure, Path, Policy, Sent, Worker, first};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::LcoreMerger;
use calumma_plane::outlet::Outlets;
use calumma_plane::system::{RouteWatch, SessionContext, System};
use calumma_sketch::{BURST, FlowKey, KeyKind};
use calumma_sketchint::SketchInt;
use calumma_sketchint::frames::{OFFER, Plan, Setup, Step};
use calumma_wire::{Role, Secret, SystemSetup};

use super::sketching::{DOMAIN, HOPS_TO_SINK, HOPS_TO_TRANSIT};
use super::stages;
use crate::measure::Case;
use crate::workload;

/// Packets of a reading.
const PACKETS: usize = 2_000_000;

/// Length of an epoch; no reading is as long.
const EPOCH_NS: u64 = 3_600_000_000_000;

/// The epoch under way.
const EPOCH: u64 = 10;

/// How long packets are in a switch.
const STAYS_NS: u64 = 2_000;

/// Room before a packet, as mbufs have it.
const HEADROOM: usize = 128;

/// Longest packet.
const MOST: usize = 192;

/// Nanoseconds a packet of 64 bytes of 100,000 flows, Zipf 1.1, on top of which come the hops that
/// it has as it arrives. A reading is that of the middle burst, so that interruptions don't count.
pub fn stacks() -> Vec<Case<'static>> {
    let keys: Arc<[FlowKey]> = workload::zipf(100_000, PACKETS, 1.1, 5).into();
    let places = [
        ("edge.stage.sketchint.source.ns", Path::Enter, 0),
        ("edge.stage.sketchint.transit.ns", Path::Transit, HOPS_TO_TRANSIT),
        ("edge.stage.sketchint.sink.ns", Path::Leave, HOPS_TO_SINK),
    ];
    let case = |(name, path, hops)| {
        let (keys, mut switch, template) = (keys.clone(), Switch::on(path, 9), template(hops));
        Case::new(name, "ns/packet", move || {
            let burst = |keys: &[FlowKey]| switch.pass_burst(&template, keys);
            super::lcore::middle(keys.chunks_exact(BURST).map(burst).collect())
        })
    };
    places.map(case).into()
}

/// A packet with the hops of so many switches.
fn template(hops: u8) -> Roomy {
    let mut packet = [Roomy::new(&stages::frame(&FlowKey::from_words(1, 2, 3, 17)).0)];
    // A UDP checksum, which is corrected for what is put in.
    packet[0].bytes_mut()[40..42].copy_from_slice(&[0x12, 0x34]);
    for hop in 0..hops {
        let path = if hop == 0 { Path::Enter } else { Path::Transit };
        Switch::on(path, u16::from(hop) + 1).pass(&mut packet);
    }
    let [packet] = packet;
    packet
}

/// A switch at one place of the packets' way.
struct Switch {
    worker: Worker,
    path: Path,
    now_ns: u64,
    packets: [Roomy; BURST],
}

impl Switch {
    /// A switch with this number in the middle of an epoch.
    fn on(path: Path, node: u16) -> Self {
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).expect("a valid clock");
        let role = if path == Path::Transit { Role::Transit } else { Role::Edge };
        let context = SessionContext {
            role,
            node_id: Some(node),
            hash_key: Secret::new([7; 32]),
            clock,
            first_epoch: EPOCH,
            lcores: 1,
            ports: None,
            routes: RouteWatch::default(),
            outlets: Outlets::default(),
            carries_claims: true,
            carries_hops: false,
            carries_stacks: true,
        };
        let domain = NonZeroU16::new(DOMAIN).expect("a domain's number");
        let setup = Setup { domain, window_epochs: 2, ..Setup::default() };
        let setup = SystemSetup {
            system: OFFER.system,
            version: OFFER.highest,
            setup: setup.encode(),
            plan: Plan::of(Step::Sources).encode(),
        };
        let half = SketchInt.begin(&context, &setup).expect("a valid setup");
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, EPOCH, context.hash_key, KeyKind::Ipv4, vec![half]);
        let policy = Policy { strip: true, ..Policy::default() };
        let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        worker.advance_to(clock.start_of(EPOCH - 1) + EPOCH_NS / 2);
        let now_ns = clock.start_of(EPOCH) + EPOCH_NS / 2;
        worker.advance_to(now_ns);
        let packets = std::array::from_fn(|_| Roomy::new(&[]));
        Self { worker, path, now_ns, packets }
    }

    /// Packets come by; gives the cycles of the time stamp counter that this took.
    fn pass_burst(&mut self, template: &Roomy, keys: &[FlowKey]) -> u64 {
        let mut packets = std::mem::replace(&mut self.packets, [Roomy::new(&[]); BURST]);
        for (packet, key) in packets.iter_mut().zip(keys) {
            *packet = *template;
            let bytes = packet.bytes_mut();
            bytes[26..30].copy_from_slice(&key.src().octets());
            bytes[30..34].copy_from_slice(&key.dst().octets());
            bytes[34..36].copy_from_slice(&key.sport().to_be_bytes());
            bytes[36..38].copy_from_slice(&key.dport().to_be_bytes());
        }
        let received = dpdk::tsc();
        self.pass(&mut packets[..keys.len()]);
        let cycles = dpdk::tsc() - received;
        self.packets = std::hint::black_box(packets);
        cycles
    }

    fn pass(&mut self, packets: &mut [Roomy]) {
        let Self { worker, path, now_ns, .. } = self;
        let of = first(packets.len());
        match path {
            Path::Enter => drop(worker.ingress(packets)),
            Path::Transit => worker.transit(packets),
            _ => drop(worker.egress(packets)),
        }
        worker.depart(packets, of, Departure { at_ns: *now_ns + STAYS_NS, mtu: 1500 });
        worker.sent(Sent::prefix(of, packets.len()));
    }
}

/// A packet with room before it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Roomy {
    bytes: [u8; HEADROOM + MOST],
    start: usize,
    end: usize,
}

impl Roomy {
    fn new(packet: &[u8]) -> Self {
        let mut bytes = [0; HEADROOM + MOST];
        let end = HEADROOM + packet.len();
        bytes[HEADROOM..end].copy_from_slice(packet);
        Self { bytes, start: HEADROOM, end }
    }
}

impl Packet for Roomy {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    #[inline]
    fn wire_len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn headroom(&self) -> usize {
        self.start
    }

    #[inline]
    fn prepend(&mut self, len: usize) -> bool {
        let start = self.start.checked_sub(len);
        self.start = start.unwrap_or(self.start);
        start.is_some()
    }

    #[inline]
    fn adj(&mut self, len: usize) -> bool {
        let fits = self.start + len <= self.end;
        self.start += if fits { len } else { 0 };
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_does_what_its_step_is_named_for() {
        let keys = workload::keys(BURST, 1);
        let counted = |path, hops| {
            let mut switch = Switch::on(path, 9);
            switch.pass_burst(&template(hops), &keys);
            let of = switch.worker.counters.int;
            let lens = switch.packets.map(|packet| packet.wire_len());
            assert!(lens.iter().all(|len| *len == lens[0]));
            ([of.inserted, of.pushed, of.stripped], lens[0])
        };
        let all = BURST as u64;
        // A source pushes its own hop. Shim and headers are 16 bytes, a hop is 8.
        assert_eq!(counted(Path::Enter, 0), ([all, all, 0], 64 + 24));
        assert_eq!(counted(Path::Transit, HOPS_TO_TRANSIT), ([0, all, 0], 64 + 16 + 24));
        assert_eq!(counted(Path::Leave, HOPS_TO_SINK), ([0, 0, all], 64));
    }
}
