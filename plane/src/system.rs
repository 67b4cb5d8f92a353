//! What a measurement system does on a switch, and the records it keeps.
//!
//! A [`System`] is an entry of a static list: what a switch offers to the controller, and how a
//! session of it begins. From then on it has two halves. A [`LcoreSystem`] lives on an lcore, in
//! the packet path: it records bursts and owns what it records into. A [`SwitchSystem`] lives on
//! the control thread: it makes the lcores' halves and their empty records, checks plans, and makes
//! frames of what was recorded. Records travel between the two as [`AnyRecord`]s, so that whoever
//! moves, merges and clears them need not know the system.
//!
//! Not here: what the controller makes of the frames (`analysis`).

use std::any::Any;
use std::fmt::Debug;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calumma_epoch::EpochClock;
use calumma_sketch::{AnyKey, HashFamily, Key, KeyKind, Keyed};
use calumma_wire::{self as wire, Offer, Role, Secret, SideKind, SystemId, SystemSetup};

use crate::counters::Counters;
use crate::flows::Flows;
use crate::int::means::Means;
use crate::int::{Insertion, Instructions};
use crate::outlet::{Fronts, Outlets};
use crate::run::{MarkedRun, Run};
use crate::slots::AnySlots;
use crate::worker::Sent;

/// What one system keeps of one side for one epoch.
///
/// Values of several lcores add up: `merge` is associative and commutative, and a cleared record is
/// its neutral element.
pub trait Record: Debug + Send + 'static {
    /// What may change from epoch to epoch: thresholds, a division of memory.
    type Plan: Clone + PartialEq + Debug + Send + 'static;

    /// Sets the empty record to measure `epoch` under `plan`.
    fn begin(&mut self, plan: &Self::Plan, epoch: u64);

    /// The plan under which it measures.
    fn plan(&self) -> &Self::Plan;

    /// Adds what another lcore recorded in the same epoch under the same plan.
    fn merge(&mut self, other: &Self);

    /// Empties the record.
    fn clear(&mut self);

    /// Cache lines that recording writes to.
    fn lines(&self) -> usize {
        0
    }

    /// Readies cache line number `line`, if there are so many, for being written to. Changes
    /// nothing.
    fn make_ready(&mut self, _line: usize) {}
}

/// A system's record and what is known of any system's.
///
/// An lcore reads it for every packet and writes to it with every burst, while another lcore does
/// so with the record that the allocator put beside it: they share no cache line, nor a pair of
/// lines, which CPUs fetch together.
#[derive(Clone, Debug, PartialEq)]
#[repr(align(128))]
pub struct Recorded<R> {
    /// What the system keeps.
    pub group: R,
    /// Packets recorded.
    pub packets: u64,
    /// By how much the event that ended this side of the epoch came too late, in nanoseconds; 0
    /// where it came in time. Ingress: the flip, where it exceeds the guard for packets in
    /// flight. Others: the taking, where packets of the next epoch with the same timestamp bit
    /// may have come already. Of a window of several epochs, only those count whose timestamp bit
    /// next means another window.
    pub stall_ns: u64,
}

impl<R> Recorded<R> {
    /// A record of no packets.
    pub fn new(group: R) -> Self {
        Self { group, packets: 0, stall_ns: 0 }
    }
}

/// A [`Recorded`] of any system.
pub trait AnyRecord: Debug + Send {
    /// Adds what another lcore recorded in the same epoch; of another kind of record nothing.
    fn merge(&mut self, other: &dyn AnyRecord);

    /// Whether both measured under the same plan.
    fn same_plan(&self, other: &dyn AnyRecord) -> bool;

    /// Empties the record.
    fn clear(&mut self);

    /// Packets recorded.
    fn packets(&self) -> u64;

    /// As [`Recorded::stall_ns`].
    fn stall_ns(&self) -> u64;

    /// A copy, to use beside this one.
    fn copy(&self) -> Box<dyn AnyRecord>;

    /// The record itself.
    fn as_any(&self) -> &dyn Any;

    /// The record itself, to own.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl dyn AnyRecord + '_ {
    /// The record as that of one kind; `None` where it is of another.
    pub fn get<R: 'static>(&self) -> Option<&Recorded<R>> {
        self.as_any().downcast_ref()
    }
}

impl<R: Record + Clone> AnyRecord for Recorded<R> {
    fn merge(&mut self, other: &dyn AnyRecord) {
        if let Some(other) = other.get::<R>() {
            self.group.merge(&other.group);
            self.packets += other.packets;
            self.stall_ns = self.stall_ns.max(other.stall_ns);
        }
    }

    fn same_plan(&self, other: &dyn AnyRecord) -> bool {
        other.get::<R>().is_some_and(|other| self.group.plan() == other.group.plan())
    }

    fn clear(&mut self) {
        self.group.clear();
        self.packets = 0;
        self.stall_ns = 0;
    }

    fn packets(&self) -> u64 {
        self.packets
    }

    fn stall_ns(&self) -> u64 {
        self.stall_ns
    }

    fn copy(&self) -> Box<dyn AnyRecord> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The empty records of one lcore for one epoch.
#[derive(Debug)]
pub struct Groups {
    /// For packets that enter the network.
    pub ingress: Box<dyn AnyRecord>,
    /// For packets that are recorded by the timestamp bit they carry: those that leave the
    /// network, and those that pass from fabric to fabric.
    pub by_bit: Box<dyn AnyRecord>,
}

impl Groups {
    /// Records of one kind for both, each as `empty` makes it.
    pub fn alike<R: Record + Clone>(empty: impl Fn() -> R) -> Self {
        let record = || Box::new(Recorded::new(empty()));
        Self { ingress: record(), by_bit: record() }
    }

    /// Copies, to use beside these.
    pub fn copy(&self) -> Self {
        Self { ingress: self.ingress.copy(), by_bit: self.by_bit.copy() }
    }
}

/// A system's half on an lcore, for flows told apart by keys `K`. Called once a burst; nothing here
/// allocates, waits or panics.
pub trait LcoreSystem<K: Key>: Debug + Send {
    /// What it records into, for whoever moves it through the epochs.
    fn slots(&mut self) -> &mut dyn AnySlots;

    /// Whether it records packets that pass from fabric to fabric.
    fn wants_transit(&self) -> bool {
        false
    }

    /// Whether it records what transmit queues do with packets. Where no system does, nobody pays
    /// for it.
    fn wants_sent(&self) -> bool {
        false
    }

    /// Whether it records when packets arrived ([`Flows::arrival`]). Where no system does, nobody
    /// reads a clock for it.
    fn wants_arrivals(&self) -> bool {
        false
    }

    /// Whether it records packets' TTLs and lengths ([`Flows::ip`]). Where no system does, nobody
    /// reads them.
    fn wants_ip(&self) -> bool {
        false
    }

    /// Whether it tells packets of a flow that enter apart ([`Flows::digests`]).
    fn wants_digests(&self) -> bool {
        false
    }

    /// Whether packets have a claim, a bit that switches read and set ([`Flows::claimed`]). In the
    /// epochs that such a system measures, packets enter without what hosts have put there, and
    /// leave with what is configured.
    fn has_claims(&self) -> bool {
        false
    }

    /// Whether it goes by hops that marks carry: the hops in all that packets which enter are said
    /// to pass, 0 where that is not known. The switch then raises the number of the hop that
    /// packets go on to ([`IpFields::way`](crate::parse::detail::IpFields::way)).
    fn marks_hops(&self) -> Option<u8> {
        None
    }

    /// What it puts into packets, if it does: those that it [chooses](Flows::set_source) as they
    /// enter get an INT stack just before they are transmitted, and those that pass from fabric to
    /// fabric with a stack of this deployment get the switch's own hop. The same for as long as it
    /// is in the session.
    fn inserts(&self) -> Option<&Insertion> {
        None
    }

    /// The deployment whose INT stacks the switch takes for this network's, where it is of one, and
    /// the UDP port that marks packets with them, if any does.
    fn stacks_of(&self) -> Option<(NonZeroU16, Option<NonZeroU16>)> {
        self.inserts().map(|insertion| (insertion.domain, insertion.udp_port))
    }

    /// Whether it reads the INT stacks of packets that leave the network ([`Flows::stack`]). Stacks
    /// are taken out whether a system reads them or not.
    fn wants_stacks(&self) -> bool {
        false
    }

    /// Whether it records when packets were transmitted ([`Flows::departure_ns`]), in
    /// [`sent`](Self::sent). Where no system does, nobody reads a clock for it.
    fn wants_departures(&self) -> bool {
        false
    }

    /// Notes by what means the switch knows what it has put into packets since an epoch was armed
    /// last: of any epoch that packets may carry.
    fn note_means(&mut self, _means: Means) {}

    /// Whether it keeps the [first bytes](Self::fronts) of packets that leave the network. Where no
    /// system does, nobody copies them.
    fn wants_fronts(&self) -> bool {
        false
    }

    /// Where they are kept, before marks and INT stacks are taken out of a burst's packets.
    fn fronts(&mut self) -> Option<&mut Fronts> {
        None
    }

    /// The functions by which it hashes every packet's key, if it does. Where several systems have
    /// the same, a burst is hashed once for all of them.
    fn hashes_by(&self) -> Option<&HashFamily> {
        None
    }

    /// From here on flows have the [hashes](Flows::hashes) by its functions with them, or not.
    fn share_hashes(&mut self, _shared: bool) {}

    /// Records packets that enter the network with the timestamp bit [`Flows::bit`]. ChameleMon
    /// gives each its hierarchy, and a system with claims each its claim; one that
    /// [inserts](Self::inserts) says which go on with an INT stack.
    fn enter(&mut self, flows: &mut Flows<K>, counters: &mut Counters);

    /// Records packets that pass from fabric to fabric, by the marks they carry. They go on with
    /// the claims that [`Flows::set_claimed`] says.
    fn transit(&mut self, _flows: &mut Flows<K>, _counters: &mut Counters) {}

    /// Records packets that leave the network, by the marks they carry.
    fn leave(&mut self, flows: &Flows<K>, counters: &mut Counters);

    /// Records what a transmit queue did with some of `flows`, all of which have been recorded
    /// just before: bit i of `sent` stands for packet number i of these. Packets that no queue was
    /// handed, since the switch keeps or drops them, are never told of.
    fn sent(&mut self, _flows: &Flows<K>, _sent: Sent, _counters: &mut Counters) {}

    /// Records a run of packets of one flow that enters the network, as [`enter`](Self::enter)
    /// would one packet after the other. For simulations.
    fn enter_run(&mut self, key: &K, packets: u32, counters: &mut Counters) -> Run;

    /// Records what is left of a run as it leaves the network.
    fn leave_run(&mut self, key: &K, marked: &MarkedRun, counters: &mut Counters);
}

/// A system's half on an lcore, for either kind of key.
#[derive(Debug)]
pub enum LcoreHalf {}

impl Keyed for LcoreHalf {
    type Of<K: Key> = Box<dyn LcoreSystem<K>>;
}

impl LcoreHalf {
    /// A half for one kind of key as one for either kind.
    pub fn of<K: Key>(half: impl LcoreSystem<K> + 'static) -> AnyKey<Self> {
        K::any::<Self>(Box::new(half))
    }
}

/// A system, as a switch knows it before any session.
pub trait System: Debug + Sync {
    /// Its name: in the switch's status and in logs.
    fn name(&self) -> &'static str;

    /// Its number, and the versions of its bodies that the switch reads and writes.
    fn offer(&self) -> Offer;

    /// Whether it runs on switches of this role.
    fn runs_as(&self, role: Role) -> bool;

    /// Whether its frames are held for a controller that is away; else they are discarded then.
    fn is_held(&self) -> bool {
        true
    }

    /// Whether it measures by the deployment's hash key: where that changes, it ends, and begins
    /// anew by the new one.
    fn hashes(&self) -> bool {
        false
    }

    /// Begins to measure by the controller's setup.
    ///
    /// # Errors
    /// Why this switch can't, in words.
    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String>;
}

/// When the routes by which a switch forwards packets changed last, shared between who changes them
/// and systems. One that has no routes never says so.
#[derive(Clone, Debug, Default)]
pub struct RouteWatch(Arc<AtomicU64>);

impl RouteWatch {
    /// The routes change now, in nanoseconds since the Unix epoch. From here on packets may go
    /// other ways.
    pub fn changed(&self, now_ns: u64) {
        self.0.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Whether they changed at this time or later.
    pub fn changed_since(&self, ns: u64) -> bool {
        let last_ns = self.0.load(Ordering::Relaxed);
        last_ns > 0 && last_ns >= ns
    }
}

impl PartialEq for RouteWatch {
    /// Whether both watch the same routes.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What all systems of a session have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionContext {
    /// What the switch does in the network.
    pub role: Role,
    /// The switch's number, never 0; `None` from a controller that gives out none.
    pub node_id: Option<u16>,
    /// Secret of the deployment.
    pub hash_key: Secret,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// The first epoch that the system measures.
    pub first_epoch: u64,
    /// Lcores that measure, each with records of its own; at least one.
    pub lcores: usize,
    /// The switch's name, and how many ports it has, where it is known which of them receives a
    /// packet.
    pub ports: Option<(String, usize)>,
    /// When the switch's routes changed.
    pub routes: RouteWatch,
    /// By which lcores hand on packets that are to be reported at once, where any are.
    pub outlets: Outlets,
    /// Whether the carrier of the packets' marks has room for [claims](LcoreSystem::has_claims).
    pub carries_claims: bool,
    /// Whether marks say how many switches packets have [passed](LcoreSystem::marks_hops).
    pub carries_hops: bool,
    /// Whether it leaves packets the bit that says that they have an INT stack.
    pub carries_stacks: bool,
}

/// One side of an epoch, finished on all lcores.
#[derive(Clone, Copy, Debug)]
pub struct FinishedSide<'a> {
    /// The epoch.
    pub epoch: u64,
    /// Which side.
    pub side: SideKind,
    /// What was recorded.
    pub record: &'a dyn AnyRecord,
    /// Whether the lcores measured under different plans, so that the sum means nothing.
    pub mixed_plan: bool,
}

impl FinishedSide<'_> {
    /// Its frame with this body, without the switch's totals.
    pub fn frame(&self, system: SystemId, body: Vec<u8>) -> wire::Side {
        let Self { epoch, side, record, .. } = *self;
        let (packets, stall_ns) = (record.packets(), record.stall_ns());
        wire::Side { system, epoch, side, stall_ns, packets, counters: Vec::new(), body }
    }
}

/// What a system wants to be shown of a finished side in the switch's status, by name; `None` where
/// it is not known.
pub type Notes = Vec<(&'static str, Option<u64>)>;

/// A system's half on the control thread of a switch.
pub trait SwitchSystem: Debug + Send {
    /// By which keys it must tell packets apart; `None` where either kind will do.
    fn keys(&self) -> Option<KeyKind> {
        None
    }

    /// Its half for one lcore, in a session of such keys.
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf>;

    /// Empty records for one lcore and epoch, touched once so that no lcore pays for mapping them.
    fn groups(&self, keys: KeyKind) -> Groups;

    /// An empty record for one lcore's late packets of an epoch; `None` where their number is
    /// enough.
    fn late_record(&self, _keys: KeyKind) -> Option<Box<dyn AnyRecord>> {
        None
    }

    /// The plan that these bytes say, of the kind that its records measure by, for an lcore to own.
    /// As it stands here, for records that have nothing to plan.
    ///
    /// # Errors
    /// Why the plan can't hold.
    fn plan(&self, plan: &[u8]) -> Result<Box<dyn Any + Send>, String> {
        if plan.is_empty() { Ok(Box::new(())) } else { Err("there is nothing to plan".to_owned()) }
    }

    /// Notes that a plan, which is valid, holds from `epoch` on.
    fn accept(&mut self, _epoch: u64, _plan: &[u8]) {}

    /// The plan by which it goes on where no controller has been there for `alone_ns`; `None` where
    /// what was accepted last is right then, too.
    fn alone(&self, _alone_ns: u64) -> Option<Vec<u8>> {
        None
    }

    /// What the INT stacks say that it puts into packets; `None` where it puts in none.
    fn instructions(&self) -> Option<Instructions> {
        None
    }

    /// What it measures by, for a controller that has just come, in the system's own format.
    fn holding(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The frame of a finished side without the switch's totals; `None` where the record is not one
    /// of this system's.
    fn side(&self, finished: FinishedSide<'_>) -> Option<(wire::Side, Notes)>;

    /// The body of the seal of an epoch with so many late packets, of which `late` is what is known
    /// beyond their number, in the system's own format.
    fn seal(&self, _late_packets: u64, _late: Option<&dyn AnyRecord>) -> Vec<u8> {
        Vec::new()
    }

    /// What is to be reported before its epoch is over, in the system's own format, and that epoch.
    /// Asked several times an epoch; what it gives is sent once, and lost without a connection.
    fn notice(&self, _now_ns: u64) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// What it has counted since it began, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What it measures with at present, by name: bytes, thresholds.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
