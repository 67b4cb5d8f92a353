//! The headers of a burst, read; and what becomes of packets that can't be measured.

use calumma_sketch::Key;

use super::marks::Marks;
use super::masks::{first, positions};
use super::{DropMask, Measured, Policy, Treatment};
use crate::carrier::Carrier;
use crate::counters::Counters;
use crate::flows::Flows;
use crate::int::header::{Seen, look, tos};
use crate::int::{Domains, MARKER};
use crate::packet::Packet;
use crate::parse::tunnel::{self, Tunnels};
use crate::parse::{Parsed, PlainFlows, UDP, Unmeasured, header_by_header, plain};
use crate::probe;

/// Reads the headers of packets of a burst, and counts what can't be measured. Gives what is to be
/// dropped, and the positions of packets that may be probes.
#[inline]
pub(super) fn read_headers<K: Measured, P: Packet>(
    policy: &Policy,
    counters: &mut Counters,
    packets: &[P],
    (of, known): (u32, &PlainFlows),
    flows: &mut Flows<K>,
) -> (DropMask, u32) {
    let (mut drops, mut maybe_probes) = (DropMask::default(), 0);
    let tunnels = policy.tunnels;
    let is_known = if tunnels == Tunnels::Outer { known.known() } else { 0 };
    if of & !is_known == 0 && of == first(packets.len()) {
        flows.fill(known.keys(), packets.len(), PlainFlows::IP_OFFSET);
        return (drops, 0);
    }
    for at in positions(of) {
        let Some(packet) = packets.get(at) else { break };
        if is_known >> at & 1 == 1 {
            flows.push(known.keys()[at].into(), at, PlainFlows::IP_OFFSET);
            continue;
        }
        if tunnels == Tunnels::Outer
            && let Some((key, ip_offset)) = plain(packet.bytes(), packet.wire_len())
        {
            flows.push(key.into(), at, ip_offset);
            continue;
        }
        let parsed = match tunnels {
            Tunnels::Outer => header_by_header(packet.bytes(), packet.wire_len()),
            Tunnels::Inner => parse_inner(counters, packet),
        };
        if let Some((key, ip_offset)) = K::of_packet(&parsed) {
            maybe_probes |= u32::from(key.protocol() == probe::PROTOCOL) << at;
            flows.push(key, at, ip_offset);
            continue;
        }
        let treatment = match parsed {
            Parsed::Flow { .. } | Parsed::Flow6 { .. } => {
                unmeasured(policy, counters, Unmeasured::Ipv6)
            }
            Parsed::Unmeasured(kind) => {
                let foreign = is_foreign(policy.carrier, packet);
                let kind = if foreign { Unmeasured::ForeignShim } else { kind };
                unmeasured(policy, counters, kind)
            }
            Parsed::Malformed(kind) => {
                counters.malformed[kind as usize] += 1;
                counters.dropped_malformed += u64::from(policy.malformed == Treatment::Drop);
                policy.malformed
            }
        };
        drops.0 |= u32::from(treatment == Treatment::Drop) << at;
    }
    (drops, maybe_probes)
}

/// Gives packets from the fabric whose stack a UDP port marks the keys that they were sent with,
/// which they entered by. Of one whose stack is damaged nobody knows it.
#[inline(never)]
pub(super) fn restore_keys<K: Key, P: Packet>(
    domains: Domains,
    packets: &[P],
    flows: &mut Flows<K>,
) {
    for number in 0..flows.len() {
        let (key, (at, ip_offset)) = (flows.keys()[number], flows.places()[number]);
        let Some(packet) = packets.get(usize::from(at)) else { break };
        let ip_offset = usize::from(ip_offset);
        if key.protocol() != UDP || tos(packet, ip_offset) & MARKER == 0 {
            continue;
        }
        if let Seen::Stack(found) = look(packet, ip_offset, domains)
            && let Some((ports, protocol)) = found.original_flow(packet)
        {
            let word = |at| if at + 1 == K::WORDS { ports } else { key.word(at) };
            flows.set_key(number, K::from_word_fn(word, protocol));
        }
    }
}

/// Counts a packet that is not measured, and says what to do with it.
#[cold]
fn unmeasured(policy: &Policy, counters: &mut Counters, kind: Unmeasured) -> Treatment {
    let treatment = match kind {
        Unmeasured::ForeignShim => Treatment::Drop,
        _ => policy.unmeasured,
    };
    counters.unmeasured[kind as usize] += 1;
    counters.dropped_unmeasured += u64::from(treatment == Treatment::Drop);
    treatment
}

#[inline(never)]
fn parse_inner<P: Packet>(counters: &mut Counters, packet: &P) -> Parsed {
    let (parsed, inside) = tunnel::parse(packet.bytes(), packet.wire_len());
    if let Some(inside) = inside {
        counters.tunnelled[inside as usize] += 1;
    }
    parsed
}

/// Whether a packet that is not IP bears a mark which no edge of this network gave it.
#[cold]
fn is_foreign<P: Packet>(carrier: Carrier, packet: &P) -> bool {
    match carrier {
        Carrier::Shim(shim) => shim.is_foreign(packet),
        Carrier::Tos(_)
        | Carrier::SignedTos(_)
        | Carrier::FlowLabel
        | Carrier::IpId
        | Carrier::Unchosen => false,
    }
}

/// Leaves out those of the packets that enter which can carry no mark, and counts them. Gives those
/// of them that are to be dropped.
#[inline]
pub(super) fn keep_carriable<K: Key, P: Packet>(
    marks: Marks<'_>,
    policy: &Policy,
    counters: &mut Counters,
    packets: &[P],
    flows: &mut Flows<K>,
) -> u32 {
    let Some(keep) = marks.carriable(packets, flows.places()) else { return 0 };
    let why = |at: usize, ip_offset| marks.why_not(&packets[at], ip_offset);
    leave_out(keep, policy, counters, flows, why)
}

/// Those of the packets whose marks have been read that have none, and may have entered without
/// one. A shim could be in any packet, and a ToS byte is.
#[inline]
fn without_mark<K: Key>(marks: Marks<'_>, flows: &Flows<K>) -> u32 {
    if marks.carrier.needs_session() { flows.without_mark() } else { 0 }
}

/// Leaves out those of the packets that leave that entered without a mark, and counts them. Gives
/// those of them that are to be dropped.
pub(super) fn keep_carried<K: Key, P: Packet>(
    marks: Marks<'_>,
    policy: &Policy,
    counters: &mut Counters,
    packets: &[P],
    flows: &mut Flows<K>,
) -> u32 {
    let of = without_mark(marks, flows);
    if of == 0 {
        return 0;
    }
    let Some(carried) = marks.carried(packets, (flows.places(), of)) else { return 0 };
    leave_out(carried | !of, policy, counters, flows, |_, _| Unmeasured::NoCarrier)
}

/// The same for packets on their way, which their edges count and treat.
#[inline]
pub(super) fn leave_out_uncarried<K: Key, P: Packet>(
    marks: Marks<'_>,
    packets: &[P],
    flows: &mut Flows<K>,
) {
    let of = without_mark(marks, flows);
    if of != 0
        && let Some(carried) = marks.carried(packets, (flows.places(), of))
        && !carried & of != 0
    {
        flows.retain(carried | !of);
    }
}

/// Leaves out the packets that `keep` has no bit for, and counts each as what `why` says.
#[inline]
fn leave_out<K: Key>(
    keep: u32,
    policy: &Policy,
    counters: &mut Counters,
    flows: &mut Flows<K>,
    why: impl Fn(usize, usize) -> Unmeasured,
) -> u32 {
    let all = first(flows.len());
    if keep & all == all {
        return 0;
    }
    let mut drops = 0;
    for number in positions(!keep & all) {
        let (at, ip_offset) = flows.places()[number];
        let kind = why(at.into(), ip_offset.into());
        let treatment = unmeasured(policy, counters, kind);
        drops |= u32::from(treatment == Treatment::Drop) << at;
    }
    flows.retain(keep);
    drops
}
