//! Estimates beside the exact truth, on seeded Zipf traffic and on real captures.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{family, flows_of, real_packets, zipf};
use calumma_sketch::{FlowKey, Level, TowerSketch, estimate};

fn classify(flows: impl IntoIterator<Item = (FlowKey, u32)>) -> (TowerSketch, BTreeMap<u64, f64>) {
    let flows: Vec<_> = flows.into_iter().collect();
    (tower_of(&[Level::new(8, 32_768), Level::new(16, 16_384)], &flows), sizes_of(&flows))
}

fn tower_of(levels: &[Level], flows: &[(FlowKey, u32)]) -> TowerSketch {
    let family = family(1);
    let mut tower = TowerSketch::new(levels).unwrap();
    for (key, packets) in flows {
        let hashes = family.hash(key);
        (0..*packets).for_each(|_| {
            tower.insert(&hashes);
        });
    }
    tower
}

/// The exact distribution.
fn sizes_of(flows: &[(FlowKey, u32)]) -> BTreeMap<u64, f64> {
    let mut sizes = BTreeMap::new();
    flows.iter().for_each(|flow| *sizes.entry(u64::from(flow.1)).or_insert(0.0) += 1.0);
    sizes
}

/// Weighted mean relative error (appendix C of the ChameleMon paper).
fn wmre(estimated: &[(u64, f64)], truth: &BTreeMap<u64, f64>) -> f64 {
    let estimated: BTreeMap<u64, f64> = estimated.iter().copied().collect();
    let sizes: BTreeSet<&u64> = estimated.keys().chain(truth.keys()).collect();
    let (mut difference, mut mean) = (0.0, 0.0);
    for size in sizes {
        let (e, t) = (estimated.get(size).unwrap_or(&0.0), truth.get(size).unwrap_or(&0.0));
        difference += (e - t).abs();
        mean += (e + t) / 2.0;
    }
    difference / mean
}

fn entropy_of(truth: &BTreeMap<u64, f64>) -> f64 {
    estimate::entropy(&truth.iter().map(|(&size, &flows)| (size, flows)).collect::<Vec<_>>())
}

#[test]
fn zipf_traffic_is_described_within_the_documented_errors() {
    for (flows, packets, allowed) in [
        (10_000, 300_000, 0.09),
        (30_000, 1_000_000, 0.11),
        (63_000, 2_300_000, 0.13),
        (100_000, 4_000_000, 0.25),
    ] {
        let traffic = zipf(flows, packets, 1.1, flows as u64);
        let (tower, truth) = classify(traffic.iter().copied());

        let cardinality = estimate::cardinality(&tower);
        let error = (cardinality.value - traffic.len() as f64).abs();
        assert!(error < 4.0 * cardinality.standard_error.unwrap(), "{flows}: {cardinality:?}");

        // The HH encoder with T_h = 250.
        let hh_sizes = traffic.iter().map(|flow| u64::from(flow.1)).filter(|&size| size >= 250);
        let sizes = estimate::size_distribution(&tower, hh_sizes.clone());
        assert!(sizes.is_sorted_by(|a, b| a.0 < b.0));
        let error = wmre(&sizes, &truth);
        assert!(error < allowed, "{flows} flows: WMRE {error}");
        let (entropy, exact) = (estimate::entropy(&sizes), entropy_of(&truth));
        assert!((entropy - exact).abs() < 0.01 * exact, "{flows} flows: {entropy}, truly {exact}");

        // If it decoded completely, all of its flows are known exactly.
        let sizes = estimate::size_distribution_with_known(&tower, 250, hh_sizes);
        assert!(wmre(&sizes, &truth) < error, "{flows} flows");
        let entropy = estimate::entropy(&sizes);
        assert!((entropy - exact).abs() < 0.004 * exact, "{flows} flows: {entropy}, truly {exact}");
    }
}

#[test]
fn flows_known_from_the_first_packet_give_the_exact_distribution() {
    let (tower, truth) = classify(zipf(5_000, 100_000, 1.1, 3));
    let known = truth.iter().flat_map(|(&size, &flows)| vec![size; flows as usize]);
    let sizes = estimate::size_distribution_with_known(&tower, 1, known);
    assert_eq!(sizes.into_iter().collect::<BTreeMap<_, _>>(), truth);
}

#[test]
fn flows_beyond_the_last_array_come_from_the_flowset() {
    let traffic = zipf(500, 500_000, 1.3, 5);
    let (tower, truth) = classify(traffic.iter().copied());
    let largest = *truth.keys().last().unwrap();
    assert!(largest > 65_535, "an overflow to recover from: {largest}");
    let hh_sizes = traffic.iter().map(|flow| u64::from(flow.1)).filter(|&size| size >= 1_000);
    let sizes = estimate::size_distribution(&tower, hh_sizes);
    assert_eq!(sizes.last(), Some(&(largest, 1.0)));
    assert!((estimate::entropy(&sizes) - entropy_of(&truth)).abs() < 0.05);
    let packets: f64 = sizes.iter().map(|&(size, flows)| size as f64 * flows).sum();
    assert!((packets - 500_000.0).abs() < 5_000.0, "{packets} packets");
}

#[test]
fn towers_of_other_arrays_work_alike() {
    let traffic = zipf(3_000, 60_000, 1.1, 9);
    let truth = sizes_of(&traffic);
    for levels in [
        vec![Level::new(16, 16_384)],
        vec![Level::new(32, 8_192)],
        vec![Level::new(4, 32_768), Level::new(8, 16_384), Level::new(16, 8_192)],
        vec![Level::new(2, 65_536), Level::new(4, 32_768), Level::new(8, 16_384)],
    ] {
        let tower = tower_of(&levels, &traffic);
        let hh_sizes = traffic.iter().map(|flow| u64::from(flow.1));
        let sizes = estimate::size_distribution(&tower, hh_sizes);
        let error = wmre(&sizes, &truth);
        assert!(error < 0.15, "{levels:?}: WMRE {error}");
        let (entropy, exact) = (estimate::entropy(&sizes), entropy_of(&truth));
        assert!((entropy - exact).abs() < 0.01 * exact, "{levels:?}: {entropy}, truly {exact}");
    }
}

#[test]
fn an_overloaded_classifier_gives_finite_numbers_in_bounded_time() {
    let traffic = zipf(20_000, 400_000, 1.1, 2);
    let tower = tower_of(&[Level::new(8, 64), Level::new(16, 32)], &traffic);
    assert!(estimate::cardinality(&tower).is_lower_bound());
    let sizes = estimate::size_distribution(&tower, []);
    assert!(sizes.iter().all(|&(_, flows)| flows.is_finite() && flows > 0.0));
    assert!(estimate::entropy(&sizes).is_finite());
}

#[test]
fn real_captures_are_described_like_the_truth() {
    for name in ["backbone-65k.pcap", "mixed-captures.pcap"] {
        let Some(packets) = real_packets(name) else { continue };
        let (tower, truth) = classify(flows_of(&packets));
        let flows: f64 = truth.values().sum();
        let cardinality = estimate::cardinality(&tower);
        let error = (cardinality.value - flows).abs();
        assert!(error < 4.0 * cardinality.standard_error.unwrap(), "{name}: {cardinality:?}");

        let hh_sizes =
            truth.iter().flat_map(|(&size, &flows)| std::iter::repeat_n(size, flows as usize));
        let sizes = estimate::size_distribution_with_known(&tower, 250, hh_sizes);
        let error = wmre(&sizes, &truth);
        assert!(error < 0.1, "{name}: WMRE {error}");
        let (entropy, exact) = (estimate::entropy(&sizes), entropy_of(&truth));
        assert!((entropy - exact).abs() < 0.004 * exact, "{name}: {entropy}, truly {exact}");
    }
}
