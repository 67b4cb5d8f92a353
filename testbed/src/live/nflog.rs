//! The kernel's packet log (`nft ... log group N`) over netlink: packets that a rule logged, as the
//! kernel hands them out. No more of the protocol than that.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

/// Netlink's subsystem of the packet log, in the upper byte of a message's type.
const SUBSYSTEM: u16 = 4 << 8;
const PACKET: u16 = SUBSYSTEM;
const CONFIG: u16 = SUBSYSTEM | 1;
const ERROR: u16 = 2;

/// Flags of a request that is to be answered.
const REQUEST_AND_ACK: u16 = 1 | 4;

/// Attributes of a configuration.
const CONFIG_COMMAND: u16 = 1;
const CONFIG_MODE: u16 = 2;
const CONFIG_THRESHOLD: u16 = 5;
/// Attributes of a packet.
const TIMESTAMP: u16 = 3;
const CAME_IN_BY: u16 = 4;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;

/// Bytes of messages that the kernel keeps for us.
const BUFFER: usize = 16 << 20;

/// Headers of a netlink message, and of netfilter's part of it.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

/// A packet that a rule logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// The rule's prefix.
    pub(super) prefix: String,
    /// When the packet came, in nanoseconds since the Unix epoch, where the kernel knows.
    pub(super) time_ns: Option<u64>,
    /// Index of the interface that it came in by, where it came in by one.
    pub(super) came_in_by: Option<u32>,
    /// Its first bytes, from the IP header on, or from what is behind another EtherType.
    pub(super) packet: Vec<u8>,
}

/// A socket that is handed what a log group of a network namespace logs.
#[derive(Debug)]
pub(super) struct Log(OwnedFd);

impl Log {
    /// Takes the log group of the network namespace that the thread is in, the first `bytes` of
    /// each packet.
    pub(super) fn open(group: u16, bytes: u16) -> Result<Self> {
        let log = Self(socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?);
        bind(log.0.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&log.0, sockopt::RcvBufForce, &BUFFER)?;
        let packets = [&u32::from(bytes).to_be_bytes()[..], &[2, 0]].concat();
        // Handed out one by one, at once.
        let one = 1_u32.to_be_bytes();
        for (attribute, value) in
            [(CONFIG_COMMAND, &[1_u8][..]), (CONFIG_MODE, &packets), (CONFIG_THRESHOLD, &one)]
        {
            log.configure(group, attribute, value).with_context(|| format!("log group {group}"))?;
        }
        Ok(log)
    }

    fn configure(&self, group: u16, attribute: u16, value: &[u8]) -> Result<()> {
        send(self.0.as_raw_fd(), &request(group, attribute, value), MsgFlags::empty())?;
        let mut answer = [0; 1024];
        let len = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let (kind, body) = messages(&answer[..len]).next().context("no answer")?;
        ensure!(kind == ERROR, "an answer of kind {kind}");
        match word(body, 0) {
            Some(0) => Ok(()),
            Some(code) => Err(Errno::from_raw(-(code as i32)).into()),
            None => bail!("an answer cut short"),
        }
    }

    /// What has been logged since the last call; waits for nothing. An error where the kernel had
    /// to throw some of it away.
    pub(super) fn read(&self, buffer: &mut [u8], mut take: impl FnMut(Logged)) -> Result<()> {
        loop {
            match recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => messages(&buffer[..len])
                    .filter(|(kind, _)| *kind == PACKET)
                    .filter_map(|(_, body)| logged(body))
                    .for_each(&mut take),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("reading the log of lost packets"),
            }
        }
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A request with one attribute. Netlink is in the machine's byte order, netfilter's numbers in the
/// network's.
fn request(group: u16, attribute: u16, value: &[u8]) -> Vec<u8> {
    let value_len = 4 + value.len() as u16;
    let mut bytes = Vec::new();
    let total = HEADER + FAMILY_HEADER + usize::from(value_len).next_multiple_of(4);
    bytes.extend((total as u32).to_ne_bytes());
    bytes.extend(CONFIG.to_ne_bytes());
    bytes.extend(REQUEST_AND_ACK.to_ne_bytes());
    // Neither a sequence number nor a port.
    bytes.extend([0; 8]);
    // Any family, version 0.
    bytes.extend([0; 2]);
    bytes.extend(group.to_be_bytes());
    bytes.extend(value_len.to_ne_bytes());
    bytes.extend(attribute.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(total, 0);
    bytes
}

/// The messages of a datagram: kind and what follows the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = word(bytes, 0)? as usize;
        let kind = half(bytes, 4)?;
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn logged(body: &[u8]) -> Option<Logged> {
    let mut rest = body.get(FAMILY_HEADER..)?;
    let mut logged =
        Logged { prefix: String::new(), time_ns: None, came_in_by: None, packet: Vec::new() };
    while let (Some(len), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let value = rest.get(4..usize::from(len))?;
        match kind {
            PREFIX => {
                let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
                logged.prefix = String::from_utf8_lossy(text).into_owned();
            }
            TIMESTAMP => {
                let number = |at: usize| {
                    let bytes = value.get(at..at + 8)?.try_into().ok()?;
                    Some(u64::from_be_bytes(bytes))
                };
                logged.time_ns = Some(number(0)? * 1_000_000_000 + number(8)? * 1000);
            }
            CAME_IN_BY => {
                logged.came_in_by = Some(u32::from_be_bytes(*value.first_chunk()?));
            }
            PAYLOAD => logged.packet = value.to_vec(),
            _ => {}
        }
        rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(logged)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn packets_are_read_with_their_prefix_and_time_whatever_else_is_said_of_them() {
        let time = [3_u64.to_be_bytes(), 500_000_u64.to_be_bytes()].concat();
        let mut body = vec![2, 0, 0, 7];
        body.extend(attribute(1, &[8, 0, 3, 0]));
        body.extend(attribute(PREFIX, b"lost\0"));
        body.extend(attribute(TIMESTAMP, &time));
        body.extend(attribute(CAME_IN_BY, &[0, 0, 1, 2]));
        body.extend(attribute(PAYLOAD, &[0x45, 0x20, 7]));
        let datagram = [message(PACKET, &body), message(3, &[])].concat();
        let read: Vec<_> = messages(&datagram).collect();
        assert_eq!(read.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [PACKET, 3]);
        let expected = Logged {
            prefix: "lost".to_owned(),
            time_ns: Some(3_500_000_000),
            came_in_by: Some(0x102),
            packet: vec![0x45, 0x20, 7],
        };
        assert_eq!(logged(read[0].1), Some(expected));
    }

    #[test]
    fn what_is_cut_short_is_not_read_beyond_its_end() {
        let whole = message(PACKET, &[&[2, 0, 0, 7][..], &attribute(PAYLOAD, &[1; 20])].concat());
        for len in 0..whole.len() {
            assert_eq!(messages(&whole[..len]).count(), 0, "{len}");
        }
        for len in 5..28 {
            assert_ne!(logged(&whole[HEADER..][..len]).map(|l| l.packet), Some(vec![1; 20]));
        }
    }
}
