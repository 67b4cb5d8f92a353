//! Where packets went on their way through the fabric: what entered and left each hop, and every
//! other drop the kernel counted. It shows that only routers dropped, without asking the edges.

use std::collections::BTreeMap;
use std::{fmt, fs};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::link::Counters;
use super::namespace::Namespace;

/// What went into one hop of the fabric and came out of it: a wire, an edge in one direction, or
/// a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// Its name, as `e1h > e1f`.
    pub name: String,
    /// Packets that entered it.
    pub entered: u64,
    /// Packets that left it.
    pub left: u64,
    /// Packets that its rule dropped on purpose; 0 but in routers.
    pub dropped: u64,
}

impl Hop {
    /// Packets that vanished in the hop for no reason known; negative if it made some.
    pub fn unexplained(&self) -> i64 {
        self.entered as i64 - self.left as i64 - self.dropped as i64
    }
}

/// Packets the kernel says it dropped, apart from the routers' rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The interface, namespace or machine that dropped.
    pub place: String,
    /// The kernel's name for the counter.
    pub counter: String,
    /// Packets.
    pub packets: u64,
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} packets dropped ({})", self.place, self.packets, self.counter)
    }
}

/// How a run's packets passed through the fabric. Read it when nothing is on its way any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Passage {
    /// Every hop, in the order from h1 to h2 and then from h2 to h1; the routers last.
    pub hops: Vec<Hop>,
    /// Drops the kernel counted anywhere but in the routers' rules; none is listed with 0 packets.
    pub drops: Vec<Drops>,
}

impl Passage {
    /// Whether every packet that no router's rule dropped went through.
    pub fn only_routers_dropped(&self) -> bool {
        self.drops.is_empty() && self.hops.iter().all(|hop| hop.unexplained() == 0)
    }

    /// What went wrong, one line each; empty if only routers dropped.
    pub fn complaints(&self) -> Vec<String> {
        let hops = self.hops.iter().filter(|hop| hop.unexplained() != 0).map(|hop| {
            let Hop { name, entered, left, dropped } = hop;
            format!(
                "{name}: {entered} packets entered, {left} left, {dropped} were dropped on purpose"
            )
        });
        hops.chain(self.drops.iter().map(ToString::to_string)).collect()
    }
}

/// The drops and errors on an interface.
pub(crate) fn of_interface(name: &str, counters: &Counters) -> Vec<Drops> {
    [
        ("rx dropped", counters.rx.dropped),
        ("rx errors", counters.rx.errors),
        ("tx dropped", counters.tx.dropped),
        ("tx errors", counters.tx.errors),
    ]
    .into_iter()
    .filter(|(_, packets)| *packets > 0)
    .map(|(counter, packets)| Drops { place: name.into(), counter: counter.into(), packets })
    .collect()
}

/// The packets that a namespace's IP layer discarded.
pub(crate) fn of_ip_layer(namespace: &Namespace) -> Result<Vec<Drops>> {
    #[derive(Deserialize)]
    struct Nstat {
        kernel: BTreeMap<String, u64>,
    }
    let json = namespace.run("nstat", &["-a", "-s", "-z", "-j"])?;
    let nstat: Nstat =
        serde_json::from_str(&json).with_context(|| format!("what nstat printed: {json}"))?;
    Ok([
        "IpInHdrErrors",
        "IpInAddrErrors",
        "IpInDiscards",
        "IpOutDiscards",
        "IpOutNoRoutes",
        "IpReasmFails",
        "IpFragFails",
        // Those of IPv6. It counts what `Namespace::create_dual_stack` silences as discarded on
        // its way out.
        "Ip6InHdrErrors",
        "Ip6InAddrErrors",
        "Ip6InDiscards",
        "Ip6InNoRoutes",
        "Ip6OutNoRoutes",
        "Ip6ReasmFails",
        "Ip6FragFails",
    ]
    .into_iter()
    .filter_map(|counter| {
        let packets = *nstat.kernel.get(counter).filter(|packets| **packets > 0)?;
        Some(Drops { place: namespace.name().into(), counter: counter.into(), packets })
    })
    .collect())
}

/// Packets that found a CPU's receive queue full, on the whole machine since it started.
pub(crate) fn backlog() -> Result<u64> {
    let path = "/proc/net/softnet_stat";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    text.lines()
        .map(|line| {
            let dropped = line.split_whitespace().nth(1).context("no second column")?;
            Ok(u64::from(u32::from_str_radix(dropped, 16)?))
        })
        .sum::<Result<u64>>()
        .with_context(|| format!("reading {path}"))
}
