//! The `[sketchint]` section: what a switch does with INT stacks whatever the controller says.

use std::net::SocketAddr;

use calumma_plane::outlet::MOST_BYTES;
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
    /// Where single packets are reported at once, if anywhere.
    pub reports: Option<ReportsConfig>,
}

/// Telemetry reports of single packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportsConfig {
    /// Where they are sent, over UDP.
    pub collector: SocketAddr,
    /// Most reports in a second.
    #[serde(default = "ReportsConfig::per_second")]
    pub per_second: u32,
    /// Most bytes of a packet in its report, from its IP header on.
    #[serde(default = "ReportsConfig::packet_bytes")]
    pub packet_bytes: u16,
    /// The share of packets with a stack that are reported whatever they met.
    #[serde(default)]
    pub tracked: Share,
    /// Longest IP packet, in bytes, of reports.
    #[serde(default = "ReportsConfig::mtu")]
    pub mtu: u16,
}

/// A share of all packets, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Packets in 2^32, all where all bits are set; `None` where it is out of its range.
    pub word: Option<u32>,
}

impl Default for Share {
    /// None.
    fn default() -> Self {
        Self { word: Some(0) }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        let within = (0.0..=1.0).contains(&share);
        Ok(Self { word: within.then_some((share * f64::from(u32::MAX)).round() as u32) })
    }
}

impl ReportsConfig {
    const fn per_second() -> u32 {
        1000
    }

    const fn packet_bytes() -> u16 {
        128
    }

    const fn mtu() -> u16 {
        1500
    }

    /// Bytes that a datagram may have.
    pub fn datagram_bytes(&self) -> usize {
        let headers = if self.collector.is_ipv4() { 20 + 8 } else { 40 + 8 };
        usize::from(self.mtu) - headers
    }

    fn check(&self, role: NodeRole, mistakes: &mut Mistakes) {
        let mut add = |key: &str, problem: String| {
            mistakes.add(&format!("sketchint.reports.{key}"), problem);
        };
        let Self { per_second, packet_bytes, mtu, .. } = *self;
        if role == NodeRole::Transit {
            add("collector", "a transit switch is no sink; leave the section out".to_owned());
        }
        if self.collector.port() == 0 {
            add("collector", format!("{}; give a port", self.collector));
        }
        if !(1..=1_000_000).contains(&per_second) {
            add("per_second", format!("{per_second}; give 1 to 1000000"));
        }
        if !(64..=MOST_BYTES).contains(&usize::from(packet_bytes)) {
            add("packet_bytes", format!("{packet_bytes}; give 64 to {MOST_BYTES}"));
        }
        if self.tracked.word.is_none() {
            add("tracked", "a share is 0 to 1".to_owned());
        }
        if mtu < Self::LEAST_MTU {
            add("mtu", format!("{mtu} is below {}", Self::LEAST_MTU));
        }
    }

    /// The least MTU that IPv4 hosts have.
    const LEAST_MTU: u16 = 576;
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
        Self { strip: true, mtu: None, pmtu: Pmtu::Off, reports: None }
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
        if let Some(reports) = &self.reports {
            reports.check(role, mistakes);
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
