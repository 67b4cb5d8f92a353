//! The bytes of setups and windows of each version, kept in files, which switches and controllers
//! one release older send. `CALUMMA_BLESS=1 cargo test -p calumma-cfs --test golden` writes them
//! anew, which is right only together with a new version.

mod samples;

use std::path::PathBuf;

use calumma_cfs::frames::{
    Graded, Holding, Hop, Notice, Overrides, Pins, Plan, PortHops, ROWS, ROWS_GUARD, Setup,
    Suspects, Window,
};
use calumma_sketch::grade::HopRule;
use calumma_sketch::residual::ARRAYS;
use calumma_sketch::table::Rank;

/// Setups that differ in all that can differ.
fn setups() -> [(&'static str, Setup); 4] {
    let rule = HopRule { base: Some(64), offset: 1, step: 2 };
    let greedy = Setup {
        hop: Hop::Ttl(rule),
        grade: Graded::Greedy,
        claim: false,
        reseed: false,
        ..samples::setup()
    };
    let random = Setup { hop: Hop::None, grade: Graded::Random, ..samples::setup() };
    [
        ("setup-fold", Setup::default()),
        ("setup-greedy", greedy),
        ("setup-random", random),
        ("setup-residual", samples::with_residual()),
    ]
}

fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    check_in("v1", name, bytes)
}

fn check_in(version: &str, name: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version);
    let file = folder.join(format!("{name}.bin"));
    if std::env::var_os("CALUMMA_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    let golden = std::fs::read(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    assert_eq!(bytes, golden, "{name} as encoded differs from {file:?}");
    golden
}

#[test]
fn setups_are_what_the_golden_files_hold() {
    for (name, setup) in setups() {
        let golden = check(name, &setup.encode());
        assert_eq!(Setup::decode(&golden), Ok(setup), "{name}");
    }
}

#[test]
fn windows_are_what_the_golden_files_hold() {
    for (name, window) in [("window-ipv4", samples::ipv4()), ("window-dual", samples::dual())] {
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::setup()), Ok(window), "{name}");
    }
}

#[test]
fn windows_with_a_residual_are_what_the_golden_files_hold() {
    for (name, window) in
        ["residual-edge", "residual-transit"].into_iter().zip(samples::uncounted())
    {
        let golden = check(name, &window.encode());
        assert_eq!(Window::decode(&golden, &samples::with_residual()), Ok(window), "{name}");
    }
}

#[test]
fn what_is_watched_for_loops_is_what_the_golden_files_of_version_2_hold() {
    for (name, setup) in [
        ("setup-guard", Setup { guard: true, ..samples::setup() }),
        ("setup-residual-guard", Setup { guard: true, ..samples::with_residual() }),
    ] {
        let golden = check_in("v2", name, &setup.encode());
        assert_eq!(Setup::decode(&golden), Ok(setup), "{name}");
    }
    for (name, (setup, window)) in
        ["guard-ipv4", "guard-dual", "guard-residual"].into_iter().zip(samples::guarded())
    {
        let golden = check_in("v2", name, &window.encode());
        assert_eq!(Window::decode(&golden, &setup), Ok(window), "{name}");
    }
}

#[test]
fn notices_are_what_the_golden_file_of_version_3_holds() {
    let notice = samples::notice();
    let golden = check_in("v3", "notice", &notice.encode());
    assert_eq!(Notice::decode(&golden), Ok(notice));
}

#[test]
fn pins_are_what_the_golden_files_of_version_4_hold() {
    let flows = samples::notice().flows.into_iter().map(|of| of.key).collect();
    let pins = Pins { flows };
    let golden = check_in("v4", "pins", &pins.encode());
    assert_eq!(Pins::decode(&golden, 256), Ok(pins));
    let holding = Holding { setup: samples::setup().encode(), epoch: 140, plan: golden };
    let golden = check_in("v4", "holding", &holding.encode());
    assert_eq!(Holding::decode(&golden), Ok(holding));
}

#[test]
fn where_flows_entered_and_left_is_what_the_golden_files_of_version_7_hold() {
    let (setup, window) = samples::with_ends();
    let golden = check_in("v7", "setup-ends", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let golden = check_in("v7", "window-ends", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
}

#[test]
fn shares_of_the_memory_are_what_the_golden_files_of_version_6_hold() {
    let (setup, window) = samples::divided();
    let golden = check_in("v6", "setup-alpha", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let golden = check_in("v6", "window-alpha", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
    let flows = samples::notice().flows.into_iter().map(|of| of.key).collect();
    let plan = Plan { alpha: 75, pins: Pins { flows }, ..Plan::default() };
    let golden = check_in("v6", "plan", &plan.encode(&setup));
    assert_eq!(Plan::decode(&golden, &setup), Ok(plan));
}

#[test]
fn what_entered_adds_up_to_what_the_golden_files_of_version_10_hold() {
    let (setup, window) = samples::with_sums();
    let golden = check_in("v10", "setup-sums", &setup.encode());
    assert_eq!((golden.last(), Setup::decode(&golden)), (Some(&(2 | 4 | 16)), Ok(setup)));
    let golden = check_in("v10", "window-sums", &window.encode());
    let by_hand = [4, 3, 2, 1, 0, 0, 0, 0, 0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE];
    assert!(golden.ends_with(&by_hand));
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
}

/// The hop of each port stands behind the entries, the filter, the registers and the epochs.
#[test]
fn hops_of_ports_are_what_the_golden_file_of_version_9_holds() {
    let hop = Hop::Port(PortHops::new(&[0, 2, 5]).unwrap());
    let setup = Setup { hop, ..samples::setup() };
    let golden = check_in("v9", "setup-ports", &setup.encode());
    let by_hand = [0, 1, 0, 0, 0, 0, 16, 0, 4, 20, 0, 2, 3, 0, 2, 5, 0, 1, 1];
    assert_eq!(golden, by_hand);
    assert_eq!(Setup::decode(&golden), Ok(setup));
}

/// The hops in all stand where hops of ports do.
#[test]
fn hops_of_marks_are_what_the_golden_file_of_version_11_holds() {
    let hop = Hop::Mark { length: 3 };
    let setup = Setup { hop, grade: Graded::Even, ..samples::setup() };
    let golden = check_in("v11", "setup-marks", &setup.encode());
    let by_hand = [0, 1, 0, 0, 0, 0, 16, 0, 4, 20, 0, 3, 3, 3, 1, 1];
    assert_eq!(golden, by_hand);
    assert_eq!(Setup::decode(&golden), Ok(setup));
}

/// A FlowRadar's part, read without the library.
struct Cells<'a>(&'a [u8]);

impl Cells<'_> {
    fn u64(&mut self) -> u64 {
        let (number, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        u64::from_le_bytes(*number)
    }

    /// So many numbers of so many bytes, which come byte by byte: none of the columns is long
    /// enough to be packed.
    fn column(&mut self, width: usize, number: usize) -> Vec<u64> {
        let mut numbers = vec![0; number];
        for byte in 0..width {
            let (kind, rest) = self.0.split_first().unwrap();
            let (column, rest) = rest.split_at(if *kind == 0 { 0 } else { number });
            assert!(*kind < 2, "packed");
            self.0 = rest;
            for (number, &of) in numbers.iter_mut().zip(column) {
                *number |= u64::from(of) << (8 * byte);
            }
        }
        numbers
    }
}

/// What the golden files have, by an own reader and own sums over the flows.
#[test]
fn flow_radars_are_what_the_golden_files_of_version_8_hold() {
    let setup = samples::with_flow_radar();
    let golden = check_in("v8", "setup-flowradar", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let [edge, transit] = samples::uncounted_by(&setup);
    let golden = check_in("v8", "flowradar-transit", &transit.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(transit));
    let golden = check_in("v8", "flowradar-edge", &edge.encode());
    assert_eq!(Window::decode(&golden, &setup).as_ref(), Ok(&edge));

    let before = Window { uncounted: None, ..edge }.encode().len();
    let mut read = Cells(&golden[before..]);
    assert_eq!(read.0.split_off_first(), Some(&1), "what entered is apart");
    assert_eq!((read.u64(), read.u64()), (0, 10), "passed, mixed");
    for is_entered in [true, false] {
        // Buckets and bits of the filter are halved.
        const BUCKETS: usize = 8;
        let flows = samples::flows_of_the_edge();
        let flows = flows.iter().filter(|(_, sides, _)| (*sides == 1) == is_entered);
        let flows: Vec<_> = flows.map(|(flow, _, counts)| (flow, *counts)).collect();
        let sum: u64 = flows.iter().map(|(_, counts)| counts.packets).sum();
        assert_eq!(read.u64(), sum);
        let checks = [read.u64(), read.u64()];
        // All packets have 60 bytes.
        assert!(checks[0] != 0 && checks[1] == checks[0].wrapping_mul(60));
        let mut wanted = vec![[0_u64; 7]; ARRAYS * BUCKETS];
        for (flow, counts) in &flows {
            let hashes = samples::family().hash(*flow);
            for array in 0..ARRAYS {
                let bucket = hashes.array_word(array) as usize % BUCKETS;
                let cell = &mut wanted[array * BUCKETS + bucket];
                let words = [0, 1, 2].map(|at| u64::from(calumma_sketch::Key::word(*flow, at)));
                cell.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
                cell[3] ^= 6;
                cell[4] += 1;
                cell[5] += counts.packets;
                cell[6] += counts.bytes;
            }
        }
        let number = wanted.len();
        let mut columns: Vec<Vec<u64>> =
            [4, 4, 4, 1, 4].into_iter().map(|width| read.column(width, number)).collect();
        for _ in 0..2 {
            let (low, high) = (read.column(4, number), read.column(4, number));
            columns.push(low.iter().zip(high).map(|(low, high)| low | high << 32).collect());
        }
        let cells: Vec<[u64; 7]> =
            (0..number).map(|at| std::array::from_fn(|of| columns[of][at])).collect();
        assert_eq!(cells, wanted);
        // Two blocks of eight words, and each flow sets a bit in each word of one.
        let filter = read.column(4, 16);
        let ones: u32 = filter.iter().map(|word| word.count_ones()).sum();
        assert!(ones > 0 && ones <= 8 * flows.len() as u32, "{filter:x?}");
    }
    assert!(read.0.is_empty());
}

#[test]
fn what_overrides_the_setup_is_what_the_golden_files_of_version_12_hold() {
    let (setup, window) = samples::overridden();
    let golden = check_in("v12", "setup-overrides", &setup.encode());
    assert_eq!((golden.last(), Setup::decode(&golden)), (Some(&(2 | 32)), Ok(setup)));
    let golden = check_in("v12", "window-overrides", &window.encode());
    assert_eq!(Window::decode(&golden, &setup).as_ref(), Ok(&window));
    let flows = samples::notice().flows.into_iter().map(|of| of.key).collect();
    let overrides: Overrides = window.overrides.unwrap();
    let plan = Plan { alpha: 75, pins: Pins { flows }, overrides };
    let golden = check_in("v12", "plan", &plan.encode(&setup));
    // 256 entries, the rule of number 1, claims.
    assert!(golden.starts_with(&[0, 1, 0, 0, 2, 0, 75]));
    assert_eq!(Plan::decode(&golden, &setup), Ok(plan));
}

/// Windows as in version 1, of flows that may be pinned.
#[test]
fn switches_with_rows_say_what_the_golden_files_of_version_13_hold() {
    let (newest, _) = samples::with_sums();
    let setup = Setup { residual: None, ..newest }.known_to(ROWS);
    let golden = check_in("v13", "setup-rows", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let mut window = samples::dual();
    window.entries[0].rank = Rank::new(0, 0);
    let golden = check_in("v13", "window-rows", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
}

/// The same with what they say of loops.
#[test]
fn switches_with_rows_that_watch_say_what_the_golden_files_of_version_14_hold() {
    let (newest, _) = samples::with_sums();
    let setup = Setup { residual: None, guard: true, ..newest }.known_to(ROWS_GUARD);
    let golden = check_in("v14", "setup-rows", &setup.encode());
    assert_eq!(Setup::decode(&golden), Ok(setup));
    let suspects = Some(Suspects { flows: samples::notice().flows, missed: 29 });
    let window = Window { suspects, ..samples::dual() };
    let golden = check_in("v14", "window-rows", &window.encode());
    assert_eq!(Window::decode(&golden, &setup), Ok(window));
}
