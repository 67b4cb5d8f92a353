//! Hosts that send what looks like INT: datagrams with bit 4 of the ToS byte set whose payload
//! begins as a stack does, and a server that sends each back. The testbed runs both inside the
//! hosts' namespaces by executing itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::short::{Outcome, evenly};

/// Bit 4 alone: the upper three bits are the network's, which gives them back as configured.
const TOS: i32 = 0b0001_0000;

/// How long an answer may take. One that is lost counts as a failure.
const PATIENCE: Duration = Duration::from_millis(500);

/// A stack of two hops, node id and latency: shim, header, hops.
const STACK: [u8; 32] = [
    0x10, 7, 0, 0xB8, 0x20, 0, 2, 4, 0xA0, 0, 0xBE, 0xEF, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0x10, 0, 0,
    0, 0, 9, 0, 0, 0x20, 0,
];

/// What datagram number `n` carries: the stack of another domain, each of them by turns; one whose
/// lengths disagree; one without a shim.
fn payload(n: u32) -> Vec<u8> {
    let mut bytes = STACK.to_vec();
    let [.., high, low] = n.wrapping_mul(0x9E37_79B1).to_be_bytes();
    match n % 4 {
        0 => (bytes[10], bytes[11]) = (high, low),
        1 => bytes[1] = 6,
        2 => bytes.iter_mut().for_each(|byte| *byte ^= high | 1),
        _ => {}
    }
    bytes.extend_from_slice(&n.to_be_bytes());
    bytes
}

/// Sends every datagram back, for ever.
///
/// # Errors
/// When the address can't be had.
pub fn serve(address: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(address).with_context(|| format!("receiving on {address}"))?;
    // Says that it is there.
    let _listener = TcpListener::bind(address).with_context(|| address.to_string())?;
    let mut bytes = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut bytes).context("receiving")?;
        socket.send_to(&bytes[..len], from).context("answering")?;
    }
}

/// Sends so many datagrams evenly over `time`. One that does not come back as it was sent has
/// failed.
pub fn send(server: SocketAddr, datagrams: u32, time: Duration) -> Outcome {
    evenly(datagrams, time, |n| {
        let socket = UdpSocket::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        setsockopt(&socket, sockopt::Ipv4Tos, &TOS)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let (sent, mut received) = (payload(n), [0; 2048]);
        socket.send_to(&sent, server)?;
        let len = socket.recv(&mut received)?;
        if received[..len] != sent[..] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it came back changed"));
        }
        Ok(2 * sent.len() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::stack_of;
    use crate::workload::{frame, host_address};
    use calumma_sketch::WideKey;

    #[test]
    fn datagrams_come_back_and_some_look_like_stacks() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::thread::spawn(move || serve(free));
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while send(free, 1, Duration::ZERO).completed == 0 && std::time::Instant::now() < end {}
        let outcome = send(free, 8, Duration::ZERO);
        assert_eq!((outcome.completed, outcome.failed), (8, 0), "{outcome:?}");
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, 17);
        let looks_like = |n: u32| {
            let payload = payload(n);
            let mut bytes = frame(&key, 42 + payload.len() as u16).to_vec();
            bytes.truncate(42);
            bytes[15] = TOS as u8;
            bytes.extend(payload);
            let len = bytes.len();
            stack_of(&bytes, len).map(|stack| stack.hops.len())
        };
        assert_eq!((looks_like(4), looks_like(7)), (Ok(2), Ok(2)));
        assert!(looks_like(5).unwrap_err().contains("lengths disagree"));
        assert!(looks_like(6).unwrap_err().contains("no shim"));
    }
}
