//! Two hosts, two edges, one core:
//!
//! ```text
//!  namespace h1       namespace switches        namespace core        namespace switches       namespace h2
//!  10.1.0.2 eth0 ---- e1h [edge e1] e1f ---- c1 10.1.0.1
//!                                               routes, drops
//!                                            10.2.0.1 c2 ---- e2f [edge e2] e2h ---- eth0 10.2.0.2
//! ```
//!
//! The same in IPv6 with fd00:1::2, fd00:1::1, fd00:2::1 and fd00:2::2.
//!
//! The edges are bumps in the wire: their four interfaces have no addresses, and nothing passes
//! until a program forwards between them. It runs in `switches`, whose loopback is up for its
//! control connections.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::drops::{self, Drops, Hop, Passage};
use super::link::{self, Counters, End};
use super::loss::{self, FlowLoss};
use super::namespace::Namespace;
use super::process::wait_until;
use super::run::Run;

/// The address of host h1.
pub const H1_ADDRESS: &str = "10.1.0.2";
/// The address of host h2.
pub const H2_ADDRESS: &str = "10.2.0.2";
/// The IPv6 address of host h2.
pub const H2_ADDRESS6: &str = "fd00:2::2";
/// The address at which programs in the switches' namespace reach each other.
pub const SWITCHES_ADDRESS: &str = "127.0.0.1";

const CORE_TO_H1: &str = "10.1.0.1";
const CORE_TO_H2: &str = "10.2.0.1";

const H1_ADDRESS6: &str = "fd00:1::2";
const CORE_TO_H1_6: &str = "fd00:1::1";
const CORE_TO_H2_6: &str = "fd00:2::1";

/// The interface indexes of each edge's two ports begin here.
///
/// DPDK's net_af_packet joins a fanout group numbered `(process id ^ interface index) & 0xffff`,
/// and refuses to start when another process in the namespace has the same number. With indexes
/// this far apart that takes process ids 16384 apart; with neighbouring ones it hit one start in
/// fifteen.
const FIRST_INDEX: [u32; 2] = [10, 10 + (1 << 14)];

/// One of the two places for an edge switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Before host h1.
    E1,
    /// Before host h2.
    E2,
}

impl Edge {
    /// Both, in order.
    pub const BOTH: [Edge; 2] = [Edge::E1, Edge::E2];

    /// Its name: `e1` or `e2`.
    pub fn name(self) -> &'static str {
        match self {
            Edge::E1 => "e1",
            Edge::E2 => "e2",
        }
    }

    /// Its interface towards the host.
    pub fn host_port(self) -> &'static str {
        match self {
            Edge::E1 => "e1h",
            Edge::E2 => "e2h",
        }
    }

    /// EAL arguments that make its interfaces DPDK ports: `net_af_packet0` towards the host,
    /// `net_af_packet1` towards the core. The rings hold what arrives while the switch waits
    /// for a CPU.
    pub fn devices(self) -> [String; 2] {
        let device = |number: u8, interface: &str| {
            format!(
                "--vdev=net_af_packet{number},iface={interface},blocksz=65536,framesz=2048,framecnt=16384"
            )
        };
        [device(0, self.host_port()), device(1, self.fabric_port())]
    }

    /// Its interface towards the core.
    pub fn fabric_port(self) -> &'static str {
        match self {
            Edge::E1 => "e1f",
            Edge::E2 => "e2f",
        }
    }
}

/// The network. Dropping it removes it, and kills what runs in it.
#[derive(Debug)]
pub struct Pair {
    h1: Namespace,
    h2: Namespace,
    switches: Namespace,
    core: Namespace,
    backlog_before: u64,
}

impl Pair {
    /// Builds the network; its core drops `loss_permille` of a thousand TCP and UDP packets, in
    /// both directions.
    pub fn create(run: &Run, loss_permille: u16) -> Result<Self> {
        let pair = Self {
            h1: Namespace::create_dual_stack(run, "h1")?,
            h2: Namespace::create_dual_stack(run, "h2")?,
            switches: Namespace::create(run, "switches")?,
            core: Namespace::create_dual_stack(run, "core")?,
            backlog_before: drops::backlog()?,
        };
        let [e1, e2] = FIRST_INDEX;
        link::connect(pair.port("e1h"), e1, pair.h1_eth())?;
        link::connect(pair.port("e1f"), e1 + 1, pair.core_port("c1"))?;
        link::connect(pair.port("e2f"), e2, pair.core_port("c2"))?;
        link::connect(pair.port("e2h"), e2 + 1, pair.h2_eth())?;
        for edge in Edge::BOTH {
            pair.port(edge.host_port()).set_promiscuous()?;
            pair.port(edge.fabric_port()).set_promiscuous()?;
        }
        // The core drops from its first packet on.
        loss::install(&pair.core, loss_permille)?;
        pair.core.sysctl(&["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"])?;
        let (h1, c1) = (pair.h1_eth(), pair.core_port("c1"));
        let (h2, c2) = (pair.h2_eth(), pair.core_port("c2"));
        for (host, address, core, gateway, prefix) in [
            (h1, H1_ADDRESS, c1, CORE_TO_H1, 24),
            (h2, H2_ADDRESS, c2, CORE_TO_H2, 24),
            (h1, H1_ADDRESS6, c1, CORE_TO_H1_6, 64),
            (h2, H2_ADDRESS6, c2, CORE_TO_H2_6, 64),
        ] {
            attach(host, &format!("{address}/{prefix}"), core, &format!("{gateway}/{prefix}"))?;
        }
        Ok(pair)
    }

    /// Host h1.
    pub fn h1(&self) -> &Namespace {
        &self.h1
    }

    /// Host h2.
    pub fn h2(&self) -> &Namespace {
        &self.h2
    }

    /// Where the edges' interfaces are, and the edges and the controller run.
    pub fn switches(&self) -> &Namespace {
        &self.switches
    }

    /// What the core dropped of each flow. An error if traffic is still on its way.
    pub fn losses(&self) -> Result<Vec<FlowLoss>> {
        loss::read(&self.core, "forward")
    }

    /// Whether a program receives from both interfaces of an edge through AF_PACKET. Packets sent
    /// before are lost.
    pub fn has_switch(&self, edge: Edge) -> Result<bool> {
        Ok(self.port(edge.host_port()).has_listener()?
            && self.port(edge.fabric_port()).has_listener()?)
    }

    /// Waits until no packet has moved for `quiet`, at most `limit`.
    pub fn wait_quiet(&self, quiet: Duration, limit: Duration) -> Result<()> {
        let packets = || -> Result<Vec<u64>> {
            let counters = [self.h1_eth().counters()?, self.h2_eth().counters()?];
            Ok(counters.iter().flat_map(|c| [c.rx.packets, c.tx.packets]).collect())
        };
        let mut last = packets()?;
        let mut since = Instant::now();
        wait_until("the traffic to end", limit, || {
            let now = packets()?;
            if now != last {
                last = now;
                since = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(40));
            Ok(since.elapsed() >= quiet)
        })
    }

    /// How the packets passed, hop by hop.
    pub fn passage(&self) -> Result<Passage> {
        let ends = [
            ("h1", self.h1_eth()),
            ("e1h", self.port("e1h")),
            ("e1f", self.port("e1f")),
            ("c1", self.core_port("c1")),
            ("c2", self.core_port("c2")),
            ("e2f", self.port("e2f")),
            ("e2h", self.port("e2h")),
            ("h2", self.h2_eth()),
        ];
        let mut counted: Vec<(&str, Counters)> = Vec::with_capacity(ends.len());
        for (name, end) in ends {
            counted.push((name, end.counters()?));
        }
        let mut drops: Vec<Drops> =
            counted.iter().flat_map(|(name, c)| drops::of_interface(name, c)).collect();
        drops.extend(drops::of_ip_layer(&self.core)?);
        let backlog = drops::backlog()?.saturating_sub(self.backlog_before);
        if backlog > 0 {
            drops.push(Drops {
                place: "this machine".into(),
                counter: "softnet_stat dropped".into(),
                packets: backlog,
            });
        }
        let dropped = self.losses()?.iter().map(|loss| loss.lost).sum();
        Ok(Passage { hops: hops(&counted, dropped), drops })
    }

    fn h1_eth(&self) -> End<'_> {
        End { namespace: &self.h1, name: "eth0" }
    }

    fn h2_eth(&self) -> End<'_> {
        End { namespace: &self.h2, name: "eth0" }
    }

    fn port<'a>(&'a self, name: &'a str) -> End<'a> {
        End { namespace: &self.switches, name }
    }

    fn core_port<'a>(&'a self, name: &'a str) -> End<'a> {
        End { namespace: &self.core, name }
    }
}

/// Gives a host and its gateway their addresses, written `address/prefix`, and makes them known to
/// each other.
fn attach(host: End<'_>, address: &str, gateway: End<'_>, gateway_address: &str) -> Result<()> {
    host.set_address(address)?;
    gateway.set_address(gateway_address)?;
    let bare = |address: &'_ str| address.split('/').next().unwrap_or_default().to_owned();
    let (address, gateway_address) = (bare(address), bare(gateway_address));
    host.set_neighbour(&gateway_address, &gateway.mac()?)?;
    gateway.set_neighbour(&address, &host.mac()?)?;
    host.namespace.ip(&["route", "add", "default", "via", &gateway_address]).map(drop)
}

/// The hops between interfaces in the order h1, e1h, e1f, c1, c2, e2f, e2h, h2: every second pair
/// is a wire, the others are the edges and the core. On a wire a packet goes from a sending to a
/// receiving counter, within a switch the other way round.
fn hops(counted: &[(&str, Counters)], dropped: u64) -> Vec<Hop> {
    let hop = |from: usize, to: usize| {
        let (from_name, a) = counted[from];
        let (to_name, b) = counted[to];
        let wire = from.min(to).is_multiple_of(2);
        let (entered, left) =
            if wire { (a.tx.packets, b.rx.packets) } else { (a.rx.packets, b.tx.packets) };
        Hop { name: format!("{from_name} > {to_name}"), entered, left, dropped: 0 }
    };
    // The core's rule counts both directions in one set, so the core is one hop.
    let core = 3;
    let last = counted.len() - 1;
    let mut hops: Vec<Hop> = (0..last).filter(|&i| i != core).map(|i| hop(i, i + 1)).collect();
    hops.extend((0..last).rev().filter(|&i| i != core).map(|i| hop(i + 1, i)));
    let (there, back) = (hop(core, core + 1), hop(core + 1, core));
    hops.push(Hop {
        name: "core".into(),
        entered: there.entered + back.entered,
        left: there.left + back.left,
        dropped,
    });
    hops
}
