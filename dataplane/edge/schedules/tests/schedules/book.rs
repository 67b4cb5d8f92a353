//! A measurement system whose records are lists of packets, and a book that says where each packet
//! of each list has gone.
//!
//! A packet is recorded once on each side, then it is in one frame, or its record was emptied or
//! dropped without anybody having read it: by the control thread, which counts it, or, where it
//! came after the last epoch, by an lcore that ends. What the code under test says of all that is
//! held against the book.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use calumma_edge::sync::scheduled::{set_now_ns, unix_ns};
use calumma_epoch::EpochClock;
use calumma_plane::slots::AnySlots;
use calumma_plane::sync::scheduled::point;
use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, LcoreSystem, Notes, Record, Recorded, SessionContext,
    SwitchSystem, System,
};
use calumma_plane::{AnyRecord, Counters, Flows, MarkedRun, Run, Slots};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind, WideKey};
use calumma_wire::{Offer, Role, Side, SideKind, SystemId, SystemSetup};
use shuttle::thread::{self, ThreadId};

/// The systems of a switch: two, so that one can come and go beside the other.
pub(crate) static SYSTEMS: &[&dyn System] = &[&Pages(FIRST), &Pages(SECOND)];

/// The first of them.
pub(crate) const FIRST: SystemId = SystemId::EXPERIMENTS;

/// The second.
pub(crate) const SECOND: SystemId = SystemId(SystemId::EXPERIMENTS.0 + 1);

/// Where a packet is, as one system's half recorded it on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Recorded,
    Framed,
    Lost,
    /// In an lcore's hands when that ended.
    Kept,
}

/// Number of a system's half, side, number of a packet.
type Line = (u32, usize, u32);

/// What has become of everything.
#[derive(Debug, Default)]
pub(crate) struct Book {
    clock: Option<EpochClock>,
    halves: u32,
    packets: u32,
    lines: BTreeMap<Line, Place>,
    /// The epoch that each packet was recorded in as it entered.
    entered: BTreeMap<u32, u64>,
    /// Records that there are.
    records: i64,
    /// By system and epoch: which of its halves what came of it is of.
    finished: BTreeMap<(SystemId, u64), [Option<u32>; 3]>,
    /// The systems, and their halves, of which something was finished since, in order.
    finishing: VecDeque<(SystemId, u32)>,
    /// Threads that are lcores.
    lcores: Vec<ThreadId>,
    /// Whether they are to stop.
    pub(crate) stops: bool,
    /// Packets in frames, by side.
    pub(crate) framed: [u64; 2],
    /// Packets of records that nobody has read, by side.
    pub(crate) lost: [u64; 2],
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::new(Book::default());
}

impl Book {
    /// Begins a new book, in a network of these epochs, at a time.
    pub(crate) fn open(clock: EpochClock, now_ns: u64) {
        BOOK.set(Self { clock: Some(clock), ..Self::default() });
        set_now_ns(now_ns);
    }

    /// Reads or writes it.
    pub(crate) fn with<R>(what: impl FnOnce(&mut Self) -> R) -> R {
        BOOK.with_borrow_mut(what)
    }

    /// The thread that asks is an lcore from here on.
    pub(crate) fn begin_lcore(&mut self) {
        self.lcores.push(thread::current().id());
    }

    fn is_lcore(&self) -> bool {
        self.lcores.contains(&thread::current().id())
    }

    /// The number of another packet.
    pub(crate) fn packet(&mut self) -> u32 {
        self.packets += 1;
        self.packets
    }

    /// Whether all that was recorded has gone somewhere, and no record is left.
    pub(crate) fn is_closed(&self) -> bool {
        self.records == 0 && self.lines.values().all(|&place| place != Place::Recorded)
    }

    fn record(&mut self, line: Line, epoch: u64) {
        let before = self.lines.insert(line, Place::Recorded);
        assert_eq!(before, None, "{line:?} is recorded twice, now in epoch {epoch}");
        if line.1 == 0 {
            let first = *self.entered.entry(line.2).or_insert(epoch);
            assert_eq!(first, epoch, "packet {} has entered in two epochs", line.2);
        }
    }

    fn go(&mut self, line: Line, to: Place) {
        let before = self.lines.insert(line, to);
        assert_eq!(before, Some(Place::Recorded), "{line:?} goes where it is not, {to:?}");
        match to {
            Place::Framed => self.framed[line.1] += 1,
            Place::Lost => self.lost[line.1] += 1,
            Place::Recorded | Place::Kept => {}
        }
    }

    /// A record of an epoch is emptied or dropped, with packets that nobody has read.
    fn lose(&mut self, lines: impl Iterator<Item = Line>, epoch: u64) {
        let is_lcore = self.is_lcore();
        for line in lines {
            self.go(line, if is_lcore { Place::Kept } else { Place::Lost });
            // So late that they are taken for those of an epoch that the switch sees no end of.
            let entered = self.entered.get(&line.2);
            let is_mistaken = line.1 == 1 && entered.is_none_or(|&entered| entered < epoch);
            assert!(
                !is_lcore || is_mistaken,
                "{line:?} of {entered:?} is kept, in {epoch}'s record"
            );
        }
    }

    /// One side of an epoch is finished, or it is sealed: 0 and 1 for sides, 2 for the seal.
    pub(crate) fn finish(&mut self, epoch: u64, what: usize) {
        let (system, half) = self.finishing.pop_front().expect("a half has made what is finished");
        let finished = self.finished.entry((system, epoch)).or_default();
        let of = format!("{what} of epoch {epoch} of {system}, now of half {half},");
        assert_eq!(finished[what], None, "{of} is finished twice");
        assert_eq!(finished[2], None, "{of} comes after its seal");
        finished[what] = Some(half);
    }

    /// A packet of an epoch whose record was taken in time is of that epoch, unless it was away
    /// until the next epoch but one was armed.
    fn check_epoch(&self, packet: u32, left_ns: u64, epoch: u64) {
        let (Some(clock), Some(&entered)) = (self.clock, self.entered.get(&packet)) else { return };
        assert!(
            entered == epoch || left_ns >= clock.arm_time(entered + 2),
            "packet {packet} entered in epoch {entered} and is in the record of {epoch}"
        );
    }
}

/// A system of packets' numbers.
#[derive(Clone, Copy, Debug)]
struct Pages(SystemId);

impl System for Pages {
    fn name(&self) -> &'static str {
        if self.0 == FIRST { "first" } else { "second" }
    }

    fn offer(&self) -> Offer {
        Offer { system: self.0, lowest: 1, highest: 1 }
    }

    fn runs_as(&self, role: Role) -> bool {
        role == Role::Edge
    }

    fn hashes(&self) -> bool {
        true
    }

    fn begin(
        &self,
        session: &SessionContext,
        _: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let half = Book::with(|book| {
            book.halves += 1;
            book.halves
        });
        Ok(Box::new(OnSwitch { system: self.0, half, first_epoch: session.first_epoch }))
    }
}

/// Packets that were recorded, and whether a frame has been made of them.
#[derive(Debug)]
struct Page {
    half: u32,
    side: usize,
    epoch: u64,
    plan: u8,
    /// Each with the time it was recorded at.
    packets: Vec<(u32, u64)>,
    is_read: Cell<bool>,
    mixed: bool,
    in_use: Cell<bool>,
}

impl Page {
    fn new(half: u32, side: usize) -> Self {
        Book::with(|book| book.records += 1);
        let (is_read, in_use) = (Cell::new(false), Cell::new(false));
        Self { half, side, epoch: 0, plan: 0, packets: Vec::new(), is_read, mixed: false, in_use }
    }

    /// Nobody else may use it meanwhile.
    fn used(&self) {
        assert!(!self.in_use.replace(true), "a record is used by two");
        point();
        self.in_use.set(false);
    }

    fn line(&self, packet: u32) -> Line {
        (self.half, self.side, packet)
    }

    fn add(&mut self, packet: u32) {
        self.used();
        assert!(!self.is_read.get(), "written to after it was read");
        Book::with(|book| book.record(self.line(packet), self.epoch));
        self.packets.push((packet, unix_ns()));
    }

    fn empty(&mut self) {
        let packets = std::mem::take(&mut self.packets);
        if !self.is_read.replace(false) {
            let lines = packets.iter().map(|&(packet, _)| self.line(packet));
            Book::with(|book| book.lose(lines, self.epoch));
        }
        self.mixed = false;
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        assert!(self.packets.is_empty(), "a record with packets is copied");
        Self::new(self.half, self.side)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.empty();
            Book::with(|book| {
                assert!(book.stops || !book.is_lcore(), "an lcore frees a record");
                book.records -= 1;
            });
        }
    }
}

impl Record for Page {
    type Plan = u8;

    fn begin(&mut self, plan: &u8, epoch: u64) {
        self.used();
        assert!(self.packets.is_empty() && !self.is_read.get(), "a record that begins is empty");
        (self.plan, self.epoch) = (*plan, epoch);
    }

    fn plan(&self) -> &u8 {
        &self.plan
    }

    fn merge(&mut self, other: &Self) {
        self.used();
        other.used();
        assert_eq!((self.half, self.side), (other.half, other.side));
        assert_eq!(self.epoch, other.epoch, "records of two epochs are merged");
        self.mixed |= self.plan != other.plan;
        self.packets.extend_from_slice(&other.packets);
        other.is_read.set(true);
    }

    fn clear(&mut self) {
        self.used();
        self.empty();
    }
}

/// A system's half on an lcore.
#[derive(Debug)]
struct OnLcore(Slots<Page, Page>);

/// The number of the packet that has a key.
fn number<K: Key>(key: &K) -> u32 {
    let (source, destination) = key.ports();
    u32::from(source) << 16 | u32::from(destination)
}

fn add<'a, K: Key>(record: &mut Recorded<Page>, keys: impl Iterator<Item = &'a K>) {
    for key in keys {
        record.group.add(number(key));
        record.packets += 1;
    }
}

impl<K: Key> LcoreSystem<K> for OnLcore {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.0
    }

    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        if let Some(record) = self.0.ingress() {
            add(record, flows.keys().iter());
        }
    }

    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        flows.by_bit(|of| match self.0.by_bit(of.bit) {
            Some(record) => add(record, of.keys.iter()),
            None => drop(self.0.late(of.bit, of.keys.len() as u64)),
        });
    }

    fn enter_run(&mut self, _key: &K, packets: u32, _counters: &mut Counters) -> Run {
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, _key: &K, _marked: &MarkedRun, _counters: &mut Counters) {}
}

/// Its half on the control thread.
#[derive(Debug)]
struct OnSwitch {
    system: SystemId,
    half: u32,
    first_epoch: u64,
}

impl SwitchSystem for OnSwitch {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        let half = OnLcore(Slots::new(self.first_epoch, 1, 0));
        match keys {
            KeyKind::Ipv4 => AnyKey::Ipv4(Box::new(half) as Box<dyn LcoreSystem<FlowKey>>),
            KeyKind::Dual => AnyKey::Dual(Box::new(half) as Box<dyn LcoreSystem<WideKey>>),
        }
    }

    fn groups(&self, _: KeyKind) -> Groups {
        let page = |side| Box::new(Recorded::new(Page::new(self.half, side)));
        Groups { ingress: page(0), by_bit: page(1) }
    }

    fn plan(&self, plan: &[u8]) -> Result<Box<dyn std::any::Any + Send>, String> {
        Ok(Box::new(plan.first().copied().unwrap_or_default()))
    }

    fn seal(&self, _: u64, _: Option<&dyn AnyRecord>) -> Vec<u8> {
        Book::with(|book| book.finishing.push_back((self.system, self.half)));
        Vec::new()
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let FinishedSide { epoch, side, record, mixed_plan } = finished;
        let page = &record.get::<Page>()?.group;
        page.used();
        assert_eq!((page.half, page.epoch), (self.half, epoch));
        assert_eq!(page.side, usize::from(side == SideKind::Egress));
        assert_eq!(page.mixed, mixed_plan);
        assert_eq!(page.packets.len() as u64, record.packets());
        assert!(!page.is_read.replace(true), "two frames are made of a record");
        let stall_ns = record.stall_ns();
        Book::with(|book| {
            book.finishing.push_back((self.system, self.half));
            for &(packet, at_ns) in &page.packets {
                book.go(page.line(packet), Place::Framed);
                if stall_ns == 0 && page.side == 1 {
                    book.check_epoch(packet, at_ns, epoch);
                }
            }
        });
        let (system, packets, counters, body) =
            (self.system, record.packets(), Vec::new(), Vec::new());
        Some((Side { system, epoch, side, stall_ns, packets, counters, body }, Vec::new()))
    }
}
