//! Windows come back as they were sent, and hostile ones are refused with byte and reason.

mod samples;

use calumma_plane::int::means::Means;
use calumma_sketch::sketchint::{Cell, Path, Quarters, Shape};
use calumma_sketch::tower::Rule;
use calumma_sketch::{FlowKey, WideKey};
use calumma_sketchint::frames::{Entered, Layout, PathSeen, Window};
use calumma_sketchint::plane::{Leaving, SinkWindow};
use proptest::prelude::*;

use samples::{by_size, clock, dual, dual_of, ipv4, ipv4_of, layout, record, stack};

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

/// What the last window has many packets of has rows in the next, small as it may be there.
#[test]
fn large_flows_of_a_window_have_claims() {
    let first = record::<FlowKey>(layout(), None);
    let second = first.clone();
    let key = |flow: u32| FlowKey::from_words(flow, 1, 2, 6);
    let record = |mut window: SinkWindow<FlowKey, ()>, flows: &mut dyn Iterator<Item = u32>| {
        let way = stack(&[(1, 100)], false);
        for flow in flows {
            let leaving = Leaving { keys: &[key(flow)], hashes: None, polled_ns: 0 };
            window.record(&leaving, &[Some(&way)]);
        }
        window
    };
    // Those of the crowd have 20 packets each, others 300 before them and then four behind them.
    let crowd = |flows: std::ops::Range<u32>| flows.cycle().take(4000);
    let first = record(first, &mut (0..30).cycle().take(9000).chain(crowd(1000..1200)));
    let again = || crowd(1000..1200).chain((0..30).cycle().take(120));
    let rows = |window: &SinkWindow<FlowKey, ()>| {
        let rows = window.frame(0, 1).rows;
        let has_four =
            |flow| rows.iter().any(|row| row.key == key(flow).into() && row.packets == 4);
        (0..30).filter(|&flow| has_four(flow)).count()
    };
    assert!(rows(&record(second.clone(), &mut again())) < 15);
    first.renew_claims();
    assert_eq!(rows(&record(second, &mut again())), 30);
}

#[test]
fn latencies_by_size_come_back_or_are_refused_with_byte_and_reason() {
    for window in [ipv4_of(by_size()), dual_of(by_size())] {
        let window = window.for_version(6, &by_size());
        let with = window.rows.iter().filter(|row| !row.quarters.is_empty());
        assert!((3..=10).contains(&with.clone().count()), "{}", with.count());
        assert_eq!(Window::decode(&window.encode(), &by_size()), Ok(window.clone()));
        // A version without them has the same, but for these.
        let mut without = window.clone();
        without.rows.iter_mut().for_each(|row| row.quarters.clear());
        let (bytes, before) = (window.encode(), without.encode());
        assert_eq!(bytes[..before.len()], before[..]);
        assert_eq!(Window::decode(&before, &by_size()), Ok(without));
        let refused = Window::decode(&bytes, &layout()).unwrap_err().to_string();
        let words = format!("byte {} of a window of sketchint: latencies by size: ", before.len());
        assert!(refused.starts_with(&words) && refused.ends_with("there may be 0"), "{refused}");
    }
    let says = |change: fn(&mut [u32; Quarters::BINS]), words: &str| {
        let mut window = ipv4_of(by_size());
        let of = window.rows.iter_mut().find(|row| row.quarters.len() > 1).unwrap();
        let mut bins = *of.quarters[0].bins();
        change(&mut bins);
        of.quarters[0] = Quarters::from_bins(bins);
        let refused = Window::decode(&window.encode(), &by_size()).unwrap_err().to_string();
        assert!(refused.starts_with("byte ") && refused.contains(words), "{refused}");
    };
    says(|bins| bins[50] += 1_000_000, "other latencies than its row has");
    says(|bins| bins[127] += 1, "other latencies than its row has");
    let mut window = ipv4_of(by_size());
    let of = window.rows.iter_mut().find(|row| !row.quarters.is_empty()).unwrap();
    of.quarters.iter_mut().for_each(|of| *of = Quarters::EMPTY);
    let refused = Window::decode(&window.encode(), &by_size()).unwrap_err().to_string();
    assert!(refused.contains("other latencies than its row has"), "{refused}");
}

#[test]
fn stacks_of_large_flows_come_back_or_are_refused_with_byte_and_reason() {
    let towers = Layout { shape: Shape { row_sets: 0, ..layout().shape }, ..layout() };
    let paths = [Path::new([7, 8, 9], false), Path::new([1], true)];
    for window in [ipv4(), dual()] {
        let window = window.for_version(6, &layout());
        let keys: Vec<WideKey> = window.large.iter().copied().take(2).collect();
        let seen: Vec<PathSeen> =
            keys.iter().zip(paths).map(|(&key, path)| PathSeen { key, path }).collect();
        let with = |seen: Vec<PathSeen>| Window { seen, rows: Vec::new(), ..window.clone() };
        let (window, before) = (with(seen.clone()), with(Vec::new()).encode());
        let bytes = window.encode();
        assert_eq!(bytes[..before.len()], before[..]);
        assert_eq!(Window::decode(&bytes, &towers), Ok(window));
        let says = |seen: Vec<PathSeen>, layout: &Layout, words: &str| {
            let refused = Window::decode(&with(seen).encode(), layout).unwrap_err().to_string();
            assert!(refused.starts_with("byte ") && refused.contains(words), "{refused}");
        };
        says(seen.iter().rev().copied().collect(), &towers, "entries 0 and 1 are not in order");
        let stranger = PathSeen { key: WideKey::from(FlowKey::from_words(9, 9, 9, 9)), ..seen[0] };
        says(vec![stranger], &towers, "it is not large");
        // Where there are rows, these have the paths.
        let without = Window { inflated: Vec::new(), ..with(seen.clone()) };
        let refused = Window::decode(&without.encode(), &layout()).unwrap_err().to_string();
        assert!(refused.ends_with("2, and there may be 0"), "{refused}");
    }
}

#[test]
fn means_come_back_or_are_refused_with_byte_and_reason() {
    let (means, window) = (Means::new(0b10010, 0x0102_0304).unwrap(), ipv4_of(by_size()));
    let with = Window { means: Some(means), ..window.clone() };
    let (before, mut bytes) = (window.for_version(6, &by_size()).encode(), with.encode());
    assert_eq!(bytes[..before.len()], before[..]);
    let at = bytes.len() - 9;
    assert_eq!(bytes[at..], [0b10010, 4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(Window::decode(&bytes, &by_size()), Ok(with));
    bytes[at] = 0b10_0000;
    let refused = Window::decode(&bytes, &by_size()).unwrap_err().to_string();
    let words = format!("byte {at} of a window of sketchint: means: 0b00100000 has unknown bits");
    assert_eq!(refused, words);
    // An end host is no hop.
    assert_eq!(dual().means, None);
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
    says(|it| it.inflated[0].count = 0, ": no latencies");
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
    // A sink counts them by its towers where a flow has none; older controllers don't read that.
    let alone = Window { rows: Vec::new(), means: None, ..ipv4() };
    assert_eq!(Window::decode(&alone.encode(), &many).as_ref(), Ok(&alone));
    assert_eq!(alone.clone().for_version(5, &many), alone);
    assert_eq!(alone.clone().for_version(6, &layout()), alone);
    assert!(alone.for_version(5, &layout()).inflated.is_empty());
    assert_eq!(ipv4().for_version(5, &layout()), Window { means: None, ..ipv4() });
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
        for (window, layout) in [
            (ipv4(), layout()), (dual(), layout()), (ipv4_of(by_size()), by_size())
        ] {
            // What older versions have of it.
            let older = Window { means: None, ..window.clone() };
            let mut oldest = older.clone();
            oldest.rows.iter_mut().for_each(|row| row.quarters.clear());
            let mut bytes = window.encode();
            let cut = cut % bytes.len();
            if let Ok(short) = Window::decode(&bytes[..cut], &layout) {
                prop_assert!(short == older || short == oldest, "cut to {cut}");
            }
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(window) = Window::decode(&bytes, &layout) {
                let again = Window::decode(&window.encode(), &layout);
                prop_assert_eq!(again, Ok(window));
            }
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
