//! Fabrics whose packets carry marks in shims, between Ethernet and IP. No router of the kernel
//! reads past these, so each port of an edge towards the fabric is wired to one neighbour, and of a
//! switch between edges as elsewhere ([`super::transit`]), by rules that pass frames on
//! ([`crate::fabric::frames`]). Which way packets take is then the edges' choice.

use anyhow::{Result, ensure};
use calumma_sketchint_analysis::SketchInt;

use super::transit;
use crate::carrier::Carrier;
use crate::fabric::frames::{self, Wire};
use crate::fabric::link::End;
use crate::fabric::wires::{CAME, ENTERED};
use crate::fabric::wiring::Wiring;
use crate::scenario::{EdgeForwarding, Scenario};
use crate::system;
use crate::topology::{LinkQuality, Topology};
use crate::workload::Traffic;

/// The MTU that hosts may have at most, so that links have room for a shim.
const MOST_MTU: u16 = 1500 - 6;

/// Refuses what such a fabric can't do.
pub(super) fn check(scenario: &Scenario, topology: &Topology) -> Result<()> {
    if scenario.carrier != Carrier::Shim {
        return Ok(());
    }
    let refused = "carrier = \"shim\": in a live fabric";
    ensure!(scenario.edges == EdgeForwarding::Routed, "{refused} edges route");
    ensure!(
        scenario.host_mtu.is_some_and(|mtu| mtu <= MOST_MTU),
        "{refused} host_mtu is {MOST_MTU} at most"
    );
    let stacks = scenario.systems_ever().any(|name| name == system::name(&SketchInt));
    ensure!(!stacks && scenario.mutants == 0, "{refused} there are no INT stacks and no mutants");
    let switches = topology.edges().len()..topology.switches();
    let transits: Vec<usize> = topology.transits().collect();
    ensure!(
        switches.eq(transits) && (0..topology.switches()).all(|at| !topology.is_tofino(at)),
        "{refused} all switches are software"
    );
    for (edge, name) in topology.edges().iter().enumerate() {
        let neighbours = topology.neighbours(edge).count();
        ensure!(
            topology.hosts()[edge] as usize == neighbours,
            "{refused} an edge has as many hosts as neighbours: {name} has {neighbours} of these"
        );
    }
    check_links(scenario.carrier, topology)
}

/// Refuses links that do to packets what no wire here does.
pub(super) fn check_links(carrier: Carrier, topology: &Topology) -> Result<()> {
    let loses_at_most = |quality: LinkQuality| {
        let LinkQuality { loss, delay_us, queue, .. } = quality;
        quality == LinkQuality { loss, delay_us, queue, ..LinkQuality::default() }
    };
    ensure!(
        carrier != Carrier::Shim || topology.links().iter().all(|link| loses_at_most(link.quality)),
        "carrier = \"shim\": in a live fabric links lose packets, and do nothing else to them"
    );
    Ok(())
}

/// Refuses flows whose packets are lost by what their headers say, which nothing reads here.
pub(super) fn check_traffic(carrier: Carrier, kinds: &[Traffic]) -> Result<()> {
    ensure!(
        carrier != Carrier::Shim || kinds.iter().all(|of| of.victims == 0.0 && of.inside.is_none()),
        "carrier = \"shim\": in a live fabric links alone lose packets, and none come from inside"
    );
    Ok(())
}

/// Lays the wires, which log what comes to switches if that is `watched`.
pub(super) fn attach_all(wiring: &Wiring, topology: &Topology, watched: bool) -> Result<()> {
    let [entered, came] = [ENTERED, CAME].map(|prefix| Some(prefix).filter(|_| watched));
    for (at, router) in wiring.routers().iter().enumerate() {
        let is_edge = at < topology.edges().len();
        let mut ends = Vec::new();
        for (port, neighbour) in (1..).zip(topology.neighbours(at)) {
            let own = match is_edge {
                true => format!("h{port}"),
                false => transit::interface(&topology.names()[at], port),
            };
            let (namespace, name) = match is_edge {
                true => (wiring.switches(), wiring.ports(at)[port - 1][1].clone()),
                false => (&wiring.transits()[&at], own.clone()),
            };
            ends.push((own, wiring.interface(neighbour), End { namespace, name: &name }.mac()?));
        }
        let both = ends.iter().flat_map(|(own, towards, mac)| {
            let out = Wire {
                from: own,
                to: towards,
                mac: None,
                before: entered.filter(|_| is_edge),
                behind: None,
            };
            let mac = Some(mac.clone());
            [out, Wire { from: towards, to: own, mac, before: None, behind: came }]
        });
        frames::install(router, &both.collect::<Vec<_>>())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a live fabric can't have the scenario whose file has these words for some of its own.
    fn refused(changes: &[(&str, &str)]) -> Option<String> {
        let mut text = include_str!("../../scenarios/live/cfs/hop-mark.toml").to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let scenario: Scenario = toml::from_str(&text).unwrap();
        let topology = scenario.topology().unwrap();
        check(&scenario, &topology).err().map(|error| error.to_string())
    }

    #[test]
    fn what_no_wire_can_do_is_refused() {
        assert_eq!(refused(&[]), None);
        for (from, to, because) in [
            ("edges = \"routed\"", "", "edges route"),
            ("host_mtu = 1400", "host_mtu = 1500", "host_mtu is 1494 at most"),
            ("systems = [\"cfs\"]", "systems = [\"sketchint\"]", "no INT stacks"),
            (" s2=software", "", "all switches are software"),
            ("leaf-spine:2x2 s1=software s2", "leaf-spine:2x1 s1", "e1 has 1 of these"),
            ("grace_ms = 2000", "links = { duplicate = 0.1 }", "links lose packets"),
        ] {
            let why = refused(&[(from, to)]).unwrap_or_default();
            assert!(why.contains(because), "{to}: {why}");
            // With other marks all of it is as it was.
            assert_eq!(refused(&[(from, to), ("carrier = \"shim\"", "")]), None, "{to}");
        }
        let topology = Topology::load(
            "leaf-spine:2x2",
            std::path::Path::new("."),
            LinkQuality { jitter_us: 1.0, ..LinkQuality::default() },
        );
        assert!(check_links(Carrier::Shim, &topology.unwrap()).is_err());
        let victims = [Traffic { victims: 0.1, ..Traffic::default() }];
        assert!(check_traffic(Carrier::Shim, &victims).is_err());
        assert!(check_traffic(Carrier::Tos, &victims).is_ok());
        assert!(check_traffic(Carrier::Shim, &[Traffic::default()]).is_ok());
    }
}
