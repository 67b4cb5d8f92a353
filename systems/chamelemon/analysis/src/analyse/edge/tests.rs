use std::collections::BTreeSet;

use calumma_chamelemon::frames::{Defects, IngressSide};
use calumma_chamelemon::{IngressGroup, Layout, Partition};
use calumma_plane::Record;
use calumma_sketch::{FlowKey, HashKey, Level};
use proptest::prelude::*;

use super::*;

fn key(flow: usize) -> FlowKey {
    FlowKey::from_words(flow as u32, 7, 1, 6)
}

/// What is known of flow sizes after an epoch in which flows had so many packets each.
fn sizes(t_h: u32, hl: u32, packets: impl Iterator<Item = u32>) -> SizesBy<FlowKey> {
    sizes_on(1, t_h, hl, packets)
}

/// The same where packets came to so many lcores in turn.
fn sizes_on(
    lcores: usize,
    t_h: u32,
    hl: u32,
    packets: impl Iterator<Item = u32>,
) -> SizesBy<FlowKey> {
    let (side, family) = side_of(lcores, t_h, hl, packets);
    decoded(&side, &family)
}

fn decoded(side: &Ingress, family: &Arc<HashFamily>) -> SizesBy<FlowKey> {
    let AnyKey::Ipv4(upstream) = &side.upstream else { unreachable!() };
    let hh = upstream.encoder.part(&side.attention.partition.hh_part()).decode(family);
    SizesBy::new(side, &upstream.encoder, hh.flows(), hh.is_complete(), family)
}

fn side_of(
    lcores: usize,
    t_h: u32,
    hl: u32,
    packets: impl Iterator<Item = u32>,
) -> (Ingress, Arc<HashFamily>) {
    let layout = Layout {
        upstream_buckets: 128,
        downstream_buckets: 128,
        classifier: vec![Level::new(8, 256), Level::new(16, 128)],
        ..Layout::default()
    };
    let partition = Partition { hh: 128 - hl, hl, ll: 0 };
    let attention = Attention { t_h, t_l: 1, sample_rate: SampleRate::ALL, partition };
    let family = Arc::new(HashFamily::new(&HashKey::from_bytes([3; 32])));
    let mut groups = vec![IngressGroup::new(&layout, attention, 5).unwrap(); lcores];
    let mut all = 0;
    for (flow, packets) in packets.enumerate() {
        let hashes = family.hash(&key(flow));
        for packet in 0..packets as usize {
            groups[packet % lcores].record(&key(flow), &hashes);
        }
        all += u64::from(packets);
    }
    // As of an lcore that nothing came to.
    let mut group = IngressGroup::new(&layout, attention, 5).unwrap();
    groups.iter().for_each(|of| group.merge(of));
    (IngressSide::of_group(5, &group, all, Defects::default()).to_ingress(), family)
}

/// Each lcore lets through what is below T_h there.
#[test]
fn a_flow_below_t_h_on_each_lcore_has_what_came_to_both() {
    // The HL part is too small to decode.
    let (side, family) = side_of(2, 100, 1, [198; 8].into_iter());
    assert_eq!(side.lcores, Some(2));
    for lcores in [Some(2), None] {
        let sizes = decoded(&Ingress { lcores, ..side.clone() }, &family);
        assert!(sizes.hh_complete && sizes.own.hl.is_none() && !sizes.has(&key(0)));
        let size = sizes.size_of(&key(0));
        assert!((size.size_min, size.exact) == (0, false) && size.size >= 198, "{size:?}");
        let entered = sizes.entered(&key(0), &family.hash(&key(0)));
        assert!(entered.least == 0 && entered.most.unwrap() >= 198, "{entered:?}");
        assert!(sizes.heavy_hitters(150).is_empty() && !sizes.has_all_above(150));
        assert_eq!(sizes.has_all_above(198), lcores.is_some());
    }
    let one = sizes(100, 1, [99; 8].into_iter());
    assert!(one.has_all_above(99) && !one.has_all_above(98));
}

/// A flow of 1 packet and then none, in a counter with others, may have been larger.
#[test]
fn a_change_between_bounds_says_so() {
    let large = (0..100).map(|_| 40);
    let (before, after) = (sizes(30, 1, large), sizes(30, 1, [0; 1].into_iter()));
    let (changes, complete) = after.heavy_changes(&before, 20);
    assert!(before.hh_complete && before.own.hl.is_none() && changes.len() > 50);
    assert!(!complete, "29 packets of a flow need not be in the HH encoder");
    for change in &changes {
        let least = change.before_min.unwrap();
        assert!(least <= 40 && (40..=69).contains(&change.before), "{change:?}");
        assert_eq!((change.after, change.after_min), (0, None));
    }
}

proptest! {
    #[test]
    fn sizes_lie_between_their_bounds_on_any_number_of_lcores(
        lcores in 1_usize..5,
        says_lcores: bool,
        t_h in 1_u32..150,
        hl in 1_u32..60,
        packets in prop::collection::vec(0_u32..400, 1..60),
        threshold in 0_u64..600,
    ) {
        let (mut side, family) = side_of(lcores, t_h, hl, packets.iter().copied());
        side.lcores = side.lcores.filter(|_| says_lcores);
        let sizes = decoded(&side, &family);
        let hitters = sizes.heavy_hitters(threshold);
        for (flow, &packets) in packets.iter().enumerate() {
            let (key, packets) = (key(flow), u64::from(packets));
            let size = sizes.size_of(&key);
            let bounds = size.size_min..=size.size;
            prop_assert!(bounds.contains(&packets), "{size:?} {packets}");
            let entered = sizes.entered(&key, &family.hash(&key));
            prop_assert!(entered.least <= packets && packets <= entered.most.unwrap());
            let is_listed = hitters.iter().any(|hitter| hitter.flow == (&key).into());
            let may_miss = !sizes.has_all_above(threshold);
            prop_assert!(is_listed || packets <= threshold || may_miss);
        }
    }

    #[test]
    fn flows_that_are_not_looked_at_are_neither_large_nor_changed(
        t_h in 1_u32..300,
        hl in 20_u32..60,
        packets in prop::collection::vec((0_u32..400, 0_u32..400), 1..150),
        threshold in 0_u64..300,
    ) {
        let before = sizes(t_h, hl, packets.iter().map(|flow| flow.0));
        let after = sizes(t_h, hl, packets.iter().map(|flow| flow.1));
        let hitters = after.heavy_hitters(threshold);
        let hitters: BTreeSet<Flow> = hitters.into_iter().map(|hitter| hitter.flow).collect();
        // Nobody asks for changes where an HH encoder did not decode.
        let is_asked = before.whole && after.whole;
        let changes = match is_asked {
            true => after.heavy_changes(&before, threshold),
            false => (Vec::new(), false),
        };
        let (changes, complete) = changes;
        let listed: BTreeSet<Flow> = changes.iter().map(|change| change.flow).collect();
        prop_assert_eq!(listed.len(), changes.len());
        for key in (0..packets.len()).map(key) {
            let (was, is) = (before.size_of(&key).size, after.size_of(&key).size);
            let decoded = after.flows().any(|flow| *flow == key);
            prop_assert_eq!(hitters.contains(&(&key).into()), decoded && is > threshold);
            let decoded = decoded || before.flows().any(|flow| *flow == key);
            let has_changed = is_asked && decoded && was.abs_diff(is) > threshold;
            prop_assert_eq!(listed.contains(&(&key).into()), has_changed);
        }
        for (flow, &(was, is)) in packets.iter().enumerate() {
            let has_changed = u64::from(was.abs_diff(is)) > threshold;
            let is_listed = listed.contains(&(&key(flow)).into());
            prop_assert!(is_listed || !has_changed || !complete, "{flow}: {was}, {is}");
        }
    }
}
