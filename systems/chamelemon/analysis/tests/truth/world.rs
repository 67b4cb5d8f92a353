//! A network of edges in miniature, whose packets are lost, copied, rewritten and late as it is
//! asked for.

use std::collections::{BTreeMap, BTreeSet};

use calumma_chamelemon::frames::Late;
use calumma_chamelemon::{Attention, Balance, EgressGroup, Hierarchy, IngressGroup, Layout};
use calumma_chamelemon_analysis::report::{Amendment, EpochReport, Flow};
use calumma_chamelemon_analysis::{Analyser, EdgeInput, EpochInput, Tasks};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::{Stray, Strays, UNDATED};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key, Level, Part};

pub(crate) const EDGES: [&str; 3] = ["e1", "e2", "e3"];

/// The first epoch that is reported.
pub(crate) const FIRST: u64 = 100;

pub(crate) fn layout() -> Layout {
    Layout {
        upstream_buckets: 256,
        downstream_buckets: 128,
        classifier: vec![Level::new(8, 4096), Level::new(16, 2048)],
        ..Layout::default()
    }
}

pub(crate) fn healthy() -> Attention {
    Attention::healthy(&layout(), 128)
}

fn hash_key() -> HashKey {
    HashKey::from_bytes([9; 32])
}

pub(crate) fn analyser(layout: Layout) -> Analyser {
    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    Analyser::new(layout, &hash_key(), clock, Tasks::default())
}

/// What became of one packet that entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It left as it was.
    Arrived,
    /// It did not leave.
    Lost,
    /// It left so many times.
    Copied(u8),
    /// It left under another mark.
    Marked(Hierarchy),
    /// It left as another flow.
    Became(FlowKey),
    /// It left where the epoch so many after its own was being recorded.
    Elsewhere(i64),
    /// It left as another flow where the epoch so many after its own was being recorded.
    BecameElsewhere(FlowKey, i64),
    /// It left when the epoch so many after its own was over, and the next one with its timestamp
    /// bit had not begun; early where that is negative.
    Late(i64),
    /// The same as another flow.
    BecameLate(FlowKey, i64),
    /// It left so many epochs after its own, as its mark says, modulo eight; 0 where that was over.
    Old(u64),
    /// The same as another flow.
    BecameOld(FlowKey, u64),
    /// It left without a valid mark, so many epochs after its own.
    Unmarked(u64),
    /// It left as another flow and without a valid mark, while the epochs so many after its own
    /// were open, in their order; what it says of its own could be read.
    Translated(FlowKey, &'static [i64]),
}

/// What a flow did in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) entered: u64,
    pub(crate) lost: u64,
    /// Those of them that no encoder holds.
    pub(crate) unseen: u64,
    pub(crate) copies: u64,
    /// Packets that left, and not as packets of this flow in this epoch.
    pub(crate) moved: u64,
    /// Packets of other epochs that are counted in this one.
    pub(crate) counted: u64,
}

struct Groups {
    ingress: IngressGroup<FlowKey>,
    packets_in: u64,
    egress: EgressGroup<FlowKey>,
    packets_out: u64,
    entered: [u64; 4],
    left: [u64; 4],
    /// Packets that no sketch holds, by flow, hierarchy and age.
    strays: Tally,
    late: Tally,
    unmarked: Tally,
}

type Tally = BTreeMap<(FlowKey, Hierarchy, u8), u32>;

/// Epochs of a network.
pub(crate) struct World {
    layout: Layout,
    attention: Attention,
    family: HashFamily,
    epochs: BTreeMap<u64, Vec<Groups>>,
    truth: BTreeMap<(u64, FlowKey), Truth>,
    /// Entries that an edge's tables of strays have room for.
    room: usize,
    /// Whether marks have more of the epoch's number than the timestamp bit.
    dated: bool,
}

impl World {
    /// A network that measures `epochs` epochs under `attention`.
    pub(crate) fn new(attention: Attention, epochs: u64) -> Self {
        Self::of(layout(), attention, epochs)
    }

    /// The same with edges of another layout.
    pub(crate) fn of(layout: Layout, attention: Attention, epochs: u64) -> Self {
        let groups = |epoch| Groups {
            ingress: IngressGroup::new(&layout, attention, epoch).unwrap(),
            packets_in: 0,
            egress: EgressGroup::new(&layout, attention).unwrap(),
            packets_out: 0,
            entered: [0; 4],
            left: [0; 4],
            strays: Tally::new(),
            late: Tally::new(),
            unmarked: Tally::new(),
        };
        let of_edges = |epoch| EDGES.map(|_| groups(epoch)).into();
        let epochs = (FIRST..FIRST + epochs).map(|epoch| (epoch, of_edges(epoch))).collect();
        let (family, truth) = (HashFamily::new(&hash_key()), BTreeMap::new());
        Self { layout, attention, family, epochs, truth, room: usize::MAX, dated: false }
    }

    /// The same where edges keep strays of at most so many flows.
    pub(crate) fn with_room(self, room: usize) -> Self {
        Self { room, ..self }
    }

    /// The same where marks have more of the epoch's number than the timestamp bit.
    pub(crate) fn with_dated_marks(self) -> Self {
        Self { dated: true, ..self }
    }

    /// Sends a packet in `epoch` from one edge to another.
    pub(crate) fn send(&mut self, epoch: u64, [from, to]: [usize; 2], key: FlowKey, fate: Fate) {
        let groups = &mut self.epochs.get_mut(&epoch).unwrap()[from];
        let mark = groups.ingress.record(&key, &self.family.hash(&key));
        groups.packets_in += 1;
        groups.entered[usize::from(mark.bits())] += 1;
        let truth = self.truth.entry((epoch, key)).or_default();
        truth.entered += 1;
        match fate {
            Fate::Arrived => self.leave(epoch, to, key, mark),
            Fate::Lost => {
                truth.lost += 1;
                truth.unseen += u64::from(mark == Hierarchy::NonSampledLl);
            }
            Fate::Copied(times) => {
                truth.copies += u64::from(times) - 1;
                (0..times).for_each(|_| self.leave(epoch, to, key, mark));
            }
            Fate::Marked(mark) => {
                truth.moved += 1;
                self.leave(epoch, to, key, mark);
            }
            Fate::Became(other) => {
                truth.moved += 1;
                self.leave(epoch, to, other, mark);
            }
            Fate::Elsewhere(by) => {
                truth.moved += 1;
                let epoch = epoch.strict_add_signed(by);
                self.truth.entry((epoch, key)).or_default().counted += 1;
                self.leave(epoch, to, key, mark);
            }
            Fate::BecameElsewhere(other, by) => {
                truth.moved += 1;
                self.leave(epoch.strict_add_signed(by), to, other, mark);
            }
            Fate::BecameLate(other, by) => {
                truth.moved += 1;
                self.leave_late(epoch.strict_add_signed(by), to, other, mark);
            }
            Fate::Late(by) => {
                truth.moved += u64::from(by != 0);
                let at = self.at(epoch.strict_add_signed(by), to);
                *at.late.entry((key, mark, UNDATED)).or_default() += 1;
            }
            Fate::Old(by) => {
                truth.moved += u64::from(by > 0);
                let late = &mut self.at(epoch + by, to).late;
                *late.entry((key, mark, (by % 8) as u8)).or_default() += 1;
            }
            Fate::BecameOld(other, by) => {
                truth.moved += 1;
                let late = &mut self.at(epoch + by, to).late;
                *late.entry((other, mark, (by % 8) as u8)).or_default() += 1;
            }
            Fate::Unmarked(by) => {
                truth.moved += 1;
                let place = (key, Hierarchy::NonSampledLl, UNDATED);
                *self.at(epoch + by, to).unmarked.entry(place).or_default() += 1;
            }
            Fate::Translated(other, open) => {
                truth.moved += 1;
                // Kept with its own epoch, where that is open, else with the newest one.
                let keeper = if open.contains(&0) { Some(&0) } else { open.last() };
                for by in open {
                    let age = if Some(by) == keeper { by.rem_euclid(8) as u8 } else { UNDATED };
                    let unmarked = &mut self.at(epoch.strict_add_signed(*by), to).unmarked;
                    *unmarked.entry((other, Hierarchy::NonSampledLl, age)).or_default() += 1;
                }
            }
        }
    }

    /// A packet leaves the network.
    pub(crate) fn leave(&mut self, epoch: u64, edge: usize, key: FlowKey, mark: Hierarchy) {
        let hashes = self.family.hash(&key);
        let groups = self.at(epoch, edge);
        groups.packets_out += 1;
        groups.left[usize::from(mark.bits())] += 1;
        if !groups.egress.record(&key, &hashes, mark) {
            *groups.strays.entry((key, mark, 0)).or_default() += 1;
        }
    }

    /// A packet without a valid mark leaves, which says that it is of an epoch so many before.
    pub(crate) fn leave_unmarked(&mut self, epoch: u64, edge: usize, key: FlowKey, says: u8) {
        let place = (key, Hierarchy::NonSampledLl, says);
        *self.at(epoch, edge).unmarked.entry(place).or_default() += 1;
    }

    /// A packet leaves when the epoch is over.
    pub(crate) fn leave_late(&mut self, epoch: u64, edge: usize, key: FlowKey, mark: Hierarchy) {
        *self.at(epoch, edge).late.entry((key, mark, UNDATED)).or_default() += 1;
    }

    fn at(&mut self, epoch: u64, edge: usize) -> &mut Groups {
        &mut self.epochs.get_mut(&epoch).expect("an epoch of this network")[edge]
    }

    /// A table of strays as an edge sends it. Packets of hierarchy 0 that find no room are counted
    /// by hierarchy alone.
    fn strays(&self, tally: &Tally) -> Strays<FlowKey> {
        let mut strays = self.table(tally);
        let unencoded = tally.iter().skip(strays.entries.len());
        let unencoded = unencoded.filter(|((_, mark, _), _)| *mark == Hierarchy::NonSampledLl);
        strays.beyond -= unencoded.map(|(_, &packets)| u64::from(packets)).sum::<u64>();
        strays
    }

    /// A table of packets by flow.
    fn table(&self, tally: &Tally) -> Strays<FlowKey> {
        let entries = tally.iter().map(|(&(key, hierarchy, epochs_back), &packets)| Stray {
            key,
            hierarchy,
            epochs_back,
            packets,
        });
        let mut entries: Vec<_> = entries.collect();
        let rest = entries.drain(self.room.min(entries.len())..);
        let beyond = rest.map(|stray| u64::from(stray.packets)).sum();
        Strays { entries, beyond }
    }

    /// The bucket of a flow in each array of a part.
    pub(crate) fn place(&self, part: &Part, key: &FlowKey) -> [u32; 3] {
        let hashes = self.family.hash(key);
        [0, 1, 2].map(|array| part.bucket(hashes.array_word(array)))
    }

    /// What a flow did in an epoch.
    pub(crate) fn truth(&self, epoch: u64, key: &FlowKey) -> Truth {
        self.truth.get(&(epoch, *key)).copied().unwrap_or_default()
    }

    /// Packets of a flow that left when an epoch was over.
    fn late(&self, epoch: u64, key: &FlowKey) -> u64 {
        let tallies = self.epochs.get(&epoch).into_iter().flatten().map(|groups| &groups.late);
        let of_flow = tallies.flatten().filter(|((of, ..), _)| of == key);
        of_flow.map(|(_, &packets)| u64::from(packets)).sum()
    }

    /// What each flow did that entered in an epoch.
    pub(crate) fn flows(&self, epoch: u64) -> impl Iterator<Item = (FlowKey, Truth)> {
        let of_epoch = self.truth.iter().filter(move |((of, _), _)| *of == epoch);
        of_epoch.map(|(&(_, key), &truth)| (key, truth))
    }

    /// What the edges deliver of an epoch.
    pub(crate) fn input(&self, epoch: u64) -> EpochInput {
        let edges = EDGES.iter().zip(&self.epochs[&epoch]).map(|(edge, groups)| {
            let mut input = EdgeInput::from_groups(
                *edge,
                epoch,
                (&groups.ingress, groups.packets_in),
                (&groups.egress, groups.packets_out),
            );
            let egress = input.egress.as_mut().unwrap();
            egress.defects.foreign_packets = groups.egress.foreign_packets();
            egress.balance = Some(Balance::new(groups.left));
            egress.strays = Some(FlowKey::any(self.strays(&groups.strays)));
            egress.unmarked = Some(FlowKey::any(self.table(&groups.unmarked)));
            input.ingress.as_mut().unwrap().balance = Some(Balance::new(groups.entered));
            let strays = self.table(&groups.late);
            let late = groups.late.iter().filter(|((_, mark, _), _)| *mark != Hierarchy::default());
            let late: u64 = late.map(|(_, &packets)| u64::from(packets)).sum();
            input.late_packets = Some(late);
            input.late = Some(FlowKey::any(Late { unencoded: 0, strays }));
            input
        });
        EpochInput { epoch, planned: self.attention, edges: edges.collect() }
    }

    /// The reports on all epochs.
    pub(crate) fn reports(&self) -> Vec<EpochReport> {
        let mut analyser = analyser(self.layout.clone());
        analyser.decoder().set_dated(self.dated);
        self.epochs.keys().map(|&epoch| analyser.analyse(self.input(epoch))).collect()
    }

    /// What is wrong with reports, if anything: an exact number that is not the balance, a lower
    /// bound above the truth, a flow that lost packets and is passed over.
    pub(crate) fn contradicts(&self, reports: &[EpochReport]) -> Option<String> {
        let amended: Vec<&Amendment> =
            reports.iter().flat_map(|report| &report.amendments).collect();
        let amendment = |epoch, flow: &Flow| {
            let of = |amended: &&&Amendment| (amended.epoch, &amended.flow) == (epoch, flow);
            amended.iter().rfind(of)
        };
        for report in reports {
            let epoch = report.epoch;
            let mut named = BTreeSet::new();
            for loss in report.loss.iter().filter(|loss| !loss.partial) {
                let key = loss.flow.key().unwrap();
                named.insert(key);
                let truth = self.truth(epoch, &key);
                let (least, is_exact) = match amendment(epoch, &loss.flow) {
                    Some(amended) => (amended.lost, amended.late.is_some() && !loss.at_least),
                    None => (loss.lost, !loss.at_least),
                };
                let balance = truth.lost as i64 - (truth.copies + truth.counted) as i64;
                // Of what is left of an amended loss, copies may have made up for more.
                if least > truth.lost || (is_exact && least as i64 != balance.max(0)) {
                    return Some(format!("{epoch}: {loss:?}, but {truth:?}"));
                }
            }
            for surplus in report.surplus.iter().filter(|surplus| surplus.stranger) {
                let truth = self.truth(epoch, &surplus.flow.key().unwrap());
                if truth.entered > 0 {
                    return Some(format!("{epoch}: {surplus:?}, but {truth:?}"));
                }
            }
            for rewritten in &report.rewritten {
                let key = rewritten.from.key().unwrap();
                let truth = self.truth(epoch, &key);
                let late: u64 = (epoch - 2..=epoch).map(|epoch| self.late(epoch, &key)).sum();
                if rewritten.packets > truth.lost + truth.moved + late {
                    return Some(format!("{epoch}: {rewritten:?}, but {truth:?}"));
                }
            }
            let doubtful = report.surplus.iter().map(|surplus| surplus.flow);
            let doubtful = doubtful.chain(report.rewritten.iter().map(|rewritten| rewritten.from));
            named.extend(doubtful.map(|flow| flow.key::<FlowKey>().unwrap()));
            // Where there are causes, losses may be too small to be known.
            let all_named = report.losses_are_decoded() && report.causes.is_empty();
            let passed_over = self.flows(epoch).filter(|(key, truth)| {
                let stood_in = truth.copies + truth.counted + truth.unseen;
                all_named && truth.lost > stood_in && !named.contains(key)
            });
            let passed_over: Vec<_> = passed_over.collect();
            let balance = |of: &Truth| of.lost - of.unseen - of.copies - of.counted;
            let missing: u64 = passed_over.iter().map(|(_, of)| balance(of)).sum();
            let of_sets: i64 = report.indistinct.iter().map(|set| set.packets).sum();
            if all_named && missing as i64 != of_sets {
                return Some(format!("{epoch}: {passed_over:?} passed over, {of_sets} in sets"));
            }
        }
        None
    }
}
