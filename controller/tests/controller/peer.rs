//! A switch's end of a connection: a thread receives, and answers probes, as a switch does whatever
//! else it is at.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calumma_controller::server::unix_ns;
use calumma_wire::{FrameReader, Message};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// See the [module](self). Closed when dropped.
pub(crate) struct Peer {
    stream: Arc<Mutex<TcpStream>>,
    /// Each message but probes, with its frame's version.
    messages: Receiver<(u8, Message)>,
    clock: Arc<Clock>,
}

/// A peer's clock.
#[derive(Default)]
struct Clock {
    /// By how much it is ahead of the system's, in nanoseconds.
    ahead_ns: AtomicU64,
    /// Probes that were answered by it.
    answered: AtomicU64,
}

impl Peer {
    /// Connects as one that speaks `version`.
    pub(crate) fn connect(address: SocketAddr, version: u8) -> Self {
        let mut reading = TcpStream::connect(address).unwrap();
        let stream = Arc::new(Mutex::new(reading.try_clone().unwrap()));
        let (clock, (give, messages)) = (Arc::<Clock>::default(), channel());
        let (writing, shown) = (stream.clone(), clock.clone());
        std::thread::spawn(move || {
            let (mut reader, mut bytes) = (FrameReader::new(), [0; 4096]);
            while let Ok(read @ 1..) = reading.read(&mut bytes) {
                reader.push(&bytes[..read]);
                while let Some(message) = reader.next_message().unwrap() {
                    if let Message::Probe { sent_ns } = message {
                        let now_ns = unix_ns() + shown.ahead_ns.load(Ordering::Relaxed);
                        let echo =
                            Message::Echo { sent_ns, received_ns: now_ns, answered_ns: now_ns };
                        let mut frame = Vec::new();
                        assert!(echo.encode_as(version, &mut frame));
                        // The test may have closed it.
                        let _ = writing.lock().unwrap().write_all(&frame);
                        shown.answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let _ = give.send((reader.version(), message));
                    }
                }
            }
        });
        Self { stream, messages, clock }
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        self.stream.lock().unwrap().write_all(bytes).unwrap();
    }

    /// The next message but probes, and its frame's version; `None` where the connection is closed.
    pub(crate) fn next(&self) -> Option<(u8, Message)> {
        match self.messages.recv_timeout(PATIENCE) {
            Ok(message) => Some(message),
            Err(error) => {
                assert!(error == std::sync::mpsc::RecvTimeoutError::Disconnected, "in time");
                None
            }
        }
    }

    /// Lets its clock be ahead, and waits until the controller has been answered by it.
    pub(crate) fn set_clock(&self, ahead_ns: u64) {
        self.clock.ahead_ns.store(ahead_ns, Ordering::Relaxed);
        let (before, since) = (self.clock.answered.load(Ordering::Relaxed), Instant::now());
        while self.clock.answered.load(Ordering::Relaxed) < before + 2 {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.stream.lock().unwrap().shutdown(Shutdown::Both);
    }
}
