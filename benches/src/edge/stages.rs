//! What each step of an edge's work costs on its own: the same code on frames as a driver leaves
//! them behind, in the first-level cache.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{
    Attention, Hierarchy, IngressGroup, Layout, Partition, SampleRate, SwitchHalf,
};
use calumma_edge::carrier::{Carrier, Carry, IpId, Mark, Numbers, PlainTos, Signer};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::Packet;
use calumma_edge::parse::parse;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::LcoreMerger;
use calumma_sketch::{BURST, FlowKey, HashFamily, HashKey, Hashes};
use calumma_wire::Secret;

use crate::measure::{Case, Watch};
use crate::workload;

/// Packets of a reading.
const PACKETS: usize = 2_000_000;

/// Length of an epoch; no reading is as long, and none begins near its end.
const EPOCH_NS: u64 = 3_600_000_000_000;

/// A frame that fills a cache line, as the first line of an mbuf's data.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Frame(pub(super) [u8; 64]);

impl Packet for Frame {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn wire_len(&self) -> usize {
        self.0.len()
    }
}

/// The hierarchy of all packets that are marked.
const CANDIDATE: Hierarchy = Hierarchy::HlCandidate;

/// What is done to a burst that has arrived.
type Step = Box<dyn FnMut(&mut [Frame], &[FlowKey])>;

/// The steps, each as nanoseconds a packet of 64 bytes of 100,000 flows, Zipf 1.1.
pub fn stages() -> Vec<Case<'static>> {
    let keys = Arc::new(workload::zipf(100_000, PACKETS, 1.1, 5));
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let (layout, all) = everything();
    let classifier = Attention {
        t_h: 1_000_000_000,
        t_l: 1_000_000_000,
        sample_rate: SampleRate::from_threshold(1).expect("one is a threshold"),
        partition: Partition { hh: 1024, hl: 2560, ll: 512 },
    };

    let each = |name, work: Step| case(name, keys.clone(), work);
    let record = |name, attention| {
        let family = family.clone();
        let mut group = IngressGroup::new(&layout, attention, 1).expect("a valid attention");
        let mut hierarchies = [Hierarchy::default(); BURST];
        let work = move |_: &mut [Frame], keys: &[FlowKey]| {
            group.record_burst(&family, keys, &mut hierarchies[..keys.len()]);
            black_box(&hierarchies);
        };
        each(name, Box::new(work))
    };
    let mut hashes = [Hashes::default(); BURST];
    let hashing = family.clone();
    let (signer, numbers) = (Signer::new(Secret::new([7; 32]), 10), Numbers::new());
    let places: [(u16, u16); BURST] = std::array::from_fn(|at| (at as u16, 14));
    let (by_id, of_none) = (signer.clone(), Numbers::new());
    let mut worker = measuring_worker(Carrier::default());
    vec![
        each(
            "edge.stage.parse.ns",
            Box::new(|frames, _| {
                for frame in frames {
                    black_box(parse(&frame.0, 64));
                }
            }),
        ),
        each(
            "edge.stage.hash.ns",
            Box::new(move |_, keys| {
                hashing.hash_burst(keys, &mut hashes[..keys.len()]);
                black_box(&hashes);
            }),
        ),
        record("edge.stage.hash_and_classify.ns", classifier),
        record("edge.stage.hash_classify_and_encode.ns", all),
        each(
            "edge.stage.mark.ns",
            Box::new(move |frames, _| {
                let (places, stamp) = (&places[..frames.len()], Mark::plain(1, CANDIDATE));
                PlainTos::default().write_all(frames, places, stamp, &[CANDIDATE; BURST]);
            }),
        ),
        each(
            "edge.stage.mark_by_ip_id.ns",
            Box::new(move |frames, _| {
                let carrier = IpId::new(Some(&signer), &numbers);
                let (places, stamp) = (&places[..frames.len()], Mark::of_epoch(10, CANDIDATE));
                carrier.write_all(frames, places, stamp, &[CANDIDATE; BURST]);
            }),
        ),
        each(
            "edge.stage.can_mark_by_ip_id.ns",
            Box::new(move |frames, _| {
                let carrier = IpId::new(Some(&by_id), &of_none);
                black_box(carrier.can_carry_all(frames, &places[..frames.len()]));
            }),
        ),
        each(
            "edge.stage.whole_ingress.ns",
            Box::new(move |frames, _| {
                // As an lcore does with what it has received.
                frames.iter().for_each(dpdk::prefetch);
                black_box(worker.ingress(frames));
            }),
        ),
    ]
}

/// A case that works on all packets, a burst at a time. Their arrival is not part of the reading.
fn case(name: &str, keys: Arc<Vec<FlowKey>>, mut work: Step) -> Case<'static> {
    let mut frames = [Frame([0; 64]); BURST];
    Case::new(name, "ns/packet", move || {
        let watch = Watch::start();
        let (began, mut worked) = (dpdk::tsc(), 0);
        for keys in keys.chunks(BURST) {
            let frames = &mut frames[..keys.len()];
            frames.iter_mut().zip(keys).for_each(|(arriving, key)| *arriving = frame(key));
            let received = dpdk::tsc();
            work(frames, keys);
            worked += dpdk::tsc() - received;
        }
        watch.nanos() * worked as f64 / (dpdk::tsc() - began) as f64 / PACKETS as f64
    })
}

/// The default layout, and an attention by which every packet goes into an encoder.
fn everything() -> (Layout, Attention) {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    (layout, attention)
}

/// A worker in the middle of an epoch in which it measures everything, with marks carried so.
pub(super) fn measuring_worker(carrier: Carrier) -> Worker {
    let (layout, attention) = everything();
    let (keys, clock) = (layout.keys, EpochClock::new(EPOCH_NS, Guards::default()));
    let clock = clock.expect("a valid clock");
    let hash_key = HashKey::from_bytes([7; 32]);
    let plan = SessionPlan { layout, hash_key, clock, first_epoch: 10, attention };
    let system = SwitchHalf::new(plan);
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    let system = Box::new(system.expect("a valid attention"));
    merger.begin(clock, 10, Secret::new([7; 32]), keys, vec![system]);
    let policy = Policy { carrier, ..Policy::default() };
    let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    worker.advance_to(clock.start_of(9) + EPOCH_NS / 2);
    worker.advance_to(clock.start_of(10) + EPOCH_NS / 2);
    worker
}

/// An Ethernet frame with a UDP packet of the flow.
pub(super) fn frame(key: &FlowKey) -> Frame {
    let mut frame = [0; 64];
    let octets = |address: Ipv4Addr| address.octets();
    frame[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&50_u16.to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&octets(key.src()));
    frame[30..34].copy_from_slice(&octets(key.dst()));
    frame[34..36].copy_from_slice(&key.sport().to_be_bytes());
    frame[36..38].copy_from_slice(&key.dport().to_be_bytes());
    frame[38..40].copy_from_slice(&30_u16.to_be_bytes());
    Frame(frame)
}

#[cfg(test)]
mod tests {
    use calumma_edge::parse::Parsed;

    use super::*;

    #[test]
    fn the_worker_measures_what_the_last_step_is_named_for() {
        let mut worker = measuring_worker(Carrier::default());
        let mut frames: Vec<Frame> = workload::keys(20, 1).iter().map(frame).collect();
        assert!(frames.iter().all(|frame| matches!(parse(&frame.0, 64), Parsed::Flow { .. })));
        worker.ingress(&mut frames);
        assert_eq!(worker.counters.ingress_recorded, 20);
    }
}
