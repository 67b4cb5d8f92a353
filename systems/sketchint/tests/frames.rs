//! Windows come back as they were sent, and hostile ones are refused with byte and reason.

mod samples;

use calumma_sketch::sketchint::{Cell, Shape};
use calumma_sketch::tower::Rule;
use calumma_sketch::{FlowKey, WideKey};
use calumma_sketchint::frames::{Entered, Layout, Window};
use calumma_sketchint::plane::Leaving;
use proptest::prelude::*;

use samples::{clock, dual, ipv4, layout, stack};

#[test]
fn samples_have_something_of_everything() {
    for window in [ipv4(), dual()] {
        assert!(window.paths.len() == 3 && window.nodes.len() >= 4, "{:?}", window.paths);
        assert!(window.rows.iter().any(|row| row.is_exact != window.rows[0].is_exact));
        assert!(!window.large.is_empty() && !window.inflated.is_empty(), "{:?}", window.inflated);
        assert!(!window.pairs.is_empty() && (window.unmarked, window.unclassified) == (3, 4));
        assert!(window.totals.rows_refused > 0 && window.totals.partial > 0);
        assert!(window.links.iter().any(|of| of.min_ns < 0 && of.packets > 100));
        assert_eq!(Window::decode(&window.encode(), &layout()), Ok(window));
    }
    assert!(ipv4().rows.iter().any(|row| row.own.known > 0));
}

#[test]
fn what_a_source_did_is_read_whole_or_refused() {
    let bytes = Entered { inserted: 7, ..Entered::default() }.encode();
    assert_eq!(Entered::decode(&bytes).unwrap().inserted, 7);
    let says = |bytes: &[u8], words: &str| {
        let refused = Entered::decode(bytes).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    };
    says(&[], "byte 0 of what a source did");
    let other = [&bytes[..24], &[9], &bytes[25..]].concat();
    says(&other, "byte 24 of what a source did: number of reasons: 9, and there are 10");
    says(&bytes[..46], "byte 41");
    says(&[&bytes[..], &[0]].concat(), "byte 105");
}

#[test]
fn an_empty_window_comes_back_by_every_rule() {
    for rule in [Rule::Cm, Rule::Cu, Rule::Acu] {
        for row_sets in [0, 2] {
            let shape = Shape { rule, row_sets, ..layout().shape };
            let layout = Layout { shape, ..layout() };
            let window = samples::record::<FlowKey>(layout, Some(3)).frame(7, 1);
            assert_eq!(Window::decode(&window.encode(), &layout), Ok(window));
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_byte_and_reason() {
    let says = |change: fn(&mut Window), words: &str| {
        let mut window = ipv4();
        change(&mut window);
        let refused = Window::decode(&window.encode(), &layout()).unwrap_err().to_string();
        assert!(refused.starts_with("byte "), "{refused}");
        assert!(refused.contains(words), "{refused}, where {words} was expected");
    };
    says(|it| it.totals.int_packets = it.totals.packets + 1, "packets with INT: 901 of 900");
    says(|it| it.totals.partial += 900, "partial stacks");
    says(|it| it.mtu_exceeded = 181, "packets without room for a hop: 181 of 180");
    says(|it| it.hops_exceeded = 181, "packets without hops left: 181 of 180");
    says(|it| it.paths[0].packets += 1, "paths: 721 packets and 0 without room, of 720 with INT");
    says(|it| it.paths.swap(0, 1), "paths: entries 0 and 1 are not in order");
    says(|it| it.nodes.swap(0, 1), "switches: entries 0 and 1 are not in order");
    says(|it| it.nodes[0].packets = 0, "switches: 1: no packets");
    says(|it| it.nodes[0].sum_ns = 1, "the sum of the latencies is not between");
    says(|it| it.nodes[0].queued = u64::MAX, "more packets say something than there were");
    says(|it| it.links.swap(0, 1), "links: entries 0 and 1 are not in order");
    says(|it| it.links[0].packets = 0, "links: 1 to 2: 0 packets can't have been on it so long");
    says(|it| it.links[0].sum_ns = i64::MAX, "can't have been on it so long");
    says(|it| it.links[0].max_ns = (1 << 32) + 1, "can't have been on it so long");
    says(|it| it.rows.swap(0, 1), "rows: entries 0 and 1 are not in order");
    says(|it| it.rows[0].packets = 0, "no packets, or more than came by its path");
    says(|it| it.rows[0].packets = 901, "no packets, or more than came by its path");
    says(|it| it.rows[0].path = 4, "there are 3 paths and no 4");
    says(|it| it.rows[0].own.sum_ns = u64::MAX, "latencies of rows");
    says(
        |it| it.rows.iter_mut().for_each(|row| row.has_inflation = !row.is_exact),
        "has inflation",
    );
    says(|it| it.large.reverse(), "large flows: entries 0 and 1 are not in order");
    says(|it| it.inflated[0].count = 0, "0 latencies, of no flow that has them");
    let known = |it: &mut Window| {
        let row = it.rows.iter_mut().find(|row| !row.hops.is_empty()).unwrap();
        row.hops[0] = Cell { sum_ns: 1 << 20, max_ns: 1 << 20, known: 901 };
    };
    says(known, "more latencies than packets");
    let own = |it: &mut Window| {
        let at = it.rows.windows(2).position(|pair| pair[0].key == pair[1].key).unwrap();
        it.rows[at + 1].own = Cell { sum_ns: 5, max_ns: 5, known: 1 };
    };
    says(own, "its rows contradict each other");

    let many = Layout { shape: Shape { row_sets: 0, ..layout().shape }, ..layout() };
    // A sink without rows counts them by its towers.
    let alone = Window { rows: Vec::new(), ..ipv4() };
    assert!(Window::decode(&alone.encode(), &layout()).is_err());
    assert_eq!(Window::decode(&alone.encode(), &many), Ok(alone));
    let refused = Window::decode(&ipv4().encode(), &many).unwrap_err().to_string();
    assert!(refused.contains("and there may be 0"), "{refused}");
    let mut bytes = ipv4().encode();
    bytes.push(0);
    assert!(Window::decode(&bytes, &layout()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_a_panic(at in 0..4000_usize, byte: u8, cut in 0..4000_usize) {
        for window in [ipv4(), dual()] {
            let mut bytes = window.encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(window) = Window::decode(&bytes, &layout()) {
                let again = Window::decode(&window.encode(), &layout());
                prop_assert_eq!(again, Ok(window));
            }
            prop_assert!(Window::decode(&bytes[..cut % bytes.len()], &layout()).is_err());
        }
    }

    #[test]
    fn stacks_are_recorded_hop_by_hop(
        packets in prop::collection::vec(
            (0..9_u32, prop::collection::vec((1..6_u32, 0..9_000_u32), 0..6)), 1..60),
    ) {
        let shape = Shape { row_sets: 32, nodes: 8, paths: 60, hops: 6, ..layout().shape };
        let layout = Layout { shape, ..layout() };
        let mut record = samples::record::<FlowKey>(layout, None);
        let key = |flow| FlowKey::from_words(flow, 1, 2, 17);
        for burst in packets.chunks(32) {
            let keys: Vec<FlowKey> = burst.iter().map(|(flow, _)| key(*flow)).collect();
            let stacks: Vec<_> = burst.iter().map(|(_, hops)| stack(hops, false)).collect();
            let stacks: Vec<_> = stacks.iter().map(Some).collect();
            let polled_ns = clock().start_of(1000);
            let leaving = Leaving { keys: &keys, hashes: None, polled_ns };
            record.record(&leaving, &stacks);
        }
        let window = record.frame(0, 1);
        prop_assert_eq!(window.totals.int_packets, packets.len() as u64);
        for row in window.rows.iter().filter(|row| row.is_exact) {
            let path = &window.paths[row.path as usize - 1].path;
            let nodes = |hops: &[(u32, u32)]| hops.iter().map(|hop| hop.0).collect::<Vec<_>>();
            let of_row = |(flow, hops): &&(u32, Vec<(u32, u32)>)| {
                row.key == WideKey::from(key(*flow)) && nodes(hops) == path.nodes()
            };
            let of_row: Vec<_> = packets.iter().filter(of_row).collect();
            prop_assert_eq!(row.packets, of_row.len() as u64);
            for (at, cell) in row.hops.iter().enumerate() {
                let sum: u64 = of_row.iter().map(|(_, hops)| u64::from(hops[at].1)).sum();
                prop_assert_eq!(cell.sum_ns, sum);
            }
        }
    }
}
