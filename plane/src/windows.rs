//! One system's records on an lcore as they move through windows of several epochs.
//!
//! A window is numbered by its first epoch divided by its length. Every switch counts a packet in
//! the window of the epoch that the packet's timestamp bit says, so both bits are open for one
//! window in the middle of it, and around a boundary one for each of two. A session that begins
//! within a window measures from the next one on.

use std::any::Any;

use calumma_epoch::{Timeline, timestamp_bit};

use crate::slots::{AnySlots, Spare};
use crate::system::{AnyRecord, Groups, Record, Recorded};

/// The records of one system: `I` for packets that enter the network, `E` for those that are
/// recorded by the timestamp bit they carry. Finished records are named by the first epoch of their
/// window.
#[derive(Debug)]
pub struct WindowSlots<I: Record, E: Record<Plan = I::Plan>> {
    /// Epochs of a window.
    epochs: u64,
    timeline: Timeline<I::Plan>,
    spare: Spare<I, E>,
    /// The record of packets that enter now, and its window.
    ingress: Option<(u64, Box<Recorded<I>>)>,
    /// That of the next window, from its arming until its flip.
    armed: Option<(u64, Box<Recorded<I>>)>,
    /// That of the window before, until it is handed over.
    flipped: Option<(u64, Box<Recorded<I>>)>,
    /// By the parity of the window.
    open: [Option<(u64, Box<Recorded<E>>)>; 2],
    /// By timestamp bit: the window of the epoch that used it last, and whether it is still open.
    bits: [Option<(u64, bool)>; 2],
    /// Packets that came after their epoch was taken, by the parity of the window, with the
    /// window.
    late: [(u64, u64); 2],
}

impl<I: Record + Clone, E: Record<Plan = I::Plan> + Clone> WindowSlots<I, E> {
    /// No records yet; `plan` holds, and a window has `epochs` epochs.
    ///
    /// # Panics
    /// When a window has no epochs.
    pub fn new(epochs: u64, plan: I::Plan) -> Self {
        assert!(epochs > 0, "a window of at least one epoch");
        Self {
            epochs,
            timeline: Timeline::new(plan),
            spare: Spare::new(),
            ingress: None,
            armed: None,
            flipped: None,
            open: [None, None],
            bits: [None, None],
            late: [(0, 0); 2],
        }
    }

    /// The record of packets that enter now; `None` where the window is not measured.
    #[inline]
    pub fn ingress(&mut self) -> Option<&mut Recorded<I>> {
        self.ingress.as_mut().map(|(_, record)| &mut **record)
    }

    /// The record of packets that carry timestamp bit `bit`; `None` where no epoch with it is open.
    #[inline]
    pub fn by_bit(&mut self, bit: usize) -> Option<&mut Recorded<E>> {
        let (window, open) = self.bits[bit & 1]?;
        match &mut self.open[parity(window)] {
            Some((of, record)) if open && *of == window => Some(record),
            _ => None,
        }
    }

    /// Notes packets that carried `bit` when no epoch with that bit was open.
    #[inline]
    pub fn late(&mut self, bit: usize, packets: u64) {
        if let Some((window, false)) = self.bits[bit & 1]
            && self.late[parity(window)].0 == window
        {
            self.late[parity(window)].1 += packets;
        }
    }

    fn window(&self, epoch: u64) -> u64 {
        epoch / self.epochs
    }

    /// The first epoch of a window.
    fn first(&self, window: u64) -> u64 {
        window * self.epochs
    }

    fn is_first(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(self.epochs)
    }

    fn is_last(&self, epoch: u64) -> bool {
        self.is_first(epoch + 1)
    }

    /// The window whose last packets can come no more once `epoch` uses their timestamp bit.
    fn sealed_by(&self, epoch: u64) -> Option<(u64, u64)> {
        let last = epoch.checked_sub(2).filter(|&last| self.is_last(last))?;
        let window = self.window(last);
        let (of, late) = self.late[parity(window)];
        (of == window && self.bits[timestamp_bit(last)].is_some_and(|(used, _)| used == window))
            .then(|| (self.first(window), late))
    }
}

#[inline]
fn parity(window: u64) -> usize {
    (window & 1) as usize
}

impl<I: Record + Clone, E: Record<Plan = I::Plan> + Clone> AnySlots for WindowSlots<I, E> {
    fn supply(&mut self, groups: Groups) {
        self.spare.supply(groups);
    }

    fn reconfigure(&mut self, epoch: u64, plan: Box<dyn Any + Send>) {
        if let Some(plan) = plan.downcast_ref::<I::Plan>() {
            let _ = self.timeline.change(epoch, plan.clone());
        }
    }

    fn arm(&mut self, epoch: u64) -> Option<(u64, u64)> {
        let window = self.window(epoch);
        let sealed = self.sealed_by(epoch);
        if self.is_first(epoch) {
            let plan = self.timeline.freeze(epoch);
            self.armed = None;
            self.open[parity(window)] = None;
            if let Some((mut ingress, mut by_bit)) = self.spare.0.pop() {
                ingress.group.begin(&plan, epoch);
                by_bit.group.begin(&plan, epoch);
                self.armed = Some((window, ingress));
                self.open[parity(window)] = Some((window, by_bit));
                self.late[parity(window)] = (window, 0);
            }
        }
        let measured = self.open[parity(window)].as_ref().is_some_and(|(of, _)| *of == window);
        self.bits[timestamp_bit(epoch)] = measured.then_some((window, true));
        sealed
    }

    fn flip(&mut self, epoch: u64, stall_ns: u64) {
        if !self.is_first(epoch) {
            if let Some((_, record)) = &mut self.ingress {
                record.stall_ns = record.stall_ns.max(stall_ns);
            }
            return;
        }
        let window = self.window(epoch);
        let armed = self.armed.take().filter(|(of, _)| *of == window);
        if let Some((before, mut record)) = std::mem::replace(&mut self.ingress, armed) {
            record.stall_ns = record.stall_ns.max(stall_ns);
            self.flipped = Some((self.first(before), record));
        }
    }

    fn flipped(&mut self) -> Option<(u64, Box<dyn AnyRecord>)> {
        let (epoch, record) = self.flipped.take()?;
        Some((epoch, record))
    }

    fn has_flipped(&self) -> bool {
        self.flipped.is_some()
    }

    fn take(&mut self, epoch: u64, stall_ns: u64) -> Option<(u64, Box<dyn AnyRecord>)> {
        let window = self.window(epoch);
        if let Some((of, open)) = &mut self.bits[timestamp_bit(epoch)]
            && *of == window
        {
            *open = false;
        }
        let (of, record) = self.open[parity(window)].as_mut().filter(|(of, _)| *of == window)?;
        record.stall_ns = record.stall_ns.max(stall_ns);
        let first = *of * self.epochs;
        if !self.is_last(epoch) {
            return None;
        }
        let (_, record) = self.open[parity(window)].take()?;
        Some((first, record))
    }

    fn close(&mut self, epoch: u64) -> Option<(u64, u64)> {
        let sealed = self.sealed_by(epoch);
        self.bits[timestamp_bit(epoch)] = None;
        sealed
    }

    fn is_recording(&mut self) -> bool {
        self.ingress.is_some()
    }

    fn armed_lines(&mut self) -> usize {
        let ingress = self.armed.as_ref().map_or(0, |(_, record)| record.group.lines());
        let by_bit = self.open.iter().flatten().map(|(_, record)| record.group.lines()).max();
        if ingress == 0 { 0 } else { ingress.max(by_bit.unwrap_or(0)) }
    }

    fn make_ready(&mut self, line: usize) {
        if let Some((window, record)) = &mut self.armed {
            record.group.make_ready(line);
            if let Some((_, record)) = &mut self.open[parity(*window)] {
                record.group.make_ready(line);
            }
        }
    }
}
