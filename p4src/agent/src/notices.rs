//! Notices: packets of their own by which a program says at once, through the CPU port, what it
//! keeps in no register (`p4src/include/notices.p4`). The agent numbers nothing: the program gives
//! every event of a *stream* a number, whether a notice of it is sent or not, so what never came is
//! known.
//!
//! A system whose program sends notices names the control that numbers them and how many streams it
//! has ([`Needs::notices`](crate::system::Needs::notices)). It is then given, stream by stream,
//! what came of them ([`Received`]): with a side that is over when its epoch is taken, the events
//! from the opening of its group (that of the window's first epoch) to its closing, in
//! [`Closed::notices`](crate::system::Closed::notices); and with the seal, those from there until
//! its timestamp bit is opened again, in [`Setup::seal`]. A stream of
//! events that belong to one group only should be of that group's parity.
//!
//! A system that reports some of it before its window is over is given what each notice says as it
//! comes as well ([`Setup::noticed`]).
//!
//! Copies must not starve collection, which shares the CPU port: of each stream at most `most`
//! are sent from one arming of an epoch to the next, and [`KEPT`] of the newest are kept. Of others
//! only the number is known, as of those that were lost.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::collection::ETHER_TYPE;
use crate::system::{Closed, Setup};
use crate::tables::{Match, TableEntry};

/// First byte behind Ethernet.
const NOTICE: u8 = 0x80;

const ETHERNET: usize = 14;

/// Kind, stream and number.
const HEADER: usize = 6;

/// Bytes of a packet that its copy keeps beside the notice: up to the ports, whatever the headers.
pub const FRONT: usize = 96;

/// Most notices of a stream that are sent in an epoch, where few are wanted.
pub const BUDGET: u32 = 1024;

/// Most notices of a stream that wait for their window's end: few systems have that many sent.
pub const KEPT: usize = 1 << 15;

/// Where a program numbers its notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// The full name of its control `Notices`.
    pub control: &'static str,
    /// How many streams it has, at most 8.
    pub count: u8,
    /// Whether a register of the control numbers events; else [`Setup::numbered`] gives the
    /// numbers, which begin anew with each window.
    ///
    /// [`Setup::numbered`]: crate::system::Setup::numbered
    pub has_register: bool,
    /// Most notices of each that are sent in an epoch.
    pub most: u32,
}

impl Streams {
    /// The register that numbers events, a cell a stream.
    pub fn numbers(self) -> String {
        format!("{}.numbers", self.control)
    }

    /// The numbers of the next events, a stream each, as `read` has the cells of that register, so
    /// many: zeros where there is none.
    ///
    /// # Errors
    /// What `read` says.
    pub fn next<E>(
        self,
        read: impl FnOnce(&str, u8) -> Result<Vec<u32>, E>,
    ) -> Result<Vec<u32>, E> {
        match self.has_register {
            true => read(&self.numbers(), self.count),
            false => Ok(vec![0; self.count.into()]),
        }
    }

    /// The table of what may be sent.
    pub fn budgets(self) -> String {
        format!("{}.budgets", self.control)
    }

    /// Its entries from now on, where the next events of the streams have these numbers: another
    /// [`most`](Self::most) each, by that mirror session.
    pub fn allow(self, next: &[u32], session: u16) -> Vec<TableEntry> {
        let entry = |(stream, &next): (u32, &u32)| TableEntry {
            table: self.budgets(),
            keys: vec![("stream", Match::Exact(stream))],
            action: "allow",
            args: vec![("up_to", next.wrapping_add(self.most)), ("by", session.into())],
        };
        (0..).zip(next).map(entry).collect()
    }
}

/// Which events are of which side and which seal, by the numbers of the next ones whenever an epoch
/// is armed or taken: the same for every switch, be it modelled or real.
#[derive(Debug, Default)]
pub struct Readings {
    /// When the last epoch of a timestamp bit was taken.
    taken: [Vec<u32>; 2],
    /// When the first epoch of a window was armed, by the windows' parity.
    begun: [Vec<u32>; 2],
}

impl Readings {
    /// An epoch of this timestamp bit is armed, and with it begins a window of that parity, if any.
    /// Gives the events since the bit's last epoch was taken: those of its seal.
    pub fn arm(&mut self, bit: usize, begins: Option<usize>, next: &[u32]) -> Vec<Range<u32>> {
        if let Some(parity) = begins {
            self.begun[parity & 1] = next.to_vec();
        }
        between(&self.taken[bit & 1], next)
    }

    /// An epoch of this timestamp bit, in a window of this parity, is taken. Gives the events of
    /// the window so far: those of its side, where it ends with the epoch.
    pub fn take(&mut self, bit: usize, parity: usize, next: &[u32]) -> Vec<Range<u32>> {
        self.taken[bit & 1] = next.to_vec();
        between(&self.begun[parity & 1], next)
    }
}

/// From one reading of the next events' numbers to another, by stream.
fn between(from: &[u32], to: &[u32]) -> Vec<Range<u32>> {
    from.iter().zip(to).map(|(&from, &to)| from..to).collect()
}

/// The events of a side, by stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Their numbers.
    pub numbers: Vec<Range<u32>>,
    /// Whether another window has the same numbers, so that notices of these are to be
    /// [forgotten](Inbox::forget) once they are given.
    pub begin_anew: bool,
}

/// The events of a side: those that the words of its registers number, where they do, else those of
/// two [`Readings`].
pub fn of_side(
    setup: &dyn Setup,
    closed: &Closed,
    words: &[Vec<u32>],
    read: Vec<Range<u32>>,
) -> Events {
    let numbered = setup.numbered(closed, words);
    match numbered.is_empty() {
        true => Events { numbers: read, begin_anew: false },
        false => Events { numbers: numbered, begin_anew: true },
    }
}

/// What came of the events of a stream, between two readings of its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// What notices said, in the order of their events: the bytes behind the number, and maybe some
    /// of the packet.
    pub bodies: Vec<Vec<u8>>,
    /// Events that no notice came of.
    pub missing: u64,
}

impl Received {
    /// All events.
    pub fn events(&self) -> u64 {
        self.missing + self.bodies.len() as u64
    }
}

/// The notices that came, until their epoch is over.
#[derive(Debug, Default)]
pub struct Inbox {
    /// By stream, the newest, in the order in which they came, by number.
    streams: BTreeMap<u8, Stream>,
    /// What came since this was asked last, with its stream; the oldest are missing where that is
    /// more than is kept.
    news: VecDeque<(u8, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Stream {
    bodies: BTreeMap<u32, (u64, Vec<u8>)>,
    /// How many have come.
    came: u64,
    /// By when they came: their numbers.
    order: BTreeMap<u64, u32>,
}

impl Inbox {
    /// Takes a packet from the CPU port; false where it is no notice.
    pub fn take(&mut self, packet: &[u8]) -> bool {
        let Some((stream, number, body)) = parse(packet) else { return false };
        if self.streams.entry(stream).or_default().put(number, body.to_vec()) {
            self.news.push_back((stream, body.to_vec()));
            let over = self.news.len().saturating_sub(KEPT);
            self.news.drain(..over);
        }
        true
    }

    /// What notices said that came since this was asked last, in the order in which they came, each
    /// with its stream.
    pub fn news(&mut self) -> VecDeque<(u8, Vec<u8>)> {
        std::mem::take(&mut self.news)
    }

    /// What came of the events that have these numbers, by stream.
    pub fn all(&self, numbers: &[Range<u32>]) -> Vec<Received> {
        let each = (0..=u8::MAX).zip(numbers);
        each.map(|(stream, numbers)| self.received(stream, numbers)).collect()
    }

    /// Forgets all notices of the streams that have numbers here, be it none of them (`1..1`):
    /// those that came too late for their window as well. A later event of the same number would
    /// seem to have come.
    pub fn forget(&mut self, numbers: &[Range<u32>]) {
        for (stream, numbers) in (0..=u8::MAX).zip(numbers) {
            if *numbers != (0..0) {
                self.streams.remove(&stream);
            }
        }
    }

    /// What came of the events of a stream that have these numbers, which wrap.
    pub fn received(&self, stream: u8, numbers: &Range<u32>) -> Received {
        let events = numbers.end.wrapping_sub(numbers.start);
        let of_stream = self.streams.get(&stream).into_iter().flat_map(|of| &of.bodies);
        let position = |number: u32| number.wrapping_sub(numbers.start);
        let mut there: Vec<_> = of_stream
            .map(|(&number, (_, body))| (position(number), body))
            .filter(|&(position, _)| position < events)
            .collect();
        there.sort_by_key(|&(position, _)| position);
        let bodies: Vec<Vec<u8>> = there.into_iter().map(|(_, body)| body.clone()).collect();
        Received { missing: u64::from(events) - bodies.len() as u64, bodies }
    }
}

impl Stream {
    /// Keeps one; gives whether it was not there.
    fn put(&mut self, number: u32, body: Vec<u8>) -> bool {
        self.came += 1;
        let before = self.bodies.insert(number, (self.came, body));
        if let Some((before, _)) = &before {
            self.order.remove(before);
        }
        self.order.insert(self.came, number);
        if self.order.len() > KEPT
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.bodies.remove(&oldest);
        }
        before.is_none()
    }
}

/// Stream, number and body of a notice.
fn parse(packet: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (ethernet, rest) = packet.split_at_checked(ETHERNET)?;
    if ethernet[12..] != ETHER_TYPE.to_be_bytes() || rest.first() != Some(&NOTICE) {
        return None;
    }
    let (header, body) = rest.split_at_checked(HEADER)?;
    let number = header[2..].try_into().ok()?;
    Some((header[1], u32::from_be_bytes(number), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(stream: u8, number: u32, body: u8) -> Vec<u8> {
        let mut packet = vec![2; 12];
        packet.extend([0x88, 0xB5, 0x80, stream]);
        packet.extend(number.to_be_bytes());
        packet.push(body);
        packet
    }

    fn bodies(received: &Received) -> Vec<u8> {
        received.bodies.iter().map(|body| body[0]).collect()
    }

    #[test]
    fn notices_are_given_in_the_order_of_their_events_and_the_lost_ones_counted() {
        let mut inbox = Inbox::default();
        // In another order, one twice, one lost, around the end of all numbers.
        for (number, body) in [(1, 4), (u32::MAX, 2), (u32::MAX - 1, 1), (1, 4), (9, 9)] {
            assert!(inbox.take(&notice(5, number, body)));
        }
        let around = |start, end| Range { start, end };
        let received = inbox.received(5, &around(u32::MAX - 1, 3));
        assert_eq!((bodies(&received), received.missing), (vec![1, 2, 4], 2));
        assert_eq!(received.events(), 5);
        let news = inbox.news().into_iter().map(|(stream, body)| (stream, body[0]));
        assert!(news.eq([(5, 4), (5, 2), (5, 1), (5, 9)]), "each once");
        assert!(inbox.news().is_empty());
        // They may be asked for again, in parts, and are of their stream.
        assert_eq!(bodies(&inbox.received(5, &around(u32::MAX, 2))), [2, 4]);
        assert_eq!(inbox.received(5, &(7..7)), Received::default());
        assert_eq!(inbox.received(4, &(0..3)), Received { bodies: Vec::new(), missing: 3 });
    }

    #[test]
    fn events_are_of_the_window_that_they_came_in_and_later_ones_of_the_seal() {
        let mut readings = Readings::default();
        assert!(readings.arm(0, Some(0), &[10, 20]).is_empty());
        assert_eq!(readings.take(0, 0, &[12, 20]), [10..12, 20..20]);
        assert!(readings.arm(1, None, &[13, 21]).is_empty());
        // The window's last epoch, and what came late in the one before.
        assert_eq!(readings.take(1, 0, &[15, 22]), [10..15, 20..22]);
        assert_eq!(readings.arm(0, Some(1), &[16, 22]), [12..16, 20..22]);
        assert_eq!(readings.take(0, 1, &[16, 25]), [16..16, 22..25]);
        assert_eq!(readings.arm(1, None, &[16, 26]), [15..16, 22..26]);
    }

    #[test]
    fn notices_of_a_window_are_not_those_of_a_later_one_with_the_same_numbers() {
        let mut inbox = Inbox::default();
        let of_group = [1..3, 1..1, 0..0];
        for (stream, number) in [(0, 1), (0, 2), (1, 1), (2, 1)] {
            assert!(inbox.take(&notice(stream, number, 8)));
        }
        assert_eq!(inbox.all(&of_group).iter().map(|of| of.missing).sum::<u64>(), 0);
        inbox.forget(&of_group);
        // The second one of the next window is lost.
        assert!(inbox.take(&notice(0, 1, 9)));
        let received = inbox.received(0, &(1..3));
        assert_eq!((bodies(&received), received.missing), (vec![9], 1));
        // That of the other stream was late, and that of the last one is of the other group.
        assert_eq!(inbox.received(1, &(1..2)).missing, 1);
        assert_eq!(inbox.received(2, &(1..2)).missing, 0);
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut inbox = Inbox::default();
        let all = 0..2 * KEPT as u32;
        for number in all.clone() {
            assert!(inbox.take(&notice(0, number, 0)));
        }
        let received = inbox.received(0, &all);
        assert_eq!((received.bodies.len(), received.missing), (KEPT, KEPT as u64));
        assert_eq!(inbox.received(0, &(KEPT as u32..all.end)).missing, 0);
    }

    #[test]
    fn nothing_else_is_a_notice() {
        let mut inbox = Inbox::default();
        let whole = notice(0, 0, 0);
        for cut in 0..whole.len() - 1 {
            assert!(!inbox.take(&whole[..cut]));
        }
        for (at, byte) in [(12, 0x08), (13, 0xB6), (14, 7)] {
            let mut other = whole.clone();
            other[at] = byte;
            assert!(!inbox.take(&other));
        }
    }
}
