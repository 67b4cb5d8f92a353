//! Reports of every shape, for properties.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_controller::report::{
    Amendment, Change, DecodeReport, DecodeState, EdgeReport, EpochConfig, EpochReport, Flow,
    HeavyChange, HeavyHitter, Loss, LossClass, NetworkState, PlanReport, Rewritten, Surplus,
    Timing,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// An address of either family.
fn address(six: bool, bits: u128) -> IpAddr {
    if six { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() }
}

fn flow() -> impl Strategy<Value = Flow> {
    (any::<bool>(), any::<[u128; 2]>(), any::<u16>(), any::<u16>(), any::<u8>()).prop_map(
        |(six, [src, dst], sport, dport, proto)| Flow {
            src: address(six, src),
            dst: address(six, dst),
            sport,
            dport,
            proto,
        },
    )
}

fn state() -> impl Strategy<Value = NetworkState> {
    prop_oneof![Just(NetworkState::Healthy), Just(NetworkState::Ill)]
}

fn decode() -> impl Strategy<Value = DecodeState> {
    use DecodeState::{Absent, Blocked, Complete, Partial, Skipped};
    prop_oneof![Just(Complete), Just(Partial), Just(Blocked), Just(Skipped), Just(Absent)]
}

prop_compose! {
    fn config()(
        (t_h, t_l) in (1u32.., 1u32..),
        sample_rate in 0.0..=1.0,
        (hh_buckets, hl_buckets, ll_buckets) in any::<(u32, u32, u32)>(),
    ) -> EpochConfig {
        EpochConfig { t_h, t_l, sample_rate, hh_buckets, hl_buckets, ll_buckets }
    }
}

prop_compose! {
    fn edge()(
        edge in "[a-z][a-z0-9]{0,6}",
        (packets_in, packets_out) in (of(0..1u64 << 40), of(0..1u64 << 40)),
        (cardinality, cardinality_error) in (of(0.0..1e6), of(0.0..1e3)),
        entropy in of(0.0..32.0),
        (hh_decode, hh_load_factor) in (decode(), of(0.0..2.0)),
        heavy_hitters in vec((flow(), 1u64.., any::<bool>()), 0..4),
        heavy_changes_since in of(any::<u64>()),
        heavy_changes in vec((flow(), any::<[u64; 2]>(), of(0u64..9)), 0..4),
        size_distribution in vec((1u64.., 0.0..1e6), 0..4),
    ) -> EdgeReport {
        let hitter = |(flow, size, exact)| {
            HeavyHitter { flow, size, size_min: if exact { None } else { Some(size - 1) } }
        };
        let change = |(flow, [before, after], less): (_, [u64; 2], Option<u64>)| {
            let least = |size: u64| less.map(|less| size.saturating_sub(less));
            let (before_min, after_min) = (least(before), least(after));
            HeavyChange { flow, before, before_min, after, after_min }
        };
        EdgeReport {
            edge,
            packets_in,
            packets_out,
            cardinality,
            cardinality_error,
            entropy,
            hh_decode,
            hh_load_factor,
            heavy_hitters: heavy_hitters.into_iter().map(hitter).collect(),
            heavy_hitters_complete: hh_decode == DecodeState::Complete,
            heavy_changes_since,
            heavy_changes: heavy_changes.into_iter().map(change).collect(),
            heavy_changes_complete: heavy_changes_since.is_some(),
            size_distribution,
        }
    }
}

prop_compose! {
    fn amendment()(
        (epoch, flow) in (0u64..1 << 40, flow()),
        (lost, more) in (0u64..1 << 40, 0u64..1 << 40),
        is_known in any::<bool>(),
        why in "[a-z ]{1,20}",
    ) -> Amendment {
        let (late, at_most_late) = if is_known { (Some(more), None) } else { (None, Some(more)) };
        Amendment { epoch, flow, was: lost + more, lost, late, at_most_late, why }
    }
}

prop_compose! {
    fn plan()(
        effective_epoch in any::<u64>(),
        (state, config, applied) in (state(), config(), any::<bool>()),
        reasons in vec("[a-z ]{1,20}", 0..3),
    ) -> PlanReport {
        PlanReport { effective_epoch, state, config, applied, reasons }
    }
}

prop_compose! {
    /// Any report; its epoch is to be set by who needs an order.
    pub(crate) fn report()(
        (complete, state, config) in (any::<bool>(), state(), config()),
        missing_edges in vec("[a-z]{1,4}", 0..3),
        incomplete_because in vec("[a-z ]{1,20}", 0..3),
        (hl, ll) in (decode(), decode()),
        (hl_load_factor, ll_load_factor) in (of(0.0..2.0), of(0.0..2.0)),
        loss in vec((flow(), 1u64..1 << 40, any::<bool>(), any::<bool>()), 0..6),
        surplus in vec((flow(), 1u64..1 << 40, any::<bool>()), 0..3),
        rewritten in vec((flow(), of(flow()), 1u64..1 << 40), 0..3),
        amendments in vec(amendment(), 0..3),
        plan in of(plan()),
        timing in of((0.0..100.0, 0.0..100.0, 0.0..100.0, 0.0..100.0)),
        edges in vec(edge(), 0..4),
    ) -> EpochReport {
        let lost = |(flow, lost, heavy, partial)| {
            let class = if heavy { LossClass::Heavy } else { LossClass::Light };
            Loss { flow, lost, class, partial, at_least: partial }
        };
        let timing = timing.map(|(ingress_ms, egress_ms, planned_ms, published_ms)| {
            Timing { ingress_ms, egress_ms, planned_ms, published_ms }
        });
        EpochReport {
            epoch: 0,
            start_unix_ns: 0,
            length_ms: 50,
            complete,
            missing_edges,
            incomplete_because,
            state,
            config,
            decode: DecodeReport { hl, ll, hl_load_factor, ll_load_factor },
            loss: loss.into_iter().map(lost).collect(),
            surplus: surplus
                .into_iter()
                .map(|(flow, packets, partial)| Surplus { flow, packets, partial, stranger: !partial })
                .collect(),
            rewritten: rewritten
                .into_iter()
                .map(|(from, to, packets)| {
                    Rewritten { from, to, packets, what: Change::Address }
                })
                .collect(),
            indistinct: vec![],
            strays: vec![],
            causes: vec![],
            amendments,
            amended: vec![],
            plan,
            timing,
            losses_only: false,
            edges,
        }
    }
}

/// A report on an epoch in which nothing passed.
pub(crate) fn quiet() -> EpochReport {
    EpochReport {
        epoch: 0,
        start_unix_ns: 0,
        length_ms: 50,
        complete: true,
        missing_edges: vec![],
        incomplete_because: vec![],
        state: NetworkState::Healthy,
        config: EpochConfig {
            t_h: 1,
            t_l: 1,
            sample_rate: 1.0,
            hh_buckets: 3584,
            hl_buckets: 512,
            ll_buckets: 0,
        },
        decode: DecodeReport {
            hl: DecodeState::Complete,
            ll: DecodeState::Absent,
            hl_load_factor: Some(0.0),
            ll_load_factor: None,
        },
        loss: vec![],
        surplus: vec![],
        rewritten: vec![],
        indistinct: vec![],
        strays: vec![],
        causes: vec![],
        amendments: vec![],
        amended: vec![],
        plan: None,
        timing: None,
        losses_only: false,
        edges: vec![],
    }
}

/// The first epoch of [`reports`].
pub(crate) const FIRST: u64 = 35_397_216_000;

/// Reports on epochs in a row.
pub(crate) fn reports(most: usize) -> impl Strategy<Value = Vec<EpochReport>> {
    vec(report(), 1..most).prop_map(|mut reports| {
        for (epoch, report) in (FIRST..).zip(&mut reports) {
            report.epoch = epoch;
            report.start_unix_ns = epoch * 50_000_000;
        }
        reports
    })
}
