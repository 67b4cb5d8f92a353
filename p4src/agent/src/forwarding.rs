//! What the configuration decides once: the entries for ports, routes and collection packets, and
//! the mirror session that these use.

use std::collections::{BTreeMap, BTreeSet};

use calumma_bfrt::proto::TableEntry;
use calumma_bfrt::{ClientError, Info, InfoError, Match, Value};
use calumma_switch_host::NodeRole;
use calumma_switch_host::metrics::MetricsConfig;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::collection::FRONT;
use crate::config::{
    AutoNegotiation, CarrierConfig, CollectionConfig, Config, DriverConfig, Fec, Method,
    PortConfig, Role,
};
use crate::driver::{Driver, entry};
use crate::routes::{Hop, Mac, RouteConfig};
use crate::{notices, ports, tables};

const HOST_IN: &str = "Ingress.host_ports";
const HOST_OUT: &str = "Egress.host_ports";
const PAIRS: &str = "Ingress.forwarding.port_pair";
const PUNT: &str = "Ingress.forwarding.punt";
const ROUTES: &str = "Ingress.forwarding.routes";
const ROUTES_6: &str = "Ingress.forwarding.routes6";
const MEMBERS: &str = "Ingress.forwarding.members";
const COLLECTORS: &str = "Ingress.collection.collectors";

/// Programs that record packets of hosts before they know their way have it: where packets end that
/// have none.
const NO_WAY: &str = "Ingress.no_way";

/// Programs that make packets longer have it.
const MTUS: &str = "Egress.push.mtus";

/// Programs that make them shorter have these: the ports by which packets leave whose stacks are to
/// be taken out, and the domains whose stacks are.
const SINKS: &str = "Ingress.sink.ports";
pub(crate) const DOMAINS: &str = "Ingress.sink.domains";

/// Programs that ask at ingress whether packets leave for hosts have it: the ports that lead to
/// these, with the bit that packets leave with in the place of a claim.
const LEAVES: &str = "Ingress.leaves.ports";

/// The bit of a DSCP that is a claim's in the network (docs/contract.md, "Claim").
const CLAIM: u8 = 1 << 1;

/// The version of INT-MD.
pub(crate) const INT_VERSION: u32 = 2;

/// Tables that hold what the configuration says and nothing else, but for [`MEMBERS`].
const TABLES: [&str; 7] = [HOST_IN, HOST_OUT, PAIRS, PUNT, ROUTES, ROUTES_6, COLLECTORS];

/// Slots for each next hop where their number is no power of two: one has an eighth more flows than
/// another at most.
const SLOTS: usize = 8;

/// Most slots of a group.
const MOST_SLOTS: usize = 256;

/// Makes the switch forward as configured. Entries that are there already stay: traffic passes
/// while the daemon starts anew.
///
/// # Errors
/// What the driver refuses, for example because a table is full.
pub fn configure(driver: &Driver, config: &Config) -> Result<(), ClientError> {
    ports::bring_up(driver, &config.ports)?;
    let groups = groups(config);
    let members = members(driver.info(), &groups)?;
    let old_members = driver.entries(MEMBERS)?;
    let mut present = Vec::new();
    let of_program = |table| driver.info().table(table).is_ok().then_some(table);
    let programs = [MTUS, SINKS, NO_WAY, LEAVES].map(of_program);
    for table in TABLES.into_iter().chain(programs.into_iter().flatten()) {
        present.extend(driver.entries(table)?);
    }
    // No route may lead to a group that is not there yet, or no longer.
    driver.add(&old_members, &members)?;
    driver.change(&present, &entries(driver.info(), config, &groups)?)?;
    driver.change(&driver.entries(MEMBERS)?, &members)?;
    if sinks(driver.info()).is_some() && driver.entries(DOMAINS)?.is_empty() {
        driver.change(&[], &driver.numbered(&[any_domain()])?)?;
    }
    match config.collection.method {
        Method::Packets => mirrors(driver, &config.collection),
        Method::Registers => Ok(()),
    }
}

/// The table of what fits each port, where the program has it.
fn limits(info: &Info) -> Option<&'static str> {
    info.table(MTUS).is_ok().then_some(MTUS)
}

/// The table of the ports that stacks are taken out at, where the program has it.
fn sinks(info: &Info) -> Option<&'static str> {
    info.table(SINKS).is_ok().then_some(SINKS)
}

/// The table of where packets of hosts end that have no way to go on, where the program has it.
fn no_way(info: &Info) -> Option<&'static str> {
    info.table(NO_WAY).is_ok().then_some(NO_WAY)
}

/// Stacks of any domain are taken out: that holds until a session has one.
fn any_domain() -> tables::TableEntry {
    stacks_of(0, 0)
}

/// Stacks of the domains are taken out that are `domain` where the mask has ones.
pub(crate) fn stacks_of(domain: u32, mask: u32) -> tables::TableEntry {
    tables::TableEntry {
        table: DOMAINS.to_owned(),
        keys: vec![
            ("hdr.telemetry.version", tables::Match::Exact(INT_VERSION)),
            ("hdr.telemetry.reserved", tables::Match::Exact(0)),
            ("hdr.telemetry.domain", tables::Match::Ternary(domain, mask)),
            ("hdr.telemetry.own_instructions", tables::Match::Exact(0)),
            ("hdr.telemetry.own_flags", tables::Match::Exact(0)),
        ],
        action: "known",
        args: Vec::new(),
    }
}

/// The number of each set of next hops: the same for as long as the configuration has the set,
/// since packets find their way by it while other routes change.
fn groups(config: &Config) -> BTreeMap<&[Hop], u16> {
    let several: BTreeSet<&[Hop]> =
        config.routes.iter().map(|route| &*route.via).filter(|hops| hops.len() > 1).collect();
    let mut used = BTreeSet::new();
    let mut out = BTreeMap::new();
    for hops in several {
        let mut number = digest(hops);
        while !used.insert(number) {
            number = number.wrapping_add(1);
        }
        out.insert(hops, number);
    }
    out
}

/// 16 bits of an FNV-1a hash over the next hops.
fn digest(hops: &[Hop]) -> u16 {
    let words = hops.iter().flat_map(|hop| [hop.port.into(), hop.mac.0, hop.from.0]);
    let hash = words.fold(0xCBF2_9CE4_8422_2325, |hash: u64, word: u64| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3)
    });
    (hash >> 48) as u16
}

/// Slots of a group: a power of two, over which its next hops spread evenly or nearly so.
fn slots(hops: usize) -> usize {
    if hops.is_power_of_two() {
        return hops;
    }
    (hops * SLOTS).next_power_of_two().min(MOST_SLOTS)
}

fn members(info: &Info, groups: &BTreeMap<&[Hop], u16>) -> Result<Vec<TableEntry>, InfoError> {
    let mut out = Vec::new();
    for (hops, &group) in groups {
        for (slot, hop) in (0..slots(hops.len())).zip(hops.iter().cycle()) {
            let keys = [("group", Match::Exact(group.into())), ("slot", Match::Exact(slot as u64))];
            out.push(entry(info, MEMBERS, &keys, "route", &way(hop))?);
        }
    }
    Ok(out)
}

/// The data of the action that sends a packet to a next hop.
fn way(hop: &Hop) -> [(&'static str, u64); 3] {
    [("port", hop.port.into()), ("src", hop.from.0), ("dst", hop.mac.0)]
}

fn entries(
    info: &Info,
    config: &Config,
    groups: &BTreeMap<&[Hop], u16>,
) -> Result<Vec<TableEntry>, InfoError> {
    let (mut out, limits, sinks) = (Vec::new(), limits(info), sinks(info));
    let end = config.collection.recirculation_port;
    let mut add = |table, key: (&str, Match), action, args: &[(&str, u64)]| {
        out.push(entry(info, table, &[key], action, args)?);
        Ok::<(), InfoError>(())
    };
    for port in &config.ports {
        let number = Match::Exact(port.number.into());
        if let Some(peer) = port.peer {
            add(PAIRS, ("ingress_port", number), "send", &[("port", peer.into())])?;
        }
        if port.role == Role::Host {
            let dscp = [("dscp", u64::from(config.carrier.dscp >> 3))];
            add(HOST_IN, ("ingress_port", number), "host", &[])?;
            add(HOST_OUT, ("egress_port", number), "host", &dscp)?;
            if let Some(table) = sinks {
                add(table, ("port", number), "sink", &[])?;
            }
            if info.table(LEAVES).is_ok() {
                let claim = [("claim", u64::from(config.carrier.dscp & CLAIM != 0))];
                add(LEAVES, ("port", number), "host", &claim)?;
            }
            if let (Some(table), None) = (no_way(info), port.peer) {
                add(table, ("ingress_port", number), "end_at", &[("port", end.into())])?;
            }
        }
        if let Some(table) = limits {
            add(table, ("port", number), "limit", &[("mtu", port.mtu.into())])?;
        }
    }
    if no_way(info).is_some() {
        add(HOST_OUT, ("egress_port", Match::Exact(end.into())), "nowhere", &[])?;
    }
    let collection = &config.collection;
    for &kind in &config.punt {
        let cpu = [("port", collection.cpu_port.into())];
        add(PUNT, ("hdr.ethernet.type", Match::Exact(kind.into())), "send", &cpu)?;
    }
    for route in &config.routes {
        let (table, key) = match route.to {
            IpNet::V4(to) => {
                let network = u32::from(to.addr()).into();
                (ROUTES, ("hdr.ipv4.dst", Match::Lpm(network, to.prefix_len().into())))
            }
            IpNet::V6(to) => {
                let network = (u128::from(to.addr()) >> 64) as u64;
                (ROUTES_6, ("hdr.ipv6.dst_network", Match::Lpm(network, to.prefix_len().into())))
            }
        };
        match &route.via[..] {
            [] => add(table, key, "drop", &[])?,
            [hop] => add(table, key, "route", &way(hop))?,
            hops => {
                let mask = slots(hops.len()) as u64 - 1;
                let args = [("to_group", groups[hops].into()), ("mask", mask)];
                add(table, key, "spread", &args)?;
            }
        }
    }
    if collection.method == Method::Packets {
        for port in [collection.cpu_port, collection.recirculation_port] {
            let args = [
                ("report_port", collection.cpu_port.into()),
                ("recirculation_port", collection.recirculation_port.into()),
                ("session", collection.mirror_session.into()),
            ];
            add(COLLECTORS, ("ingress_port", Match::Exact(port.into())), "accept", &args)?;
        }
    }
    Ok(out)
}

/// Checks that the program has whatever a configuration can ask of it.
///
/// # Errors
/// The first thing that it lacks.
pub(crate) fn check(info: &Info) -> Result<(), InfoError> {
    let port = |number, role, peer| PortConfig {
        number,
        role,
        peer,
        mtu: 1500,
        speed: None,
        fec: Fec::None,
        autonegotiation: AutoNegotiation::Default,
    };
    let hop = |port| Hop { port, mac: Mac(2), from: Mac(1) };
    let networks = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    let ways = [(vec![hop(1)], false), (vec![hop(1), hop(2)], false), (vec![], true)];
    let route = |to| ways.clone().map(|(via, discard)| RouteConfig { to, via, discard });
    let config = Config {
        name: String::new(),
        role: NodeRole::Edge,
        controller: String::new(),
        tls: None,
        insecure: false,
        driver: DriverConfig::default(),
        collection: CollectionConfig::default(),
        carrier: CarrierConfig::default(),
        metrics: MetricsConfig::default(),
        punt: vec![1],
        ports: vec![
            port(1, Role::Host, Some(2)),
            port(2, Role::Fabric, Some(1)),
            port(3, Role::Host, None),
        ],
        routes: networks.into_iter().flat_map(route).collect(),
    };
    let groups = groups(&config);
    members(info, &groups)?;
    entries(info, &config, &groups)?;
    Ok(())
}

/// The session that copies the front of a full collection packet, so that it goes on, and that of
/// notices.
fn mirrors(driver: &Driver, collection: &CollectionConfig) -> Result<(), ClientError> {
    let CollectionConfig { mirror_session, notice_session, .. } = *collection;
    let sessions = [
        (mirror_session, "INGRESS", collection.recirculation_port, FRONT),
        (notice_session, "BOTH", collection.cpu_port, notices::FRONT),
    ];
    for (session, direction, port, front) in sessions {
        let values = [
            ("$session_enable", Value::Bool(true)),
            ("$direction", Value::Word(direction.to_owned())),
            ("$ucast_egress_port", Value::Number(port.into())),
            ("$ucast_egress_port_valid", Value::Bool(true)),
            ("$max_pkt_len", Value::Number(front as u64)),
        ];
        driver.put("$mirror.cfg", ("$sid", session.into()), Some("$normal"), &values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Mac;

    #[test]
    fn flows_spread_nearly_evenly() {
        for hops in 2..=100 {
            let slots = slots(hops);
            assert!(slots.is_power_of_two() && slots >= hops);
            let most = slots.div_ceil(hops) as f64 / (slots / hops) as f64;
            assert!(hops > 32 || most <= 1.125, "{hops} next hops");
        }
    }

    #[test]
    fn a_groups_number_stays_when_others_come_and_go() {
        let config = |hops: &[u16]| {
            let mut text = String::from(
                "name = \"e\"\ncontroller = \"127.0.0.1:1\"\n[driver]\n[collection]\ninterface = \"cpu0\"\n",
            );
            for port in 1..10 {
                text += &format!("[[port]]\nnumber = {port}\nrole = \"fabric\"\n");
            }
            for (at, port) in hops.iter().enumerate() {
                text += &format!("[[route]]\nto = \"10.{at}.0.0/16\"\n");
                for port in [*port, port + 1] {
                    text += &format!(
                        "[[route.via]]\nport = {port}\nmac = \"02:00:00:00:00:01\"\n\
                         from = \"02:00:00:00:00:02\"\n"
                    );
                }
            }
            Config::parse(&text, "switchd.toml").unwrap()
        };
        let (before, after) = (config(&[1, 3, 3, 5]), config(&[7, 3, 1]));
        let (before, after) = (groups(&before), groups(&after));
        assert_eq!((before.len(), after.len()), (3, 3));
        let hop = |port| Hop { port, mac: Mac(0x0200_0000_0001), from: Mac(0x0200_0000_0002) };
        for first in [1, 3] {
            let hops = [hop(first), hop(first + 1)];
            assert_eq!(before[&hops[..]], after[&hops[..]]);
        }
    }
}
