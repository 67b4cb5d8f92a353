//! What a window must say of the packets that a switch received.

use std::collections::HashMap;

use calumma_cfs::frames::{Entry, salt};
use calumma_plane::packet::{Frame, Packet};
use calumma_plane::secret::hash_key;
use calumma_sketch::table::Rank;
use calumma_sketch::{HashFamily, WideKey};

use crate::common::{Net, clock, secret};

/// The functions by which the deployment hashes.
fn family() -> HashFamily {
    HashFamily::new(&hash_key(&secret()))
}

/// A router takes one off the TTL.
#[allow(dead_code, reason = "not every test crate has routers")]
pub(crate) fn lower_ttl(frame: &mut Frame) {
    let shim = usize::from(frame.bytes()[12..14] == [0x88, 0xB5]) * 4;
    let ip = &mut frame.bytes_mut()[14 + shim..];
    let at = if ip[0] >> 4 == 4 { 8 } else { 7 };
    ip[at] -= 1;
}

/// Which of so many flows the packet number `n` is of: a few have many packets.
pub(crate) fn number(n: u64, flows: u64) -> u32 {
    let random = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let [one, other] = [random >> 20, random >> 42].map(|random| random % flows);
    one.min(other) as u32
}

/// A packet as a switch received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) ttl: u8,
    pub(crate) len: u64,
    pub(crate) at_ns: u64,
    pub(crate) side: u8,
}

/// What a switch received in a window, flow by flow, in order.
pub(crate) type Traffic = HashMap<WideKey, Vec<Received>>;

/// The entry of a flow that was counted from its first packet on, and that came unclaimed.
pub(crate) fn entry(
    net: &Net,
    node: u16,
    epoch: u64,
    key: &WideKey,
    packets: &[Received],
) -> Entry {
    let first = packets[0];
    let looped: Vec<_> = packets.iter().filter(|packet| packet.ttl != first.ttl).collect();
    let start_ns = clock().start_of(epoch);
    let us = |at_ns: u64| (at_ns.saturating_sub(start_ns) / 1000) as u32;
    Entry {
        key: *key,
        packets: packets.len() as u64,
        bytes: packets.iter().map(|packet| packet.len).sum(),
        rank: Rank::new(2, grade(net, node, epoch, key, first.ttl)),
        ttl: first.ttl,
        differences: looped.iter().fold(0, |all, of| all | Entry::difference(first.ttl, of.ttl)),
        looped: looped.len() as u64,
        first_us: us(first.at_ns),
        last_us: us(packets.iter().map(|packet| packet.at_ns).max().unwrap()),
        sides: packets.iter().fold(0, |sides, packet| sides | packet.side),
        local: false,
        exact: true,
    }
}

/// The grade of a flow whose first packet came with this TTL.
pub(crate) fn grade(net: &Net, node: u16, epoch: u64, key: &WideKey, ttl: u8) -> u32 {
    let (setup, family) = (net.setup, family());
    let with = (setup.seed(epoch / u64::from(setup.window_epochs)), salt(node));
    // Whichever keys the switch measures by.
    setup.grade_of(&family, &family.hash(key), with, ttl)
}
