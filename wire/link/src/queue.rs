//! What waits to be sent to the controller.
//!
//! Answers go first. Frames about epochs are held until the controller says that it has reported
//! their epoch: should the connection or the controller go, they are sent again to whichever
//! controller comes next. Where they are more than memory was set aside for, the oldest are given up
//! and counted. No sockets here.

use std::collections::VecDeque;
use std::sync::Arc;

/// Frames about epochs, and answers, in the order in which they go out.
#[derive(Debug)]
pub(crate) struct Queue {
    answers: VecDeque<Arc<[u8]>>,
    /// In the order of their making, each with its epoch.
    held: VecDeque<(u64, Arc<[u8]>)>,
    held_bytes: usize,
    most_bytes: usize,
    /// How many of the held frames have been begun on this connection.
    begun: usize,
    /// Whether the controller has said that it takes frames about epochs.
    open: bool,
    /// The frame under way, and how much of it has gone out.
    current: Option<(Arc<[u8]>, usize)>,
    given_up: u64,
}

impl Queue {
    /// A queue that holds frames of up to `most_bytes` together.
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            answers: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            most_bytes,
            begun: 0,
            open: false,
            current: None,
            given_up: 0,
        }
    }

    /// The connection is gone: nothing has been sent on the next one, and frames about epochs wait
    /// until it is open.
    pub(crate) fn disconnect(&mut self) {
        self.answers.clear();
        self.current = None;
        self.begun = 0;
        self.open = false;
    }

    /// Lets frames about epochs go out, from the oldest on.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Gives up all that is held: it is of no use to this controller.
    pub(crate) fn give_up(&mut self) {
        self.given_up += self.held.len() as u64;
        self.held.clear();
        (self.held_bytes, self.begun) = (0, 0);
    }

    /// Queues an answer.
    pub(crate) fn answer(&mut self, frame: Vec<u8>) {
        self.answers.push_back(frame.into());
    }

    /// Queues a frame about an epoch.
    pub(crate) fn hold(&mut self, epoch: u64, frame: Vec<u8>) {
        self.held_bytes += frame.len();
        self.held.push_back((epoch, frame.into()));
        while self.held_bytes > self.most_bytes {
            self.drop_oldest();
            self.given_up += 1;
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
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Frames about epochs that nobody gets where nothing is sent any more: those [given
    /// up](Self::given_up), and those that have not gone out whole on this connection.
    pub(crate) fn undelivered(&self) -> u64 {
        let last = self.begun.checked_sub(1).and_then(|last| self.held.get(last));
        let halfway = match (&self.current, last) {
            (Some((current, _)), Some((_, frame))) => Arc::ptr_eq(current, frame),
            _ => false,
        };
        self.given_up + (self.held.len() - self.begun) as u64 + u64::from(halfway)
    }

    /// Bytes that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The bytes to send next; none where nothing waits.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        if self.current.is_none() {
            let frame = match self.answers.pop_front() {
                Some(answer) => answer,
                None if self.open => {
                    let (_, frame) = self.held.get(self.begun)?;
                    self.begun += 1;
                    frame.clone()
                }
                None => return None,
            };
            self.current = Some((frame, 0));
        }
        self.current.as_ref().map(|(frame, sent)| &frame[*sent..])
    }

    /// Notes that so many bytes of [`next`](Self::next) have gone out.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some((frame, sent)) = &mut self.current {
            *sent += bytes;
            if *sent == frame.len() {
                self.current = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn what_a_controller_has_not_reported_goes_to_the_next_one_again() {
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
        assert_eq!(queue.given_up(), 0);
    }

    #[test]
    fn the_oldest_frames_are_given_up_and_counted_when_memory_is_short() {
        let mut queue = Queue::new(10);
        for epoch in 1..=5 {
            queue.hold(epoch, vec![b'0' + epoch as u8; 4]);
        }
        queue.disconnect();
        assert_eq!((queue.given_up(), queue.undelivered()), (3, 5));
        queue.open();
        assert_eq!(queue.next(), Some(&b"4444"[..]));
        queue.sent(2);
        assert_eq!(queue.undelivered(), 5, "half a frame is none");
        assert_eq!(drain(&mut queue), b"445555");
        assert_eq!((queue.given_up(), queue.undelivered()), (3, 3));
        queue.give_up();
        queue.hold(6, b"6".to_vec());
        assert_eq!((drain(&mut queue), queue.given_up()), (b"6".to_vec(), 5));
    }

    #[test]
    fn a_frame_that_is_reported_or_given_up_half_sent_is_still_sent_to_its_end() {
        let mut queue = Queue::new(8);
        queue.open();
        queue.hold(1, b"1111".to_vec());
        queue.next();
        queue.sent(1);
        queue.hold(2, b"2222".to_vec());
        queue.hold(3, b"3333".to_vec());
        assert_eq!(drain(&mut queue), b"11122223333");
    }
}
