//! Where the packets of a scenario carry their marks.

use calumma_chamelemon::Hierarchy;
use calumma_plane::carrier::{Carrier as OfSwitch, Shim, SignedTos};
use calumma_wire::Marking;
use serde::Deserialize;

/// How the packets of a scenario carry their marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// In the ToS byte or traffic class, without a signature.
    #[default]
    Tos,
    /// In the same byte, with a signature.
    SignedTos,
    /// In the identification or flow label.
    IpId,
    /// In the flow label; packets of IPv4 have no mark and are not measured.
    FlowLabel,
    /// In a header between Ethernet and IP, with hops.
    Shim,
    /// Left to the controller, which takes the identification where it may.
    Auto,
}

impl Carrier {
    /// Whether marks are in the ToS byte or traffic class, which has no room for more bits of the
    /// epoch than the timestamp bit.
    pub(crate) fn is_tos(self) -> bool {
        matches!(self, Self::Tos | Self::SignedTos)
    }

    /// Whether marks are in the identification or flow label, where they are signed by a secret.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::IpId | Self::FlowLabel | Self::Auto)
    }

    /// As switches' configuration has it.
    fn kind(self) -> &'static str {
        match self {
            Self::Tos => "tos",
            Self::SignedTos => "signed tos",
            Self::IpId => "ip-id",
            Self::FlowLabel => "flow-label",
            Self::Shim => "shim",
            Self::Auto => "auto",
        }
    }

    /// The section of an edge's configuration that says so.
    pub fn section(self) -> &'static str {
        match self {
            Self::Tos => "[carrier]\nkind = \"tos\"\n",
            Self::SignedTos => "[carrier]\nkind = \"tos\"\nsignature = true\n",
            Self::IpId => "[carrier]\nkind = \"ip-id\"\n",
            Self::FlowLabel => "[carrier]\nkind = \"flow-label\"\n",
            Self::Shim => "[carrier]\nkind = \"shim\"\nhops = true\n",
            Self::Auto => "[carrier]\nkind = \"auto\"\n",
        }
    }

    /// What software switches go by.
    pub(crate) fn of_switches(self) -> OfSwitch {
        match self {
            Self::Tos => OfSwitch::default(),
            Self::SignedTos => OfSwitch::SignedTos(SignedTos::default()),
            Self::IpId => OfSwitch::IpId,
            Self::FlowLabel => OfSwitch::FlowLabel,
            Self::Shim => OfSwitch::Shim(Shim { hops: true, ..Shim::default() }),
            Self::Auto => OfSwitch::Unchosen,
        }
    }

    /// What software switches choose among, where the controller says which it is.
    pub(crate) fn choices(self) -> Vec<(String, OfSwitch)> {
        match self {
            Self::Tos | Self::SignedTos | Self::IpId | Self::FlowLabel | Self::Shim => Vec::new(),
            Self::Auto => [Self::Tos, Self::IpId]
                .map(|carrier| (carrier.kind().to_owned(), carrier.of_switches()))
                .to_vec(),
        }
    }

    /// What switches say of it in their hello.
    pub(crate) fn marking(self) -> Marking {
        let offers: Vec<_> = self.choices().into_iter().map(|(name, _)| name).collect();
        let carrier = offers.first().cloned().unwrap_or_else(|| self.kind().to_owned());
        Marking { carrier, offers, ..Marking::default() }
    }

    /// The mark of a packet, as it is in the contract; `None` where it is cut or has no room for
    /// one. Signatures are not looked at: it is for packets that nothing but an edge has marked.
    pub(crate) fn read_frame(self, frame: &[u8]) -> Option<Marked> {
        if self != Self::Shim {
            return self.read(frame.get(14..)?);
        }
        match *frame.get(12..)?.first_chunk()? {
            [0x88, 0xB5, 0xCA, byte] => Some(Marked::of_shim(byte)),
            _ => None,
        }
    }

    /// The same of a packet as the kernel logs it, from what is behind its first EtherType on,
    /// which is that of a shim where these carry marks; with the packet from its IP header on. None
    /// where a shim does not say the epoch, as that of an edge which knows none.
    pub(crate) fn read_behind_ethernet(self, packet: &[u8]) -> Option<(Marked, &[u8])> {
        if self != Self::Shim {
            return Some((self.read(packet)?, packet));
        }
        let [0xCA, byte, rest @ ..] = packet else { return None };
        // Behind the mark is the packet's own EtherType, and before that the hops, if there are
        // any.
        let packet = match byte & 3 {
            2 => rest.get(2..)?,
            3 => rest.get(4..)?,
            _ => return None,
        };
        Some((Marked::of_shim(*byte), packet))
    }

    /// The same of a packet from the IP header on, which no shim is.
    pub(crate) fn read(self, packet: &[u8]) -> Option<Marked> {
        let byte = |at: usize| packet.get(at).copied().map(u64::from);
        let is_v4 = byte(0)? >> 4 == 4;
        let (epoch, mask, hierarchy) = match (self, is_v4) {
            (Self::Tos | Self::SignedTos, true) => (byte(1)? >> 7, 1, byte(1)? >> 5),
            (Self::Tos | Self::SignedTos, false) => (byte(0)? >> 3 & 1, 1, byte(0)? >> 1),
            (Self::IpId | Self::Auto, true) => (byte(4)? >> 5, 7, byte(4)? >> 3),
            (Self::FlowLabel, true) | (Self::Shim, _) => return None,
            (Self::IpId | Self::FlowLabel | Self::Auto, false) => {
                let fields = byte(1)? << 4 & 0xF0 | byte(2)? >> 4;
                (fields >> 5, 7, fields >> 3)
            }
        };
        Some(Marked { epoch, mask, hierarchy: Hierarchy::from_bits(hierarchy as u8) })
    }
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The lowest bits of the epoch that it entered in, and a mask of as many.
    epoch: u64,
    mask: u64,
    /// The hierarchy that its ingress edge gave it.
    pub(crate) hierarchy: Hierarchy,
}

impl Marked {
    /// What the second byte of a shim says.
    fn of_shim(byte: u8) -> Self {
        let epoch = u64::from(byte >> 7 | (byte >> 3 & 3) << 1);
        Self { epoch, mask: 7, hierarchy: Hierarchy::from_bits(byte >> 5) }
    }

    /// The latest epoch up to `now` that it can have entered in.
    pub(crate) fn epoch_by(self, now: u64) -> u64 {
        now.saturating_sub(now.wrapping_sub(self.epoch) & self.mask)
    }

    /// The timestamp bit.
    pub(crate) fn bit(self) -> usize {
        (self.epoch & 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{frame, host_address, host_address6};
    use calumma_edge::carrier::{Carry, IpId, Mark, Numbers, Signer, Way};
    use calumma_edge::packet::{Frame, Packet};
    use calumma_sketch::WideKey;
    use calumma_wire::Secret;

    #[test]
    fn marks_of_either_carrier_say_epoch_and_hierarchy() {
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 4000, 53, 17);
        let key6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 4000, 53, 6);
        let (signer, numbers) = (Signer::new(Secret::new([5; 32]), 1003), Numbers::new());
        let ip_id = IpId::new(Some(&signer), &numbers);
        for (key, epoch) in [key, key6].into_iter().flat_map(|key| [(key, 998), (key, 1003)]) {
            for bits in 0..4 {
                let mark = Mark::of_epoch(epoch, Hierarchy::from_bits(bits));
                let mut packet = Frame::new(frame(&key, 60).to_vec());
                ip_id.write(&mut packet, 14, mark);
                let read = Carrier::IpId.read(&packet.bytes()[14..]).unwrap();
                assert_eq!((read.epoch_by(1003), read.hierarchy), (epoch, mark.hierarchy));
                assert_eq!(read.bit(), mark.bit);
                let OfSwitch::Shim(shim) = Carrier::Shim.of_switches() else { panic!("a shim") };
                let mut shimmed = Frame::with_headroom(6, &frame(&key, 60));
                shim.write(&mut shimmed, 14, Mark { way: Some(Way::default()), ..mark });
                assert_eq!(Carrier::Shim.read_frame(shimmed.bytes()), Some(read));
                let behind = Carrier::Shim.read_behind_ethernet(&shimmed.bytes()[14..]);
                assert_eq!(behind, Some((read, &frame(&key, 60)[14..])));
                let undated = [0xCA, shimmed.bytes()[15] & 0xE0 | 1, 8, 0, 0x45];
                assert_eq!(Carrier::Shim.read_behind_ethernet(&undated), None);
                let short = [0xCA, shimmed.bytes()[15] & !3 | 2, 8, 0, 0x45];
                let behind = Carrier::Shim.read_behind_ethernet(&short);
                assert_eq!(behind, Some((read, &[0x45][..])));
                let by_label = Carrier::FlowLabel.read(&packet.bytes()[14..]);
                assert_eq!(by_label, Some(read).filter(|_| key == key6));
            }
        }
    }
}
