//! One system's records on an lcore as they move through the epochs, or through windows of several.

use std::any::Any;
use std::fmt::Debug;

use calumma_epoch::{Finished, Rotation, Timeline};

use crate::system::{AnyRecord, Groups, Record, Recorded};

/// Most spare groups that an lcore keeps.
const MOST_SPARE: usize = 8;

/// Empty records of both kinds, to arm an epoch or a window with.
type Pair<I, E> = (Box<Recorded<I>>, Box<Recorded<E>>);

/// The records of one system: `I` for packets that enter the network, `E` for those that are
/// recorded by the timestamp bit they carry. Finished records are named by the first epoch of their
/// window.
#[derive(Debug)]
pub struct Slots<I: Record, E: Record<Plan = I::Plan>> {
    rotation: Rotation<Box<Recorded<I>>, Box<Recorded<E>>>,
    timeline: Timeline<I::Plan>,
    /// Empty pairs to spare. There is room for as many as there may be.
    spare: Vec<Pair<I, E>>,
    /// The ingress record of the window before, until it is handed over.
    flipped: Option<Finished<Box<Recorded<I>>>>,
}

impl<I: Record + Clone, E: Record<Plan = I::Plan> + Clone> Slots<I, E> {
    /// No records yet; `plan` holds from `first_epoch` on, and a window has `window` epochs.
    ///
    /// # Panics
    /// When a window has no epochs.
    pub fn new(first_epoch: u64, window: u64, plan: I::Plan) -> Self {
        Self {
            rotation: Rotation::new(first_epoch.saturating_sub(1), window),
            timeline: Timeline::new(plan),
            spare: Vec::with_capacity(MOST_SPARE),
            flipped: None,
        }
    }

    /// The record of packets that enter now; `None` where the window is not measured.
    #[inline]
    pub fn ingress(&mut self) -> Option<&mut Recorded<I>> {
        self.rotation.ingress().map(|record| &mut **record)
    }

    /// The record of packets that carry timestamp bit `bit`; `None` where no epoch with it is open.
    #[inline]
    pub fn by_bit(&mut self, bit: usize) -> Option<&mut Recorded<E>> {
        self.rotation.by_bit(bit).map(|record| &mut **record)
    }

    /// Notes packets that carried `bit` when no epoch with that bit was open.
    #[inline]
    pub fn late(&mut self, bit: usize, packets: u64) {
        self.rotation.late(bit, packets);
    }

    /// Notes packets that carried `bit` and a mark of an [older epoch](crate::Flows::stale) with it.
    #[inline]
    pub fn outdated(&mut self, bit: usize, packets: u64) {
        self.rotation.outdated(bit, packets);
    }
}

/// Records of any system, moved by the events of an epoch.
pub trait AnySlots {
    /// Takes empty records, to arm an epoch with.
    fn supply(&mut self, groups: Groups);

    /// Lets `plan` hold from `epoch` on, if it is one of this system and comes before the epoch is
    /// armed.
    fn reconfigure(&mut self, epoch: u64, plan: Box<dyn Any + Send>);

    /// Arms `epoch`. Gives the epoch that used its timestamp bit before, and how many of that one's
    /// packets came after it was taken.
    fn arm(&mut self, epoch: u64) -> Option<(u64, u64)>;

    /// Packets enter `epoch` from here on. `stall_ns` is by how much this came too late.
    fn flip(&mut self, epoch: u64, stall_ns: u64);

    /// The ingress record that the last flip left behind, and its epoch.
    fn flipped(&mut self) -> Option<(u64, Box<dyn AnyRecord>)>;

    /// Whether [`flipped`](Self::flipped) would give one.
    fn has_flipped(&self) -> bool;

    /// Ends the recording by the bit of `epoch`; `stall_ns` is by how much this came too late, 0
    /// where it came in time. Gives what is finished by this, and the epoch that names it.
    fn take(&mut self, epoch: u64, stall_ns: u64) -> Option<(u64, Box<dyn AnyRecord>)>;

    /// Closes the slot of `epoch`'s timestamp bit for good. Gives what [`arm`](Self::arm) gives.
    fn close(&mut self, epoch: u64) -> Option<(u64, u64)>;

    /// Whether packets that enter are recorded.
    fn is_recording(&mut self) -> bool;

    /// Cache lines of the longer of the armed records; 0 where none are armed.
    fn armed_lines(&mut self) -> usize;

    /// Readies a cache line of both armed records.
    fn make_ready(&mut self, line: usize);
}

impl<I: Record + Clone, E: Record<Plan = I::Plan> + Clone> AnySlots for Slots<I, E> {
    fn supply(&mut self, groups: Groups) {
        let ingress = groups.ingress.into_any().downcast();
        let by_bit = groups.by_bit.into_any().downcast();
        if let (Ok(ingress), Ok(by_bit)) = (ingress, by_bit)
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push((ingress, by_bit));
        }
    }

    fn reconfigure(&mut self, epoch: u64, plan: Box<dyn Any + Send>) {
        if let Some(plan) = plan.downcast_ref::<I::Plan>() {
            // Frozen already: this epoch keeps what it has, and its records say what that was, so a
            // disagreement is seen by whoever merges them.
            let _ = self.timeline.change(epoch, plan.clone());
        }
    }

    fn arm(&mut self, epoch: u64) -> Option<(u64, u64)> {
        let mut groups = None;
        if self.rotation.is_first(epoch) {
            let plan = self.timeline.freeze(epoch);
            groups = self.spare.pop().map(|(mut ingress, mut by_bit)| {
                ingress.group.begin(&plan, epoch);
                by_bit.group.begin(&plan, epoch);
                (ingress, by_bit)
            });
        }
        let (sealed, unfinished) = self.rotation.arm(epoch, groups);
        debug_assert!(unfinished.is_none(), "taking comes before arming");
        sealed
    }

    fn flip(&mut self, epoch: u64, stall_ns: u64) {
        if let Some(record) = self.rotation.ingress() {
            record.stall_ns = record.stall_ns.max(stall_ns);
        }
        if let Some(finished) = self.rotation.flip(epoch) {
            self.flipped = Some(finished);
        }
    }

    fn flipped(&mut self) -> Option<(u64, Box<dyn AnyRecord>)> {
        let Finished { epoch, group } = self.flipped.take()?;
        Some((epoch, group))
    }

    fn has_flipped(&self) -> bool {
        self.flipped.is_some()
    }

    fn take(&mut self, epoch: u64, stall_ns: u64) -> Option<(u64, Box<dyn AnyRecord>)> {
        match self.rotation.recorded(epoch) {
            Some(record) => record.stall_ns = record.stall_ns.max(stall_ns),
            None if stall_ns == 0 => self.rotation.none_late(epoch),
            None => {}
        }
        let Finished { epoch, group } = self.rotation.take(epoch)?;
        Some((epoch, group))
    }

    fn close(&mut self, epoch: u64) -> Option<(u64, u64)> {
        self.rotation.close(epoch)
    }

    fn is_recording(&mut self) -> bool {
        self.rotation.ingress().is_some()
    }

    fn armed_lines(&mut self) -> usize {
        let armed = self.rotation.armed();
        armed.map_or(0, |(ingress, by_bit)| ingress.group.lines().max(by_bit.group.lines()))
    }

    fn make_ready(&mut self, line: usize) {
        // Both at once: the sides are of like size, and a line too many costs nothing.
        if let Some((ingress, by_bit)) = self.rotation.armed() {
            ingress.group.make_ready(line);
            by_bit.group.make_ready(line);
        }
    }
}
