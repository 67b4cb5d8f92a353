//! The section that says how packets carry their marks.

use serde::Deserialize;

use crate::carrier::{Carrier, FlowLabel, Shim, SignedTos, Tos};

/// How packets carry their mark. The same at all edges of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CarrierConfig {
    /// Where.
    pub kind: CarrierKind,
    /// With kind "tos": the DSCP (0 to 63) that packets are given back at egress, its upper three
    /// bits or, with a signature, all of it. Unset, 0.
    pub dscp: Option<u8>,
    /// With kind "tos": whether the lower three bits of the DSCP tell marked packets from others.
    /// Unset, they don't.
    pub signature: Option<bool>,
    /// With kind "shim": its EtherType. Unset, that for local experiments.
    pub ether_type: Option<u16>,
}

/// Where packets carry their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierKind {
    /// In the ToS byte or traffic class.
    #[default]
    Tos,
    /// In the IPv6 flow label.
    FlowLabel,
    /// In a header between Ethernet and IP.
    Shim,
}

/// EtherTypes that can't be the shim's, since the switch reads them: IPv4, ARP, VLAN tags, IPv6.
const TAKEN: [u16; 5] = [0x0800, 0x0806, 0x8100, 0x88A8, 0x86DD];

/// The least number that is an EtherType and not a length.
const LEAST_ETHER_TYPE: u16 = 0x0600;

impl CarrierConfig {
    /// Every mistake in the section: the key, and what is wrong with it and the remedy.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        let mut add = |key, problem: String| mistakes.push((key, problem));
        let of_another_kind = |kind: &str| format!("only kind = \"{kind}\" has one; leave it out");
        let tos = self.kind == CarrierKind::Tos;
        match self.dscp {
            Some(_) if !tos => add("carrier.dscp", of_another_kind("tos")),
            Some(dscp @ 64..) => add("carrier.dscp", format!("{dscp}: a DSCP is 0 to 63")),
            _ => {}
        }
        if self.signature.is_some() && !tos {
            let problem = "kinds other than \"tos\" always have one; leave it out";
            add("carrier.signature", problem.to_owned());
        }
        match self.ether_type {
            Some(_) if self.kind != CarrierKind::Shim => {
                add("carrier.ether_type", of_another_kind("shim"));
            }
            Some(taken) if taken < LEAST_ETHER_TYPE || TAKEN.contains(&taken) => {
                let problem = format!(
                    "{taken:#06x} stands for something else; take one that nothing in the network \
                     uses, {:#06x} for example",
                    Shim::LOCAL_EXPERIMENT
                );
                add("carrier.ether_type", problem);
            }
            _ => {}
        }
        mistakes
    }

    /// The carrier.
    pub fn carrier(&self) -> Carrier {
        let dscp = self.dscp.unwrap_or_default();
        match (self.kind, self.signature) {
            (CarrierKind::Tos, Some(true)) => Carrier::SignedTos(SignedTos { dscp }),
            (CarrierKind::Tos, _) => Carrier::Tos(Tos { dscp }),
            (CarrierKind::FlowLabel, _) => Carrier::FlowLabel(FlowLabel),
            (CarrierKind::Shim, _) => Carrier::Shim(
                self.ether_type.map_or_else(Shim::default, |ether_type| Shim { ether_type }),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_is_what_the_section_says() {
        for (section, wanted) in [
            ("", Carrier::Tos(Tos { dscp: 0 })),
            ("dscp = 46", Carrier::Tos(Tos { dscp: 46 })),
            ("signature = true\ndscp = 8", Carrier::SignedTos(Tos { dscp: 8 })),
            ("kind = 'flow-label'", Carrier::FlowLabel(FlowLabel)),
            ("kind = 'shim'", Carrier::Shim(Shim { ether_type: 0x88B5 })),
            ("kind = 'shim'\nether_type = 0x9ABC", Carrier::Shim(Shim { ether_type: 0x9ABC })),
        ] {
            let config: CarrierConfig = toml::from_str(section).unwrap();
            assert_eq!(config.mistakes(), []);
            assert_eq!(config.carrier(), wanted);
        }
    }

    #[test]
    fn mistakes_name_the_key_and_the_remedy() {
        for (section, key, remedy) in [
            ("dscp = 64", "carrier.dscp", "0 to 63"),
            ("kind = 'shim'\nether_type = 0x0800", "carrier.ether_type", "0x88b5"),
            ("kind = 'shim'\nether_type = 1500", "carrier.ether_type", "0x88b5"),
            ("ether_type = 0x88b5", "carrier.ether_type", "kind = \"shim\""),
            ("kind = 'shim'\ndscp = 0", "carrier.dscp", "kind = \"tos\""),
            ("kind = 'flow-label'\nsignature = true", "carrier.signature", "leave it out"),
        ] {
            let found = toml::from_str::<CarrierConfig>(section).unwrap().mistakes();
            assert!(
                matches!(&found[..], [(at, problem)] if *at == key && problem.contains(remedy))
            );
        }
        let two = "kind = 'shim'\ndscp = 99\nsignature = false";
        assert_eq!(toml::from_str::<CarrierConfig>(two).unwrap().mistakes().len(), 2);
    }
}
