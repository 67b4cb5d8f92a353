//! Windows come back as they were sent, and what is wrong with one is named.

mod samples;

use calumma_cfs::frames::{Entry, Notice, Setup, Sizes, Suspects, Totals, Window};
use calumma_sketch::table::{Rank, Refused};
use calumma_sketch::{FlowKey, HyperLogLog, KeyKind, WideKey, either};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn setup() -> Setup {
    Setup { entries: 256, hll_bits: 4, ..Setup::default() }
}

fn ranks() -> impl Strategy<Value = Rank> {
    (0..=3_u8, any::<u32>()).prop_map(|(class, grade)| Rank::new(class, grade))
}

prop_compose! {
    fn entries(keys: KeyKind)(
        key: [u8; WideKey::LEN],
        packets in 1..=1_u64 << 40,
        bytes: u64,
        rank in ranks(),
        ttl: u8,
        differences in prop_oneof![Just(0), any::<u64>()],
        [from, to]: [u32; 2],
        sides in 1..=7_u8,
        [stays, exact]: [bool; 2],
    ) -> Entry {
        let mut narrow = [0; FlowKey::LEN];
        narrow.copy_from_slice(&key[..FlowKey::LEN]);
        let key = match keys {
            KeyKind::Ipv4 => FlowKey::from_bytes(narrow).into(),
            KeyKind::Dual => WideKey::from_bytes(key),
        };
        let looped = differences.count_ones().into();
        let packets = packets + looped;
        let (first_us, last_us) = (from.min(to), from.max(to));
        let local = stays && sides & Entry::ENTERED != 0;
        Entry { packets, bytes, rank, ttl, differences, looped, first_us, last_us, sides, local, exact,
            ..Entry::new(key) }
    }
}

fn windows() -> impl Strategy<Value = Window> {
    prop_oneof![Just(KeyKind::Ipv4), Just(KeyKind::Dual)].prop_flat_map(|keys| {
        let entries = prop::collection::vec(entries(keys), 0..70);
        let limit = prop::option::of(ranks());
        let registers = prop::collection::vec(0..=61_u8, 16);
        let totals: BoxedStrategy<[u32; 11]> = any::<[u32; 11]>().boxed();
        let flags = any::<(bool, u64, Option<u32>)>();
        (entries, limit, registers, totals, flags).prop_map(
            move |(mut entries, limit, registers, totals, flags)| {
                entries.sort_by_key(|entry| entry.key);
                entries.dedup_by_key(|entry| entry.key);
                let (routes_changed, hash_key, theta) = flags;
                let [refused_packets, evicted_packets, evicted, refused, filtered, ..] =
                    totals.map(u64::from);
                let [.., crowded, unmarked, claimed_in, claimed_out, memory, more] =
                    totals.map(u64::from);
                let counted: u64 = entries.iter().map(|entry| entry.packets).sum();
                let totals = Totals {
                    packets: counted + refused_packets + evicted_packets,
                    refused_packets,
                    evicted_packets,
                    admitted: evicted + entries.len() as u64 + more,
                    evicted,
                    refused,
                    filtered,
                    crowded,
                    unmarked,
                    claimed_in,
                    claimed_out,
                    memory,
                };
                let flows = HyperLogLog::from_registers(registers).unwrap();
                Window {
                    keys,
                    hash_key,
                    routes_changed,
                    limit,
                    theta,
                    alpha: None,
                    overrides: None,
                    totals,
                    flows,
                    entries,
                    uncounted: None,
                    suspects: None,
                    ends: None,
                }
            },
        )
    })
}

proptest! {
    #[test]
    fn windows_come_back_as_they_were_sent(window in windows(), cut in 1..400_usize) {
        let mut bytes = window.encode();
        prop_assert_eq!(Window::decode(&bytes, &setup()), Ok(window));
        let shorter = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(Window::decode(shorter, &setup()).is_err());
        bytes.push(0);
        let more = Window::decode(&bytes, &setup()).unwrap_err().to_string();
        prop_assert!(more.ends_with("1 bytes are left over after the last field"), "{}", more);
    }

    #[test]
    fn a_changed_byte_makes_no_panic_and_no_window_that_is_none(
        window in windows(),
        at: prop::sample::Index,
        to: u8,
    ) {
        let mut bytes = window.encode();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(read) = Window::decode(&bytes, &setup()) {
            prop_assert_eq!(Window::decode(&read.encode(), &setup()), Ok(read));
        }
    }

    #[test]
    fn no_bytes_make_a_panic(bytes: Vec<u8>) {
        prop_assert!(Window::decode(&bytes, &setup()).is_err());
    }
}

fn refused(change: impl FnOnce(&mut Window)) -> String {
    let mut window = samples::ipv4();
    change(&mut window);
    Window::decode(&window.encode(), &samples::setup()).unwrap_err().to_string()
}

#[test]
fn what_contradicts_itself_is_refused_with_its_byte() {
    let twice = refused(|window| window.entries[1].key = window.entries[0].key);
    assert!(twice.starts_with("byte "), "{twice}");
    assert!(twice.contains("keys: entries 0 and 1, ") && twice.ends_with("are the same flow"));
    let reversed = refused(|window| window.entries.reverse());
    assert!(reversed.ends_with("are not in order"), "{reversed}");
    let sum = refused(|window| window.totals.packets += 1);
    assert!(sum.ends_with("packets: 1001, but 1000 are in entries or had none"), "{sum}");
    let flows = refused(|window| window.totals.evicted += 1);
    assert!(flows.ends_with("admitted flows: 7, less 5 evicted: 3 are there"), "{flows}");
    let empty = refused(|window| window.entries[2].packets = 0);
    assert!(empty.contains("packets: entry 2, ") && empty.ends_with(": 0"), "{empty}");
    let looped = refused(|window| window.entries[0].looped = 500);
    assert!(looped.ends_with("500 of 500"), "{looped}");
    let alike = refused(|window| window.entries[0].differences = 2);
    assert!(alike.ends_with("0x2 of 0 looped packets"), "{alike}");
    let nowhere = refused(|window| window.entries[1].sides = 8);
    assert!(nowhere.contains("sides: entry 1, ") && nowhere.ends_with(": 0x8"), "{nowhere}");
    let backwards = refused(|window| window.entries[0].last_us = 0);
    assert!(backwards.ends_with("beyond 2^32 microseconds"), "{backwards}");
}

/// A window that is cut behind so many bytes is refused with the byte, and so is one with a bit
/// changed there, unless it means what it says.
fn check_cut_and_changed(bytes: &[u8], without: usize, setup: &Setup) {
    for cut in without..bytes.len() {
        let refused = Window::decode(&bytes[..cut], setup).unwrap_err().to_string();
        assert!(refused.starts_with("byte "), "{refused}");
    }
    for at in without..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1 << (at % 8);
        if let Ok(read) = Window::decode(&changed, setup) {
            assert_eq!(Window::decode(&read.encode(), setup), Ok(read));
        }
    }
}

/// A residual with one byte changed, or cut, is refused with the byte, or means what it says.
#[test]
fn residuals_that_contradict_themselves_are_refused_with_their_byte() {
    let setup = samples::with_residual();
    for window in samples::uncounted() {
        let bytes = window.encode();
        assert_eq!(Window::decode(&bytes, &setup).as_ref(), Ok(&window));
        let without = Window { uncounted: None, ..window.clone() }.encode().len();
        check_cut_and_changed(&bytes, without, &setup);
        // Nobody asked for a residual; a larger one was asked for.
        assert!(Window::decode(&bytes, &samples::setup()).is_err());
        let more = Setup { residual: Some(18), ..setup };
        assert!(Window::decode(&bytes, &more).is_err());
        let says = |change: &dyn Fn(&mut Window), words: &str| {
            let mut window = window.clone();
            change(&mut window);
            let refused = Window::decode(&window.encode(), &setup).unwrap_err().to_string();
            assert!(refused.starts_with("byte ") && refused.contains(words), "{refused}");
        };
        let fewer: &dyn Fn(&mut Window) = &|window| {
            window.totals.packets += 1;
            window.totals.refused_packets += 1;
        };
        says(fewer, "have no entry");
        says(
            &|window| either!(&mut window.uncounted.as_mut().unwrap().flows, of => of.passed = 1 << 30),
            "in the rest",
        );
        says(&|window| window.uncounted.as_mut().unwrap().refused.clear(), "must be 1 to 1024");
        let large = Refused::from_words(&vec![0; 1 << 20]).unwrap();
        says(
            &|window| window.uncounted.as_mut().unwrap().refused.push(large.clone()),
            "blocks of a filter: 131072: must be 1 to",
        );
    }
}

/// The same of residuals that are FlowRadars.
#[test]
fn flow_radars_that_contradict_themselves_are_refused_with_their_byte() {
    let setup = samples::with_flow_radar();
    for window in samples::uncounted_by(&setup) {
        let bytes = window.encode();
        assert_eq!(Window::decode(&bytes, &setup).as_ref(), Ok(&window));
        let without = Window { uncounted: None, ..window.clone() }.encode().len();
        check_cut_and_changed(&bytes, without, &setup);
        // Another kind, size or filter was asked for.
        assert!(Window::decode(&bytes, &samples::with_residual()).is_err());
        let more = Setup { residual: Some(18), ..setup };
        assert!(Window::decode(&bytes, &more).is_err());
        assert!(Window::decode(&bytes, &Setup { filter_bits: 1 << 13, ..setup }).is_err());
        let mut other = window.clone();
        other.totals.packets += 1;
        other.totals.refused_packets += 1;
        let refused = Window::decode(&other.encode(), &setup).unwrap_err().to_string();
        assert!(refused.starts_with("byte ") && refused.contains("have no entry"), "{refused}");
        // Behind the flag and what the rest is mixed of, packets of the first part.
        let mut fewer = bytes.clone();
        fewer[without + 17] ^= 1;
        let refused = Window::decode(&fewer, &setup).unwrap_err().to_string();
        assert!(refused.contains("but the cells of array 0 have"), "{refused}");
    }
}

/// Filters of where flows entered and left are of the setup's size at most, and one of each lcore.
#[test]
fn ends_that_no_switch_can_have_are_refused_with_their_byte() {
    let (setup, window) = samples::with_ends();
    let bytes = window.encode();
    assert_eq!(Window::decode(&bytes, &setup).as_ref(), Ok(&window));
    let without = Window { ends: None, ..window.clone() }.encode().len();
    check_cut_and_changed(&bytes, without, &setup);
    assert!(Window::decode(&bytes, &Setup { ends: false, ..setup }).is_err());
    assert!(Window::decode(&bytes, &Setup { sums: true, ..setup }).is_err());
    let (of_sums, with_sums) = samples::with_sums();
    let more = with_sums.encode();
    assert_eq!(Window::decode(&more, &of_sums).as_ref(), Ok(&with_sums));
    check_cut_and_changed(&more, bytes.len(), &of_sums);
    let says = |change: &dyn Fn(&mut Window), words: &str| {
        let mut window = window.clone();
        change(&mut window);
        let refused = Window::decode(&window.encode(), &setup).unwrap_err().to_string();
        assert!(refused.starts_with("byte ") && refused.contains(words), "{refused}");
    };
    says(&|window| window.ends.as_mut().unwrap().left.clear(), "must be 1 to 1024");
    // Half of the bits of the setup, and a block of each lcore.
    let blocks = setup.filter_bits as usize / 2 / 256;
    let large = Refused::from_words(&vec![0; 8 * (blocks + 1)]).unwrap();
    let most = format!("blocks of a filter: {}: must be 1 to {}", blocks + 1, blocks + 2 + 1 - 4);
    says(&|window| window.ends.as_mut().unwrap().entered.push(large.clone()), &most);
    // What went to a host of the same edge entered there.
    let left = |window: &mut Window| {
        (window.entries[1].sides, window.entries[1].local) = (Entry::LEFT, true);
    };
    says(&left, "sides: entry 1, ");
}

/// Which share a table had says how large it and the residual were: another does not fit what
/// follows.
#[test]
fn a_window_is_of_the_sizes_that_its_share_says() {
    let (setup, window) = samples::divided();
    let bytes = window.encode();
    assert_eq!(Window::decode(&bytes, &setup).as_ref(), Ok(&window));
    check_cut_and_changed(&bytes, 0, &setup);
    for alpha in [0, 60, 70, 80, 97] {
        let other = Window { alpha: Some(alpha), ..window.clone() };
        assert!(Window::decode(&other.encode(), &setup).is_err(), "{alpha}");
    }
    for alpha in [1, 59, 98, 255] {
        let other = Window { alpha: Some(alpha), ..window.clone() };
        let refused = Window::decode(&other.encode(), &setup).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("alpha: {alpha}: must be 0, or 60 to 97")), "{refused}");
    }
    // Nobody asked for it.
    assert!(Window::decode(&bytes, &Setup { alpha_moves: false, ..setup }).is_err());
}

/// Whatever the share, a switch has as many bytes for both.
#[test]
fn sizes_share_the_memory_of_the_setup() {
    for (entries, residual) in [(256, 16), (256, 400), (16_384, 1031), (1 << 22, 1 << 18)] {
        let setup = Setup { entries, residual: Some(residual), ..setup() };
        let bytes = |sizes: Sizes| {
            let of_table = u64::from(sizes.entries) * u64::from(Setup::ENTRY_BYTES);
            of_table + u64::from(sizes.residual.unwrap()) * u64::from(Setup::BUCKETS_BYTES)
        };
        let all = bytes(setup.sizes(0));
        assert_eq!(setup.sizes(0), Sizes { entries, residual: Some(residual) });
        let mut before = Sizes { entries: 0, residual: Some(u32::MAX) };
        for alpha in Setup::ALPHA {
            let sizes = setup.sizes(alpha);
            assert!(sizes.entries >= before.entries && sizes.residual <= before.residual);
            let is_full = sizes.entries == 1 << 22 || all - bytes(sizes) < 60;
            assert!(is_full && bytes(sizes) <= all, "{sizes:?} of {all} bytes");
            before = sizes;
        }
    }
    assert_eq!(setup().sizes(75), Sizes { entries: 256, residual: None });
}

#[test]
fn more_entries_than_a_table_has_are_refused() {
    let (mut window, mut setup) = (samples::ipv4(), samples::setup());
    setup.entries = 2;
    let refused = Window::decode(&window.encode(), &setup).unwrap_err().to_string();
    assert!(refused.ends_with("number of entries: 3, and the table has 2"), "{refused}");
    // Nothing is made for entries that are not there.
    setup.entries = 1 << 22;
    window.entries.clear();
    let mut bytes = window.encode();
    let columns = bytes.len() - 61;
    bytes[columns - 4..columns].copy_from_slice(&(1_u32 << 22).to_le_bytes());
    let refused = Window::decode(&bytes[..columns + 20], &setup).unwrap_err().to_string();
    assert!(refused.contains("number of entries: 61 columns follow"), "{refused}");
}

#[test]
fn an_entry_takes_its_key_and_fourteen_bytes() {
    let mut rng = StdRng::seed_from_u64(7);
    for keys in [KeyKind::Ipv4, KeyKind::Dual] {
        let mut window = if keys == KeyKind::Ipv4 { samples::ipv4() } else { samples::dual() };
        window.entries = (0..10_000).map(|_| random_entry(&mut rng, keys)).collect();
        window.entries.sort_by_key(|entry| entry.key);
        let counted: u64 = window.entries.iter().map(|entry| entry.packets).sum();
        let Totals { refused_packets, evicted_packets, .. } = window.totals;
        window.totals.packets = counted + refused_packets + evicted_packets;
        window.totals.admitted = 20_000;
        let setup = Setup { entries: 10_000, ..samples::setup() };
        let bytes = window.encode();
        assert!(Window::decode(&bytes, &setup).as_ref() == Ok(&window));
        let key = if keys == KeyKind::Ipv4 { FlowKey::LEN } else { WideKey::LEN };
        assert!(bytes.len() <= 10_000 * (key + 14), "{} bytes", bytes.len());
    }
}

/// A flow of a second, of up to 255 packets, with a key that nothing is known of.
fn random_entry(rng: &mut StdRng, keys: KeyKind) -> Entry {
    let packets = rng.random_range(1..256_u64).min(rng.random_range(1..256));
    let first_us = rng.random_range(0..1_000_000);
    let key = match keys {
        KeyKind::Ipv4 => FlowKey::from_bytes(rng.random()).into(),
        KeyKind::Dual => {
            let mut key = [0; WideKey::LEN];
            rng.fill(&mut key[..]);
            WideKey::from_bytes(key)
        }
    };
    Entry {
        key,
        packets,
        bytes: packets * rng.random_range(40..1500),
        rank: Rank::new(rng.random_range(2..4), rng.random()),
        ttl: rng.random_range(60..65),
        differences: 0,
        looped: 0,
        first_us,
        last_us: rng.random_range(first_us..1_000_000),
        sides: Entry::PASSED,
        local: false,
        exact: true,
    }
}

/// Suspects that are cut, changed, doubled or out of order are refused with the byte, or mean what
/// they say.
#[test]
fn suspects_that_contradict_themselves_are_refused_with_their_byte() {
    for (setup, window) in samples::guarded() {
        let bytes = window.encode();
        assert_eq!(Window::decode(&bytes, &setup).as_ref(), Ok(&window));
        let without = Window { suspects: None, ..window.clone() }.encode().len();
        check_cut_and_changed(&bytes, without, &setup);
        // Nobody asked for them.
        assert!(Window::decode(&bytes, &Setup { guard: false, ..setup }).is_err());
    }
    let [(setup, window), ..] = samples::guarded();
    let says = |change: &dyn Fn(&mut Suspects), words: &str| {
        let mut window = window.clone();
        change(window.suspects.as_mut().unwrap());
        let refused = Window::decode(&window.encode(), &setup).unwrap_err().to_string();
        assert!(refused.starts_with("byte ") && refused.contains(words), "{refused}");
    };
    says(&|of| of.flows[1] = of.flows[0], "keys: suspects 0 and 1, ");
    says(&|of| of.flows.reverse(), "are not in order");
    says(&|of| of.flows[1].differences = 0, "differences of suspects: suspect 1, ");
    let mut many = window.encode();
    let at = Window { suspects: None, ..window.clone() }.encode().len() + 8;
    many[at..at + 4].copy_from_slice(&(Suspects::MOST + 1).to_le_bytes());
    let refused = Window::decode(&many, &setup).unwrap_err().to_string();
    assert!(refused.ends_with("number of suspects: 65537: must be at most 65536"), "{refused}");
    many.truncate(at + 4 + 20);
    many[at..at + 4].copy_from_slice(&Suspects::MOST.to_le_bytes());
    let refused = Window::decode(&many, &setup).unwrap_err().to_string();
    assert!(refused.ends_with("number of suspects: 22 columns follow"), "{refused}");
}

#[test]
fn a_notice_of_what_is_no_loop_for_certain_is_refused_and_a_damaged_one_never_panics() {
    let notice = samples::notice();
    for (ttl, differences) in [(63, 0b1_0100), (63, 1 << 7), (9, 0b1_0101_0100), (0, 0)] {
        let mut wrong = notice.clone();
        (wrong.flows[1].ttl, wrong.flows[1].differences) = (ttl, differences);
        let error = Notice::decode(&wrong.encode()).unwrap_err().to_string();
        assert!(error.starts_with("byte "), "{error}");
    }
    let bytes = notice.encode();
    for end in 0..bytes.len() {
        assert!(Notice::decode(&bytes[..end]).is_err(), "{end}");
    }
    assert!(Notice::decode(&[&bytes[..], &[0]].concat()).is_err());
}
