//! Many short TCP connections: a client that opens one after the other, each asking a server for
//! some bytes and sending it some. The testbed runs both inside the hosts' namespaces by executing
//! itself.
//!
//! On a connection the client writes how many bytes it will send and how many it wants (two
//! little-endian 32-bit words), then sends; the server reads it all, then answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Bytes a connection sends and asks for, in turn: from one packet to some dozens.
const SIZES: [(u32, u32); 5] =
    [(64, 64), (200, 1_400), (1_400, 14_000), (20_000, 500), (500, 60_000)];

/// The most bytes either side may announce.
const MAX_SIZE: u32 = 1 << 20;

/// How long a connection may stand still. The core may drop the same packet several times, and TCP
/// waits longer each time.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// What a client did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Connections that sent and received all their bytes.
    pub completed: u32,
    /// Connections that did not.
    pub failed: u32,
    /// Bytes sent and received, headers aside.
    pub bytes: u64,
    /// Why the first of them failed.
    pub first_failure: Option<String>,
}

/// Answers connections for ever.
pub fn serve(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("listening on {address}; is another server there?"))?;
    for stream in listener.incoming() {
        let stream = stream.context("accepting a connection")?;
        // A client that vanishes counts its own failure; the server goes on.
        thread::spawn(move || answer(stream));
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    set_patience(&stream)?;
    let mut request = [0; 8];
    stream.read_exact(&mut request)?;
    let word = |at: usize| {
        u32::from_le_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
    };
    let (send, want) = (word(0), word(4));
    if send > MAX_SIZE || want > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many bytes announced"));
    }
    read_bytes(&mut stream, send)?;
    stream.write_all(&vec![0x5a; want as usize])
}

/// Opens `connections` evenly over `time`, and waits for all.
pub fn connect(server: SocketAddr, connections: u32, time: Duration) -> Outcome {
    evenly(connections, time, |n| {
        let (send, want) = SIZES[n as usize % SIZES.len()];
        exchange(server, send, want)?;
        Ok(u64::from(send) + u64::from(want))
    })
}

/// Does something `times` over, evenly over `time` and each in a thread of its own, and waits for
/// all. `one` is given its number, and gives the bytes that it moved.
pub(super) fn evenly(
    times: u32,
    time: Duration,
    one: impl Fn(u32) -> io::Result<u64> + Sync,
) -> Outcome {
    let outcome = Mutex::new(Outcome::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for n in 0..times {
            let due = start + time * n / times;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (outcome, one) = (&outcome, &one);
            scope.spawn(move || {
                let result = one(n);
                let mut outcome = outcome.lock().unwrap_or_else(|e| e.into_inner());
                match result {
                    Ok(bytes) => {
                        outcome.completed += 1;
                        outcome.bytes += bytes;
                    }
                    Err(error) => {
                        outcome.failed += 1;
                        outcome.first_failure.get_or_insert(error.to_string());
                    }
                }
            });
        }
    });
    outcome.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Tries again and again for `patience` until one connection comes about: the way to the server is
/// open.
pub fn wait_for(server: SocketAddr, patience: Duration) -> Result<()> {
    let end = Instant::now() + patience;
    loop {
        match TcpStream::connect_timeout(&server, Duration::from_millis(300)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => {
                bail!("no connection to {server} within {patience:?}: {error}")
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn exchange(server: SocketAddr, send: u32, want: u32) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    set_patience(&stream)?;
    let mut request = [send.to_le_bytes(), want.to_le_bytes()].concat();
    request.resize(8 + send as usize, 0xa5);
    stream.write_all(&request)?;
    read_bytes(&mut stream, want)
}

fn set_patience(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn read_bytes(stream: &mut TcpStream, len: u32) -> io::Result<()> {
    let have = io::copy(&mut stream.take(u64::from(len)), &mut io::sink())?;
    if have < u64::from(len) {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the connection closed after {have} of {len} bytes"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_to_a_server_is_completed_and_its_bytes_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(|s| drop(answer(s))));
        wait_for(address, Duration::from_secs(5)).unwrap();
        let outcome = connect(address, 20, Duration::ZERO);
        let bytes: u32 = SIZES.iter().map(|(send, want)| 4 * (send + want)).sum();
        let expected = Outcome { completed: 20, bytes: bytes.into(), ..Outcome::default() };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn connections_to_nowhere_are_counted_as_failed_with_the_reason() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let outcome = connect(address, 3, Duration::ZERO);
        assert_eq!((outcome.completed, outcome.failed), (0, 3));
        assert!(outcome.first_failure.unwrap().contains("refused"));
        assert!(wait_for(address, Duration::ZERO).is_err());
    }
}
