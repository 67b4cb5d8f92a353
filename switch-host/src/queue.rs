//! What waits to be sent to the controller.
//!
//! Answers go first. Frames about epochs are held until the controller says that it has reported
//! their epoch: should the connection or the controller go, they are sent again to whichever
//! controller comes next. Where they are more than memory was set aside for, the oldest are
//! discarded and counted. Frames of systems that are of no use later pass through while a
//! controller is there, and are discarded otherwise. No sockets here.
//!
//! Frames are kept in this release's version of the protocol, and rewritten as they go out to a
//! controller that speaks another.

use std::collections::VecDeque;
use std::sync::Arc;

use calumma_wire::parts::{first_frame, is_part};
use calumma_wire::{Message, VERSION};

/// Answers that may wait. A controller compares clocks four times a second and sends few messages
/// beside that, so even one that comes back from a long pause finds room; of the largest answers,
/// this many are 4 MiB.
const MOST_ANSWERS: usize = 4096;

/// Frames about epochs, and answers, in the order in which they go out.
#[derive(Debug)]
pub(crate) struct Queue {
    answers: VecDeque<Arc<[u8]>>,
    overrun: bool,
    /// In the order of their making, each with its epoch.
    held: VecDeque<(u64, Arc<[u8]>)>,
    held_bytes: usize,
    most_bytes: usize,
    /// Frames about epochs that are not held, and their bytes.
    passing: VecDeque<Arc<[u8]>>,
    passing_bytes: usize,
    /// How many of the held frames have been begun on this connection.
    begun: usize,
    /// Whether the controller has said that it takes frames about epochs.
    open: bool,
    /// The frame under way.
    current: Option<Current>,
    /// An answer that goes out between two of its parts.
    between: Option<Current>,
    /// Whether the controller takes frames in parts.
    takes_parts: bool,
    /// The version that goes out.
    version: u8,
    discarded: u64,
}

/// A frame that is being sent, or the parts of one.
#[derive(Debug)]
struct Current {
    /// As it was queued.
    frame: Arc<[u8]>,
    /// As it goes out.
    bytes: Arc<[u8]>,
    /// How much of `bytes` has gone out.
    sent: usize,
    /// Where the frame ends that is under way: of several, its own end.
    end: usize,
    /// Whether some of several have gone out, and none is under way.
    is_between: bool,
}

impl Current {
    fn new(frame: Arc<[u8]>, bytes: Arc<[u8]>) -> Self {
        let end = if is_part(&bytes) { first_frame(&bytes) } else { bytes.len() };
        Self { frame, bytes, sent: 0, end, is_between: false }
    }

    /// An answer, which is in the version of the connection already.
    fn answer(frame: Arc<[u8]>) -> Self {
        Self::new(frame.clone(), frame)
    }

    /// Notes that so many bytes more have gone out.
    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        self.is_between = self.sent == self.end;
        if self.is_between {
            self.end += first_frame(&self.bytes[self.sent..]);
        }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// What is left of the frame under way.
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }
}

impl Queue {
    /// A queue that holds frames of up to `most_bytes` together.
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            answers: VecDeque::new(),
            overrun: false,
            held: VecDeque::new(),
            held_bytes: 0,
            most_bytes,
            passing: VecDeque::new(),
            passing_bytes: 0,
            begun: 0,
            open: false,
            current: None,
            between: None,
            takes_parts: false,
            version: VERSION,
            discarded: 0,
        }
    }

    /// The connection is gone: nothing has been sent on the next one, and frames about epochs wait
    /// until it is open.
    pub(crate) fn disconnect(&mut self) {
        self.answers.clear();
        self.overrun = false;
        self.discarded += self.passing.len() as u64;
        self.passing.clear();
        self.passing_bytes = 0;
        (self.current, self.between) = (None, None);
        self.begun = 0;
        (self.open, self.takes_parts) = (false, false);
    }

    /// Sets the version of the protocol that goes out on this connection.
    pub(crate) fn speak(&mut self, version: u8) {
        self.version = version;
    }

    /// Says whether the controller takes frames in parts.
    pub(crate) fn take_parts(&mut self, takes_parts: bool) {
        self.takes_parts = takes_parts;
    }

    /// Lets frames about epochs go out, from the oldest on.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Discards all that is held: it is of no use to this controller.
    pub(crate) fn discard(&mut self) {
        self.discarded += self.held.len() as u64;
        self.held.clear();
        (self.held_bytes, self.begun) = (0, 0);
    }

    /// Queues an answer; one that there is no room for is dropped.
    pub(crate) fn answer(&mut self, frame: Vec<u8>) {
        self.overrun |= self.answers.len() >= MOST_ANSWERS;
        if !self.overrun {
            self.answers.push_back(frame.into());
        }
    }

    /// Whether an answer was dropped on this connection, for lack of room.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Queues a frame about an epoch, or its parts. The newest one is held whatever its length.
    pub(crate) fn hold(&mut self, epoch: u64, frame: Vec<u8>) {
        self.held_bytes += frame.len();
        self.held.push_back((epoch, frame.into()));
        while self.held_bytes > self.most_bytes && self.held.len() > 1 {
            self.drop_oldest();
            self.discarded += 1;
        }
    }

    /// Counts a frame about an epoch that is too long to be sent.
    pub(crate) fn drop_one(&mut self) {
        self.discarded += 1;
    }

    /// Queues a frame about an epoch that is of no use to a controller to come.
    pub(crate) fn pass(&mut self, frame: Vec<u8>) {
        if !self.open {
            self.discarded += 1;
            return;
        }
        self.passing_bytes += frame.len();
        self.passing.push_back(frame.into());
        while self.passing_bytes > self.most_bytes
            && self.passing.len() > 1
            && let Some(frame) = self.passing.pop_front()
        {
            self.passing_bytes -= frame.len();
            self.discarded += 1;
        }
    }

    /// Lets go of what is held of epochs up to `epoch`.
    pub(crate) fn reported(&mut self, epoch: u64) {
        while self.held.front().is_some_and(|&(held, _)| held <= epoch) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, frame)) = self.held.pop_front() {
            self.held_bytes -= frame.len();
            self.begun = self.begun.saturating_sub(1);
        }
    }

    /// Frames about epochs that were dropped though no controller had reported them.
    pub(crate) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Frames about epochs that nobody gets where nothing is sent any more: those
    /// [discarded](Self::discarded), and those that have not gone out whole on this connection.
    pub(crate) fn undelivered(&self) -> u64 {
        let last = self.begun.checked_sub(1).and_then(|last| self.held.get(last));
        let halfway = match (&self.current, last) {
            (Some(current), Some((_, frame))) => Arc::ptr_eq(&current.frame, frame),
            _ => false,
        };
        let held = (self.held.len() - self.begun) as u64;
        self.discarded + held + self.passing.len() as u64 + u64::from(halfway)
    }

    /// Bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The bytes to send next; none where nothing waits.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        if self.between.is_none() && self.current.as_ref().is_some_and(|of| of.is_between) {
            self.between = self.answers.pop_front().map(Current::answer);
        }
        while self.between.is_none() && self.current.is_none() {
            if let Some(frame) = self.answers.pop_front() {
                self.current = Some(Current::answer(frame));
                break;
            }
            let frame = self.next_of_epoch()?;
            match self.in_version(&frame) {
                Some(bytes) => self.current = Some(Current::new(frame, bytes)),
                None => self.discarded += 1,
            }
        }
        self.between.as_ref().or(self.current.as_ref()).map(Current::rest)
    }

    /// The next frame about an epoch, once the controller takes them.
    fn next_of_epoch(&mut self) -> Option<Arc<[u8]>> {
        if !self.open {
            return None;
        }
        if let Some((_, frame)) = self.held.get(self.begun) {
            self.begun += 1;
            return Some(frame.clone());
        }
        let frame = self.passing.pop_front()?;
        self.passing_bytes -= frame.len();
        Some(frame)
    }

    /// A frame in the version that goes out; `None` where that has no words for it.
    fn in_version(&self, frame: &Arc<[u8]>) -> Option<Arc<[u8]>> {
        if self.version == VERSION {
            return (self.takes_parts || !is_part(frame)).then(|| frame.clone());
        }
        let mut bytes = Vec::new();
        let message = Message::decode(frame).ok()?;
        message.encode_as(self.version, &mut bytes).then(|| bytes.into())
    }

    /// Notes that so many bytes of [`next`](Self::next) have gone out.
    pub(crate) fn sent(&mut self, bytes: usize) {
        let Self { between, current, .. } = self;
        let under_way = if between.is_some() { between } else { current };
        if let Some(of) = under_way {
            of.advance(bytes);
        }
        under_way.take_if(|of| of.is_sent());
    }
}

#[cfg(test)]
mod tests {
    use calumma_wire::parts::cut;

    use super::*;

    /// Sends all that can be sent, in pieces of up to three bytes.
    fn drain(queue: &mut Queue) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(bytes) = queue.next() {
            let piece = &bytes[..bytes.len().min(3)];
            out.extend_from_slice(piece);
            let sent = piece.len();
            queue.sent(sent);
        }
        out
    }

    #[test]
    fn unreported_frames_go_to_the_next_controller() {
        let mut queue = Queue::new(100);
        queue.disconnect();
        queue.answer(b"hello".to_vec());
        queue.hold(1, b"one-".to_vec());
        assert_eq!(drain(&mut queue), b"hello", "not before the controller's welcome");
        queue.open();
        queue.hold(2, b"two-".to_vec());
        queue.hold(3, b"three".to_vec());
        assert_eq!(drain(&mut queue), b"one-two-three");
        queue.reported(1);

        queue.disconnect();
        assert!(queue.next().is_none());
        queue.open();
        assert_eq!(queue.next(), Some(&b"two-"[..]));
        queue.sent(2);
        queue.answer(b"!".to_vec());
        assert_eq!(drain(&mut queue), b"o-!three", "frames are never cut by others");
        assert_eq!(queue.discarded(), 0);
    }

    #[test]
    fn the_oldest_are_discarded_when_memory_is_short() {
        let mut queue = Queue::new(10);
        for epoch in 1..=5 {
            queue.hold(epoch, vec![b'0' + epoch as u8; 4]);
        }
        queue.disconnect();
        assert_eq!((queue.discarded(), queue.undelivered()), (3, 5));
        queue.open();
        assert_eq!(queue.next(), Some(&b"4444"[..]));
        queue.sent(2);
        assert_eq!(queue.undelivered(), 5, "half a frame is none");
        assert_eq!(drain(&mut queue), b"445555");
        assert_eq!((queue.discarded(), queue.undelivered()), (3, 3));
        queue.discard();
        queue.hold(6, b"6".to_vec());
        assert_eq!((drain(&mut queue), queue.discarded()), (b"6".to_vec(), 5));
    }

    #[test]
    fn a_frame_dropped_half_sent_is_sent_to_its_end() {
        let mut queue = Queue::new(8);
        queue.open();
        queue.hold(1, b"1111".to_vec());
        queue.next();
        queue.sent(1);
        queue.hold(2, b"2222".to_vec());
        queue.hold(3, b"3333".to_vec());
        assert_eq!(drain(&mut queue), b"11122223333");
    }

    #[test]
    fn frames_that_are_not_held_pass_only_while_open() {
        let mut queue = Queue::new(6);
        queue.pass(b"lost".to_vec());
        queue.open();
        queue.pass(b"one".to_vec());
        queue.hold(1, b"held".to_vec());
        assert_eq!(drain(&mut queue), b"heldone");
        for frame in [b"two", b"sev", b"ten"] {
            queue.pass(frame.to_vec());
        }
        assert_eq!((queue.discarded(), queue.undelivered()), (2, 4));
        assert_eq!(drain(&mut queue), b"sevten");
        queue.pass(b"six".to_vec());
        queue.disconnect();
        queue.open();
        assert_eq!((drain(&mut queue), queue.discarded()), (b"held".to_vec(), 3));
    }

    #[test]
    fn answers_go_between_the_parts_of_a_long_frame_and_never_into_one() {
        let parts = cut(b"a frame of nineteen", 8);
        let ends = [24, 48, 67];
        assert_eq!((parts.len(), first_frame(&parts)), (ends[2], ends[0]));
        for asked in 0..parts.len() {
            let mut queue = Queue::new(1);
            queue.take_parts(true);
            queue.open();
            queue.hold(1, parts.clone());
            let mut out = Vec::new();
            while let Some(bytes) = queue.next() {
                out.push(bytes[0]);
                queue.sent(1);
                if out.len() == asked + 1 {
                    queue.answer(b"!!".to_vec());
                }
            }
            // Behind the part that is under way, or that has just gone out.
            let at = ends.into_iter().find(|&end| end > asked).unwrap();
            assert_eq!(out, [&parts[..at], b"!!", &parts[at..]].concat(), "{asked}");
            assert_eq!(queue.undelivered(), 0);
        }
    }

    #[test]
    fn who_takes_no_parts_gets_none() {
        let mut queue = Queue::new(1 << 20);
        queue.open();
        queue.hold(1, cut(b"too long", 3));
        queue.hold(2, b"short".to_vec());
        assert_eq!((drain(&mut queue), queue.discarded()), (b"short".to_vec(), 1));
        // The next controller may take them, and is sent all from the beginning.
        queue.disconnect();
        queue.take_parts(true);
        queue.open();
        assert_eq!(drain(&mut queue), [&cut(b"too long", 3)[..], b"short"].concat());
    }
}
