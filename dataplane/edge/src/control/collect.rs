//! Between the lcores' measurements and the controller: gathers what the lcores finish, merges it
//! into one switch's groups, and hands cleared groups back.
//!
//! No I/O and no clock: the control thread drives it on a switch, a replay drives it in virtual
//! time.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use calumma_chamelemon::{
    AnyGroup, Attention, EgressGroup, EgressGroups, Hierarchy, IngressGroup, IngressGroups,
};
pub use calumma_link::SessionPlan;
use calumma_sketch::BURST;
use calumma_sketch::{AnyKey, FlowKey, HashFamily, Key};
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::counters::Counters;
use crate::measure::{EgressRecord, FromWorker, IngressRecord, Mailbox, Session, ToWorker};

/// Pairs of groups each lcore has: two in use, one on its way, one to spare.
const GROUPS: usize = 4;

/// Messages a mailbox holds each way: all groups and a few epochs' worth of everything else.
const MAILBOX: usize = 64;

/// Epochs after which one that an lcore did not finish is given up.
const MOST_PENDING: u64 = 4;

/// What a switch has finished, its lcores merged.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, and none is kept")]
pub enum Part {
    /// The ingress side of an epoch.
    Ingress {
        /// The epoch.
        epoch: u64,
        /// Its group; give it back by [`Collector::recycle`].
        record: Box<IngressRecord>,
        /// Whether the lcores measured under different attention, so that the sum means nothing.
        mixed_attention: bool,
        /// The switch's totals.
        counters: Counters,
    },
    /// The egress side of an epoch.
    Egress {
        /// The epoch.
        epoch: u64,
        /// Its group; give it back by [`Collector::recycle`].
        record: Box<EgressRecord>,
        /// Whether the lcores measured under different attention.
        mixed_attention: bool,
    },
    /// No packet of the epoch can be recorded any more.
    Sealed {
        /// The epoch.
        epoch: u64,
        /// Packets that came after the egress group was taken.
        late_packets: u64,
    },
}

/// Packets that lcores have recorded and handed over, but of which nobody else hears: another lcore did not
/// finish the epoch, or the session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Packets that entered.
    pub ingress: u64,
    /// Packets that left.
    pub egress: u64,
}

impl AddAssign for GivenUp {
    fn add_assign(&mut self, other: Self) {
        self.ingress += other.ingress;
        self.egress += other.egress;
    }
}

/// The other ends of all lcores' mailboxes.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "the boxes travel to the lcores and back as they are")]
pub struct Collector {
    lcores: Vec<Lcore>,
    session: u32,
    /// The first epoch that the session measures.
    first_epoch: u64,
    pending: BTreeMap<u64, Pending>,
    given_up: GivenUp,
    free_ingress: Vec<Box<IngressRecord>>,
    free_egress: Vec<Box<EgressRecord>>,
}

#[derive(Debug)]
struct Lcore {
    to: Sender<ToWorker>,
    from: Receiver<FromWorker>,
    /// Pairs of groups it was given and has not yet finished.
    pairs: usize,
    counters: Counters,
}

impl Lcore {
    /// Says something to the lcore. A full mailbox means that it has not run for many epochs; what
    /// it misses then shows as unmeasured epochs.
    fn send(&self, message: ToWorker) {
        let _ = self.to.try_send(message);
    }
}

/// An epoch of which some lcores' shares are still to come.
#[derive(Debug, Default)]
struct Pending {
    ingress: Share<IngressRecord>,
    egress: Share<EgressRecord>,
    sealed: usize,
    late_packets: u64,
}

impl Pending {
    /// Packets in the shares that are there.
    fn recorded(&self) -> GivenUp {
        GivenUp {
            ingress: self.ingress.sum.as_ref().map_or(0, |record| record.packets),
            egress: self.egress.sum.as_ref().map_or(0, |record| record.packets),
        }
    }
}

/// The sum of the lcores' records that have come so far.
#[derive(Debug)]
struct Share<R> {
    sum: Option<Box<R>>,
    lcores: usize,
    mixed_attention: bool,
}

impl<R> Default for Share<R> {
    fn default() -> Self {
        Self { sum: None, lcores: 0, mixed_attention: false }
    }
}

impl<R: Record> Share<R> {
    /// Adds an lcore's record; gives it back where it is not kept as the sum.
    fn add(&mut self, record: Box<R>) -> Option<Box<R>> {
        self.lcores += 1;
        match &mut self.sum {
            None => {
                self.sum = Some(record);
                None
            }
            Some(sum) => {
                self.mixed_attention |= sum.attention() != record.attention();
                sum.merge(&record);
                Some(record)
            }
        }
    }
}

/// A group that can be merged with another lcore's and used again.
pub trait Record {
    /// Adds what another lcore recorded in the same epoch.
    fn merge(&mut self, other: &Self);
    /// Empties the group.
    fn clear(&mut self);
    /// The attention it measured under.
    fn attention(&self) -> &Attention;
    /// Where the collector keeps such groups while nobody uses them.
    #[doc(hidden)]
    fn shelf(collector: &mut Collector) -> &mut Vec<Box<Self>>;
}

impl Record for IngressRecord {
    fn merge(&mut self, other: &Self) {
        self.group.merge(&other.group);
        self.packets += other.packets;
        self.stall_ns = self.stall_ns.max(other.stall_ns);
    }

    fn clear(&mut self) {
        self.group.clear();
        self.packets = 0;
        self.stall_ns = 0;
    }

    fn attention(&self) -> &Attention {
        self.group.attention()
    }

    fn shelf(collector: &mut Collector) -> &mut Vec<Box<Self>> {
        &mut collector.free_ingress
    }
}

impl Record for EgressRecord {
    fn merge(&mut self, other: &Self) {
        self.group.merge(&other.group);
        self.packets += other.packets;
        self.foreign_packets += other.foreign_packets;
        self.stall_ns = self.stall_ns.max(other.stall_ns);
    }

    fn clear(&mut self) {
        self.group.clear();
        self.packets = 0;
        self.foreign_packets = 0;
        self.stall_ns = 0;
    }

    fn attention(&self) -> &Attention {
        self.group.attention()
    }

    fn shelf(collector: &mut Collector) -> &mut Vec<Box<Self>> {
        &mut collector.free_egress
    }
}

/// Records a few bursts, so that no lcore waits for the system to map code which has never run: a few
/// tens of microseconds in the first burst of a session.
fn rehearse<K: Key + From<FlowKey>>(
    family: &HashFamily,
    ingress: &mut IngressGroup<K>,
    egress: &mut EgressGroup<K>,
) {
    let numbered: [K; BURST] = std::array::from_fn(|at| FlowKey::from_bytes([at as u8; 13]).into());
    for keys in [numbered, [numbered[0]; BURST]] {
        let mut hierarchies = [Hierarchy::NonSampledLl; BURST];
        ingress.record_burst(family, &keys, &mut hierarchies);
        egress.record_burst(family, &keys, &[Hierarchy::HhCandidate; BURST]);
    }
}

impl Collector {
    /// A collector for `lcores` lcores, and their mailboxes.
    pub fn new(lcores: usize) -> (Self, Vec<Mailbox>) {
        let (lcores, mailboxes) = (0..lcores)
            .map(|_| {
                let (to, inbox) = bounded(MAILBOX);
                let (outbox, from) = bounded(MAILBOX);
                let lcore = Lcore { to, from, pairs: 0, counters: Counters::default() };
                (lcore, Mailbox { inbox, outbox })
            })
            .unzip();
        let collector = Self {
            lcores,
            session: 0,
            first_epoch: 0,
            pending: BTreeMap::new(),
            given_up: GivenUp::default(),
            free_ingress: Vec::new(),
            free_egress: Vec::new(),
        };
        (collector, mailboxes)
    }

    /// Begins a session on all lcores: hands out the hash functions and empty groups. An earlier
    /// session ends.
    ///
    /// # Errors
    /// When the layout or the attention is invalid; nothing changes then.
    pub fn begin(&mut self, plan: &SessionPlan) -> anyhow::Result<()> {
        plan.layout.validate()?;
        plan.attention.validate(&plan.layout)?;
        let mut ingress = IngressRecord {
            group: IngressGroups::empty(&plan.layout, plan.attention, plan.first_epoch)?,
            packets: 0,
            stall_ns: 0,
        };
        let mut egress = EgressRecord {
            group: EgressGroups::empty(&plan.layout, plan.attention)?,
            packets: 0,
            foreign_packets: 0,
            stall_ns: 0,
        };
        let family = Arc::new(HashFamily::new(&plan.hash_key));
        match (&mut ingress.group, &mut egress.group) {
            (AnyKey::Ipv4(ingress), AnyKey::Ipv4(egress)) => rehearse(&family, ingress, egress),
            (AnyKey::Dual(ingress), AnyKey::Dual(egress)) => rehearse(&family, ingress, egress),
            (AnyKey::Ipv4(_), AnyKey::Dual(_)) | (AnyKey::Dual(_), AnyKey::Ipv4(_)) => {}
        }
        let pairs = GROUPS * self.lcores.len();
        self.free_ingress = vec![Box::new(ingress); pairs];
        self.free_egress = vec![Box::new(egress); pairs];
        // Emptied, which also writes to each once, so that no lcore pays for the first touch of a page.
        self.free_ingress.iter_mut().for_each(|record| record.clear());
        self.free_egress.iter_mut().for_each(|record| record.clear());

        self.finish();
        self.session += 1;
        self.first_epoch = plan.first_epoch;
        for lcore in &mut self.lcores {
            lcore.pairs = 0;
            lcore.send(ToWorker::Begin(Box::new(Session {
                number: self.session,
                keys: plan.layout.keys,
                family: family.clone(),
                clock: plan.clock,
                first_epoch: plan.first_epoch,
                attention: plan.attention,
            })));
        }
        self.hand_out();
        Ok(())
    }

    /// Ends the session: the lcores forward without measuring.
    pub fn end(&mut self) {
        self.session += 1;
        self.lcores.iter().for_each(|lcore| lcore.send(ToWorker::End));
    }

    /// Lets `attention` hold from `epoch` on, on all lcores.
    pub fn attend(&self, epoch: u64, attention: Attention) {
        self.lcores.iter().for_each(|lcore| lcore.send(ToWorker::Attend { epoch, attention }));
    }

    /// Takes in what the lcores have finished since the last call, and gives what is now finished
    /// on all of them.
    pub fn poll(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        for at in 0..self.lcores.len() {
            while let Ok(message) = self.lcores[at].from.try_recv() {
                parts.extend(self.take_in(at, message));
            }
        }
        if let Some((&newest, _)) = self.pending.last_key_value() {
            let kept = self.pending.split_off(&newest.saturating_sub(MOST_PENDING));
            for (_, pending) in std::mem::replace(&mut self.pending, kept) {
                self.give_up(pending);
            }
        }
        parts
    }

    fn take_in(&mut self, at: usize, message: FromWorker) -> Option<Part> {
        let (current, lcores) = (self.session, self.lcores.len());
        match message {
            FromWorker::Ingress { session, epoch, record, counters } if session == current => {
                self.lcores[at].counters = counters;
                let share = &mut self.pending.entry(epoch).or_default().ingress;
                let merged = share.add(record);
                let mixed_attention = share.mixed_attention;
                let sum = if share.lcores == lcores { share.sum.take() } else { None };
                merged.into_iter().for_each(|record| self.recycle(record));
                let counters = self.counters();
                sum.map(|record| Part::Ingress { epoch, record, mixed_attention, counters })
            }
            FromWorker::Egress { session, epoch, record } if session == current => {
                self.lcores[at].pairs -= 1;
                let share = &mut self.pending.entry(epoch).or_default().egress;
                let merged = share.add(record);
                let mixed_attention = share.mixed_attention;
                let sum = if share.lcores == lcores { share.sum.take() } else { None };
                merged.into_iter().for_each(|record| self.recycle(record));
                sum.map(|record| Part::Egress { epoch, record, mixed_attention })
            }
            FromWorker::Sealed { session, epoch, late_packets } if session == current => {
                let pending = self.pending.entry(epoch).or_default();
                pending.sealed += 1;
                pending.late_packets += late_packets;
                if pending.sealed < lcores {
                    return None;
                }
                let pending = self.pending.remove(&epoch)?;
                let late_packets = pending.late_packets;
                self.give_up(pending);
                // Of an epoch that ended before the session began only packets are worth a word.
                if epoch + 1 < self.first_epoch && late_packets == 0 {
                    return None;
                }
                Some(Part::Sealed { epoch, late_packets })
            }
            // Of an earlier session, whose layout may have been another.
            FromWorker::Ingress { record, .. } => {
                self.given_up.ingress += record.packets;
                None
            }
            FromWorker::Egress { record, .. } => {
                self.given_up.egress += record.packets;
                None
            }
            FromWorker::Sealed { .. } => None,
        }
    }

    /// Puts the groups to use again in which some lcores have recorded an epoch that others did not finish.
    fn give_up(&mut self, pending: Pending) {
        self.given_up += pending.recorded();
        pending.ingress.sum.into_iter().for_each(|record| self.recycle(record));
        pending.egress.sum.into_iter().for_each(|record| self.recycle(record));
    }

    /// Gives up the epochs of which shares are still to come: of this session no lcore will say more.
    pub fn finish(&mut self) {
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.given_up += pending.recorded();
        }
    }

    /// What was given up so far.
    pub fn given_up(&self) -> GivenUp {
        self.given_up
    }

    /// The switch's totals as of the last finished ingress groups.
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        self.lcores.iter().for_each(|lcore| total += &lcore.counters);
        total
    }

    /// Clears a group that has been read, and puts it to use again.
    pub fn recycle<R: Record>(&mut self, mut record: Box<R>) {
        record.clear();
        R::shelf(self).push(record);
        self.hand_out();
    }

    /// Gives pairs of groups to the lcores that have the fewest.
    fn hand_out(&mut self) {
        while let Some(lcore) = self.lcores.iter_mut().min_by_key(|lcore| lcore.pairs)
            && !self.free_ingress.is_empty()
            && let Some(egress) = self.free_egress.pop()
            && let Some(ingress) = self.free_ingress.pop()
        {
            lcore.pairs += 1;
            lcore.send(ToWorker::Groups(ingress, egress));
        }
    }
}
