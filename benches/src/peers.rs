//! The cases of the peers: the sketches of others, and the one that DPDK brings along.

use std::hint::black_box;

use anyhow::{Context, Result};
use calumma_baselines::{
    CocoSketch, ConservativeUpdate, CountHeap, CountMin, Elastic, FcmTopK, FlowRadar, HashPipe,
    Insert, LossRadar, Mrac, UnivMon,
};
use calumma_sketch::FlowKey;
use dpdk::{Eal, MemberSketch, MemberSketchConfig};

use crate::cases::{mpps, ns_each};
use crate::measure::Case;
use crate::workload::{self, losses};

/// Memory that each peer is given, in bytes.
const BYTES: usize = 500_000;

/// Huge pages of 2 MiB that the tables of DPDK's libraries take at most.
const HUGE_PAGES: u32 = 320;

/// Flows that the peers who can, decode; as many as in the case of the FermatSketch beside them.
const FLOWS: usize = 8_600;

/// A seed under which the flow filter of [`FlowRadar`] takes no flow for known in these cases.
const SEED: u64 = 3;

/// DPDK, one of whose libraries is among the peers and another beside tables of flows. What these
/// keep is in huge pages where enough are free, as the sketches' memory is.
///
/// # Errors
/// When it does not start.
pub fn eal() -> Result<Eal> {
    let cpu = workload::first_cpu().context("finding a CPU for DPDK")?;
    let pages: &[&str] = if free_huge_pages() >= HUGE_PAGES {
        &["--in-memory"]
    } else {
        eprintln!("fewer than {HUGE_PAGES} huge pages are free: DPDK's tables lie in small ones");
        &["--no-huge", "--no-shconf"]
    };
    let memory = (2 * HUGE_PAGES).to_string();
    let common = ["-m", &memory, "--no-pci", "--no-telemetry", "--log-level=4", "-l", &cpu];
    let arguments = [pages, &common, &["--force-max-simd-bitwidth=512"]].concat();
    Eal::init(&arguments).context("starting DPDK, whose libraries are among the peers")
}

/// Huge pages of 2 MiB that nobody has taken.
fn free_huge_pages() -> u32 {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let free = std::fs::read_to_string(path).ok();
    free.and_then(|free| free.trim().parse().ok()).unwrap_or_default()
}

/// Inserting the packets into every peer, and the memory each has filled.
///
/// # Errors
/// When DPDK has no memory for its sketch.
pub fn inserts<'a>(eal: &Eal, packets: &'a [FlowKey]) -> Result<Vec<Case<'a>>> {
    let mut cases = Vec::new();
    cases.extend(insert("cm", CountMin::new(BYTES, SEED), packets));
    cases.extend(insert("cu", ConservativeUpdate::new(BYTES, SEED), packets));
    cases.extend(insert("count_heap", CountHeap::new(BYTES, SEED), packets));
    cases.extend(insert("univmon", UnivMon::new(BYTES, SEED), packets));
    cases.extend(insert("elastic", Elastic::new(BYTES, SEED), packets));
    cases.extend(insert("fcm", FcmTopK::new(BYTES, SEED), packets));
    cases.extend(insert("hashpipe", HashPipe::new(BYTES, SEED), packets));
    cases.extend(insert("coco", CocoSketch::new(BYTES, SEED), packets));
    cases.extend(insert("mrac", Mrac::new(BYTES, SEED), packets));
    cases.extend(insert("flow_radar", FlowRadar::new(BYTES, SEED), packets));
    cases.extend(insert_into_loss_radar(packets));
    cases.extend(insert_into_rte_member(eal, packets)?);
    Ok(cases)
}

/// Inserting the packets into one peer, and the memory that it has filled.
pub(crate) fn insert<'a, S: Insert + Clone + 'a>(
    name: &str,
    empty: S,
    packets: &'a [FlowKey],
) -> [Case<'a>; 2] {
    let bytes = empty.bytes();
    let speed = Case::new(&format!("peer.{name}.insert.mpps"), "Mpps", move || {
        let mut sketch = empty.clone();
        let speed = mpps(packets.len(), || packets.iter().for_each(|key| sketch.insert(key)));
        black_box(sketch);
        speed
    });
    [speed, memory(name, bytes)]
}

fn memory(name: &str, bytes: usize) -> Case<'static> {
    Case::new(&format!("peer.{name}.memory.kb"), "KB", move || bytes as f64 / 1e3)
}

fn insert_into_loss_radar(packets: &[FlowKey]) -> [Case<'_>; 2] {
    let empty = LossRadar::new(BYTES, SEED);
    let bytes = empty.bytes();
    let speed = Case::new("peer.loss_radar.insert.mpps", "Mpps", move || {
        let mut sketch = empty.clone();
        let speed = mpps(packets.len(), || {
            for (number, key) in packets.iter().enumerate() {
                sketch.insert(key, number as u16);
            }
        });
        black_box(sketch);
        speed
    });
    [speed, memory("loss_radar", bytes)]
}

/// The sketch of DPDK's membership library at an error rate that fills about as much memory, every
/// packet counted.
pub fn member_config() -> MemberSketchConfig {
    MemberSketchConfig {
        key_len: FlowKey::LEN as u32,
        error_rate: 0.0005,
        sample_rate: 1.0,
        top_k: 1000,
    }
}

fn insert_into_rte_member<'a>(eal: &Eal, packets: &'a [FlowKey]) -> Result<[Case<'a>; 2]> {
    let mut sketch = MemberSketch::new(eal, "peer", member_config())?;
    let bytes = sketch.bytes();
    let speed = Case::new("peer.rte_member.insert.mpps", "Mpps", move || {
        sketch.clear();
        mpps(packets.len(), || packets.iter().for_each(|key| sketch.insert(key.as_bytes())))
    });
    Ok([speed, memory("rte_member", bytes)])
}

/// Decoding as many flows as the FermatSketch beside: FlowRadar at the same number of cells a flow,
/// LossRadar at that number of cells a packet, one packet of each flow being lost.
pub fn decodes() -> Vec<Case<'static>> {
    let keys = workload::keys(FLOWS, 11);
    let cells = FLOWS as f64 / 0.7;
    let mut radar = FlowRadar::new((cells * 21.0 / 0.9) as usize, SEED);
    let mut losses_only = LossRadar::new((cells * 19.0) as usize, SEED);
    for (flow, key) in keys.iter().enumerate() {
        radar.insert_many(key, losses(flow) as u32);
        losses_only.insert(key, 0);
    }
    vec![
        Case::new("peer.flow_radar.decode.ns_per_flow", "ns/flow", move || {
            let copy = radar.clone();
            ns_each(FLOWS, || assert!(black_box(copy.decode()).is_some(), "all flows decode"))
        }),
        Case::new("peer.loss_radar.decode.ns_per_packet", "ns/packet", move || {
            let copy = losses_only.clone();
            ns_each(FLOWS, || assert!(black_box(copy.decode()).is_some(), "all packets decode"))
        }),
    ]
}
