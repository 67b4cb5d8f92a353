//! One system's records on an lcore as they move through the epochs, or through windows of several.

use std::any::Any;
use std::fmt::Debug;

use calumma_epoch::{Finished, Rotation, Timeline, timestamp_bit};

use crate::system::{AnyRecord, Groups, Record, Recorded};

/// Most spare groups that an lcore keeps.
const MOST_SPARE: usize = 8;

/// Empty records of both kinds, to arm an epoch or a window with.
type Pair<I, E> = (Box<Recorded<I>>, Box<Recorded<E>>);

/// The records of one system: `I` for packets that enter the network, `E` for those that are
/// recorded by the timestamp bit they carry, `L` for those that carry a bit when no epoch with it
/// is open. Finished records are named by the first epoch of their window.
#[derive(Debug)]
pub struct Slots<I: Record, E: Record<Plan = I::Plan>, L: Record = CountOnly> {
    rotation: Rotation<Box<Recorded<I>>, Box<Recorded<E>>>,
    timeline: Timeline<I::Plan>,
    /// Empty pairs to spare. There is room for as many as there may be.
    spare: Vec<Pair<I, E>>,
    /// The ingress record of the window before, until it is handed over.
    flipped: Option<Finished<Box<Recorded<I>>>>,
    /// By timestamp bit: the late packets of the epoch that has used it last.
    late: [Option<Box<Recorded<L>>>; 2],
    /// Empty ones to spare. There is room for as many as there may be.
    spare_late: Vec<Box<Recorded<L>>>,
}

/// Keeps nothing: the number of late packets is enough.
#[derive(Clone, Debug, PartialEq)]
pub struct CountOnly;

impl Record for CountOnly {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, _other: &Self) {}

    fn clear(&mut self) {}
}

/// An epoch of whose packets none can be recorded any more; of windows, the last one of a window.
#[derive(Debug)]
pub struct Seal {
    /// The epoch; of a window, its first.
    pub epoch: u64,
    /// Packets that came after it was taken.
    pub late_packets: u64,
    /// What is known of them; `None` where there are none, or nothing but their number is known.
    pub late: Option<Box<dyn AnyRecord>>,
}

impl<I, E, L> Slots<I, E, L>
where
    I: Record + Clone,
    E: Record<Plan = I::Plan> + Clone,
    L: Record + Clone,
{
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
            late: [None, None],
            spare_late: Vec::with_capacity(MOST_SPARE),
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

    /// The records of all packets that may come now, each once. A packet without a mark may be of
    /// any of these.
    pub fn open(&mut self) -> impl Iterator<Item = &mut Recorded<E>> {
        self.rotation.by_either_bit().map(|record| &mut **record)
    }

    /// The record of packets that carry the timestamp bit of the epoch that runs; `None` where that
    /// is not measured.
    #[inline]
    pub fn current(&mut self) -> Option<&mut Recorded<E>> {
        let bit = timestamp_bit(self.rotation.epoch());
        self.by_bit(bit)
    }

    /// Notes packets that carried `bit` when no epoch with that bit was open. Gives the record of
    /// such packets, where one is at hand, for what else is known of them. Where a window has
    /// several epochs, only their number is sent.
    #[inline]
    pub fn late(&mut self, bit: usize, packets: u64) -> Option<&mut Recorded<L>> {
        self.rotation.late(bit, packets);
        self.late[bit & 1].as_deref_mut()
    }

    /// What is sealed, with the late packets of the epoch that used the timestamp bit of `epoch`
    /// before.
    fn seal(&mut self, epoch: u64, sealed: Option<(u64, u64)>) -> Option<Seal> {
        let place = &mut self.late[timestamp_bit(epoch)];
        let Some((of, late_packets)) = sealed else {
            // Nothing is said of an epoch that was not taken.
            place.iter_mut().filter(|late| late.packets > 0).for_each(|late| late.clear());
            return None;
        };
        let late = place.take_if(|record| record.packets > 0);
        if late.is_some() {
            *place = self.spare_late.pop();
        }
        let late = late.map(|record| record as Box<dyn AnyRecord>);
        Some(Seal { epoch: of, late_packets, late })
    }

    /// Notes packets that carried `bit` and a mark of an [older epoch](crate::Flows::stale) with
    /// it; gives the same record as [`late`](Self::late).
    #[inline]
    pub fn outdated(&mut self, bit: usize, packets: u64) -> Option<&mut Recorded<L>> {
        self.rotation.outdated(bit, packets);
        self.late[bit & 1].as_deref_mut()
    }
}

/// Records of any system, moved by the events of an epoch.
pub trait AnySlots {
    /// Epochs of a window.
    fn window(&self) -> u64;

    /// Lets `first` be the first epoch that is armed, and leaves the sealing of epochs before
    /// `seals_from` to others. To be called before anything is armed.
    fn start(&mut self, first: u64, seals_from: u64);

    /// Takes empty records, to arm an epoch with.
    fn supply(&mut self, groups: Groups);

    /// Lets `plan` hold from `epoch` on, if it is one of this system and comes before the epoch is
    /// armed.
    fn reconfigure(&mut self, epoch: u64, plan: Box<dyn Any + Send>);

    /// Takes an empty record for late packets.
    fn supply_late(&mut self, late: Box<dyn AnyRecord>);

    /// Arms `epoch`. Gives the epoch that used its timestamp bit before, with its packets that came
    /// after it was taken.
    fn arm(&mut self, epoch: u64) -> Option<Seal>;

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
    fn close(&mut self, epoch: u64) -> Option<Seal>;

    /// Whether packets that enter are recorded.
    fn is_recording(&mut self) -> bool;

    /// Cache lines of the longer of the armed records; 0 where none are armed.
    fn armed_lines(&mut self) -> usize;

    /// Readies a cache line of both armed records.
    fn make_ready(&mut self, line: usize);
}

impl<I, E, L> AnySlots for Slots<I, E, L>
where
    I: Record + Clone,
    E: Record<Plan = I::Plan> + Clone,
    L: Record + Clone,
{
    fn window(&self) -> u64 {
        self.rotation.window()
    }

    fn start(&mut self, first: u64, seals_from: u64) {
        let window = self.rotation.window();
        self.rotation = Rotation::new(first.saturating_sub(1), window).sealing_from(seals_from);
    }

    fn supply(&mut self, groups: Groups) {
        let ingress = groups.ingress.into_any().downcast();
        let by_bit = groups.by_bit.into_any().downcast();
        if let (Ok(ingress), Ok(by_bit)) = (ingress, by_bit)
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push((ingress, by_bit));
        }
    }

    fn supply_late(&mut self, late: Box<dyn AnyRecord>) {
        let Ok(late) = late.into_any().downcast() else { return };
        if let Some(place) = self.late.iter_mut().find(|place| place.is_none()) {
            *place = Some(late);
        } else if self.spare_late.len() < MOST_SPARE {
            self.spare_late.push(late);
        }
    }

    fn reconfigure(&mut self, epoch: u64, plan: Box<dyn Any + Send>) {
        if let Some(plan) = plan.downcast_ref::<I::Plan>() {
            // Frozen already: this epoch keeps what it has, and its records say what that was, so a
            // disagreement is seen by whoever merges them.
            let _ = self.timeline.change(epoch, plan.clone());
        }
    }

    fn arm(&mut self, epoch: u64) -> Option<Seal> {
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
        self.seal(epoch, sealed)
    }

    fn flip(&mut self, epoch: u64, stall_ns: u64) {
        let matters = self.rotation.shares_bit_with_next_window(epoch.saturating_sub(1));
        if let Some(record) = self.rotation.ingress().filter(|_| matters) {
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
        let matters = self.rotation.shares_bit_with_next_window(epoch);
        match self.rotation.recorded(epoch) {
            Some(record) if matters => record.stall_ns = record.stall_ns.max(stall_ns),
            Some(_) => {}
            None if stall_ns == 0 => {
                if self.rotation.none_late(epoch)
                    && let Some(late) = &mut self.late[timestamp_bit(epoch)]
                    && late.packets > 0
                {
                    late.clear();
                }
            }
            None => {}
        }
        let Finished { epoch, group } = self.rotation.take(epoch)?;
        Some((epoch, group))
    }

    fn close(&mut self, epoch: u64) -> Option<Seal> {
        let sealed = self.rotation.close(epoch);
        self.seal(epoch, sealed)
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
