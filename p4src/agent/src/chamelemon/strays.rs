//! From notices of packets that no sketch holds to what is sent of them, as a software edge sends
//! it.

use std::collections::BTreeMap;

use calumma_plane::{Hierarchy, Stray, Strays, UNDATED};
use calumma_sketch::FlowKey;

use crate::notices::{BUDGET, Received, Streams};

/// Where `edge.p4` numbers them: streams 0 and 1 by timestamp bit, then [`UNMARKED`].
pub(super) const STREAMS: Streams =
    Streams { control: "Egress.strays.notices", count: 3, has_register: true, most: BUDGET };

/// The stream of packets without a mark.
pub(super) const UNMARKED: usize = 2;

/// Whether the mark has the epoch's bits above the timestamp bit.
const DATED: u8 = 0x80;

/// A packet as its notice has it.
struct Packet {
    key: FlowKey,
    /// The bits of the epoch that it was marked in, as far as they are known.
    epoch: Option<u64>,
    hierarchy: Hierarchy,
}

impl Packet {
    fn read(body: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let (&protocol, &mark) = (body.get(12)?, body.get(13)?);
        Some(Self {
            key: FlowKey::from_words(word(0)?, word(4)?, word(8)?, protocol),
            epoch: (mark & DATED != 0).then(|| u64::from(mark >> 2 & 7)),
            hierarchy: Hierarchy::from_bits(mark & 3),
        })
    }

    /// By how many epochs it is older than `epoch`; `undated` where nobody knows.
    fn epochs_back(&self, epoch: u64, undated: u8) -> u8 {
        self.epoch.map_or(undated, |of| (epoch.wrapping_sub(of) & 7) as u8)
    }
}

/// Packets with a mark that left while the group of their timestamp bit was open for `epoch`.
pub(super) fn misfits(received: &Received, epoch: u64) -> Strays<FlowKey> {
    strays(received, |packet| (packet.hierarchy, packet.epochs_back(epoch, 0)))
}

/// Of misfits, the packets of the epoch itself, as far as anybody knows.
pub(super) fn of_epoch(misfits: &Strays<FlowKey>) -> u64 {
    let entries = misfits.entries.iter().filter(|stray| stray.epochs_back == 0);
    misfits.beyond + entries.map(|stray| u64::from(stray.packets)).sum::<u64>()
}

/// Packets with a mark that left between the closing of that group and its next opening.
pub(super) fn late(received: &Received, epoch: u64) -> Strays<FlowKey> {
    strays(received, |packet| (packet.hierarchy, packet.epochs_back(epoch, UNDATED)))
}

/// Packets that no edge has marked, which left while the group of `epoch` was open, by the age that
/// they say to have. Of hierarchy 0 none is encoded, so that it can't be missing.
pub(super) fn unmarked(received: &Received, epoch: u64) -> Strays<FlowKey> {
    strays(received, |packet| {
        let age = match packet.hierarchy {
            Hierarchy::NonSampledLl => UNDATED,
            _ => packet.epochs_back(epoch, UNDATED),
        };
        (Hierarchy::default(), age)
    })
}

/// Packets by flow; those of which no notice came may be of any.
fn strays(received: &Received, of: impl Fn(&Packet) -> (Hierarchy, u8)) -> Strays<FlowKey> {
    let mut beyond = received.missing;
    let mut flows: BTreeMap<_, u32> = BTreeMap::new();
    for body in &received.bodies {
        match Packet::read(body) {
            Some(packet) => *flows.entry((packet.key, of(&packet))).or_default() += 1,
            None => beyond += 1,
        }
    }
    let entries = flows.into_iter().map(|((key, (hierarchy, epochs_back)), packets)| Stray {
        key,
        hierarchy,
        epochs_back,
        packets,
    });
    let mut strays = Strays { entries: entries.collect(), beyond };
    strays.cut();
    strays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(flow: u8, mark: u8) -> Vec<u8> {
        vec![10, 0, 0, flow, 10, 0, 0, 9, 0, 7, 0, 8, 17, mark, 0xEE]
    }

    #[test]
    fn packets_are_counted_by_flow_hierarchy_and_age() {
        let key = |flow: u32| FlowKey::from_words(0x0A00_0000 | flow, 0x0A00_0009, 7 << 16 | 8, 17);
        let bodies = [body(2, 0x05), body(1, 0x06), body(2, 0x05), vec![1; 13]];
        let received = Received { bodies: bodies.into(), missing: 4 };
        let stray = |flow, hierarchy, epochs_back, packets| Stray {
            key: key(flow),
            hierarchy: Hierarchy::from_bits(hierarchy),
            epochs_back,
            packets,
        };
        let entries = vec![stray(1, 2, 0, 1), stray(2, 1, 0, 2)];
        assert_eq!(misfits(&received, 1001), Strays { entries, beyond: 5 });
        let entries = vec![stray(1, 2, UNDATED, 1), stray(2, 1, UNDATED, 2)];
        assert_eq!(late(&received, 1001), Strays { entries, beyond: 5 });
        let entries = vec![stray(1, 0, UNDATED, 1), stray(2, 0, UNDATED, 2)];
        assert_eq!(unmarked(&received, 1001), Strays { entries, beyond: 5 });
        // 1001 has the bits 001: 111 is of two epochs before.
        let dated = [body(1, 0x80 | 1 << 2 | 3), body(1, 0x80 | 7 << 2 | 3)];
        let received = Received { bodies: dated.into(), missing: 0 };
        let entries = vec![stray(1, 3, 0, 1), stray(1, 3, 2, 1)];
        assert_eq!(misfits(&received, 1001), Strays { entries: entries.clone(), beyond: 0 });
        assert_eq!(late(&received, 1001), Strays { entries, beyond: 0 });
        // 100 is of five epochs before; of hierarchy 0 nothing can be missing.
        let said = [body(1, 0x80 | 4 << 2 | 1), body(1, 0x80 | 4 << 2), body(1, 0x80 | 1 << 2 | 3)];
        let received = Received { bodies: said.into(), missing: 0 };
        let entries = vec![stray(1, 0, 0, 1), stray(1, 0, 5, 1), stray(1, 0, UNDATED, 1)];
        assert_eq!(unmarked(&received, 1001), Strays { entries, beyond: 0 });
    }
}
