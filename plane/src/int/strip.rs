//! Taking stacks out of packets.

use super::Stack;
use super::header::{Found, Original, read_stack, set_marker};
use crate::carrier::set_tos_bits;
use crate::packet::Packet;
use crate::tag::{self, before};

/// What a packet that has lost its stack goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// To a host, with the DSCP that it was sent with. Where the stack does not say it, the packet
    /// keeps the one that it has, without the marker.
    ToHost,
    /// The same, but that a packet whose stack does not say it has been given its DSCP already.
    ToHostGiven,
    /// Through the network, with the mark that it has.
    On,
}

/// Takes a stack out of the packet that it was found in and whose IP header begins at `ip_offset`.
/// Gives whether it could. The ECN bits stay as the last switch left them.
#[inline]
pub fn strip<P: Packet>(packet: &mut P, ip_offset: usize, found: &Found, goes: Goes) -> bool {
    let Found { header, place } = found;
    let removed = match header.original {
        Original::Dscp(_) => tag::remove(packet, place, header.size()),
        Original::Port(port) => tag::remove(packet, place, header.size())
            .and_then(|()| before::redirect(packet, place, port).map(drop)),
        Original::Protocol(protocol) => before::unwrap(packet, place, header.size(), protocol),
    };
    if removed.is_err() {
        return false;
    }
    match (goes, header.original) {
        (Goes::ToHost | Goes::ToHostGiven, Original::Dscp(dscp)) => {
            set_tos_bits(packet.bytes_mut(), ip_offset, 0b1111_1100, dscp << 2);
        }
        (Goes::ToHostGiven, _) => {}
        (Goes::ToHost | Goes::On, _) => set_marker(packet, ip_offset, false),
    }
    true
}

/// Reads the hops of a stack that was found in a packet.
#[inline]
pub fn read<P: Packet>(packet: &P, found: &Found, stack: &mut Stack) {
    let bytes = packet.bytes().get(found.place.offset()..).unwrap_or_default();
    read_stack(bytes, &found.header, stack);
}
