//! What carries a conversation: a TCP connection, looked after in steps that never block the
//! control thread, or whatever a simulation puts in its place.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::unix_ns;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that are received in one step, so that a peer that never stops sending does not keep a
/// control thread from its other work: some thousand of the smallest messages.
const MOST_RECEIVED: usize = 16 << 10;

/// How long to wait before the next attempt to connect.
pub(crate) const RETRY: Duration = Duration::from_millis(250);

/// A stream of bytes to and from the controller that can break and be set up anew.
pub trait Transport {
    /// The controller's address, for logs.
    fn address(&self) -> &str;

    /// Whether a connection stands.
    fn is_connected(&self) -> bool;

    /// Moves an attempt to connect along. True once, when the connection stands.
    fn connect_if_due(&mut self) -> bool;

    /// Appends bytes that have arrived: all of them, or as many as are good at a time.
    ///
    /// # Errors
    /// What ended the connection, in words, once no bytes are left to be received before its end.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<(), String>;

    /// Sends bytes; gives how many were accepted, 0 where the connection takes none at present.
    fn send(&mut self, bytes: &[u8]) -> usize;

    /// Closes the connection and waits for `retry` before the next attempt.
    fn close(&mut self, retry: Duration);

    /// Waits until something arrives, for `most` at the longest.
    fn wait(&self, most: Duration);

    /// Closes the connection for good, once the controller has received all that was sent; waits
    /// until `end` at the longest.
    fn finish(self, end: Instant);

    /// For how long nothing has arrived on the connection that stands.
    fn silence(&self) -> Duration;

    /// Nanoseconds since the Unix epoch, by the clock that messages are stamped with.
    fn now_ns(&self) -> u64 {
        unix_ns()
    }
}

/// A TCP connection, or the attempts at one.
pub struct Tcp {
    address: String,
    state: State,
}

enum State {
    Idle {
        since: Instant,
        retry: Duration,
    },
    Connecting(Receiver<io::Result<TcpStream>>),
    /// With the time at which bytes arrived last.
    Connected(TcpStream, Instant),
}

impl Tcp {
    /// A connection to `address` (host and port), not attempted yet.
    pub fn new(address: String) -> Self {
        let state = State::Idle { since: Instant::now(), retry: Duration::ZERO };
        Self { address, state }
    }
}

impl Transport for Tcp {
    fn address(&self) -> &str {
        &self.address
    }

    fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(..))
    }

    fn connect_if_due(&mut self) -> bool {
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
                    self.state = State::Connected(stream, Instant::now());
                    true
                }
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                    self.close(RETRY);
                    false
                }
                Err(TryRecvError::Empty) => false,
            },
            State::Idle { .. } | State::Connected(..) => false,
        }
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let State::Connected(stream, received) = &mut self.state else { return Ok(()) };
        let mut buffer = [0; 16 << 10];
        let before = bytes.len();
        let problem = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break "the controller closed the connection".to_owned(),
                Ok(read) => {
                    *received = Instant::now();
                    bytes.extend_from_slice(&buffer[..read]);
                    if bytes.len() >= MOST_RECEIVED {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break format!("the connection broke: {error}"),
            }
        };
        // What came before the end counts; the end shows again with the next call.
        if bytes.len() > before { Ok(()) } else { Err(problem) }
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        let State::Connected(stream, _) = &mut self.state else { return 0 };
        loop {
            match stream.write(bytes) {
                Ok(written) => return written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A broken connection shows when it is read from.
                Err(_) => return 0,
            }
        }
    }

    fn close(&mut self, retry: Duration) {
        self.state = State::Idle { since: Instant::now(), retry };
    }

    fn wait(&self, most: Duration) {
        let State::Connected(stream, _) = &self.state else { return std::thread::sleep(most) };
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
        // Interrupted or not, the caller polls next.
        let _ = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], timeout);
    }

    fn silence(&self) -> Duration {
        match &self.state {
            State::Connected(_, received) => received.elapsed(),
            State::Idle { .. } | State::Connecting(_) => Duration::ZERO,
        }
    }

    fn finish(self, end: Instant) {
        // Closed with bytes of the controller's unread, the connection would be reset, and what the
        // controller has not read yet be lost.
        let State::Connected(mut stream, _) = self.state else { return };
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
