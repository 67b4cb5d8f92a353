//! Packets that were lost, or were too many, where no rule of a router logs it.
//!
//! The log of the routers' rules is the truth that reports are held against. It is the whole truth
//! only where nothing else drops packets between two edges' measurements: no full queue of the
//! kernel, no full ring of an edge. What the kernel and the edges have counted says whether that
//! was so; it says neither of which flow nor in which epoch, so a report that contradicts the log
//! is then for people to judge.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::fabric::wiring::Wiring;
use crate::fabric::{drops, link};

/// What was counted before the scenario began.
#[derive(Debug)]
pub(super) struct Before {
    backlog: u64,
}

impl Before {
    pub(super) fn now() -> Result<Self> {
        Ok(Self { backlog: drops::backlog()? })
    }
}

/// What was counted beside the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unlogged {
    /// What was found, one line each.
    pub(super) lines: Vec<String>,
    /// Packets that were lost, at most: several counters may have counted one.
    pub(super) lost: u64,
}

impl Unlogged {
    fn note(&mut self, line: String, lost: u64) {
        self.lines.push(line);
        self.lost += lost;
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.lost += other.lost;
    }
}

/// What the kernel dropped of its own accord in all of the network. Read it when nothing is on its
/// way any more.
pub(super) fn by_kernel(wiring: &Wiring, before: &Before) -> Result<Unlogged> {
    let mut found = Vec::new();
    let hosts = wiring.hosts().iter().flatten();
    let switches = wiring.transits().values().chain(wiring.sinks()).chain([wiring.switches()]);
    for namespace in hosts.chain(wiring.routers()).chain(switches) {
        for (interface, counters) in link::all_counters(namespace)? {
            let place = format!("{interface} of {}", namespace.name());
            found.extend(drops::of_interface(&place, &counters));
        }
    }
    for router in wiring.routers() {
        found.extend(drops::of_ip_layer(router)?);
    }
    let mut unlogged = Unlogged::default();
    found.iter().for_each(|drops| unlogged.note(drops.to_string(), drops.packets));
    let backlog = drops::backlog()?.saturating_sub(before.backlog);
    if backlog > 0 {
        let line = format!("this machine: {backlog} packets dropped (softnet_stat dropped)");
        unlogged.note(line, backlog);
    }
    Ok(unlogged)
}

/// What happened to a switch's packets beside its ports: `interfaces` are its ports' in the order
/// of their DPDK devices, `kernel` what the kernel counted on these, and `totals` what the switch
/// itself counted from its start to its end.
pub(super) fn by_switch(
    switch: &str,
    interfaces: &[String],
    kernel: &BTreeMap<String, link::Counters>,
    totals: &BTreeMap<String, u64>,
) -> Unlogged {
    let total = |name: &str| totals.get(name).copied().unwrap_or_default();
    let mut unlogged = Unlogged::default();
    let dropped = |(name, packets): &(&String, &u64)| name.starts_with("dropped.") && **packets > 0;
    for (name, &packets) in totals.iter().filter(dropped) {
        unlogged.note(format!("{switch}: {packets} packets {name}"), packets);
    }
    for (number, interface) in interfaces.iter().enumerate() {
        let Some(counted) = kernel.get(interface) else { continue };
        let port = |name| total(&format!("port.net_af_packet{number}.{name}"));
        let (received, sent) = (port("rx_packets"), port("tx_packets"));
        if counted.rx.packets != received {
            let there = counted.rx.packets;
            let line = format!(
                "{switch}: {received} packets received of {there} that were there on {interface}: a \
                 full ring"
            );
            unlogged.note(line, there.saturating_sub(received));
        }
        if counted.tx.packets != sent {
            let went = counted.tx.packets;
            let line = format!("{switch}: {sent} packets sent, {went} went out on {interface}");
            unlogged.note(line, sent.saturating_sub(went));
        }
    }
    unlogged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_whose_ring_was_full_or_that_dropped_packets_is_named() {
        let direction = |packets| link::Direction { packets, errors: 0, dropped: 0 };
        let counters = |rx, tx| link::Counters { rx: direction(rx), tx: direction(tx) };
        let interfaces = ["e1h1", "e1f1"].map(str::to_owned);
        let kernel = BTreeMap::from([
            ("e1h1".to_owned(), counters(10, 7)),
            ("e1f1".to_owned(), counters(9, 10)),
        ]);
        let mut totals: BTreeMap<String, u64> = [
            ("port.net_af_packet0.rx_packets", 10),
            ("port.net_af_packet0.tx_packets", 7),
            ("port.net_af_packet1.rx_packets", 9),
            ("port.net_af_packet1.tx_packets", 10),
            ("dropped.malformed", 0),
        ]
        .map(|(name, packets)| (name.to_owned(), packets))
        .into();
        assert_eq!(by_switch("e1", &interfaces, &kernel, &totals), Unlogged::default());
        totals.insert("port.net_af_packet1.rx_packets".to_owned(), 7);
        totals.insert("port.net_af_packet0.tx_packets".to_owned(), 6);
        totals.insert("dropped.transmit_queue_full".to_owned(), 1);
        let expected = [
            "e1: 1 packets dropped.transmit_queue_full",
            "e1: 6 packets sent, 7 went out on e1h1",
            "e1: 7 packets received of 9 that were there on e1f1: a full ring",
        ];
        let found = by_switch("e1", &interfaces, &kernel, &totals);
        // What went out though it was not sent is not lost.
        assert_eq!((found.lines, found.lost), (expected.map(str::to_owned).to_vec(), 1 + 2));
    }
}
