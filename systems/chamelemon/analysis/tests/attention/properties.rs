//! What holds for every plan, whatever was observed.

use std::cell::{Cell, LazyCell};

use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_chamelemon_analysis::attention::{
    Bounds, Candidates, EdgeObservation, Encoder, Observation, Planner, Victim, Victims,
};
use calumma_chamelemon_analysis::report::{DecodeState, NetworkState};
use proptest::prelude::*;

/// What an observation is made of.
#[derive(Clone, Debug)]
struct Observed {
    edges: Vec<(Encoder, Vec<(u64, f64)>)>,
    all_edges: bool,
    hl: Encoder,
    ll: Encoder,
    light_only: f64,
    lost_packets: Option<u64>,
    victims: Vec<Victim>,
}

impl Observed {
    fn under(&self, attention: Attention) -> Observation<'_> {
        let edge = |(hh, sizes): &(Encoder, Vec<(u64, f64)>)| {
            let sizes = sizes.clone();
            EdgeObservation {
                name: "e1",
                hh: *hh,
                packets: sizes.iter().map(|&(size, flows)| size * flows as u64).sum(),
                flows: {
                    let flows = sizes.iter().map(|&(_, flows)| flows).sum();
                    LazyCell::new(Box::new(move || flows))
                },
                candidates: LazyCell::new(Box::new(move || Candidates::from_sizes(sizes))),
            }
        };
        Observation {
            attention,
            edges: self.edges.iter().map(edge).collect(),
            all_edges: self.all_edges,
            hl: self.hl,
            ll: self.ll,
            light_only: self.light_only,
            lost_packets: self.lost_packets,
            victims: LazyCell::new(Box::new(|| Victims(self.victims.clone()))),
        }
    }
}

fn encoder() -> impl Strategy<Value = Encoder> {
    use DecodeState::{Absent, Blocked, Complete, Partial, Skipped};
    let state = prop::sample::select(vec![Complete, Partial, Blocked, Skipped, Absent]);
    (state, 0.0..4.0_f64).prop_map(|(state, load)| Encoder {
        state,
        load_factor: matches!(state, Complete | Partial).then_some(load),
    })
}

fn observed() -> impl Strategy<Value = Observed> {
    let sizes = prop::collection::vec((1u64..100_000, 0.0..5000.0_f64), 0..20).prop_map(|mut v| {
        v.sort_by_key(|&(size, _)| size);
        v.dedup_by_key(|&mut (size, _)| size);
        v
    });
    let victim = (1u32..5000, 1u32..100, 0.0..50.0_f64).prop_map(|(size, lost, flows)| Victim {
        size: size.max(lost),
        lost,
        flows,
    });
    (
        prop::collection::vec((encoder(), sizes), 0..4),
        any::<bool>(),
        encoder(),
        encoder(),
        0.0..5000.0_f64,
        prop::option::of(prop_oneof![Just(0u64), 0u64..1 << 40]),
        prop::collection::vec(victim, 0..60),
    )
        .prop_map(|(edges, all_edges, hl, ll, light_only, lost_packets, victims)| Observed {
            edges,
            all_edges,
            hl,
            ll,
            light_only,
            lost_packets,
            victims,
        })
}

/// Switches of any size, and bounds that fit them.
fn deployment() -> impl Strategy<Value = (Layout, Bounds)> {
    (2u32..=5, 2u32..6000)
        .prop_flat_map(|(arrays, upstream)| {
            (Just(arrays), Just(upstream), 1..=upstream, 1..upstream, 1..200u32, 0u32..40)
        })
        .prop_flat_map(|(arrays, upstream, downstream, min_hh, min_ll, t_h)| {
            let layout = Layout {
                arrays,
                upstream_buckets: upstream,
                downstream_buckets: downstream,
                ..Layout::default()
            };
            let fixed_t_h = (1..20).contains(&t_h).then_some(t_h);
            (Just(layout), 1..=downstream.min(upstream - min_hh)).prop_map(
                move |(layout, min_hl)| (layout, Bounds { min_hh, min_hl, min_ll, fixed_t_h }),
            )
        })
}

/// Any attention that is valid on switches of this size.
fn attention(layout: &Layout) -> impl Strategy<Value = Attention> + use<> {
    let upstream = layout.upstream_buckets;
    let losses = layout.downstream_buckets.min(upstream - 1);
    (1..=losses, 0.0..1.0_f64, 1u32..70_000, 1u32..70_000, 1u32..=65_536).prop_map(
        move |(losses, light, one, other, rate)| {
            let ll = (f64::from(losses) * light) as u32;
            let hl = losses - ll.min(losses - 1);
            let ll = losses - hl;
            let t_l = if ll == 0 { 1 } else { one.min(other) };
            Attention {
                t_h: one.max(other),
                t_l,
                sample_rate: SampleRate::from_threshold(rate).unwrap(),
                partition: Partition { hh: upstream - hl - ll, hl, ll },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_observed_plans_are_valid_and_keep_within_the_bounds(
        (layout, bounds, steps) in deployment().prop_flat_map(|(layout, bounds)| {
            let step = (observed(), attention(&layout), attention(&layout));
            (Just(layout), Just(bounds), prop::collection::vec(step, 1..6))
        })
    ) {
        let mut planner = Planner::new(layout.clone(), bounds).unwrap();
        for (observed, measured, standing) in steps {
            let plan = planner.next(&observed.under(measured), &standing);
            prop_assert_eq!(plan.attention.validate(&layout), Ok(()), "{:?}", plan);
            let Partition { hh, hl, ll } = plan.attention.partition;
            prop_assert!(hh >= bounds.min_hh && hl >= bounds.min_hl, "{:?}", plan);
            prop_assert!(ll == 0 || ll >= bounds.min_ll, "{:?}", plan);
            prop_assert!(bounds.fixed_t_h.is_none_or(|t_h| t_h == plan.attention.t_h), "{:?}", plan);
            prop_assert_eq!(plan.reasons.is_empty(), plan.attention == standing, "{:?}", plan);
        }
    }
}

/// 4,000 flows of each size up to five at one edge, 500 victims.
fn quiet() -> Observed {
    Observed {
        edges: vec![(Encoder::complete(0.3), (1..=5).map(|size| (size, 4000.0)).collect())],
        all_edges: true,
        hl: Encoder::complete(500.0 / 1536.0),
        ll: Encoder { state: DecodeState::Absent, load_factor: None },
        light_only: 0.0,
        lost_packets: Some(2000),
        victims: Vec::new(),
    }
}

#[test]
fn what_is_known_of_some_edges_lowers_no_threshold() {
    let layout = Layout::default();
    let standing = Attention { t_h: 9, ..Attention::healthy(&layout, 512) };
    let mut planner = Planner::new(layout.clone(), Bounds::of(&layout)).unwrap();
    let some = Observed { all_edges: false, ..quiet() };
    assert_eq!(planner.next(&some.under(standing), &standing).attention.t_h, 9);
    let plan = planner.next(&quiet().under(standing), &standing);
    assert_eq!(plan.attention.t_h, 5, "four thousand flows fit, eight thousand don't");
    assert!(plan.reasons[0].starts_with("T_h 9 -> 5: e1, the edge with most"), "{plan:?}");
}

#[test]
fn a_change_that_is_on_its_way_is_not_made_again() {
    let layout = Layout::default();
    let measured = Attention { t_h: 9, ..Attention::healthy(&layout, 512) };
    let mut planner = Planner::new(layout.clone(), Bounds::of(&layout)).unwrap();
    let first = planner.next(&quiet().under(measured), &measured);
    let again = planner.next(&quiet().under(measured), &first.attention);
    assert_eq!((again.attention, again.reasons.len()), (first.attention, 0));
}

#[test]
fn where_no_lower_threshold_fitted_none_is_asked_for_until_traffic_changes() {
    let layout = Layout::default();
    let standing = Attention { t_h: 5, ..Attention::healthy(&layout, 512) };
    let mut planner = Planner::new(layout.clone(), Bounds::of(&layout)).unwrap();
    let mut asked = |traffic: &Observed| {
        let asked = Cell::new(false);
        let mut observation = traffic.under(standing);
        let (_, sizes) = traffic.edges[0].clone();
        observation.edges[0].candidates = LazyCell::new(Box::new(|| {
            asked.set(true);
            Candidates::from_sizes(sizes)
        }));
        let plan = planner.next(&observation, &standing);
        drop(observation);
        (asked.get(), plan.attention.t_h)
    };
    assert_eq!(asked(&quiet()), (true, 5), "eight thousand flows don't fit");
    assert_eq!(asked(&quiet()), (false, 5));
    let mut fewer = quiet();
    fewer.edges[0].1[3] = (4, 2000.0);
    assert_eq!(asked(&fewer), (true, 4), "six thousand do");
}

#[test]
fn an_ill_network_is_not_healthy_by_a_lucky_sample() {
    let layout = Layout::default();
    let standing = Attention {
        t_h: 33,
        t_l: 14,
        sample_rate: SampleRate::new(0.135).unwrap(),
        partition: Partition { hh: 1024, hl: 2560, ll: 512 },
    };
    // 5,400 heavy losses, and of the light ones those that were sampled. 7,249 would be few enough.
    let state = |sampled: f64| {
        let observed = Observed {
            hl: Encoder::complete(5400.0 / 7680.0),
            ll: Encoder::complete(sampled / 1536.0),
            light_only: sampled,
            lost_packets: Some(40_000),
            ..quiet()
        };
        let mut planner = Planner::new(layout.clone(), Bounds::of(&layout)).unwrap();
        planner.next(&observed.under(standing), &standing).state
    };
    assert_eq!(state(240.0), NetworkState::Ill, "7,178 by the sample, but it may be 400 more");
    assert_eq!(state(200.0), NetworkState::Ill, "6,881, and once in thousands of epochs 400 more");
    assert_eq!(state(190.0), NetworkState::Healthy, "6,807, and hardly ever 400 more");
}

/// An HH encoder that did not decode, though it is as full as it is to be; losses are not known
/// then.
fn unlucky() -> Observed {
    let hh = Encoder { state: DecodeState::Partial, load_factor: Some(0.67) };
    let hl = Encoder { state: DecodeState::Blocked, load_factor: None };
    let quiet = quiet();
    Observed { edges: vec![(hh, quiet.edges[0].1.clone())], hl, lost_packets: None, ..quiet }
}

#[test]
fn flows_that_keep_sharing_all_their_buckets_are_spread_anew() {
    let layout = Layout::default();
    let ill = Partition { hh: 1024, hl: 2560, ll: 512 };
    for (standing, beside) in [
        (Attention::healthy(&layout, 512), Partition { hh: 3583, hl: 513, ll: 0 }),
        (Attention::healthy(&layout, 600), Partition { hh: 3497, hl: 599, ll: 0 }),
        (
            Attention { t_l: 2, partition: ill, ..Attention::healthy(&layout, 512) },
            Partition { hh: 1025, hl: 2559, ll: 512 },
        ),
    ] {
        let standing = Attention { t_h: 9, ..standing };
        let mut planner = Planner::new(layout.clone(), Bounds::of(&layout)).unwrap();
        let mut next = |observed: &Observed, standing: Attention| {
            planner.next(&observed.under(standing), &standing).attention
        };
        assert_eq!(next(&unlucky(), standing), standing, "it may be chance");
        let spread = next(&unlucky(), standing);
        assert_eq!(spread, Attention { partition: beside, ..standing }, "it is not");
        let decoded = Observed { lost_packets: None, ..quiet() };
        let decoded = Observed { edges: vec![(Encoder::complete(0.67), Vec::new())], ..decoded };
        let decoded = Observed { hl: unlucky().hl, ..decoded };
        assert_eq!(next(&decoded, spread), spread, "and that is left alone");
    }
}
