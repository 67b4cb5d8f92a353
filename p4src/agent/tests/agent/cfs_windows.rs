//! `p4src/cfs.p4` on the model of a Tofino, filled and read by its description: what a transit says
//! of a window.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use calumma_cfs::frames::{Graded, OFFER, Setup as Words, Window};
use calumma_sketch::{HashFamily, HashKey, HyperLogLog, WideKey};
use calumma_switchd::cfs::Cfs;
use calumma_switchd::system::{Setup, System, Target};
use calumma_tna::Program;
use calumma_wire::Role;

use crate::common::{CHIPS, HOST, Numbers, marked, packet, transit};

/// A transit in a network that measures IPv6 as well.
struct Transit {
    on: transit::Transit,
    words: Words,
}

/// Places of a row on either chip.
fn columns(target: Target<'_>) -> usize {
    if matches!(target, Target::Tofino2) { 6 } else { 4 }
}

fn setup(words: Words, target: Target<'_>) -> Result<Arc<dyn Setup>, String> {
    let session = transit::session(OFFER.system, words.encode(), 8);
    Cfs.setup((Role::Transit, target), &session, &session.systems[0])
}

impl Transit {
    fn new(entries: u32) -> Self {
        Self::on(Target::Tofino, entries)
    }

    fn on(target: Target<'_>, entries: u32) -> Self {
        let words = Words { entries, window_epochs: 4, ..Words::default() };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cfs.p4");
        let controller = format!("systems = [\"cfs\"]\n[cfs]\nentries = {entries}");
        let defines =
            Cfs.build((Role::Transit, target), &controller.parse().unwrap()).unwrap().defines;
        let program = Program::load(path, &defines).unwrap();
        Self { on: transit::Transit::new(&program, setup(words, target).unwrap()), words }
    }

    /// What it says of the window that begins with an epoch.
    fn window(&self, epoch: u64) -> Result<Window, String> {
        let side = self.on.side(epoch)?;
        let window = Window::decode(&side.body, &self.words).unwrap();
        assert_eq!(side.packets, window.totals.packets);
        Ok(window)
    }

    /// Draws packets of the epoch, by what is marked on them; gives packets and bytes of each flow.
    fn draw(&mut self, numbers: &mut Numbers, epoch: u64, came: &mut BTreeMap<WideKey, [u64; 2]>) {
        for _ in 0..4000 {
            let packet = packet(numbers);
            let bytes = marked(&packet, (epoch as u8 & 1) << 2);
            let sent = self.on.switch.inject(HOST, &bytes);
            assert_eq!(sent.len(), 1);
            let of_flow = came.entry(packet.key.into()).or_default();
            *of_flow = [of_flow[0] + 1, of_flow[1] + (bytes.len() - packet.ip) as u64];
        }
    }
}

#[test]
fn windows_of_several_epochs_are_counted_right() {
    CHIPS.into_iter().for_each(windows_are_counted_right);
}

fn windows_are_counted_right(target: Target<'_>) {
    let mut transit = Transit::on(target, 2000);
    let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
    let mut numbers = Numbers(11);
    for first in [8, 12] {
        let mut came: BTreeMap<WideKey, [u64; 2]> = BTreeMap::new();
        for epoch in first..first + 4 {
            transit.on.open(epoch, true);
            transit.draw(&mut numbers, epoch, &mut came);
            // One of IPv6 is of no flow that it knows.
            let mut bytes = vec![2; 12];
            bytes.extend_from_slice(&[
                0x86,
                0xDD,
                0x60 | (epoch as u8 & 1) << 3,
                0,
                0,
                0,
                0,
                8,
                17,
                64,
            ]);
            bytes.resize(14 + 40 + 8, 9);
            assert_eq!(transit.on.switch.inject(HOST, &bytes).len(), 1);
            transit.on.open(epoch, false);
        }
        let window = transit.window(first).unwrap();
        // All places of all columns are read.
        let most = columns(target) * (2000 / columns(target)).next_power_of_two() / 2;
        assert!(window.entries.len() <= most && window.entries.len() > most * 3 / 4);
        let all: u64 = came.values().map(|it| it[0]).sum();
        assert_eq!(window.totals.packets, all + 4);
        assert!(window.entries.len() > 600, "{} of {} flows", window.entries.len(), came.len());
        let mut flows = HyperLogLog::new(12);
        came.keys().for_each(|key| flows.insert(&family.hash(key)));
        assert_eq!(window.flows, flows);
        assert!(window.totals.evicted > 0 && window.totals.refused > 4, "{:?}", window.totals);
        for entry in &window.entries {
            assert!(entry.exact, "packets came one after the other");
            assert_eq!([entry.packets, entry.bytes], came[&entry.key], "{}", entry.key);
            let seed = transit.words.seed(first / 4);
            let grade =
                transit.words.grade_of(&family, &family.hash(&entry.key), (seed, 0), entry.ttl);
            assert_eq!(entry.rank.grade(), grade);
        }
        // The other group is as it was.
        let other = transit.window(first ^ 4).unwrap();
        assert_eq!(other.totals.packets > 0, first == 12);
    }
}

/// Where a packet was lost between its passes, nobody knows which: no count is exact.
#[test]
fn a_packet_that_is_lost_between_the_passes_costs_all_exactness() {
    let mut transit = Transit::new(256);
    let mut numbers = Numbers(5);
    transit.on.open(8, true);
    let packets = [(); 20].map(|()| packet(&mut numbers));
    for packet in &packets[..19] {
        transit.on.switch.inject(HOST, &marked(packet, 0));
    }
    assert!(transit.window(8).unwrap().entries.iter().all(|entry| entry.exact));
    transit.on.switch.offer(HOST, &marked(&packets[19], 0));
    transit.on.switch.run(1, |_, _| panic!("it goes through once more"));
    transit.on.switch.discard_waiting();
    let window = transit.window(8).unwrap();
    assert_eq!(window.totals.packets, 20);
    assert!(!window.entries.is_empty() && window.entries.iter().all(|entry| !entry.exact));
}

/// Of a flow that begins with packets of two times to live at once, two entries are made, one of
/// which counts both packets.
#[test]
fn a_flow_with_two_entries_is_one_that_is_not_exact() {
    let mut transit = Transit::new(256);
    transit.on.open(8, true);
    let mut packet = packet(&mut Numbers(5));
    transit.on.switch.offer(HOST, &marked(&packet, 0));
    packet.bytes[packet.ip + 8] = 60;
    transit.on.switch.offer(HOST, &marked(&packet, 0));
    let mut sent = 0;
    transit.on.switch.run(usize::MAX, |_, _| sent += 1);
    assert_eq!(sent, 2);
    let second = transit.on.switch.read_register_lanes("column1.standing.words").unwrap();
    assert!(second[0].iter().any(|word| *word != 0), "it has two entries");
    let window = transit.window(8).unwrap();
    let [entry] = window.entries[..] else { panic!("{} entries", window.entries.len()) };
    assert_eq!((entry.packets, entry.exact), (2, false));
    assert_eq!((window.totals.packets, window.totals.admitted), (2, 2));
}

/// Words that no packets make are no window.
#[test]
fn words_that_contradict_each_other_are_refused() {
    CHIPS.into_iter().for_each(contradictions_are_refused);
}

fn contradictions_are_refused(target: Target<'_>) {
    let mut transit = Transit::on(target, 256);
    transit.on.open(8, true);
    let packet = packet(&mut Numbers(5));
    transit.on.switch.inject(HOST, &marked(&packet, 0));
    assert!(transit.window(8).is_ok());
    for register in ["ends.words", "ports.words", "counts.sums", "standing.words"] {
        let name = format!("column0.{register}");
        let lanes = transit.on.switch.read_register_lanes(&name).unwrap();
        let at = lanes[0].iter().position(|word| *word != 0).unwrap();
        let words: Vec<u32> = lanes.iter().map(|lane| lane[at]).collect();
        for lane in 0..words.len() {
            // Bytes may be any that the sixteenths allow.
            let bit = if (register, lane) == ("counts.sums", 1) { 1 << 20 } else { 0x100 };
            let mut wrong = words.clone();
            wrong[lane] ^= bit;
            transit.on.switch.write_register(&name, at, &wrong).unwrap();
            let is_refused = match transit.window(8) {
                Ok(window) => !window.entries[0].exact,
                Err(_) => true,
            };
            assert!(is_refused, "{register}, lane {lane}");
        }
        transit.on.switch.write_register(&name, at, &words).unwrap();
    }
    assert!(transit.window(8).is_ok());
}

/// What the program is not made for is refused with the reason.
#[test]
fn setups_that_the_program_is_not_made_for_are_refused() {
    let refused = |words: Words| setup(words, Target::Tofino).err().unwrap();
    let words = Words { grade: Graded::Greedy, ..Words::default() };
    assert_eq!(
        refused(words),
        "grade = \"greedy\": a Tofino grades by \"fold\" alone; set that, or run software switches"
    );
    let words = Words { hll_bits: 10, ..Words::default() };
    assert!(refused(words).starts_with("hll_bits = 10: a Tofino has 12;"));
    let words = Words { residual: Some(1024), ..Words::default() };
    assert!(refused(words).contains("no residual of flows without an entry: set [cfs] residual"));
}

/// Claims follow from a window that is full, for the one after the next.
#[test]
fn a_full_table_claims_less_from_the_window_after_the_next_on() {
    CHIPS.into_iter().for_each(a_full_table_claims_less);
}

fn a_full_table_claims_less(target: Target<'_>) {
    let mut transit = Transit::on(target, 256);
    let limit = |transit: &Transit, epoch: u64| {
        let gate = transit.on.setup.epoch(epoch, &[]).unwrap().gate;
        gate[0].args.iter().find(|(name, _)| *name == "limit").unwrap().1
    };
    let mut numbers = Numbers(3);
    transit.on.open(8, true);
    transit.draw(&mut numbers, 8, &mut BTreeMap::new());
    assert_eq!(limit(&transit, 8), 0, "all are claimed");
    let window = transit.window(8).unwrap();
    assert_eq!(window.theta, None);
    assert_eq!([limit(&transit, 8), limit(&transit, 15)], [0, 0]);
    let later = limit(&transit, 16);
    assert!(later > u32::MAX / 2, "{later:#x}: below a limit, complemented");
}
