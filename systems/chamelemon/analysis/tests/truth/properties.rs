//! Networks at random, and what must hold of every report on them.

use std::collections::HashSet;

use calumma_chamelemon::{Attention, Hierarchy, Partition, SampleRate};
use calumma_chamelemon_analysis::report::EpochReport;
use calumma_sketch::{FlowKey, Key};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::world::{FIRST, Fate, World, healthy};

const EPOCHS: u64 = 4;

/// Epochs that are measured after them, so that what is late arrives.
const AFTER: u64 = 8;

/// How a network treats the packets of a flow in an epoch.
#[derive(Clone, Debug)]
struct Treatment {
    epoch: u64,
    flow: u8,
    arrived: usize,
    lost: usize,
    copies: Vec<u8>,
    marked: Vec<u8>,
    translated: Option<Translation>,
    /// For each packet that is counted in another epoch, by how many that is later.
    elsewhere: Vec<i64>,
    /// For each packet that left when an epoch was over, by how many that one is later.
    late: Vec<i64>,
    /// For each packet whose mark says how old it is, its age in epochs.
    old: Vec<u64>,
    unmarked: usize,
}

#[derive(Clone, Copy, Debug)]
enum Translation {
    Source,
    Destination,
    Both,
    Tunnel,
}

/// Few hosts and ports, so that flows have ends in common.
fn flow(n: u8) -> FlowKey {
    let (host, server) = (n % 5 + 1, n / 5 % 3 + 1);
    let (sport, dport) = (1000 + u16::from(n / 15), [443, 53][usize::from(n % 2)]);
    let proto = if dport == 53 { 17 } else { 6 };
    FlowKey::new([10, 1, 0, host].into(), [10, 2, 0, server].into(), sport, dport, proto).unwrap()
}

impl Translation {
    /// What flow number `n` becomes: no flow that enters.
    fn of(self, n: u8) -> FlowKey {
        let (key, outside) = (flow(n), [10, 7, 7, n % 3].into());
        let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
        let (sport_outside, inside) = (5000 + u16::from(n), [10, 8, 0, n % 3].into());
        let key = match self {
            Self::Source => FlowKey::new(outside, dst, sport_outside, dport, key.protocol()),
            Self::Destination => FlowKey::new(src, inside, sport, 8080, key.protocol()),
            Self::Both => FlowKey::new(outside, inside, sport_outside, dport, key.protocol()),
            Self::Tunnel => FlowKey::new(outside, inside, 0, 0, 47),
        };
        key.unwrap()
    }
}

fn translation() -> impl Strategy<Value = Translation> {
    prop_oneof![
        Just(Translation::Source),
        Just(Translation::Destination),
        Just(Translation::Both),
        Just(Translation::Tunnel),
    ]
}

prop_compose! {
    fn treatment()(
        (epoch, flow) in (0..EPOCHS, 0u8..60),
        (arrived, lost) in (0usize..12, prop_oneof![Just(0), 0usize..6]),
        copies in prop_oneof![4 => Just(vec![]), 1 => vec(2u8..5, 1..3)],
        marked in prop_oneof![8 => Just(vec![]), 1 => vec(1u8..4, 1..3)],
        translated in prop_oneof![4 => Just(None), 1 => translation().prop_map(Some)],
        elsewhere in prop_oneof![
            4 => Just(vec![]),
            1 => vec(prop::sample::select(vec![-1, 1, 2, 4, 6]), 1..4),
        ],
        late in prop_oneof![
            6 => Just(vec![]),
            1 => vec(prop::sample::select(vec![0, 0, -2, -1, 2, 4]), 1..4),
        ],
        unmarked in prop_oneof![9 => Just(0), 1 => 1usize..4],
        old in prop_oneof![8 => Just(vec![]), 1 => vec(prop::sample::select(vec![0, 2, 4, 6]), 1..4)],
    ) -> Treatment {
        let epoch = FIRST + epoch;
        Treatment {
            epoch, flow, arrived, lost, copies, marked, translated, elsewhere, late, old, unmarked,
        }
    }
}

impl Treatment {
    fn apply(&self, world: &mut World) {
        let mut fates = vec![Fate::Lost; self.lost];
        if let Some(translation) = self.translated {
            let other = translation.of(self.flow);
            fates.extend(vec![Fate::Became(other); self.arrived]);
            // Only what is late is counted in the wrong epoch: nothing changes its mark as well.
            let held_up = self.elsewhere.iter().filter(|&&by| by > 0 && by % 2 == 0);
            fates.extend(held_up.map(|&by| Fate::BecameElsewhere(other, by)));
            let late = self.late.iter().filter(|&&by| self.epoch.strict_add_signed(by) >= FIRST);
            fates.extend(late.map(|&by| Fate::BecameLate(other, by)));
        } else {
            fates.extend(vec![Fate::Arrived; self.arrived]);
            fates.extend(self.copies.iter().map(|&times| Fate::Copied(times)));
            fates.extend(self.marked.iter().map(|&bits| Fate::Marked(Hierarchy::from_bits(bits))));
            fates.extend(self.elsewhere().map(|(_, by)| Fate::Elsewhere(by)));
            let late = self.late.iter().filter(|&&by| self.epoch.strict_add_signed(by) >= FIRST);
            fates.extend(late.map(|&by| Fate::Late(by)));
            fates.extend(self.old.iter().map(|&by| Fate::Old(by)));
            fates.extend(vec![Fate::Unmarked(0); self.unmarked]);
        }
        for (at, &fate) in fates.iter().enumerate() {
            // In an order that has the same number of neighbours of every kind.
            let path = [usize::from(self.flow % 3), (at * 7 + 1) % 3];
            world.send(self.epoch, path, flow(self.flow), fate);
        }
    }

    /// The epochs in which packets of this one are counted, and by how many these are later.
    fn elsewhere(&self) -> impl Iterator<Item = (u64, i64)> {
        let at = self.elsewhere.iter().map(|&by| (self.epoch.strict_add_signed(by), by));
        at.filter(|&(epoch, _)| epoch >= FIRST)
    }

    /// Whether packets of the flow were lost, or left in time, and nothing else happened.
    fn is_plain(&self) -> bool {
        let marks = self.marked.is_empty() && self.unmarked == 0 && self.old.is_empty();
        marks
            && self.late.is_empty()
            && self.copies.is_empty()
            && self.translated.is_none()
            && self.elsewhere.is_empty()
    }
}

fn attention() -> impl Strategy<Value = Attention> {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let ill = Attention { t_h: 10, t_l: 4, sample_rate: SampleRate::ALL, partition };
    prop_oneof![Just(healthy()), Just(Attention { t_h: 6, ..healthy() }), Just(ill)]
}

/// The same where only some light losses are seen.
fn attention_with_samples() -> impl Strategy<Value = Attention> {
    let partition = Partition { hh: 128, hl: 64, ll: 64 };
    let sample_rate = SampleRate::new(0.4).unwrap();
    prop_oneof![3 => attention(), 1 => Just(Attention { t_h: 10, t_l: 4, sample_rate, partition })]
}

fn played(attention: Attention, treatments: &[Treatment], strangers: &[(u64, u8)]) -> World {
    let mut world = World::new(attention, EPOCHS + AFTER);
    treatments.iter().for_each(|treatment| treatment.apply(&mut world));
    for &(epoch, n) in strangers {
        let router = FlowKey::new([10, 9, 9, n].into(), [10, 1, 0, 1].into(), 0, 0, 1).unwrap();
        world.leave(FIRST + epoch, 0, router, Hierarchy::HlCandidate);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_network_gets_a_wrong_number_into_a_report(
        attention in attention_with_samples(),
        mut treatments in vec(treatment(), 0..40),
        strangers in vec((0..EPOCHS, any::<u8>()), 0..4),
        room in prop_oneof![3 => Just(usize::MAX), 1 => 0usize..4],
    ) {
        // A flow is translated for as long as an epoch, or not at all: see the assumptions.
        treatments.sort_by_key(|of| (of.epoch, of.flow, of.translated.is_none()));
        treatments.dedup_by_key(|of| (of.epoch, of.flow));
        // Late packets of unknown flows make an epoch incomplete, which shows nothing of others.
        if room < usize::MAX {
            treatments.iter_mut().for_each(|of| of.elsewhere.clear());
        }
        // Where packets are counted that are not of the epoch, none of the flow may be missing:
        // that shows nowhere.
        let others: HashSet<(u64, u8)> = treatments
            .iter()
            .filter(|of| of.translated.is_none())
            .flat_map(|of| of.elsewhere().map(|(epoch, _)| (epoch, of.flow)))
            .collect();
        for of in treatments.iter_mut().filter(|of| others.contains(&(of.epoch, of.flow))) {
            (of.lost, of.translated, of.unmarked) = (0, None, 0);
            of.elsewhere.clear();
            of.old.clear();
            of.late.clear();
            of.marked.clear();
        }
        let world = played(attention, &treatments, &strangers).with_room(room);
        let reports = world.reports();
        prop_assert_eq!(world.contradicts(&reports), None, "{:#?}", reports);
    }

    /// Where marks are signed, what is translated leaves without a valid one, and is kept with the
    /// epochs that are open then; only with one beside its own where clocks differ by more than
    /// shows, and with later ones where it was held up.
    #[test]
    fn no_number_is_wrong_where_what_is_translated_has_no_mark(
        attention in attention(),
        mut treatments in vec(treatment(), 0..40),
        open in vec(
            prop_oneof![
                prop::sample::select(vec![&[0][..], &[0], &[-1, 0], &[0, 1], &[-1], &[1]]),
                prop::sample::select(vec![&[1, 2][..], &[2], &[2, 3], &[3], &[6, 7], &[8], &[11]]),
            ],
            1..12,
        ),
        room in prop_oneof![3 => Just(usize::MAX), 1 => 0usize..4],
    ) {
        treatments.sort_by_key(|of| (of.epoch, of.flow));
        treatments.dedup_by_key(|of| (of.epoch, of.flow));
        let world = World::new(attention, EPOCHS + AFTER + 4);
        let mut world = world.with_room(room).with_dated_marks();
        for of in &treatments {
            let left = |at: usize| match of.translated {
                Some(translation) => {
                    Fate::Translated(translation.of(of.flow), open[at % open.len()])
                }
                None => Fate::Arrived,
            };
            // What is late and has a mark all the same: nothing signs it, or it fits by chance.
            let late = |by: u64| match (of.translated, by) {
                (Some(translation), 8) => Fate::BecameElsewhere(translation.of(of.flow), 8),
                (Some(translation), _) => Fate::BecameOld(translation.of(of.flow), by),
                (None, 8) => Fate::Elsewhere(8),
                (None, _) => Fate::Old(by),
            };
            let held_up = of.old.iter().map(|&by| if by == 0 { 8 } else { by });
            let held_up = held_up.chain(of.elsewhere.iter().map(|_| 10));
            // Late packets of unknown flows make an epoch incomplete: it shows nothing of others.
            let held_up = held_up.filter(|_| room == usize::MAX).map(late);
            let fates = (0..of.arrived).map(left).chain(vec![Fate::Lost; of.lost]).chain(held_up);
            // The first epoch has none before it.
            for (at, fate) in fates.enumerate() {
                let path = [usize::from(of.flow % 3), at % 3];
                world.send(of.epoch + 1, path, flow(of.flow), fate);
            }
        }
        let reports = world.reports();
        prop_assert_eq!(world.contradicts(&reports), None, "{:#?}", reports);
    }

    /// So that the properties above are not ones of reports that say nothing.
    #[test]
    fn where_packets_are_only_lost_every_report_is_exact_for_all_strangers(
        attention in attention(),
        treatments in vec(treatment(), 0..40),
        strangers in vec((0..EPOCHS, any::<u8>()), 0..4),
    ) {
        let treatments: Vec<_> = treatments.into_iter().filter(Treatment::is_plain).collect();
        let world = played(attention, &treatments, &strangers);
        let reports = world.reports();
        prop_assert_eq!(world.contradicts(&reports), None);
        prop_assert!(reports.iter().all(EpochReport::losses_are_exact), "{:#?}", reports);
    }

    /// Copies of one flow leave what is known of the others.
    #[test]
    fn copies_leave_what_others_lost_exact(
        treatments in vec(treatment(), 1..40),
        copied in 60u8..75,
    ) {
        let mut treatments: Vec<_> =
            treatments.into_iter().filter(Treatment::is_plain).collect();
        let twice = Treatment {
            epoch: FIRST,
            flow: copied,
            arrived: 3,
            lost: 0,
            copies: vec![3],
            marked: vec![],
            translated: None,
            elsewhere: vec![],
            late: vec![],
            old: vec![],
            unmarked: 0,
        };
        treatments.push(twice);
        let world = played(healthy(), &treatments, &[]);
        let reports = world.reports();
        prop_assert_eq!(world.contradicts(&reports), None);
        prop_assert_eq!(reports[0].surplus.len(), 1);
        prop_assert!(reports[0].loss.iter().all(|loss| !loss.at_least));
    }
}
