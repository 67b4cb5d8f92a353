//! Frames to and from a network interface of the kernel, through an AF_PACKET socket, without
//! unsafe code: the ports of a modelled switch, and the way to the CPU port of a real one.
//!
//! [`Cable`] joins two programs' ends within one process instead, for tests.
//!
//! Not for speed: every frame is a system call. Offloads must be off (`ethtool -K ... tx off tso
//! off gso off gro off rxvlan off txvlan off`), or frames come that no wire carries. Needs
//! CAP_NET_RAW.

mod cable;

pub use cable::Cable;

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg, send,
    setsockopt, socket, sockopt,
};

/// Longest frame that is received; jumbo frames fit.
pub const MAX_FRAME: usize = 16 << 10;

/// Room for frames that wait, so that a burst finds the reader asleep and is not lost.
const RECEIVE_BUFFER: usize = 32 << 20;

/// `PACKET_OUTGOING`: frames that somebody else on this machine sends through the interface.
const OUTGOING: u8 = 4;

/// What keeps an interface from being used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No such interface.
    #[error("interface {0}: there is none of that name in this network namespace; see `ip link`")]
    Missing(String),
    /// The system refuses.
    #[error("interface {name}: {call}: {errno}; raw sockets need root or CAP_NET_RAW")]
    System {
        /// The interface.
        name: String,
        /// The system call.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
}

/// Something that frames come from and go to. It never blocks; its descriptor is readable when a
/// frame may have come.
pub trait Plug: AsFd + Send {
    /// The next frame that came in, its bytes in `buffer` ([`MAX_FRAME`] bytes are enough); none
    /// where none waits.
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]>;

    /// Sends a frame, or drops it where there is no room.
    fn send(&mut self, frame: &[u8]);
}

/// A network interface, opened.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: OwnedFd,
    index: usize,
}

impl Interface {
    /// Opens the interface of that name.
    ///
    /// # Errors
    /// There is none, or the system refuses.
    pub fn open(name: &str) -> Result<Interface, InterfaceError> {
        let failed =
            |call| move |errno| InterfaceError::System { name: name.to_owned(), call, errno };
        let mut addresses = getifaddrs().map_err(failed("getifaddrs"))?;
        let address = addresses.find_map(|interface| {
            let address = interface.address.filter(|_| interface.interface_name == name)?;
            address.as_link_addr().copied()
        });
        let address = address.ok_or_else(|| InterfaceError::Missing(name.to_owned()))?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .map_err(failed("socket"))?;
        // Beyond the system's limit, as root; else as far as that goes.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER));
        // The address names no protocol, so that of the socket stays.
        bind(socket.as_raw_fd(), &address).map_err(failed("bind"))?;
        let interface = Interface { name: name.to_owned(), socket, index: address.ifindex() };
        interface.discard_waiting();
        Ok(interface)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Throws away what waits: before it was bound, the socket received from all interfaces.
    fn discard_waiting(&self) {
        let mut buffer = [0; 64];
        while let Ok(_) | Err(Errno::EINTR) =
            nix::sys::socket::recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())
        {
        }
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Plug for Interface {
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        loop {
            let (length, from) = {
                let mut pieces = [IoSliceMut::new(buffer)];
                let fd = self.socket.as_raw_fd();
                match recvmsg::<LinkAddr>(fd, &mut pieces, None, MsgFlags::empty()) {
                    Ok(message) => (message.bytes, message.address),
                    Err(Errno::EINTR) => continue,
                    // Nothing there; or the interface is down, and what comes later counts.
                    Err(_) => return None,
                }
            };
            let ours = |from: &LinkAddr| from.ifindex() == self.index && from.pkttype() != OUTGOING;
            if from.as_ref().is_some_and(ours) {
                return Some(&buffer[..length]);
            }
        }
    }

    fn send(&mut self, frame: &[u8]) {
        while let Err(Errno::EINTR) = send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = Interface::open("nowhere0").unwrap_err().to_string();
        assert!(error.contains("nowhere0") && error.contains("ip link"), "{error}");
    }
}
