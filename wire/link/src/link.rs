//! The TCP connection to the controller, looked after in steps that never block the control thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use calumma_wire::{FrameReader, Message};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::queue::Queue;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const FINISH: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(250);
const RETRY_REFUSED: Duration = Duration::from_secs(5);

/// Bytes that are usually held for a controller that is slow or away: some hundreds of epochs at the paper's
/// sizes. Of what comes on top the oldest is given up; the controller then misses those epochs and
/// says so.
pub const MOST_HELD: usize = 64 << 20;

/// The connection, or the attempts at one.
pub(crate) struct Link {
    address: String,
    state: State,
    reader: FrameReader,
    /// What waits to be sent.
    pub(crate) queue: Queue,
}

enum State {
    Idle { since: Instant, retry: Duration },
    Connecting(Receiver<io::Result<TcpStream>>),
    Connected(TcpStream),
}

impl Link {
    pub(crate) fn new(address: String, most_held: usize) -> Self {
        Self {
            address,
            state: State::Idle { since: Instant::now(), retry: Duration::ZERO },
            reader: FrameReader::new(),
            queue: Queue::new(most_held),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Moves an attempt to connect along. True once, when the connection stands.
    pub(crate) fn connect_if_due(&mut self) -> bool {
        match &self.state {
            State::Idle { since, retry } if since.elapsed() >= *retry => {
                let (to, from) = channel();
                let address = self.address.clone();
                // Name look-up and connecting may block for long: not in the control thread.
                std::thread::spawn(move || to.send(connect(&address)));
                self.state = State::Connecting(from);
                false
            }
            State::Connecting(attempt) => match attempt.try_recv() {
                Ok(Ok(stream)) => {
                    self.reader = FrameReader::new();
                    self.state = State::Connected(stream);
                    true
                }
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                    self.close(RETRY);
                    false
                }
                Err(TryRecvError::Empty) => false,
            },
            State::Idle { .. } | State::Connected(_) => false,
        }
    }

    fn close(&mut self, retry: Duration) {
        self.queue.disconnect();
        self.state = State::Idle { since: Instant::now(), retry };
    }

    /// Closes the connection and waits a while before the next attempt.
    pub(crate) fn back_off(&mut self) {
        self.close(RETRY_REFUSED);
    }

    /// The messages that have arrived.
    ///
    /// # Errors
    /// What ended the connection, in words; it is closed then.
    pub(crate) fn receive(&mut self) -> Result<Vec<Message>, String> {
        let State::Connected(stream) = &mut self.state else { return Ok(Vec::new()) };
        let mut buffer = [0; 16 << 10];
        let ended = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break Some("the controller closed the connection".to_owned()),
                Ok(read) => self.reader.push(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(format!("the connection broke: {error}")),
            }
        };
        let mut messages = Vec::new();
        loop {
            // No layout: only switches send sketches.
            match self.reader.next(None) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    self.close(RETRY);
                    return Err(format!("the controller sent a frame that can't be read: {error}"));
                }
            }
        }
        match ended {
            // What was said before the end is still heard, and the end with the next call.
            Some(_) if !messages.is_empty() => Ok(messages),
            Some(problem) => {
                self.close(RETRY);
                Err(problem)
            }
            None => Ok(messages),
        }
    }

    /// Queues a message that is no part of an epoch; without a connection it is dropped.
    pub(crate) fn send(&mut self, message: &Message) {
        if matches!(self.state, State::Connected(_)) {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            self.queue.answer(frame);
        }
    }

    /// Sends as much as the connection takes.
    pub(crate) fn flush(&mut self) {
        let State::Connected(stream) = &mut self.state else { return };
        while let Some(bytes) = self.queue.next() {
            match stream.write(bytes) {
                Ok(written) => self.queue.sent(written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A broken connection shows when it is read from.
                Err(_) => return,
            }
        }
    }

    /// Waits until the controller says something, for `most` at the longest.
    pub(crate) fn wait(&self, most: Duration) {
        let State::Connected(stream) = &self.state else { return std::thread::sleep(most) };
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        // Interrupted or not, the caller looks after everything next.
        let _ = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], timeout);
    }

    /// Sends what is still waiting, and waits until the controller has it all; for `most` at the
    /// longest, and never longer than [`FINISH`]. Gives how many frames about epochs it never got.
    pub(crate) fn finish(mut self, most: Duration) -> u64 {
        let end = Instant::now() + most.min(FINISH);
        while self.queue.next().is_some() && self.is_connected() && Instant::now() < end {
            self.flush();
            std::thread::sleep(Duration::from_micros(200));
        }
        let undelivered = self.queue.undelivered();
        // Closed with words of the controller's unread, the connection would be reset, and what the
        // controller has not read yet be lost.
        let State::Connected(mut stream) = self.state else { return undelivered };
        let _ = stream.shutdown(Shutdown::Write);
        let mut buffer = [0; 4 << 10];
        while Instant::now() < end {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(_) => break,
            }
        }
        undelivered
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut problem = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => problem = error,
        }
    }
    Err(problem)
}
