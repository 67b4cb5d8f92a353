//! Lcores that run ChameleMon alone, and its groups as they come from them: for replays, figures
//! and tests, which look into groups. Switches make frames of them ([`crate::switch`]).
//!
//! No I/O and no clock: whoever drives it does so in virtual time.

use calumma_plane::measure::{Mailbox, Side};
use calumma_plane::merge::{self, Discarded};
use calumma_plane::secret::secret;
use calumma_plane::{AnyRecord, Counters, LcoreMerger, Recorded};
use calumma_sketch::{AnyKey, FlowKey, KeyKind, WideKey, either};

use crate::frames::{AnyLate, SessionPlan, encode_plan};
use crate::switch::{SetupError, SwitchHalf, late_of};
use crate::{Attention, EgressGroup, EgressGroups, IngressGroup, IngressGroups};

/// ChameleMon's position among the systems of a session: it is the only one.
const CHAMELEMON: usize = 0;

/// An ingress group and what else is known of its epoch.
#[derive(Clone, Debug)]
pub struct IngressRecord {
    /// Flow classifier and upstream flow encoder, for keys of the session's kind.
    pub group: AnyKey<IngressGroups>,
    /// Packets recorded.
    pub packets: u64,
    /// As [`Recorded::stall_ns`].
    pub stall_ns: u64,
}

/// An egress group and what else is known of its epoch.
#[derive(Clone, Debug)]
pub struct EgressRecord {
    /// Downstream flow encoder, for keys of the session's kind.
    pub group: AnyKey<EgressGroups>,
    /// Packets recorded, those that carry no encoding included.
    pub packets: u64,
    /// Packets that carried a hierarchy which has no buckets in this epoch.
    pub foreign_packets: u64,
    /// As [`Recorded::stall_ns`].
    pub stall_ns: u64,
}

/// What a switch has finished, its lcores merged.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, and none is kept")]
pub enum Part {
    /// The ingress side of an epoch.
    Ingress {
        /// The epoch.
        epoch: u64,
        /// Its group; give it back by [`LcoreGroups::recycle`].
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
        /// Its group; give it back by [`LcoreGroups::recycle`].
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
        /// What is known of these, and of late packets of hierarchy 0.
        late: AnyKey<AnyLate>,
    },
}

/// The other ends of all lcores' mailboxes, typed.
#[derive(Debug)]
pub struct LcoreGroups(LcoreMerger);

/// A group that can be used again.
pub trait Recyclable {
    /// Its side, and the record as the lcores know it.
    fn into_any_record(self) -> (Side, Box<dyn AnyRecord>);
}

impl Recyclable for IngressRecord {
    fn into_any_record(self) -> (Side, Box<dyn AnyRecord>) {
        let record: Box<dyn AnyRecord> = match self.group {
            AnyKey::Ipv4(group) => Box::new(Recorded::new(group)),
            AnyKey::Dual(group) => Box::new(Recorded::new(group)),
        };
        (Side::Ingress, record)
    }
}

impl Recyclable for EgressRecord {
    fn into_any_record(self) -> (Side, Box<dyn AnyRecord>) {
        let record: Box<dyn AnyRecord> = match self.group {
            AnyKey::Ipv4(group) => Box::new(Recorded::new(group)),
            AnyKey::Dual(group) => Box::new(Recorded::new(group)),
        };
        (Side::ByBit, record)
    }
}

impl LcoreGroups {
    /// For `lcores` lcores, with their mailboxes.
    pub fn new(lcores: usize) -> (Self, Vec<Mailbox>) {
        let (merger, mailboxes) = LcoreMerger::new(lcores);
        (Self(merger), mailboxes)
    }

    /// Begins a session on all lcores: hands out the hash functions and empty groups. An earlier
    /// session ends.
    ///
    /// # Errors
    /// When the layout or the attention is invalid; nothing changes then.
    pub fn begin(&mut self, plan: &SessionPlan) -> Result<(), SetupError> {
        let system = SwitchHalf::new(plan.clone())?;
        let SessionPlan { clock, first_epoch, .. } = *plan;
        let secret = secret(&plan.hash_key);
        self.0.begin(clock, first_epoch, secret, plan.layout.keys, vec![Box::new(system)]);
        Ok(())
    }

    /// Ends the session: the lcores forward without measuring.
    pub fn end(&mut self) {
        self.0.end();
    }

    /// Lets `attention` hold from `epoch` on, on all lcores.
    ///
    /// # Errors
    /// When it does not fit the session's layout, or there is no session; nothing changes then.
    pub fn reconfigure(&mut self, epoch: u64, attention: Attention) -> Result<(), String> {
        let plan = encode_plan(&attention);
        self.0.reconfigure(CHAMELEMON, epoch, &plan)
    }

    /// Takes what the lcores have finished since the last call, and gives what is now finished on
    /// all of them.
    pub fn poll(&mut self) -> Vec<Part> {
        let parts = self.0.poll();
        parts.into_iter().filter_map(|part| self.part(part)).collect()
    }

    /// Discards the epochs of which shares are still to come: the session is over.
    pub fn finish(&mut self) {
        self.0.finish();
    }

    /// By how many nanoseconds the clock was set, where that has ended the session; once.
    pub fn take_clock_set(&mut self) -> Option<i64> {
        self.0.take_clock_set()
    }

    /// What was discarded so far.
    pub fn discarded(&self) -> Discarded {
        self.0.discarded()
    }

    /// The switch's totals as of the last finished groups.
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// A part as ChameleMon's.
    fn part(&mut self, part: merge::Part) -> Option<Part> {
        match part {
            merge::Part::Side {
                epoch, side: Side::Ingress, record, mixed_plan, counters, ..
            } => {
                let record = Box::new(ingress(record)?);
                Some(Part::Ingress { epoch, record, mixed_attention: mixed_plan, counters })
            }
            merge::Part::Side { epoch, side: Side::ByBit, record, mixed_plan, .. } => {
                let record = Box::new(egress(record)?);
                Some(Part::Egress { epoch, record, mixed_attention: mixed_plan })
            }
            merge::Part::Sealed { system, epoch, late_packets, late: record } => {
                let late = match self.0.keys() {
                    KeyKind::Ipv4 => AnyKey::Ipv4(late_of(late_packets, record.as_deref())),
                    KeyKind::Dual => AnyKey::Dual(late_of(late_packets, record.as_deref())),
                };
                record.into_iter().for_each(|record| self.0.recycle_late(system, record));
                Some(Part::Sealed { epoch, late_packets, late })
            }
        }
    }

    /// Clears a group that has been read, and reuses it.
    #[expect(clippy::boxed_local, reason = "parts hold boxes")]
    pub fn recycle<R: Recyclable>(&mut self, record: Box<R>) {
        let (side, record) = (*record).into_any_record();
        self.0.recycle(CHAMELEMON, side, record);
    }
}

fn ingress(record: Box<dyn AnyRecord>) -> Option<IngressRecord> {
    let (packets, stall_ns) = (record.packets(), record.stall_ns());
    let record = record.into_any();
    let group = match record.downcast::<Recorded<IngressGroup<FlowKey>>>() {
        Ok(record) => AnyKey::Ipv4(record.group),
        Err(record) => {
            AnyKey::Dual(record.downcast::<Recorded<IngressGroup<WideKey>>>().ok()?.group)
        }
    };
    Some(IngressRecord { group, packets, stall_ns })
}

fn egress(record: Box<dyn AnyRecord>) -> Option<EgressRecord> {
    let (packets, stall_ns) = (record.packets(), record.stall_ns());
    let record = record.into_any();
    let group: AnyKey<EgressGroups> = match record.downcast::<Recorded<EgressGroup<FlowKey>>>() {
        Ok(record) => AnyKey::Ipv4(record.group),
        Err(record) => {
            AnyKey::Dual(record.downcast::<Recorded<EgressGroup<WideKey>>>().ok()?.group)
        }
    };
    let foreign_packets = either!(&group, group => group.foreign_packets());
    Some(EgressRecord { group, packets, foreign_packets, stall_ns })
}
