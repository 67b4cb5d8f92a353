//! A transport in memory, for simulations and tests: whoever drives it carries the bytes.

use std::time::{Duration, Instant};

use crate::transport::Transport;

/// One end of a connection in memory.
#[derive(Debug, Default)]
pub struct Pipe {
    /// Set up by the driver, and not yet noticed by the conversation.
    offered: bool,
    connected: bool,
    /// Broken by the driver, and not yet noticed by the conversation.
    broken: bool,
    retry: Option<Duration>,
    incoming: Vec<u8>,
    outgoing: Vec<Vec<u8>>,
    now_ns: u64,
    silence: Duration,
}

impl Pipe {
    /// A pipe that is not connected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time that messages are stamped with, in nanoseconds since the Unix epoch.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets for how long nothing has arrived.
    pub fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
    }

    /// Sets a connection up; the conversation notices with its next step.
    pub fn connect(&mut self) {
        self.offered = true;
    }

    /// Breaks the connection, and loses what is under way; the conversation notices with its next
    /// step.
    pub fn disconnect(&mut self) {
        self.broken = self.connected;
        self.offered = false;
        self.incoming.clear();
        self.outgoing.clear();
    }

    /// Delivers bytes to the conversation.
    pub fn deliver(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// What the conversation has sent, frame by frame.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing)
    }

    /// After how long the conversation wants to be connected again, where it has closed the
    /// connection; given once.
    pub fn take_retry(&mut self) -> Option<Duration> {
        self.retry.take()
    }
}

impl Transport for Pipe {
    fn address(&self) -> &str {
        "in memory"
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn connect_if_due(&mut self) -> bool {
        if self.connected || !self.offered {
            return false;
        }
        (self.offered, self.connected, self.broken) = (false, true, false);
        true
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        bytes.append(&mut self.incoming);
        if self.broken { Err("the connection broke".to_owned()) } else { Ok(()) }
    }

    fn send(&mut self, bytes: &[u8]) -> usize {
        if !self.connected || self.broken {
            return 0;
        }
        self.outgoing.push(bytes.to_vec());
        bytes.len()
    }

    fn close(&mut self, retry: Duration) {
        self.connected = false;
        self.broken = false;
        self.retry = Some(retry);
        self.incoming.clear();
    }

    fn wait(&self, _: Duration) {}

    fn finish(self, _: Instant) {}

    fn silence(&self) -> Duration {
        self.silence
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}
