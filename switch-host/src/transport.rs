//! What carries a conversation: a TCP connection, looked after in steps that never block the
//! control thread, or whatever a simulation puts in its place.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use calumma_trust::TlsFiles;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::warn;

use crate::stream::Stream;
use crate::unix_ns;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes that are received in one step, so that a peer that never stops sending does not keep a
/// control thread from its other work: some thousand of the smallest messages.
const MOST_RECEIVED: usize = 16 << 10;

/// How long to wait before the next attempt to connect.
pub(crate) const RETRY: Duration = Duration::from_millis(250);

/// The same where certificates are in the way: that changes when somebody has changed files.
const RETRY_DISTRUSTED: Duration = Duration::from_secs(5);

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

/// A TCP connection, or the attempts at one. By TLS where there are files for it, which are read
/// for each attempt: a certificate is renewed by putting another one in its place.
pub struct Tcp {
    address: String,
    tls: Option<TlsFiles>,
    state: State,
    /// Why certificates were in the way last, so that it is said once.
    distrust: Option<String>,
}

enum State {
    Idle {
        since: Instant,
        retry: Duration,
    },
    Connecting(Receiver<io::Result<Stream>>),
    /// With the time at which bytes arrived last.
    Connected(Stream, Instant),
}

impl Tcp {
    /// A connection to `address` (host and port), not attempted yet.
    pub fn new(address: String, tls: Option<TlsFiles>) -> Self {
        let state = State::Idle { since: Instant::now(), retry: Duration::ZERO };
        Self { address, tls, state, distrust: None }
    }

    /// By which files the next connection is made; one that stands stays as it is.
    pub fn set_tls(&mut self, tls: Option<TlsFiles>) {
        if self.tls != tls {
            self.tls = tls;
            self.distrust = None;
            if let State::Idle { retry, .. } = &mut self.state {
                *retry = (*retry).min(RETRY);
            }
        }
    }

    /// After an attempt that came to nothing.
    fn attempt_failed(&mut self, problem: &io::Error) {
        self.state = State::Idle { since: Instant::now(), retry: RETRY };
        // A controller that is not there yet is nothing to tell of.
        if !is_distrust(problem) {
            return;
        }
        let problem = problem.to_string();
        if self.distrust.as_ref() != Some(&problem) {
            warn!(controller = self.address, "no TLS with the controller: {problem}");
        }
        self.distrust = Some(problem);
        self.state = State::Idle { since: Instant::now(), retry: RETRY_DISTRUSTED };
    }
}

/// Whether certificates, or the files that have them, are what is wrong.
fn is_distrust(problem: &io::Error) -> bool {
    matches!(problem.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput)
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
                let (address, tls) = (self.address.clone(), self.tls.clone());
                // Name look-up, connecting and handshakes may block for long: not in the control
                // thread.
                std::thread::spawn(move || to.send(connect(&address, tls.as_ref())));
                self.state = State::Connecting(from);
                false
            }
            State::Connecting(attempt) => match attempt.try_recv() {
                Ok(Ok(stream)) => {
                    self.state = State::Connected(stream, Instant::now());
                    true
                }
                Ok(Err(problem)) => {
                    self.attempt_failed(&problem);
                    false
                }
                Err(TryRecvError::Disconnected) => {
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
                    self.distrust = None;
                    bytes.extend_from_slice(&buffer[..read]);
                    if bytes.len() >= MOST_RECEIVED {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Only now does a switch learn that its own certificate was refused.
                Err(error) if is_distrust(&error) => {
                    self.distrust = Some(error.to_string());
                    break format!("TLS ended the connection: {error}");
                }
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
        let retry = if self.distrust.is_some() { retry.max(RETRY_DISTRUSTED) } else { retry };
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
        while !stream.write_rest() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        stream.shut_down();
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

fn connect(address: &str, tls: Option<&TlsFiles>) -> io::Result<Stream> {
    let mut problem = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        let connected = TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT);
        match connected.and_then(|socket| Stream::begin(socket, tls)) {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}
