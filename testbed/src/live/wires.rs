//! What came to each switch, epoch by epoch, from what routers logged on the wires next to it
//! ([`crate::fabric::wires`]). Nothing here is said by a switch.

use std::collections::BTreeMap;
use std::ops::Range;

use calumma_sketch::WideKey;

use crate::simulate::{AtSwitches, Came};

/// Packets that came to switches.
#[derive(Debug, Default)]
pub(super) struct Wires {
    epochs: BTreeMap<u64, AtSwitches>,
}

impl Wires {
    /// A packet from its IP header on, of the epoch that its mark says, came to the switch at a
    /// position; `entered` where a host behind that switch has sent it.
    pub(super) fn note(
        &mut self,
        key: WideKey,
        packet: &[u8],
        epoch: u64,
        (switch, entered): (usize, bool),
    ) {
        let Some(bytes) = ip_length(packet) else { return };
        let flows = self.epochs.entry(epoch).or_default();
        let came = flows.entry(key).or_default().entry(switch).or_default();
        came.packets += 1;
        came.bytes += bytes;
        came.entered += u64::from(entered);
    }

    /// What came to switches in these epochs.
    pub(super) fn of(&self, epochs: Range<u64>) -> AtSwitches {
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
    pub(super) fn forget_before(&mut self, epoch: u64) {
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
                wires.note(key, packet, epoch, at);
            }
        }
        let came = |packets, entered| Came { packets, bytes: 86 * packets, entered };
        for key in [key, key6] {
            assert_eq!(wires.of(7..9)[&key], BTreeMap::from([(0, came(2, 2)), (2, came(1, 0))]));
        }
        wires.forget_before(9);
        assert_eq!(wires.of(7..9), AtSwitches::new());
        assert_eq!(wires.of(9..10)[&key], BTreeMap::from([(2, came(1, 0))]));
    }
}
