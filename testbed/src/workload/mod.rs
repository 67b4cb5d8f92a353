//! Made-up traffic: how many flows, between whom, how large, and which of them lose packets.
//!
//! Everything is drawn from a seed and a flow's place alone, by a hash: the same flow comes out
//! whatever else changes, so that a phase of a scenario changes what it names and nothing more.
//! Goes into the simulation ([`crate::simulate`]) or into a capture ([`pcap`]). Traffic of real
//! applications is in [`crate::traffic`].

mod chosen;
mod draw;
mod fate;
mod flows;
mod frame;
pub mod pcap;
mod sizes;

use anyhow::{Result, ensure};
use calumma_sketch::KeyKind;
use serde::Deserialize;

pub use self::chosen::{Chosen, pair as chosen_pair};
pub use self::draw::Draw;
pub use self::fate::{Chance, Fate};
pub(crate) use self::flows::is_host;
pub use self::flows::{Flow, FlowSet, host_address, host_address6};
pub use self::frame::{Frame, frame, identify, identify_as, set_dscp, set_ttl, translate};
pub use self::sizes::Sizes;

/// The smallest time to live that takes packets through any network.
pub(crate) const LEAST_TTL: u8 = 32;

/// One kind of traffic. Every one of its flows sends all its packets in every epoch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Flows in every epoch.
    pub flows: u32,
    /// Packets of a flow in an epoch.
    pub sizes: Sizes,
    /// Share of the flows that lose packets wherever they go.
    pub victims: f64,
    /// Bounds of a victim flow's loss rate, which is drawn evenly between them.
    pub loss: [f64; 2],
    /// Whether a victim flow loses a packet in every epoch, however few it sends.
    pub at_least_one: bool,
    /// Share of the flows that stay within their edge; without it, any two hosts are as likely.
    pub local_share: Option<f64>,
    /// The edge that all flows come from.
    pub from: Option<String>,
    /// The edge that all flows go to, and there to the first host.
    pub to: Option<String>,
    /// Addresses that flows go to, one after the other, where it is not 0: a scan by the first host
    /// of `from`, over IPv6. They are behind `to`, and no host's own; in a live fabric whose edges
    /// route, the first host there is sent what is for them.
    pub scan: u32,
    /// Share of the flows that are TCP; those that are nothing else are UDP.
    pub tcp: f64,
    /// Share of the flows that are SCTP, beside those of TCP. Simulated only.
    pub sctp: f64,
    /// Share of the flows that are IPv6; the others are IPv4.
    pub ipv6: f64,
    /// Share of the flows that other ones take the place of in every epoch.
    pub churn: f64,
    /// Flows send a packet now and then, in place of `sizes` packets in every epoch: the least and
    /// the most between two of them, in milliseconds.
    pub gap_ms: Option<[f64; 2]>,
    /// The ToS byte of packets that routers within the network send to hosts, and that no edge sees
    /// enter: ICMP errors, and routing protocols.
    pub inside: Option<u8>,
    /// Times to live that hosts send with: each of them one of these.
    pub ttl: Vec<u8>,
    /// Times to live of a flow's packets, one after the other, again and again: a host that traces
    /// its route, or varies them; in place of `ttl`, where there are any. With `detail =
    /// "packets"` and simulated only.
    pub ttl_each: Vec<u8>,
    /// Flows that a host chooses against public checksums, two by two.
    pub chosen: Option<Chosen>,
}

impl Default for Traffic {
    /// The ChameleMon paper's (section 5.2): UDP flows of sizes as in web search between any two
    /// hosts, no losses; a victim flow's rate is 1 to 20 %.
    fn default() -> Self {
        Self {
            flows: 1000,
            sizes: Sizes::Dctcp,
            victims: 0.0,
            loss: [0.01, 0.2],
            at_least_one: false,
            local_share: None,
            from: None,
            to: None,
            scan: 0,
            tcp: 0.0,
            sctp: 0.0,
            ipv6: 0.0,
            churn: 0.0,
            gap_ms: None,
            inside: None,
            ttl: vec![64],
            ttl_each: Vec::new(),
            chosen: None,
        }
    }
}

impl Traffic {
    /// Checks that the numbers mean something.
    ///
    /// # Errors
    /// The field, its value, and what it may be.
    pub fn check(&self) -> Result<()> {
        let share = |field: &str, value: f64| {
            ensure!((0.0..=1.0).contains(&value), "{field} = {value}: a share from 0 to 1");
            Ok(())
        };
        share("victims", self.victims)?;
        share("tcp", self.tcp)?;
        share("tcp and sctp", self.tcp + self.sctp)?;
        share("sctp", self.sctp)?;
        share("ipv6", self.ipv6)?;
        share("churn", self.churn)?;
        share("local_share", self.local_share.unwrap_or(0.0))?;
        let [low, high] = self.loss;
        share("loss", low)?;
        share("loss", high)?;
        ensure!(low <= high, "loss = [{low}, {high}]: the lower bound comes first");
        if let Some([least, most]) = self.gap_ms {
            ensure!(
                (1.0..=most).contains(&least) && most <= 10_000.0,
                "gap_ms = [{least}, {most}]: the least comes first, from 1 to 10,000"
            );
        }
        ensure!(
            self.inside.is_none() || (self.victims == 0.0 && self.chosen.is_none()),
            "inside: such packets are neither lost nor chosen"
        );
        let scans = self.from.is_some() && self.to.is_some() && self.ipv6 == 1.0;
        ensure!(self.scan == 0 || scans, "scan: needs from, to and ipv6 = 1.0");
        ensure!(self.scan <= 60_000, "scan = {}: at most 60,000", self.scan);
        ensure!(!self.ttl.is_empty(), "ttl = []: at least one");
        ensure!(!self.ttl.contains(&0), "ttl = 0: hosts send with 1 to 255");
        ensure!(!self.ttl_each.contains(&0), "ttl_each = 0: hosts send with 1 to 255");
        ensure!(self.flows <= 10_000_000, "flows = {}: at most 10,000,000", self.flows);
        Ok(())
    }

    /// Whether routers of a live fabric let all of its packets pass, and its hosts can send them.
    pub(crate) fn suits_live(&self) -> bool {
        self.ttl_each.is_empty() && self.sctp == 0.0 && self.ttl.iter().all(|&ttl| ttl >= LEAST_TTL)
    }

    /// Checks that all flows can be told by keys of a layout's kind, so that reports can be held
    /// against all that was sent.
    ///
    /// # Errors
    /// Where there are IPv6 flows and keys hold IPv4 alone.
    pub fn check_keys(&self, keys: KeyKind) -> Result<()> {
        ensure!(
            self.ipv6 == 0.0 || keys == KeyKind::Dual,
            "ipv6 = {}: with keys = \"{}\" edges don't measure IPv6; give [layout] keys = \"{}\"",
            self.ipv6,
            keys.name(),
            KeyKind::Dual.name()
        );
        Ok(())
    }
}
