//! What came to each switch, epoch by epoch, from what routers logged on the wires next to it
//! ([`crate::fabric::wires`]). Nothing here is said by a switch.

use std::collections::BTreeMap;
use std::ops::Range;

use calumma_sketch::WideKey;

use crate::simulate::{AtSwitches, Came};

/// Packets that came to switches.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    epochs: BTreeMap<u64, AtSwitches>,
}

impl Wires {
    /// A packet from its IP header on, of the epoch that its mark says, came to the switch at a
    /// position, `is_edge` where that is an edge; `entered` where a host behind that switch has
    /// sent it. Edges count the bytes of hosts, and not those of INT stacks between edges.
    pub(crate) fn note(
        &mut self,
        key: WideKey,
        (packet, is_edge): (&[u8], bool),
        epoch: u64,
        (switch, entered): (usize, bool),
    ) {
        let Some(bytes) = ip_length(packet) else { return };
        let bytes = if is_edge { bytes - stack(packet).unwrap_or(0) } else { bytes };
        let flows = self.epochs.entry(epoch).or_default();
        let came = flows.entry(key).or_default().entry(switch).or_default();
        came.packets += 1;
        came.bytes += bytes;
        came.entered += u64::from(entered);
    }

    /// What came to switches in these epochs.
    pub(crate) fn of(&self, epochs: Range<u64>) -> AtSwitches {
        let mut sum = AtSwitches::new();
        for (key, switches) in self.epochs.range(epochs).flat_map(|(_, flows)| flows) {
            let of_flow = sum.entry(*key).or_default();
            for (switch, &Came { packets, bytes, entered }) in switches {
                let came = of_flow.entry(*switch).or_default();
                came.packets += packets;
                came.bytes += bytes;
                came.entered += entered;
            }
        }
        sum
    }

    /// Forgets the epochs before `epoch`.
    pub(crate) fn forget_before(&mut self, epoch: u64) {
        self.epochs = self.epochs.split_off(&epoch);
    }
}

/// The length of a packet by its IP header, as switches count it.
fn ip_length(packet: &[u8]) -> Option<u64> {
    let half = |at: usize| Some(u64::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    match packet.first()? >> 4 {
        4 => half(2),
        _ => Some(40 + half(4)?),
    }
}

/// The first byte of a shim: behind the transport header of hosts, the same where a UDP port marks
/// the packet, and behind a UDP header that no host has sent.
const BY_DSCP: u8 = 0x10;
const BY_PORT: u8 = 0x14;
const BY_PROTOCOL: u8 = 0x18;

/// The shim of a packet without options or extension headers, which has one where its ToS byte or
/// traffic class says so, and where that begins.
fn shim(packet: &[u8]) -> Option<(usize, [u8; 4])> {
    // Of the traffic class, bit 4 is in the first byte.
    let (says_so, protocol, header) = match packet.first()? >> 4 {
        4 => (packet.get(1)? & 0x10 != 0, *packet.get(9)?, 20),
        _ => (packet[0] & 1 != 0, *packet.get(6)?, 40),
    };
    let (at, kinds) = match protocol {
        6 => (header + 20, &[BY_DSCP][..]),
        17 => (header + 8, &[BY_DSCP, BY_PORT, BY_PROTOCOL][..]),
        _ => return None,
    };
    let shim: [u8; 4] = *packet.get(at..)?.first_chunk()?;
    (says_so && kinds.contains(&shim[0])).then_some((at, shim))
}

/// Bytes of a packet that are its INT stack, a UDP header of its own included.
pub(super) fn stack(packet: &[u8]) -> Option<u64> {
    let (_, [kind, words, ..]) = shim(packet)?;
    let own = if kind == BY_PROTOCOL { 8 } else { 0 };
    Some(own + 4 + 4 * u64::from(words))
}

/// The headers of a packet with the port and protocol that its host has sent it with. Its lengths
/// are those on the wire.
pub(super) fn as_sent(packet: &[u8]) -> Vec<u8> {
    let mut sent = packet.to_vec();
    let Some((at, [kind, _, port @ ..])) = shim(packet) else { return sent };
    match kind {
        BY_PORT => sent[at - 6..at - 4].copy_from_slice(&port),
        BY_PROTOCOL => {
            let place = if packet[0] >> 4 == 4 { 9 } else { 6 };
            sent[place] = port[1];
            let len = stack(packet).unwrap_or(0) as usize;
            let end = (at - 8 + len).min(sent.len());
            sent.drain(at - 8..end);
        }
        _ => {}
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{frame, host_address, host_address6};

    #[test]
    fn packets_and_their_bytes_are_summed_over_the_epochs_of_a_window() {
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 4000, 53, 17);
        let key6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 4000, 53, 6);
        let mut wires = Wires::default();
        for key in [key, key6] {
            let packet = &frame(&key, 100)[14..];
            for (epoch, at) in [(7, (0, true)), (8, (0, true)), (8, (2, false)), (9, (2, false))] {
                wires.note(key, (packet, false), epoch, at);
            }
        }
        let came = |packets, entered| Came { packets, bytes: 86 * packets, entered };
        for key in [key, key6] {
            assert_eq!(wires.of(7..9)[&key], BTreeMap::from([(0, came(2, 2)), (2, came(1, 0))]));
        }
        for key in [key, key6] {
            let mut packet = frame(&key, 100)[14..].to_vec();
            let at = if packet[0] >> 4 == 4 { 28 } else { 60 };
            packet[if at == 28 { 1 } else { 0 }] |= if at == 28 { 0x10 } else { 1 };
            packet.resize(at, 0);
            packet.extend([0x10, 5, 0, 0]);
            for (is_edge, bytes) in [(true, 86 - 24), (false, 86)] {
                let mut wires = Wires::default();
                wires.note(key, (&packet, is_edge), 7, (0, true));
                assert_eq!(wires.of(7..8)[&key][&0].bytes, bytes);
            }
        }
        wires.forget_before(9);
        assert_eq!(wires.of(7..9), AtSwitches::new());
        assert_eq!(wires.of(9..10)[&key], BTreeMap::from([(2, came(1, 0))]));
    }
}
