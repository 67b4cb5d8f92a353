//! The cases of cooperative flow selection measure what they say.

use std::collections::HashMap;

use calumma_benches::cfs::{Switch, cases, frames, of_udp};
use calumma_benches::rte_hash::RteHash;
use calumma_benches::{chosen, workload};
use calumma_cfs::frames::{Setup, Window};
use calumma_sketch::{BURST, FlowKey, HashFamily, HashKey, WideKey};
use dpdk::Eal;

/// Every packet is recorded, the guard sees those without an entry, and pins hold.
#[test]
fn packets_are_recorded_with_and_without_pins_and_a_guard() {
    let keys = of_udp(&workload::keys(4096, 5));
    let mut pins: Vec<WideKey> = keys[4032..].iter().map(|&key| key.into()).collect();
    pins.sort_unstable();
    let setup = Setup { entries: 256, filter_bits: 1 << 16, guard: true, ..Setup::default() };
    let window = |setup, pins| {
        let mut switch = Switch::new(setup, pins);
        assert!(switch.pass(&mut frames(&keys)) > 0.0);
        switch.finish()
    };
    let guarded = window(setup, pins);
    let unguarded = window(Setup { guard: false, ..setup }, Vec::new());
    assert_eq!([guarded.totals.packets, unguarded.totals.packets], [4096; 2]);
    assert!(guarded.totals.refused_packets > 2500, "{:?}", guarded.totals);
    assert_eq!((guarded.suspects.is_some(), unguarded.suspects.is_some()), (true, false));
    let pinned = |window: &Window| {
        let classes = window.entries.iter().map(|entry| entry.rank.class());
        classes.filter(|&class| class == 0).count()
    };
    assert_eq!([pinned(&guarded), pinned(&unguarded)], [64, 0]);
    let names: Vec<_> = cases().iter().map(|case| case.name().to_owned()).collect();
    let expected = ["cfs.pass.all_new.ns", "cfs.guard.ns", "cfs.pass.pinned.ns", "cfs.pins.ns"];
    assert_eq!(names, expected);
}

/// The peer on DPDK counts every packet of the flows that came first, and no other, also where a
/// flow's first packets are of one burst; and it is measured wherever the table is.
#[test]
fn dpdks_hash_table_counts_the_flows_that_come_first() {
    let cpu = workload::first_cpu().expect("a CPU");
    let memory = ["--no-huge", "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry", "-l"];
    let eal = Eal::init(&[&memory[..], &[&*cpu]].concat()).expect("the EAL starts");
    let packets = workload::zipf(5_000, 60_000, 1.1, 9);
    let mut first: HashMap<FlowKey, u64> = HashMap::new();
    for key in &packets {
        if first.len() < 1_500 || first.contains_key(key) {
            *first.entry(*key).or_default() += 1;
        }
    }
    let twice_in_a_burst = |burst: &[FlowKey]| burst[1..].contains(&burst[0]);
    assert!(packets.chunks(BURST).take(8).any(twice_in_a_burst));
    let mut counts = RteHash::new(&eal, 1_500).expect("memory for so many flows");
    for _window in 0..2 {
        packets.chunks(BURST).for_each(|burst| counts.record_burst(burst));
        assert_eq!(counts.len(), 1_500);
        for key in &packets {
            let expected = first.get(key).map(|packets| [*packets, 64 * packets]);
            assert_eq!(counts.get(key), expected, "{key}");
        }
        counts.clear();
        assert!(counts.is_empty() && counts.get(&packets[0]).is_none());
    }

    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let cases = chosen::cases(&family, &eal);
    let names: Vec<&str> = cases.iter().map(|case| case.name()).collect();
    let of_table = names.iter().filter_map(|name| name.strip_prefix("cfs.table.record"));
    let tables: Vec<&str> = of_table.filter_map(|of| of.strip_suffix(".ns")).collect();
    assert_eq!(tables.len(), 6 + 18, "{tables:?}");
    for of in tables {
        for wanted in [
            format!("peer.rte_hash.record{of}.ns"),
            format!("peer.hash_map.record{of}.ns"),
            format!("peer.heap_map.record{of}.ns"),
            format!("cfs.table.over_rte_hash{of}"),
            format!("cfs.table.over_heap_map{of}"),
        ] {
            assert!(names.contains(&&*wanted), "{wanted}");
        }
    }
}
