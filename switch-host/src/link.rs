//! Messages over a transport: framing, the protocol's version, and what waits to be sent.

use std::time::{Duration, Instant};

use calumma_wire::{FrameReader, MAX_TO_NODE_BYTES, Message, VERSION, v5};

use crate::queue::Queue;
use crate::transport::{RETRY, Transport};

const FINISH: Duration = Duration::from_secs(1);
const RETRY_REFUSED: Duration = Duration::from_secs(5);

/// A controller that compares clocks, and sends nothing for so long, is gone, though no one has
/// said so: it compares them several times a second.
const SILENCE: Duration = Duration::from_secs(5);

/// The same of a controller that has never compared them: it may be at work on what switches have
/// held for it.
const FIRST_SILENCE: Duration = Duration::from_secs(60);

/// Bytes that are usually held for a controller that is slow or away: some hundreds of epochs at
/// the paper's sizes. Beyond that the oldest are discarded; the controller then misses those epochs
/// and says so.
pub const MOST_HELD: usize = 64 << 20;

/// A reader of what controllers send.
fn reader() -> FrameReader {
    FrameReader::new().with_limit(MAX_TO_NODE_BYTES)
}

/// A message that has arrived, and the version of its frame.
pub(crate) type Received = (u8, Message);

/// The connection, or the attempts at one.
pub(crate) struct Link<T> {
    pub(crate) transport: T,
    reader: FrameReader,
    /// The version that is written on this connection.
    version: u8,
    /// Whether the controller has compared clocks on this connection.
    probed: bool,
    /// What waits to be sent.
    pub(crate) queue: Queue,
}

impl<T: Transport> Link<T> {
    pub(crate) fn new(transport: T, most_held: usize) -> Self {
        let (reader, queue) = (reader(), Queue::new(most_held));
        Self { transport, reader, version: VERSION, probed: false, queue }
    }

    /// Moves an attempt to connect along. True once, when the connection stands.
    pub(crate) fn connect_if_due(&mut self) -> bool {
        let connected = self.transport.connect_if_due();
        if connected {
            self.reader = reader();
            self.probed = false;
            self.queue.speak(self.version);
        }
        connected
    }

    /// The version that is written on this connection, or the next one.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    fn close(&mut self, retry: Duration) {
        self.queue.disconnect();
        self.transport.close(retry);
        self.version = VERSION;
    }

    /// Closes the connection and waits a while before the next attempt.
    pub(crate) fn back_off(&mut self) {
        self.close(RETRY_REFUSED);
    }

    /// Closes the connection; the next one is in the version before.
    pub(crate) fn fall_back(&mut self) {
        self.close(RETRY);
        self.version = v5::VERSION;
    }

    /// The messages that have arrived.
    ///
    /// # Errors
    /// What ended the connection, in words; it is closed then.
    pub(crate) fn receive(&mut self) -> Result<Vec<Received>, String> {
        if !self.transport.is_connected() {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        if let Err(problem) = self.transport.receive(&mut bytes) {
            self.close(RETRY);
            return Err(problem);
        }
        let silence = if self.probed { SILENCE } else { FIRST_SILENCE };
        if bytes.is_empty() && self.transport.silence() >= silence {
            self.close(RETRY);
            return Err(format!("the controller has sent nothing for {silence:?}"));
        }
        if self.queue.is_overrun() {
            self.close(RETRY);
            return Err("the controller asks and takes no answers".to_owned());
        }
        self.reader.push(&bytes);
        let mut messages = Vec::new();
        loop {
            match self.reader.next_message() {
                Ok(Some(message)) => {
                    self.probed |= matches!(message, Message::Probe { .. });
                    messages.push((self.reader.version(), message));
                }
                Ok(None) => return Ok(messages),
                Err(error) => {
                    self.close(RETRY);
                    return Err(format!("the controller sent a frame that can't be read: {error}"));
                }
            }
        }
    }

    /// Queues a message that is no part of an epoch; dropped without a connection, or where the
    /// version spoken has no words for it.
    pub(crate) fn send(&mut self, message: &Message) {
        if self.transport.is_connected() {
            let mut frame = Vec::new();
            if message.encode_as(self.version, &mut frame) {
                self.queue.answer(frame);
            }
        }
    }

    /// Sends as much as the connection takes.
    pub(crate) fn flush(&mut self) {
        if !self.transport.is_connected() {
            return;
        }
        while let Some(bytes) = self.queue.next() {
            match self.transport.send(bytes) {
                0 => return,
                sent => self.queue.sent(sent),
            }
        }
    }

    /// Sends what is still waiting, and waits until the controller has it all; for `most` at the
    /// longest, and never longer than [`FINISH`]. Gives how many frames about epochs it never got.
    pub(crate) fn finish(mut self, most: Duration) -> u64 {
        let end = Instant::now() + most.min(FINISH);
        while self.queue.next().is_some() && self.transport.is_connected() && Instant::now() < end {
            self.flush();
            std::thread::sleep(Duration::from_micros(200));
        }
        let undelivered = self.queue.undelivered();
        self.transport.finish(end);
        undelivered
    }
}
