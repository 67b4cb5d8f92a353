//! The `[sketchint]` section: what a switch does with INT stacks whatever the controller says.

use calumma_switch_host::NodeRole;
use serde::Deserialize;

use super::Mistakes;
use crate::forward::config::Mode;

/// What becomes of INT stacks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SketchintConfig {
    /// Whether stacks are taken out of packets on their way to hosts. Only where something behind
    /// the host ports does it may they be left.
    pub strip: bool,
    /// Between port pairs: longest IP packet, in bytes, that may leave by a fabric port with its
    /// stack. Unset, what DPDK says of the port. Where packets are routed, an interface's `mtu`
    /// says it.
    pub mtu: Option<u16>,
    /// What hosts are sent whose packets leave no room for a whole stack.
    pub pmtu: Pmtu,
}

/// What hosts are sent whose packets leave no room for a whole stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pmtu {
    /// Nothing.
    #[default]
    Off,
    /// An ICMP error with an MTU that leaves room for it.
    Advertise,
}

impl Default for SketchintConfig {
    fn default() -> Self {
        Self { strip: true, mtu: None, pmtu: Pmtu::Off }
    }
}

impl SketchintConfig {
    /// The least MTU that IPv6 has.
    const LEAST_MTU: u16 = 1280;

    /// Notes what is wrong with the section.
    pub(super) fn check(&self, role: NodeRole, mode: Mode, mistakes: &mut Mistakes) {
        if role == NodeRole::Transit && !self.strip {
            mistakes.add("sketchint.strip", "a transit switch has no hosts; leave it out");
        }
        if role == NodeRole::Host && !self.strip {
            mistakes.add("sketchint.strip", "an end host's sink takes stacks out; leave it out");
        }
        if self.pmtu == Pmtu::Advertise && (role, mode) != (NodeRole::Edge, Mode::Routed) {
            let problem = "only an edge that routes has an address to send it from; leave it out";
            mistakes.add("sketchint.pmtu", problem);
        }
        match self.mtu {
            Some(_) if mode == Mode::Routed => {
                mistakes.add("sketchint.mtu", "interfaces say their `mtu`; leave it out");
            }
            Some(mtu) if mtu < Self::LEAST_MTU => {
                mistakes.add("sketchint.mtu", format!("{mtu} is below {}", Self::LEAST_MTU));
            }
            _ => {}
        }
    }
}
