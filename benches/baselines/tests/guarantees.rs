//! Every peer keeps what its own paper promises. A benchmark beside a broken peer would be worth
//! nothing.

mod common;

use std::collections::{HashMap, HashSet};

use calumma_baselines::*;
use calumma_sketch::FlowKey;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use common::{Truth, filled, wmre};

/// Packets of `flows` flows with sizes like those of traffic: a few large ones, many small ones.
fn traffic(flows: u32, packets: usize, seed: u64) -> (Vec<FlowKey>, Truth) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut truth = Truth::new();
    let draw = || {
        let rank = f64::from(flows).powf(rng.random::<f64>()) as u32;
        let key = FlowKey::from_words(0x0A00_0000 + rank, 0x0A01_0001, rank << 16 | 443, 6);
        *truth.entry(key).or_insert(0) += 1;
        key
    };
    let packets = std::iter::repeat_with(draw).take(packets).collect();
    (packets, truth)
}

/// The share of flows for which `holds` is true.
fn share(truth: &Truth, holds: impl Fn(&FlowKey, u32) -> bool) -> f64 {
    truth.iter().filter(|&(key, &size)| holds(key, size)).count() as f64 / truth.len() as f64
}

fn entropy(truth: &Truth) -> f64 {
    let packets: f64 = truth.values().map(|&size| f64::from(size)).sum();
    -truth
        .values()
        .map(|&size| f64::from(size) / packets)
        .map(|share| share * share.log2())
        .sum::<f64>()
}

/// Those of the largest `number` flows that are among the tracked ones.
fn found(truth: &Truth, tracked: &[(FlowKey, u32)], number: usize) -> f64 {
    let mut flows: Vec<_> = truth.iter().collect();
    flows.sort_unstable_by_key(|flow| std::cmp::Reverse(flow.1));
    let tracked: HashSet<_> = tracked.iter().map(|flow| flow.0).collect();
    flows[..number].iter().filter(|flow| tracked.contains(flow.0)).count() as f64 / number as f64
}

#[test]
fn count_min_is_never_below_the_truth_and_seldom_far_above() {
    let (packets, truth) = traffic(60_000, 500_000, 1);
    let sketch = filled(CountMin::new(60_000, 1), &packets);
    assert_eq!(share(&truth, |key, size| sketch.query(key) >= size), 1.0);
    // Above e N / w with a probability of at most e^-d.
    let bound = std::f64::consts::E * packets.len() as f64 / (60_000 / 4 / 3) as f64;
    let within = share(&truth, |key, size| f64::from(sketch.query(key) - size) <= bound);
    assert!(within >= 1.0 - (-3.0_f64).exp(), "{within}");
}

#[test]
fn conservative_update_lies_between_the_truth_and_count_min() {
    let (packets, truth) = traffic(60_000, 500_000, 2);
    let cm = filled(CountMin::new(60_000, 1), &packets);
    let cu = filled(ConservativeUpdate::new(60_000, 1), &packets);
    let between = |key: &FlowKey, size| (size..=cm.query(key)).contains(&cu.query(key));
    assert_eq!(share(&truth, between), 1.0);
}

#[test]
fn the_count_sketch_errs_to_both_sides_within_its_bound_and_its_heap_has_the_large_flows() {
    let (packets, truth) = traffic(60_000, 500_000, 3);
    let sketch = filled(CountHeap::new(4096 * 17 + 60_000, 1), &packets);
    // A row is off by more than sqrt(8 F2 / w) with a probability of 1/8, two of three seldom.
    let f2: f64 = truth.values().map(|&size| f64::from(size).powi(2)).sum();
    let bound = (8.0 * f2 / (60_000 / 4 / 3) as f64).sqrt();
    let within = share(&truth, |key, size| f64::from(sketch.query(key).abs_diff(size)) <= bound);
    assert!(within >= 1.0 - 3.0 / 64.0, "{within}");
    let below = share(&truth, |key, size| sketch.query(key) < size);
    assert!((0.2..0.8).contains(&below), "{below}");
    assert!(found(&truth, &sketch.tracked(), 100) > 0.98);
}

#[test]
fn univmon_tells_cardinality_entropy_and_large_flows_from_one_sketch() {
    let (packets, truth) = traffic(20_000, 500_000, 4);
    let sketch = filled(UnivMon::new(1_000_000, 1), &packets);
    assert!((sketch.cardinality() / truth.len() as f64 - 1.0).abs() < 0.2);
    assert!((sketch.entropy() / entropy(&truth) - 1.0).abs() < 0.1);
    assert!(found(&truth, &sketch.tracked(), 100) > 0.98);
}

#[test]
fn elastic_counts_every_packet_once_and_keeps_large_flows_apart() {
    let (packets, truth) = traffic(20_000, 300_000, 5);
    let sketch = filled(Elastic::new(400_000, 1), &packets);
    assert_eq!(share(&truth, |key, size| sketch.query(key) >= size), 1.0);
    assert!(found(&truth, &sketch.tracked(), 200) > 0.99);
    assert!((sketch.cardinality() / truth.len() as f64 - 1.0).abs() < 0.02);
    assert!((sketch.entropy() / entropy(&truth) - 1.0).abs() < 0.02);
    assert!(wmre(&truth, &sketch.sizes()) < 0.2);
}

#[test]
fn fcm_is_never_below_the_truth_and_tells_the_distribution() {
    let (packets, truth) = traffic(60_000, 1_000_000, 6);
    let sketch = filled(FcmTopK::new(200_000, 1), &packets);
    assert_eq!(share(&truth, |key, size| sketch.query(key) >= size), 1.0);
    assert!(found(&truth, &sketch.tracked(), 200) > 0.99);
    assert!((sketch.cardinality() / truth.len() as f64 - 1.0).abs() < 0.02);
    assert!(wmre(&truth, &sketch.sizes()) < 0.3, "{}", wmre(&truth, &sketch.sizes()));
}

#[test]
fn hash_pipe_never_counts_a_packet_twice_and_finds_the_large_flows() {
    let (packets, truth) = traffic(60_000, 500_000, 7);
    let sketch = filled(HashPipe::new(30_000, 1), &packets);
    assert_eq!(share(&truth, |key, size| sketch.query(key) <= size), 1.0);
    assert!(found(&truth, &sketch.tracked(), 100) > 0.9);
}

#[test]
fn cocosketch_is_unbiased_over_its_random_choices() {
    let (packets, truth) = traffic(3_000, 20_000, 8);
    let mut flows: Vec<_> = truth.iter().map(|(key, &size)| (size, *key)).collect();
    flows.sort_unstable();
    let (size, flow) = flows[flows.len() - 40];
    let seeds = 400;
    let size_in = |seed| {
        let tracked = filled(CocoSketch::new(500 * 17, seed), &packets).tracked();
        tracked.into_iter().find(|kept| kept.0 == flow).map_or(0, |kept| kept.1)
    };
    let sum: u32 = (0..seeds).map(size_in).sum();
    let mean = f64::from(sum) / seeds as f64;
    assert!((mean / f64::from(size) - 1.0).abs() < 0.2, "{mean} of {size}");
    let one = filled(CocoSketch::new(500 * 17, 1), &packets);
    let all: u32 = one.tracked().iter().map(|flow| flow.1).sum();
    assert_eq!(all as usize, packets.len());
    assert_eq!(share(&truth, |key, size| one.query(key) >= size), 1.0);
}

#[test]
fn mrac_tells_sizes_that_share_counters_apart() {
    let (packets, truth) = traffic(60_000, 500_000, 9);
    let sketch = filled(Mrac::new(truth.len() * 4, 1), &packets);
    assert!(wmre(&truth, &sketch.sizes()) < 0.15, "{}", wmre(&truth, &sketch.sizes()));
    assert!((sketch.entropy() / entropy(&truth) - 1.0).abs() < 0.01);
    assert!((sketch.cardinality() / truth.len() as f64 - 1.0).abs() < 0.02);
}

#[test]
fn flow_radar_decodes_above_its_threshold_and_not_below() {
    let (packets, truth) = traffic(10_000, 60_000, 10);
    // 21 bytes a cell are 90 % of the memory; three cells a flow decode from 1.23 cells a flow on.
    let bytes = |cells: f64| (truth.len() as f64 * cells * 21.0 / 0.9) as usize;
    let decoded = |cells| {
        let sketch = FlowRadar::new(bytes(cells), 1);
        filled(sketch, &packets).decode()
    };
    assert_eq!(decoded(1.1), None);
    let mut exact: Vec<_> = truth.iter().map(|(key, &size)| (*key, size)).collect();
    exact.sort_unstable();
    // Twice as much memory as cells need, so that the flow filter seldom takes a flow for known.
    assert_eq!(decoded(3.5), Some(exact.clone()));

    let (upstream, mut downstream) = (FlowRadar::new(bytes(3.5), 1), FlowRadar::new(bytes(3.5), 1));
    packets[7..].iter().for_each(|key| downstream.insert(key));
    let lost = FlowRadar::lost(filled(upstream, &packets), downstream).unwrap();
    assert_eq!(lost.iter().map(|flow| flow.1).sum::<u32>(), 7);
    assert!(lost.iter().all(|flow| packets[..7].contains(&flow.0)));
}

#[test]
fn loss_radar_needs_memory_for_the_packets_lost_and_no_others() {
    let (packets, _) = traffic(3_000, 40_000, 11);
    let lost = 2_000;
    let tell = |cells: f64| {
        let bytes = (lost as f64 * cells * 19.0) as usize;
        let (mut upstream, mut downstream) = (LossRadar::new(bytes, 1), LossRadar::new(bytes, 1));
        let mut numbers = HashMap::<FlowKey, u16>::new();
        for (at, key) in packets.iter().enumerate() {
            let number = numbers.entry(*key).or_default();
            *number += 1;
            upstream.insert(key, *number);
            if at >= lost {
                downstream.insert(key, *number);
            }
        }
        upstream.subtract(&downstream);
        upstream.decode()
    };
    assert_eq!(tell(1.1), None);
    let mut exact = HashMap::<FlowKey, u32>::new();
    packets[..lost].iter().for_each(|key| *exact.entry(*key).or_default() += 1);
    let decoded = tell(1.45).expect("enough cells");
    assert_eq!(decoded.into_iter().collect::<HashMap<_, _>>(), exact);
}

#[test]
fn every_sketch_fills_its_memory_at_both_key_lengths() {
    let sizes = [200_000, 400_000, 600_000];
    for memory in sizes.into_iter().flat_map(|bytes| [bytes.into(), Memory::for_addresses(bytes)]) {
        for (name, filled) in [
            ("CM", CountMin::new(memory, 1).bytes()),
            ("CU", ConservativeUpdate::new(memory, 1).bytes()),
            ("CountHeap", CountHeap::new(memory, 1).bytes()),
            ("UnivMon", UnivMon::new(memory, 1).bytes()),
            ("Elastic", Elastic::new(memory, 1).bytes()),
            ("FCM", FcmTopK::new(memory, 1).bytes()),
            ("HashPipe", HashPipe::new(memory, 1).bytes()),
            ("Coco", CocoSketch::new(memory, 1).bytes()),
            ("MRAC", Mrac::new(memory, 1).bytes()),
            ("FlowRadar", FlowRadar::new(memory, 1).bytes()),
            ("LossRadar", LossRadar::new(memory, 1).bytes()),
            ("TowerFermat", TowerFermat::new(memory.bytes, 1).bytes()),
        ] {
            let Memory { bytes, key } = memory;
            let fits = (bytes * 99 / 100..=bytes).contains(&filled);
            assert!(fits, "{name}: {filled} of {bytes}, keys of {key}");
        }
    }
}
