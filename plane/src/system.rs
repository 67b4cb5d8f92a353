//! What a measurement system does on a switch, and the records it keeps.
//!
//! Each system has two halves there. A [`LcoreSystem`] lives on an lcore, in the packet path: it
//! records bursts and owns what it records into. A [`SwitchSystem`] lives on the control thread: it
//! makes the lcores' halves and their empty records. Records travel between the two as
//! [`AnyRecord`]s, so that whoever moves, merges and clears them need not know the system.

use std::any::Any;
use std::fmt::Debug;

use calumma_sketch::{AnyKey, Key, Keyed};

use crate::counters::Counters;
use crate::flows::Flows;
use crate::run::{MarkedRun, Run};
use crate::slots::AnySlots;

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

    /// Readies cache line number `line`, if there are so many, for being written to. Changes nothing.
    fn make_ready(&mut self, _line: usize) {}
}

/// A system's record and what is known of any system's.
///
/// An lcore reads it for every packet and writes to it with every burst, while another lcore does so with
/// the record that the allocator put beside it: they share no cache line, nor a pair of lines, which CPUs
/// fetch together.
#[derive(Clone, Debug, PartialEq)]
#[repr(align(128))]
pub struct Recorded<R> {
    /// What the system keeps.
    pub group: R,
    /// Packets recorded.
    pub packets: u64,
    /// By how much the event that ended this side of the epoch came too late, in nanoseconds; 0 where
    /// it came in time. Ingress: the flip, where it exceeds the guard for packets in flight. Others:
    /// the taking, where packets of the next epoch with the same timestamp bit may have come already.
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
    /// For packets that are recorded by the timestamp bit they carry: those that leave the network, and
    /// those that pass from fabric to fabric.
    pub by_bit: Box<dyn AnyRecord>,
}

impl Groups {
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

    /// Records packets that enter the network with the timestamp bit [`Flows::bit`]. ChameleMon gives
    /// each its hierarchy.
    fn enter(&mut self, flows: &mut Flows<K>, counters: &mut Counters);

    /// Records packets that pass from fabric to fabric, by the marks they carry.
    fn transit(&mut self, _flows: &Flows<K>, _counters: &mut Counters) {}

    /// Records packets that leave the network, by the marks they carry.
    fn leave(&mut self, flows: &Flows<K>, counters: &mut Counters);

    /// Records a run of packets of one flow that enters the network, as [`enter`](Self::enter) would
    /// one packet after the other. For simulations.
    fn enter_run(&mut self, key: &K, packets: u32, counters: &mut Counters) -> Run;

    /// Records what is left of a run as it leaves the network.
    fn leave_run(&mut self, key: &K, marked: &MarkedRun, counters: &mut Counters);
}

/// Lcores' halves of systems, for one kind of key.
#[derive(Debug)]
pub enum LcoreSystems {}

impl Keyed for LcoreSystems {
    type Of<K: Key> = Vec<Box<dyn LcoreSystem<K>>>;
}

/// A system's half on the control thread of a switch.
pub trait SwitchSystem: Debug + Send {
    /// Adds the system's half for one lcore to those of the systems before it.
    fn add_to(&self, systems: &mut AnyKey<LcoreSystems>);

    /// Empty records for one lcore and epoch, touched once so that no lcore pays for mapping them.
    fn groups(&self) -> Groups;

    /// A plan of the kind that its records measure by, for an lcore to own.
    ///
    /// # Errors
    /// Why the plan can't hold.
    fn plan(&self, plan: &dyn Any) -> Result<Box<dyn Any + Send>, String>;
}
