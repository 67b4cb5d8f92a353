//! The six packet accumulation tasks, asked of a classifier and an HH encoder that recorded an
//! epoch of Zipf traffic in 64 to 500 KB, beside the exact truth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::common::{family, zipf};
use calumma_sketch::estimate::Accumulation;
use calumma_sketch::fermat::Decoded;
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, Insertion, Level, Shape, TowerSketch};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

const T_H: u32 = 250;
const HEAVY_HITTER: u64 = 500;
const HEAVY_CHANGE: u64 = 250;

/// An epoch's classifier of `levels`, and what the HH encoder of `buckets` buckets an array gave.
fn measure(
    family: &HashFamily,
    levels: &[Level],
    buckets: usize,
    t_h: u32,
    flows: &[(FlowKey, u32)],
) -> (TowerSketch, Decoded) {
    let mut packets: Vec<usize> = (0..flows.len())
        .flat_map(|flow| std::iter::repeat_n(flow, flows[flow].1 as usize))
        .collect();
    packets.shuffle(&mut StdRng::seed_from_u64(flows.len() as u64));
    let mut tower = TowerSketch::new(levels).unwrap();
    let mut hh = FermatSketch::new(Shape::default().with_buckets(buckets));
    let whole = hh.whole();
    for flow in packets {
        let key = &flows[flow].0;
        let hashes = family.hash(key);
        if tower.insert(&hashes) >= t_h {
            hh.encode(&whole, key, &hashes);
        }
    }
    (tower, hh.decode(family))
}

/// Arrays of these widths, each of its share of `bytes`.
fn tower(bytes: u32, shares: &[(u32, f64)]) -> Vec<Level> {
    let counters =
        |bits: u32, share: f64| (f64::from(bytes) * share * 8.0 / f64::from(bits)) as u32;
    shares.iter().map(|&(bits, share)| Level::new(bits, counters(bits, share))).collect()
}

/// The memory of Appendix C less 20 KB for the HH encoder, and the default classifier's.
fn towers() -> [Vec<Level>; 4] {
    [
        tower(65_536, &[(8, 0.5), (16, 0.5)]),
        tower(180_000, &[(8, 0.5), (16, 0.5)]),
        tower(180_000, &[(4, 0.4), (8, 0.4), (16, 0.2)]),
        tower(480_000, &[(4, 0.35), (8, 0.35), (16, 0.3)]),
    ]
}

#[test]
fn sizes_lie_within_their_bounds_and_much_nearer_the_truth() {
    let family = Arc::new(family(1));
    let flows = zipf(63_000, 2_300_000, 1.1, 4);
    for (levels, gain) in towers().iter().zip([5.0, 1.8, 1.3, 1.0]) {
        let (classifier, decoded) = measure(&family, levels, 1_000, T_H, &flows);
        assert!(decoded.is_complete());
        let epoch = Accumulation::new(family.clone(), classifier.clone(), T_H, &decoded);
        let (mut error_of_bound, mut error, mut unexpected) = (0.0, 0.0, 0);
        for (key, packets) in &flows {
            let size = epoch.size_of(key);
            let (value, bound) = (size.estimate.value, size.at_most.unwrap());
            assert!((size.at_least..=bound).contains(&u64::from(*packets)), "{size:?} {packets}");
            assert!(value >= size.at_least as f64 && value <= bound as f64, "{size:?}");
            let truth = f64::from(*packets);
            error_of_bound += (bound as f64 - truth) / truth;
            error += (value - truth).abs() / truth;
            let standard_error = size.estimate.standard_error.unwrap();
            unexpected += u32::from((value - truth).abs() > 3.0 * standard_error + 1.0);
        }
        let (error_of_bound, error) =
            (error_of_bound / flows.len() as f64, error / flows.len() as f64);
        assert!(
            error * gain < error_of_bound,
            "{levels:?}: {error}, of the bound {error_of_bound}"
        );
        assert!(unexpected < flows.len() as u32 / 50, "{levels:?}: {unexpected} far off");
    }
}

#[test]
fn heavy_hitters_and_heavy_changes_are_told_at_all_sizes() {
    let family = Arc::new(family(2));
    let before = zipf(63_000, 2_300_000, 1.1, 5);
    // Flows come in the order of their rank: one in ten swaps its size with one at the other end.
    let mut after = before.clone();
    for at in (0..after.len() / 2).step_by(10) {
        let other = after.len() - 1 - at;
        (after[at].1, after[other].1) = (after[other].1, after[at].1);
    }
    let sizes = |flows: &[(FlowKey, u32)]| -> HashMap<FlowKey, u64> {
        flows.iter().map(|&(key, packets)| (key, packets.into())).collect()
    };
    let (old, new) = (sizes(&before), sizes(&after));
    for (levels, (least_hitters, least_changes)) in
        towers().into_iter().zip([(0.99, 0.96), (0.995, 0.98), (0.99, 0.98), (0.995, 0.99)])
    {
        let (old_classifier, old_decoded) = measure(&family, &levels, 1_000, T_H, &before);
        let (new_classifier, new_decoded) = measure(&family, &levels, 1_000, T_H, &after);
        let before = Accumulation::new(family.clone(), old_classifier.clone(), T_H, &old_decoded);
        let after = Accumulation::new(family.clone(), new_classifier.clone(), T_H, &new_decoded);

        let hitters: HashSet<FlowKey> =
            after.heavy_hitters(HEAVY_HITTER).into_iter().map(|(key, _)| key).collect();
        let truth = new.iter().filter(|flow| *flow.1 > HEAVY_HITTER).map(|flow| *flow.0).collect();
        assert!(f1(&hitters, &truth) > least_hitters, "{levels:?}: {}", f1(&hitters, &truth));

        let changes = after.heavy_changes(&before, HEAVY_CHANGE);
        assert!(changes.is_sorted_by(|a, b| a.1.abs_diff(a.2) >= b.1.abs_diff(b.2)));
        let changes: HashSet<FlowKey> = changes.into_iter().map(|change| change.0).collect();
        let changed = |key: &&FlowKey| old[*key].abs_diff(new[*key]) > HEAVY_CHANGE;
        let truth: HashSet<FlowKey> = old.keys().filter(changed).copied().collect();
        assert!(truth.len() > 50);
        assert!(f1(&changes, &truth) > least_changes, "{levels:?}: {}", f1(&changes, &truth));
    }
}

fn f1(reported: &HashSet<FlowKey>, truth: &HashSet<FlowKey>) -> f64 {
    2.0 * reported.intersection(truth).count() as f64 / (reported.len() + truth.len()) as f64
}

#[test]
fn under_a_threshold_of_one_packet_every_answer_is_exact() {
    let family = Arc::new(family(3));
    let flows = zipf(2_000, 60_000, 1.1, 6);
    let (classifier, decoded) = measure(&family, &towers()[0], 1_200, 1, &flows);
    let epoch = Accumulation::new(family.clone(), classifier.clone(), 1, &decoded);
    let mut sizes: HashMap<u64, f64> = HashMap::new();
    for (key, packets) in &flows {
        let size = epoch.size_of(key);
        assert_eq!((size.at_least, size.at_most), (u64::from(*packets), Some((*packets).into())));
        assert_eq!(
            (size.estimate.value, size.estimate.standard_error),
            ((*packets).into(), Some(0.0))
        );
        *sizes.entry((*packets).into()).or_insert(0.0) += 1.0;
    }
    assert_eq!(epoch.size_of(&FlowKey::from_words(9, 9, 9, 9)).estimate.value, 0.0);
    assert_eq!(epoch.cardinality().value, flows.len() as f64);
    assert_eq!(epoch.cardinality().standard_error, Some(0.0));
    assert_eq!(epoch.distribution().iter().copied().collect::<HashMap<_, _>>(), sizes);
}

#[test]
fn a_flowset_that_lacks_flows_bounds_nothing_it_does_not_know() {
    let family = Arc::new(family(4));
    let flows = zipf(20_000, 1_000_000, 1.3, 7);
    // Far too few buckets for the heavy hitters.
    let (classifier, decoded) = measure(&family, &towers()[0], 50, 20, &flows);
    assert!(!decoded.is_complete());
    let epoch = Accumulation::new(family.clone(), classifier.clone(), 20, &decoded);
    assert!(!epoch.tells_distribution(), "counters overflowed");
    let known: HashSet<FlowKey> = decoded.flows().iter().map(|flow| flow.0).collect();
    for (key, packets) in flows.iter().filter(|(key, _)| !known.contains(key)) {
        let size = epoch.size_of(key);
        assert!(size.at_most.is_none_or(|most| most >= u64::from(*packets)), "{size:?} {packets}");
        assert_eq!(size.at_least, 0);
        assert!(size.at_most.is_none() || *packets < 65_535, "{size:?} {packets}");
        assert_eq!(size.estimate.standard_error.is_none(), size.at_most.is_none(), "{size:?}");
    }
    // Those that are far larger than what shares their counters are still estimated well.
    let (key, packets) = flows.iter().find(|flow| (3_000..60_000).contains(&flow.1)).unwrap();
    let value = epoch.size_of(key).estimate.value;
    assert!((value - f64::from(*packets)).abs() < 0.1 * f64::from(*packets), "{value} {packets}");
}

#[test]
fn conservative_insertion_bounds_sizes_more_closely() {
    let family = Arc::new(family(5));
    let flows = zipf(63_000, 2_300_000, 1.1, 8);
    let mut packets: Vec<FlowKey> =
        flows.iter().flat_map(|&(key, size)| std::iter::repeat_n(key, size as usize)).collect();
    packets.shuffle(&mut StdRng::seed_from_u64(9));
    for (levels, gain) in towers().iter().zip([1.3, 1.3, 1.3, 1.5]) {
        let mut plain = TowerSketch::new(levels).unwrap();
        let mut conservative = plain.clone().with_insertion(Insertion::Cu);
        for key in &packets {
            let hashes = family.hash(key);
            plain.insert(&hashes);
            conservative.insert(&hashes);
        }
        // Of flows below T_h, which bounds all of them.
        let error = |tower: &TowerSketch| -> f64 {
            let told = flows.iter().filter(|flow| flow.1 < T_H);
            told.map(|(key, size)| {
                let bound = tower.query(&family.hash(key)).min(T_H);
                f64::from(bound - size) / f64::from(*size)
            })
            .sum()
        };
        let (plain, conservative) = (error(&plain), error(&conservative));
        assert!(gain * conservative < plain, "{levels:?}: {conservative}, not far below {plain}");
    }
}
