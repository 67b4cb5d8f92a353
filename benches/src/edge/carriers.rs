//! What it costs to carry marks in the IPv4 identification in place of the ToS byte: the same
//! bursts enter the network and leave it by either, in turns.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use calumma_edge::carrier::{Carrier, PlainTos};
use calumma_edge::packet::Packet;
use calumma_edge::worker::Worker;
use calumma_sketch::{BURST, FlowKey};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{lcore, stages};
use crate::measure::Case;
use crate::workload;

/// Packets of a reading.
const PACKETS: usize = 1_000_000;

const TCP: u8 = 6;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// What packets are like.
#[derive(Clone, Copy)]
enum Traffic {
    /// UDP of 64 bytes that may be fragmented.
    Short,
    /// TCP and UDP of the simple Internet mix's lengths, in the shares that `docs/edge.md` has of
    /// public captures: 72 of 100 packets may not be fragmented, and 3 are fragments.
    Mixed,
}

/// The first line of a packet in memory, and how long it was on the wire.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    bytes: [u8; 64],
    wire_len: usize,
}

impl Packet for Line {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn wire_len(&self) -> usize {
        self.wire_len
    }
}

/// Nanoseconds a packet of 100,000 flows, Zipf 1.1, from its entering to its having left, with
/// everything measured: by either carrier, and what the identification costs more. A reading is
/// that of the middle burst, so that interruptions don't count.
pub fn carriers() -> Vec<Case<'static>> {
    let mut cases = Vec::new();
    for (name, traffic) in [("short", Traffic::Short), ("mix", Traffic::Mixed)] {
        let both = Rc::new(RefCell::new(Both::new(packets(traffic, PACKETS))));
        let mut case = |which: &str, read: fn(f64, f64) -> f64| {
            let both = both.clone();
            let name = format!("edge.stage.carrier.{which}.{name}.ns");
            cases.push(Case::new(&name, "ns/packet", move || {
                let (by_tos, by_ip_id) = both.borrow_mut().measure();
                read(by_tos, by_ip_id)
            }));
        };
        case("tos", |by_tos, _| by_tos);
        case("ip_id", |_, by_ip_id| by_ip_id);
        case("ip_id_over_tos", |by_tos, by_ip_id| by_ip_id - by_tos);
    }
    cases
}

/// So many packets as they come from hosts.
fn packets(traffic: Traffic, number: usize) -> Vec<Line> {
    let mut rng = StdRng::seed_from_u64(3);
    let keys = workload::zipf(100_000, number, 1.1, 5);
    keys.iter().map(|key| packet(key, traffic, &mut rng)).collect()
}

fn packet(key: &FlowKey, traffic: Traffic, rng: &mut StdRng) -> Line {
    let mut bytes = stages::frame(key).0;
    let mut wire_len = bytes.len();
    if let Traffic::Mixed = traffic {
        wire_len = [64, 64, 64, 64, 64, 64, 64, 594, 594, 594, 594, 1518][rng.random_range(0..12)];
        let word = match rng.random_range(0..100) {
            0..72 => DONT_FRAGMENT,
            72..74 => MORE_FRAGMENTS,
            // What was cut off of another.
            74 => 185,
            _ => 0,
        };
        bytes[20..22].copy_from_slice(&word.to_be_bytes());
        bytes[23] = if rng.random() { TCP } else { bytes[23] };
    }
    bytes[16..18].copy_from_slice(&(wire_len as u16 - 14).to_be_bytes());
    Line { bytes, wire_len }
}

/// An edge by each carrier, and what arrives.
struct Both {
    by_tos: Worker,
    by_ip_id: Worker,
    packets: Vec<Line>,
}

impl Both {
    fn new(packets: Vec<Line>) -> Self {
        let by_tos = stages::measuring_worker(Carrier::Tos(PlainTos::default()));
        Self { by_tos, by_ip_id: stages::measuring_worker(Carrier::IpId), packets }
    }

    /// Nanoseconds a packet by either.
    fn measure(&mut self) -> (f64, f64) {
        let Self { by_tos, by_ip_id, packets } = self;
        let mut cycles = (Vec::new(), Vec::new());
        for (number, burst) in packets.chunks_exact(BURST).enumerate() {
            // The first of two waits for the packets' memory.
            let first_by_tos = number % 2 == 0;
            if first_by_tos {
                cycles.0.push(pass(by_tos, burst));
            }
            cycles.1.push(pass(by_ip_id, burst));
            if !first_by_tos {
                cycles.0.push(pass(by_tos, burst));
            }
        }
        (lcore::middle(cycles.0), lcore::middle(cycles.1))
    }
}

/// A burst enters and leaves the network; gives the cycles of the time stamp counter it took.
fn pass(worker: &mut Worker, burst: &[Line]) -> u64 {
    let mut entering = received(burst);
    let began = dpdk::tsc();
    // As an lcore does with what it has received.
    entering.iter().for_each(dpdk::prefetch);
    black_box(worker.ingress(&mut entering));
    let entered = dpdk::tsc() - began;
    let mut leaving = received(&entering);
    let began = dpdk::tsc();
    leaving.iter().for_each(dpdk::prefetch);
    black_box(worker.egress(&mut leaving));
    let left = dpdk::tsc() - began;
    black_box(leaving);
    entered + left
}

/// Packets as a driver leaves them behind: written as a whole.
fn received(packets: &[Line]) -> [Line; BURST] {
    let mut burst = [Line { bytes: [0; 64], wire_len: 0 }; BURST];
    burst.copy_from_slice(packets);
    black_box(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_with_the_marks_that_they_entered_with() {
        let number = 1000 * BURST;
        for (traffic, least, most) in [(Traffic::Short, 1.0, 1.0), (Traffic::Mixed, 0.94, 0.96)] {
            let mut both = Both::new(packets(traffic, number));
            both.measure();
            for (worker, least, most) in [(&both.by_tos, 1.0, 1.0), (&both.by_ip_id, least, most)] {
                let entered = worker.counters.ingress_recorded;
                let share = entered as f64 / number as f64;
                assert!((least..=most).contains(&share), "{share}");
                assert_eq!(worker.counters.egress_recorded, entered);
            }
        }
    }
}
