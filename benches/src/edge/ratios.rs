//! What the readings of trials say of one another.

use super::{Measuring, Ovs, Switch, Trial};
use crate::measure::Figure;

/// What the readings say of one another, for each length of packets: by rounds, since a guest that
/// is slowed for a while slows a round's switches alike.
pub(super) fn of(trials: &[Trial], readings: &[Vec<f64>]) -> Vec<Figure> {
    let mut ratios = with_int(trials, readings);
    for (ours, all) in trials.iter().zip(readings) {
        if ours.switch != Switch::EDGE_ALL {
            continue;
        }
        let readings_of = |switch: Switch| {
            let peer = Trial { switch, search: false, ..ours.clone() };
            let at = trials.iter().position(|trial| *trial == peer)?;
            Some(&readings[at]).filter(|readings| !readings.is_empty())
        };
        let beside = |switch: Switch, of: &dyn Fn(f64, f64) -> f64| {
            let peer = readings_of(switch)?;
            Some(all.iter().zip(peer).map(|(&all, &peer)| of(all, peer)).collect())
        };
        for peer in ["macswap", "io", "rxonly"] {
            if let Some(rounds) = beside(Switch::Testpmd(peer), &|all, peer| all / peer) {
                let name = format!("{}.over_testpmd_{peer}", ours.name());
                ratios.push(Figure::of(name, "ratio", rounds));
            }
        }
        let over = |ours: Switch, peer: Switch| -> Option<Vec<f64>> {
            let (ours, peer) = (readings_of(ours)?, readings_of(peer)?);
            Some(ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect())
        };
        for (measuring, peer) in [(Switch::EDGE_ALL, Ovs::PORT), (Switch::EdgeRouted, Ovs::PREFIX)]
        {
            if let Some(rounds) = over(measuring, Switch::Ovs(peer)) {
                let name = ours.name().replacen(&Switch::EDGE_ALL.name(), &measuring.name(), 1);
                let peer = peer.name().replace('.', "_");
                ratios.push(Figure::of(format!("{name}.over_{peer}"), "ratio", rounds));
            }
        }
        for measuring in [Measuring::Cfs, Measuring::AllAndCfs].map(Switch::Edge) {
            if let Some(rounds) = over(measuring, Switch::Testpmd("macswap")) {
                let name = ours.name().replacen(&Switch::EDGE_ALL.name(), &measuring.name(), 1);
                ratios.push(Figure::of(format!("{name}.over_testpmd_macswap"), "ratio", rounds));
            }
        }
        // A round's two switches may differ by how the link fared, which is slow from its start to
        // its end or not.
        if let Some(macswap) = readings_of(Switch::Testpmd("macswap")) {
            let highest = |readings: &[f64]| readings.iter().copied().fold(0.0, f64::max);
            let name = format!("{}.highest_over_testpmd_macswap", ours.name());
            let ratio = highest(all) / highest(macswap);
            ratios.push(Figure::of(name, "ratio", vec![ratio]));
        }
        if let Some(rounds) = beside(Switch::EdgeOff, &|all, off| 1e3 / all - 1e3 / off) {
            let name = ours.name().replacen(&Switch::EDGE_ALL.name(), "edge.measurement", 1);
            ratios.push(Figure::of(format!("{name}.ns"), "ns/packet", rounds));
        }
        if let Some(rounds) = beside(Switch::EdgeRouted, &|all, routed| 1e3 / routed - 1e3 / all) {
            let name = ours.name().replacen(&Switch::EDGE_ALL.name(), "edge.forwarding", 1);
            ratios.push(Figure::of(format!("{name}.ns"), "ns/packet", rounds));
        }
    }
    ratios
}

/// Nanoseconds a packet that one takes more than the other, at these rates in Mpps.
fn added(ours: f64, peer: f64) -> f64 {
    1e3 / ours - 1e3 / peer
}

/// The same of switches with INT: a router beside one that measures, others beside `testpmd` on the
/// same packets. Of those that do not look for stacks what looking costs, and of a router between
/// others what its tables cost on top of routing.
fn with_int(trials: &[Trial], readings: &[Vec<f64>]) -> Vec<Figure> {
    let mut ratios = Vec::new();
    let mut compare =
        |ours: &Trial, peer: Switch, hops: u8, name: &str, of: fn(f64, f64) -> f64| {
            let peer =
                Trial { switch: peer, search: peer == Switch::EDGE_ALL, hops, ..ours.clone() };
            let named = |trial: &Trial| trials.iter().position(|other| other == trial);
            let (Some(ours_at), Some(peer_at)) = (named(ours), named(&peer)) else { return };
            let rounds = readings[ours_at].iter().zip(&readings[peer_at]);
            let rounds: Vec<f64> = rounds.map(|(&ours, &peer)| of(ours, peer)).collect();
            if !rounds.is_empty() {
                let unit = if name.ends_with(".ns") { "ns/packet" } else { "ratio" };
                ratios.push(Figure::of(name.to_owned(), unit, rounds));
            }
        };
    for ours in trials {
        let name = ours.name();
        let ratio = |ours: f64, peer: f64| ours / peer;
        match ours.switch {
            Switch::Sketching(which) if which.is_routed() => {
                compare(ours, Switch::EdgeRouted, 0, &format!("{name}.over_edge_routed"), ratio);
            }
            Switch::Sketching(which) => {
                let (peer, over) = (Switch::Testpmd("macswap"), "over_testpmd_macswap");
                compare(ours, peer, which.hops(), &format!("{name}.{over}"), ratio);
            }
            Switch::CfsTransit => {
                compare(ours, Switch::EdgeRoutedOff, 0, &format!("{name}.on_top.ns"), added);
                compare(ours, Switch::EdgeRouted, 0, &format!("{name}.over_edge_routed"), ratio);
            }
            Switch::Unstripped(measures) => {
                let peer = if measures { Switch::EDGE_ALL } else { Switch::EdgeOff };
                let name = name.replacen("no_strip", "strip", 1);
                compare(ours, peer, 0, &format!("{name}.ns"), |without, with| added(with, without));
            }
            _ => {}
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{FLOWS, ZIPF};

    #[test]
    fn switches_are_compared_with_what_they_did_in_the_same_round() {
        let of = |switch| Trial::new(switch, "128", FLOWS, ZIPF);
        let trials = [
            of(Switch::EDGE_ALL),
            of(Switch::EdgeOff),
            of(Switch::Testpmd("macswap")),
            of(Switch::EdgeRouted),
            of(Switch::Ovs(Ovs::PREFIX)),
            of(Switch::Ovs(Ovs::PORT)),
        ];
        // The machine is half as fast in the second round, and the third is slow for one switch
        // only.
        let readings = [
            vec![20.0, 10.0, 20.0],
            vec![40.0, 20.0, 40.0],
            vec![25.0, 12.5, 10.0],
            vec![10.0, 5.0, 6.25],
            vec![5.0, 2.5, 2.5],
            Vec::new(),
        ];
        let ratios = super::of(&trials, &readings);
        let of = |name: &str| ratios.iter().find(|figure| figure.name == name).unwrap();
        let ratio = of("edge.all.128B.over_testpmd_macswap");
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.8, 0.8, 2.0));
        let highest = of("edge.all.128B.highest_over_testpmd_macswap");
        assert!((highest.median - 20.0 / 25.0).abs() < 1e-9, "{highest:?}");
        let added = of("edge.measurement.128B.ns");
        assert!((added.median - 25.0).abs() < 1e-9 && (added.max - 50.0).abs() < 1e-9);
        let added = of("edge.forwarding.128B.ns");
        assert!((added.median - 100.0).abs() < 1e-9 && (added.min - 50.0).abs() < 1e-9);
        let routed = of("edge.routed.128B.over_ovs_prefix");
        assert_eq!((routed.min, routed.max), (2.0, 2.5));
        // One was not measured, one could not be.
        let absent = |name: &str| ratios.iter().all(|figure| !figure.name.contains(name));
        assert!(absent("rxonly") && absent("ovs_port"));
    }

    #[test]
    fn what_tables_take_is_on_top_of_a_router_without_them() {
        let of = |switch| Trial::new(switch, "128", FLOWS, ZIPF);
        let trials = [Switch::EdgeRoutedOff, Switch::CfsTransit].map(of);
        let ratios = super::of(&trials, &[vec![20.0, 10.0], vec![16.0, 8.0]]);
        let [on_top] = &ratios[..] else { panic!("{ratios:?}") };
        assert_eq!(on_top.name, "edge.cfs_transit.128B.on_top.ns");
        assert!((on_top.min - 12.5).abs() < 1e-9 && (on_top.max - 25.0).abs() < 1e-9);
    }
}
