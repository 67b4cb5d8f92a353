//! The `[carrier]` and `[measure]` sections.

use calumma_sketch::KeyKind;
use serde::Deserialize;

use super::Mistakes;
use crate::carrier::{Carrier, Shim, SignedTos, Tos};
use crate::parse::tunnel::Tunnels;

/// How packets carry their mark. The same at all edges of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CarrierConfig {
    /// Where. Unset, where the controller says; with `signature` set, in the ToS byte.
    pub kind: Option<CarrierKind>,
    /// With kind "tos" or "auto": the DSCP (0 to 63) that packets are given back at egress, its
    /// upper three bits or, with a signature, all of it. Unset, 0.
    pub dscp: Option<u8>,
    /// In the ToS byte: whether the lower three bits of the DSCP tell marked packets from others.
    /// Unset, they don't.
    pub signature: Option<bool>,
    /// With kind "shim": its EtherType. Unset, that for local experiments.
    pub ether_type: Option<u16>,
    /// With kind "shim": whether it says how many switches a packet has passed. Unset, it does
    /// not.
    pub hops: Option<bool>,
}

/// Where packets carry their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// In the ToS byte or traffic class.
    Tos,
    /// In the IPv6 flow label.
    FlowLabel,
    /// In the IPv4 identification and the IPv6 flow label.
    IpId,
    /// In a header between Ethernet and IP.
    Shim,
    /// Where the controller says: in the ToS byte or the identification.
    Auto,
}

impl CarrierConfig {
    /// EtherTypes that can't be the shim's, since the switch reads them: IPv4, ARP, VLAN tags,
    /// IPv6.
    const TAKEN: [u16; 5] = [0x0800, 0x0806, 0x8100, 0x88A8, 0x86DD];

    /// The least number that is an EtherType and not a length.
    const LEAST_ETHER_TYPE: u16 = 0x0600;

    /// Where. Files for earlier releases, to which no kind was the ToS byte, may have a signature
    /// and no kind.
    pub fn kind(&self) -> CarrierKind {
        let unset = match self.signature {
            Some(_) => CarrierKind::Tos,
            None => CarrierKind::Auto,
        };
        self.kind.unwrap_or(unset)
    }

    /// Notes what is wrong with the section.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let kind = self.kind();
        let tos = kind == CarrierKind::Tos;
        match self.dscp {
            Some(_) if !tos && kind != CarrierKind::Auto => {
                let problem = "only kind = \"tos\", or \"auto\", gives a DSCP back; leave it out";
                mistakes.add("carrier.dscp", problem);
            }
            Some(dscp) if dscp > 63 => {
                mistakes.add("carrier.dscp", format!("{dscp} is no DSCP; they are 0 to 63"));
            }
            _ => {}
        }
        if self.signature.is_some() && !tos {
            let problem = match kind {
                CarrierKind::Auto => "kind = \"auto\" chooses among carriers without; leave it out",
                _ => "kinds other than \"tos\" always have one; leave it out",
            };
            mistakes.add("carrier.signature", problem);
        }
        if self.hops.is_some() && kind != CarrierKind::Shim {
            mistakes.add("carrier.hops", "only kind = \"shim\" has room for them; leave it out");
        }
        match self.ether_type {
            Some(_) if kind != CarrierKind::Shim => {
                mistakes.add("carrier.ether_type", "only kind = \"shim\" has one; leave it out");
            }
            Some(taken) if taken < Self::LEAST_ETHER_TYPE || Self::TAKEN.contains(&taken) => {
                let problem = format!(
                    "{taken:#06x} stands for something else; take one that nothing in the network \
                     uses, 0x88b5 for example"
                );
                mistakes.add("carrier.ether_type", problem);
            }
            _ => {}
        }
    }

    /// Whether packets that one switch marks by this section are marked to one that goes by
    /// `other`. While packets are under way, nothing else may change; nor may the DSCP of a carrier
    /// that a session brings.
    pub fn marks_as(&self, other: &Self) -> bool {
        let kinds = [self.kind(), other.kind()];
        if kinds.contains(&CarrierKind::Auto) {
            return kinds[0] == kinds[1] && self.dscp == other.dscp;
        }
        let marks = |config: &Self| (Self { dscp: None, ..*config }).carrier();
        marks(self) == marks(other)
    }

    /// The carriers among which the controller may choose, each with its words; the first one is
    /// taken where it does not. None where the section says which it is.
    pub(super) fn choices(&self) -> Vec<(String, Carrier)> {
        let choice = |kind| {
            let dscp = self.dscp.filter(|_| kind == CarrierKind::Tos);
            let config = Self { kind: Some(kind), dscp, ..Self::default() };
            (config.words(), config.carrier())
        };
        match self.kind() {
            CarrierKind::Auto => vec![choice(CarrierKind::Tos), choice(CarrierKind::IpId)],
            _ => Vec::new(),
        }
    }

    /// Where packets carry their mark, in words that are the same where
    /// [`marks_as`](Self::marks_as) holds. Those of the releases that had other bits there had no
    /// version.
    pub(super) fn words(&self) -> String {
        match self.carrier() {
            Carrier::Tos(_) => "tos".to_owned(),
            Carrier::SignedTos(_) => "signed tos".to_owned(),
            Carrier::FlowLabel => "flow-label v2".to_owned(),
            Carrier::IpId => "ip-id".to_owned(),
            Carrier::Shim(Shim { ether_type, hops }) => {
                format!("shim {ether_type:#06x} v{}", if hops { 3 } else { 2 })
            }
            Carrier::Unchosen => "auto".to_owned(),
        }
    }

    /// What the choice costs, and what it can't do, for who checks the file.
    pub fn costs(&self) -> &'static str {
        match self.carrier() {
            Carrier::Tos(_) => {
                "the mark is in the upper three bits of the DSCP: what hosts write there is lost, a \
                 network that sets them makes packets seem lost, packets that no edge has marked and \
                 those late by two epochs or more can't be told from others. kind = \"ip-id\" has \
                 none of this"
            }
            Carrier::SignedTos(_) => {
                "the mark is the whole DSCP: what hosts write there is lost, and packets late by two \
                 epochs or more can't be told from others. kind = \"ip-id\" has neither"
            }
            Carrier::FlowLabel => {
                "the mark is in the flow label: IPv4 is not measured; kind = \"ip-id\" does both"
            }
            Carrier::IpId => {
                "the mark is in the IPv4 identification and the IPv6 flow label, which leave as 0 or, \
                 where IPv4 may be fragmented, as a fresh number. Fragments and packets with an \
                 authentication header are not measured, nor is IPv4 without DF that is longer than \
                 the controller's [domain] fabric_mtu, 1280 bytes unless it says otherwise: no link \
                 between edges may take less. All edges must be of this release, a Tofino's program \
                 compiled for it"
            }
            Carrier::Shim(Shim { hops: false, .. }) => {
                "the mark is four bytes more, which the fabric's MTU must allow"
            }
            Carrier::Shim(Shim { hops: true, .. }) => {
                "the mark is six bytes more, which the fabric's MTU must allow"
            }
            Carrier::Unchosen => {
                "the controller says where the mark is: \"ip-id\" where all switches offer that and \
                 nothing needs the ToS byte, else \"tos\"; it costs what that one does. No packet is \
                 marked before the controller has said it, and those that come with a mark keep it"
            }
        }
    }

    /// The carrier; with kind "auto" that of the time before the controller has said it.
    pub fn carrier(&self) -> Carrier {
        let dscp = self.dscp.unwrap_or_default();
        match (self.kind(), self.signature) {
            (CarrierKind::Tos, Some(true)) => Carrier::SignedTos(SignedTos { dscp }),
            (CarrierKind::Tos, _) => Carrier::Tos(Tos { dscp }),
            (CarrierKind::FlowLabel, _) => Carrier::FlowLabel,
            (CarrierKind::IpId, _) => Carrier::IpId,
            (CarrierKind::Auto, _) => Carrier::Unchosen,
            (CarrierKind::Shim, _) => Carrier::Shim(Shim {
                ether_type: self.ether_type.unwrap_or(Shim::LOCAL_EXPERIMENT),
                hops: self.hops.unwrap_or(false),
            }),
        }
    }
}

/// What is measured of a packet. The same at all edges of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MeasureConfig {
    /// By which header packets in VXLAN and Geneve tunnels are measured.
    pub tunnels: Tunnels,
    /// What the controller's layout has for `keys`. It says which packets are taken to be marked
    /// before the controller has said it: unset, those of both families.
    pub keys: Option<KeyKind>,
}
