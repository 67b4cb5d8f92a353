//! A collector of telemetry reports, beside the edges of a live fabric.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Live;
use crate::fabric::Namespace;
use crate::scenario::COLLECTOR;

/// How often it looks whether it is to end.
const TICK: Duration = Duration::from_millis(100);

/// A datagram, and when it came.
#[derive(Clone, Debug)]
pub struct Came {
    /// When.
    pub at: Instant,
    /// Its bytes.
    pub datagram: Vec<u8>,
}

/// Receives datagrams.
#[derive(Debug)]
pub(super) struct Collector {
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<Vec<Came>>>,
}

impl Collector {
    /// Begins to listen in `namespace`.
    pub(super) fn start(namespace: &Namespace) -> Result<Self> {
        let bind = || UdpSocket::bind(COLLECTOR).context("a collector's socket");
        let socket = namespace.within(bind)?;
        socket.set_read_timeout(Some(TICK))?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let reader = std::thread::spawn(move || {
            let (mut came, mut bytes) = (Vec::new(), [0; 1 << 16]);
            loop {
                // What has come before that is read as well.
                let is_over = ends.load(Ordering::Relaxed);
                match socket.recv(&mut bytes) {
                    Ok(len) => {
                        came.push(Came { at: Instant::now(), datagram: bytes[..len].to_vec() });
                    }
                    Err(_) if is_over => return came,
                    Err(_) => {}
                }
            }
        });
        Ok(Self { over, reader: Some(reader) })
    }

    fn finish(&mut self) -> Vec<Came> {
        self.over.store(true, Ordering::Relaxed);
        self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Live {
    /// The telemetry reports that have come, where the scenario has switches send any. To be asked
    /// once all is finished.
    pub fn take_collected(&mut self) -> Vec<Came> {
        self.collector.take().map_or_else(Vec::new, |mut collector| collector.finish())
    }
}
