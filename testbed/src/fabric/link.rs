//! veth pairs, and their counters.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::namespace::Namespace;

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) name: &'a str,
}

/// What the kernel counted on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Counters {
    pub(crate) rx: Direction,
    pub(crate) tx: Direction,
}

/// One direction of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Direction {
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

/// Connects two ends, each in its namespace: queues long enough for any burst, every offload off,
/// up. The first gets the interface index asked for.
///
/// Offloads off because a veth hands AF_PACKET what a network card would still have had to finish:
/// packets without a checksum, and super-packets of many segments.
pub(crate) fn connect(a: End<'_>, index: u32, b: End<'_>) -> Result<()> {
    let (in_a, in_b) = (a.namespace.name(), b.namespace.name());
    let index = index.to_string();
    let name = ["link", "add", "name", a.name, "index", &index];
    let peer = ["type", "veth", "peer", "name", b.name, "netns", in_b];
    a.namespace
        .ip(&[&name[..], &peer[..]].concat())
        .with_context(|| format!("connecting {} in {in_a} to {} in {in_b}", a.name, b.name))?;
    for end in [a, b] {
        end.prepare()?;
    }
    Ok(())
}

/// What the kernel counted on every interface of a namespace but the loopback, by name.
pub(crate) fn all_counters(namespace: &Namespace) -> Result<BTreeMap<String, Counters>> {
    #[derive(Deserialize)]
    struct Link {
        ifname: String,
        stats64: Counters,
    }
    let json = namespace.ip(&["-s", "-j", "link", "show"])?;
    let links: Vec<Link> =
        serde_json::from_str(&json).with_context(|| format!("what `ip` printed: {json}"))?;
    let named = links.into_iter().map(|link| (link.ifname, link.stats64));
    Ok(named.filter(|(name, _)| name != "lo").collect())
}

/// The index of every interface of a namespace, by name.
pub(crate) fn indexes(namespace: &Namespace) -> Result<Vec<(String, u32)>> {
    #[derive(Deserialize)]
    struct Link {
        ifname: String,
        ifindex: u32,
    }
    let json = namespace.ip(&["-j", "link", "show"])?;
    let links: Vec<Link> =
        serde_json::from_str(&json).with_context(|| format!("what `ip` printed: {json}"))?;
    Ok(links.into_iter().map(|link| (link.ifname, link.ifindex)).collect())
}

impl End<'_> {
    /// Makes its queue long enough for any burst, switches every offload off, and the end up.
    pub(crate) fn prepare(&self) -> Result<()> {
        let Self { namespace, name } = *self;
        namespace.run(
            "ethtool",
            &[
                "-K", name, "tx", "off", "rx", "off", "sg", "off", "tso", "off", "gso", "off",
                "gro", "off",
            ],
        )?;
        let features = namespace.run("ethtool", &["-k", name])?;
        for feature in [
            "tx-checksumming",
            "scatter-gather",
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "generic-receive-offload",
        ] {
            if !features.lines().any(|line| line.starts_with(&format!("{feature}: off"))) {
                bail!(
                    "{feature} of {name} in {} stays on after `ethtool -K`; edges would see packets no wire carries",
                    namespace.name()
                );
            }
        }
        namespace.ip(&["link", "set", name, "txqueuelen", "10000", "up"]).map(drop)
    }

    /// Lets the end receive packets to any address, as a switch port does.
    pub(crate) fn set_promiscuous(&self) -> Result<()> {
        self.namespace.ip(&["link", "set", self.name, "promisc", "on"]).map(drop)
    }

    /// Gives the end an address, written `address/prefix`.
    pub(crate) fn set_address(&self, address: &str) -> Result<()> {
        self.namespace.ip(&["address", "add", address, "dev", self.name]).map(drop)
    }

    /// Says once and for all which Ethernet address `neighbour` has: address resolution would
    /// queue, and drop, packets.
    pub(crate) fn set_neighbour(&self, neighbour: &str, mac: &str) -> Result<()> {
        self.namespace
            .ip(&[
                "neighbour",
                "replace",
                neighbour,
                "lladdr",
                mac,
                "dev",
                self.name,
                "nud",
                "permanent",
            ])
            .map(drop)
    }

    pub(crate) fn mac(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Link {
            address: String,
        }
        Ok(self.show::<Link>(&["-j", "link", "show", "dev", self.name])?.address)
    }

    /// Whether a program receives packets from this end through an AF_PACKET socket.
    pub(crate) fn has_listener(&self) -> Result<bool> {
        #[derive(Deserialize)]
        struct Link {
            ifindex: u32,
        }
        let Link { ifindex } = self.show(&["-j", "link", "show", "dev", self.name])?;
        let sockets = self.namespace.run("cat", &["/proc/net/packet"])?;
        // Columns: sk RefCnt Type Proto Iface R(unning) Rmem User Inode.
        Ok(sockets.lines().skip(1).any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.get(4) == Some(&ifindex.to_string().as_str()) && columns.get(5) == Some(&"1")
        }))
    }

    pub(crate) fn counters(&self) -> Result<Counters> {
        #[derive(Deserialize)]
        struct Link {
            stats64: Counters,
        }
        Ok(self.show::<Link>(&["-s", "-j", "link", "show", "dev", self.name])?.stats64)
    }

    fn show<T: serde::de::DeserializeOwned>(&self, args: &[&str]) -> Result<T> {
        let json = self.namespace.ip(args)?;
        let mut links: Vec<T> = serde_json::from_str(&json)
            .with_context(|| format!("what `ip {}` printed: {json}", args.join(" ")))?;
        links
            .pop()
            .with_context(|| format!("no interface {} in {}", self.name, self.namespace.name()))
    }
}
