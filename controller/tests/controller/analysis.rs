//! From real groups to reports: what is said to be lost was lost, and what is not known is not
//! said.

use std::collections::BTreeMap;

use crate::world::{World, flow, hash_key};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_controller::report::{DecodeState, LossClass, NetworkState};
use calumma_controller::{Analyser, EdgeInput, EpochInput, EpochReport, Tasks};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{Arithmetic, FlowKey, Insertion, Level};
use proptest::prelude::*;

const EDGES: [&str; 3] = ["e1", "e2", "e3"];

fn analyser(layout: &Layout, tasks: Tasks) -> Analyser {
    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    Analyser::new(layout.clone(), &hash_key(), clock, tasks)
}

fn world(layout: &Layout, attention: Attention, epoch: u64) -> World {
    World::new(&EDGES, layout, &hash_key(), attention, epoch)
}

fn input(world: &World, attention: Attention) -> EpochInput {
    EpochInput { epoch: world.epoch, planned: attention, edges: world.inputs() }
}

fn lost(report: &EpochReport) -> BTreeMap<FlowKey, u64> {
    report.loss.iter().map(|loss| (loss.flow.key().unwrap(), loss.lost)).collect()
}

fn ill() -> Attention {
    Attention {
        t_h: 50,
        t_l: 5,
        sample_rate: SampleRate::ALL,
        partition: Partition { hh: 1024, hl: 2560, ll: 512 },
    }
}

#[test]
fn every_lost_packet_is_named_in_a_healthy_network_at_the_papers_sizes() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let mut world = world(&layout, attention, 7);
    for n in 0..2500 {
        let (from, to) = ((n % 3) as usize, ((n + 1) % 3) as usize);
        let packets = u64::from(1 + n * n % 700);
        world.send((from, to), flow(n), packets, |position| {
            n % 5 == 0 && (position + u64::from(n)).is_multiple_of(97)
        });
    }
    let mut analyser = analyser(&layout, Tasks::default());
    let report = analyser.analyse(input(&world, attention));

    assert!(report.complete && report.incomplete_because.is_empty());
    assert_eq!((report.epoch, report.start_unix_ns, report.length_ms), (7, 350_000_000, 50));
    assert_eq!(report.state, NetworkState::Healthy);
    assert_eq!((report.decode.hl, report.decode.ll), (DecodeState::Complete, DecodeState::Absent));
    assert_eq!(lost(&report), world.lost);
    assert!(report.loss.iter().all(|loss| loss.class == LossClass::Heavy && !loss.partial));
    assert!(report.surplus.is_empty());
    let load = world.lost.len() as f64 / (3.0 * 512.0);
    assert!((report.decode.hl_load_factor.unwrap() - load).abs() < 1e-9);

    // With T_h = 1 the HH encoder holds every packet: all sizes are exact.
    for (edge, sent) in report.edges.iter().zip(&world.sent) {
        assert_eq!(edge.hh_decode, DecodeState::Complete);
        assert_eq!(edge.packets_in, Some(sent.values().sum()));
        assert_eq!(edge.cardinality, Some(sent.len() as f64));
        assert_eq!(edge.cardinality_error, Some(0.0));
        let hitters: BTreeMap<FlowKey, u64> =
            edge.heavy_hitters.iter().map(|hh| (hh.flow.key().unwrap(), hh.size)).collect();
        let mut truth = sent.clone();
        truth.retain(|_, packets| *packets > 500);
        assert_eq!(hitters, truth);
        assert!(edge.heavy_hitters.iter().all(|hitter| hitter.size_min.is_none()));
        let flows: f64 = edge.size_distribution.iter().map(|(_, flows)| flows).sum();
        assert_eq!(flows, sent.len() as f64);
    }
}

#[test]
fn light_losses_are_told_from_heavy_ones_and_sizes_stay_within_their_bounds() {
    let layout = Layout::default();
    let mut world = world(&layout, ill(), 8);
    for n in 0..1800 {
        let packets = if n % 10 == 0 { 120 } else { u64::from(n % 9 + 1) };
        world.send((0, 1), flow(n), packets, |position| {
            n % 3 == 0 && position == u64::from(n) % packets
        });
    }
    let mut analyser = analyser(&layout, Tasks { heavy_hitter: 100, heavy_change: 100 });
    let report = analyser.analyse(input(&world, ill()));
    assert_eq!(
        (report.decode.hl, report.decode.ll),
        (DecodeState::Complete, DecodeState::Complete)
    );
    assert_eq!(report.state, NetworkState::Ill);
    assert_eq!(lost(&report), world.lost);
    let light = report.loss.iter().filter(|loss| loss.class == LossClass::Light).count();
    assert!(light > 0 && light < report.loss.len(), "{light} of {}", report.loss.len());

    let edge = &report.edges[0];
    assert_eq!(edge.heavy_hitters.len(), 180);
    let sizes = &analyser.sizes()["e1"];
    for (key, &packets) in &world.sent[0] {
        let size = sizes.size_of(&key.into()).unwrap();
        assert!(size.size_min <= packets && packets <= size.size, "{key}: {size:?}, {packets}");
        if size.exact {
            assert_eq!(size.size, packets, "{key}");
        }
    }
}

/// An attention under which only heavy hitters have their packets in an encoder that decodes.
fn heavy_hitters_only() -> Attention {
    Attention { t_h: 60, t_l: 1, ..Attention::healthy(&Layout::default(), 512) }
}

#[test]
fn the_size_distribution_is_told_where_sizes_are_not_exact() {
    let counters = vec![Level::new(8, 4096), Level::new(16, 2048)];
    let layout = Layout { classifier: counters, ..Layout::default() };
    let mut world = world(&layout, heavy_hitters_only(), 5);
    let size = |n: u32| if n.is_multiple_of(8) { 60 + n % 83 } else { n % 5 + 1 };
    let packets: Vec<u32> =
        (0..6000).flat_map(|n| std::iter::repeat_n(n, size(n) as usize)).collect();
    // Spread over the epoch, as packets of many hosts are.
    for at in 0..packets.len() {
        world.send((0, 1), flow(packets[at * 7919 % packets.len()]), 1, |_| false);
    }
    let mut analyser = analyser(&layout, Tasks::default());
    let report = analyser.analyse(input(&world, heavy_hitters_only()));
    let edge = &report.edges[0];
    assert_eq!(edge.hh_decode, DecodeState::Complete);
    let flows: f64 = edge.size_distribution.iter().map(|size| size.1).sum();
    assert!((flows - 6000.0).abs() < 300.0, "{flows}");
    let packets: u64 = world.sent[0].values().sum();
    let entropy = -world.sent[0]
        .values()
        .map(|&size| size as f64 / packets as f64)
        .map(|p| p * p.log2())
        .sum::<f64>();
    let reported = edge.entropy.expect("the classifier is in range");
    assert!((reported - entropy).abs() < 0.02 * entropy, "{reported} instead of {entropy}");
}

#[test]
fn a_classifier_of_conservative_counters_tells_sizes_and_cardinality_but_no_distribution() {
    let layout = Layout { insertion: Insertion::Cu, ..Layout::default() };
    let mut world = world(&layout, heavy_hitters_only(), 5);
    (0..3000).for_each(|n| world.send((0, 1), flow(n), u64::from(n % 100) + 1, |_| false));
    let mut analyser = analyser(&layout, Tasks { heavy_hitter: 80, heavy_change: 80 });
    let report = analyser.analyse(input(&world, heavy_hitters_only()));
    let edge = &report.edges[0];
    // All of them, and few that share both counters with others.
    assert!((600..620).contains(&edge.heavy_hitters.len()), "{}", edge.heavy_hitters.len());
    let (flows, error) = (edge.cardinality.unwrap(), edge.cardinality_error.unwrap());
    assert!((flows - 3000.0).abs() < 4.0 * error, "{flows} +- {error}");
    assert_eq!(edge.entropy, None);
    assert!(edge.size_distribution.is_empty());
}

#[test]
fn a_classifier_out_of_its_range_tells_no_distribution() {
    let counters = vec![Level::new(8, 64), Level::new(16, 32)];
    let layout = Layout { classifier: counters, ..Layout::default() };
    let mut world = world(&layout, heavy_hitters_only(), 5);
    (0..3000).for_each(|n| world.send((0, 1), flow(n), 1, |_| false));
    let mut analyser = analyser(&layout, Tasks::default());
    let report = analyser.analyse(input(&world, heavy_hitters_only()));
    let edge = &report.edges[0];
    assert_eq!((edge.entropy, edge.cardinality_error), (None, None));
    assert!(edge.size_distribution.is_empty());
}

#[test]
fn a_missing_or_unsound_edge_makes_the_epoch_incomplete_and_no_loss_is_reported() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let mut world = world(&layout, attention, 9);
    world.send((0, 1), flow(1), 1000, |position| position < 10);
    type Spoil = fn(&mut EdgeInput);
    let cases: [(&str, Spoil); 9] = [
        ("e2: nothing came in time", |edge| *edge = EdgeInput::nothing("e2")),
        ("e2: no egress side came in time", |edge| edge.egress = None),
        ("e2: no ingress side and no seal came", |edge| {
            (edge.ingress, edge.late_packets) = (None, None);
        }),
        ("e2: 4 packets left the network after", |edge| edge.late_packets = Some(4)),
        ("e2: its clock is 3 ms ahead", |edge| {
            edge.clock = Some("its clock is 3 ms ahead".to_owned());
        }),
        ("e2: 5 packets carried a hierarchy", |edge| {
            edge.egress.as_mut().unwrap().defects.foreign_packets = 5;
        }),
        ("e2: its egress rotation came 14.2 ms late", |edge| {
            edge.egress.as_mut().unwrap().defects.stall_ns = 14_200_000;
        }),
        ("e2: its lcores measured the ingress side with different attention", |edge| {
            edge.ingress.as_mut().unwrap().defects.mixed_attention = true;
        }),
        ("e2: its egress side measured with t_h 2", |edge| {
            edge.egress.as_mut().unwrap().attention.t_h = 2;
        }),
    ];
    for (reason, spoil) in cases {
        let mut input = input(&world, attention);
        spoil(&mut input.edges[1]);
        let report = analyser(&layout, Tasks::default()).analyse(input);
        assert!(!report.complete, "{reason}");
        assert!(report.incomplete_because[0].starts_with(reason), "{report:?}");
        assert_eq!((report.loss.len(), report.surplus.len()), (0, 0), "{reason}");
        assert_eq!(report.decode.hl, DecodeState::Skipped);
        let missing = reason.contains("came in time") || reason.contains("no seal");
        assert_eq!(report.missing_edges, if missing { vec!["e2"] } else { vec![] }, "{reason}");
        // What the sound edge saw is reported all the same.
        assert_eq!(report.edges[0].heavy_hitters.len(), 1);
    }
}

#[test]
fn a_switch_that_is_late_with_an_epoch_spoils_the_next_one_with_its_timestamp_bit_too() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    type Spoil = fn(&mut EdgeInput);
    let cases: [(&str, Spoil); 7] = [
        ("e2: 4 packets with its timestamp bit left the network before", |edge| {
            edge.late_packets = Some(4);
        }),
        ("e2: its egress rotation out of epoch 10 came 44.1 ms late, when packets", |edge| {
            edge.egress.as_mut().unwrap().defects.stall_ns = 44_100_000;
        }),
        ("e2: its ingress rotation out of epoch 10 came 12.0 ms late, so that", |edge| {
            edge.ingress.as_mut().unwrap().defects.stall_ns = 12_000_000;
        }),
        ("e2: a side of epoch 10", |edge| edge.egress = None),
        ("e2: a side of epoch 10", |edge| edge.ingress = None),
        ("e2: the seal of epoch 10", |edge| edge.late_packets = None),
        // It had begun, so that its frames of this epoch were discarded.
        ("e2: nothing of epoch 10", |edge| *edge = EdgeInput::nothing("e2")),
    ];
    let complete = |spoiled: &[u64], spoil: Spoil, reason: Option<&str>| -> Vec<bool> {
        let mut analyser = analyser(&layout, Tasks::default());
        let report = |epoch| {
            let mut input = input(&world(&layout, attention, epoch), attention);
            if spoiled.contains(&epoch) {
                spoil(&mut input.edges[1]);
            }
            let report = analyser.analyse(input);
            if let Some(reason) = reason.filter(|_| epoch == 12) {
                assert!(report.incomplete_because[0].starts_with(reason), "{report:?}");
            }
            report.complete
        };
        (9..14).map(report).collect()
    };
    for (reason, spoil) in cases {
        let complete = complete(&[10], spoil, Some(reason));
        assert_eq!(complete, [true, false, true, false, true], "{reason}");
    }
    // An edge that had not begun leaves nothing.
    let absent = complete(&[9, 10], |edge| *edge = EdgeInput::nothing("e2"), None);
    assert_eq!(absent, [false, false, true, true, true]);
}

#[test]
fn an_hh_encoder_that_overflows_blocks_losses_instead_of_inventing_them() {
    let layout = Layout { upstream_buckets: 200, downstream_buckets: 150, ..Layout::default() };
    let attention = Attention::healthy(&layout, 100);
    let mut world = world(&layout, attention, 9);
    (0..2000).for_each(|n| world.send((0, 1), flow(n), 2, |_| false));
    let report = analyser(&layout, Tasks::default()).analyse(input(&world, attention));
    assert!(report.complete);
    assert_eq!(report.edges[0].hh_decode, DecodeState::Partial);
    assert_eq!(report.decode.hl, DecodeState::Blocked);
    assert!(report.loss.is_empty());
    let load = report.edges[0].hh_load_factor.unwrap();
    assert!(load > 1.5, "2000 flows on 300 buckets are beyond linear counting: at least {load}");
    let flows = report.edges[0].cardinality.unwrap();
    assert!((flows - 2000.0).abs() < 100.0, "linear counting still works: {flows}");
    assert!(report.edges[0].cardinality_error.unwrap() > 0.0);
}

#[test]
fn a_delta_encoder_that_overflows_marks_all_it_gives_as_partial() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 64);
    let mut world = world(&layout, attention, 9);
    (0..400).for_each(|n| world.send((0, 1), flow(n), 5, |position| position < 2));
    let report = analyser(&layout, Tasks::default()).analyse(input(&world, attention));
    assert_eq!(report.decode.hl, DecodeState::Partial);
    assert!(report.loss.iter().all(|loss| loss.partial));
    let load = report.decode.hl_load_factor.unwrap();
    assert!((load - 400.0 / 192.0).abs() < 0.6, "400 victims on 192 buckets, estimated {load}");
}

#[test]
fn duplicated_packets_are_a_surplus_and_never_a_loss() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let mut world = world(&layout, attention, 9);
    world.send((0, 1), flow(1), 10, |_| false);
    world.send((0, 1), flow(2), 10, |position| position == 3);
    world.duplicate(1, flow(1));
    let report = analyser(&layout, Tasks::default()).analyse(input(&world, attention));
    assert_eq!(lost(&report), world.lost);
    assert_eq!(report.surplus.len(), 1);
    assert_eq!(
        (report.surplus[0].flow.key::<FlowKey>().unwrap(), report.surplus[0].packets),
        (flow(1), 1)
    );
}

#[test]
fn heavy_changes_are_seen_between_neighbouring_epochs_only() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let mut analyser = analyser(&layout, Tasks { heavy_hitter: 500, heavy_change: 100 });
    let mut epoch = |number, sizes: [u64; 4]| {
        let mut world = world(&layout, attention, number);
        for (n, packets) in sizes.into_iter().enumerate() {
            world.send((0, 1), flow(n as u32), packets, |_| false);
        }
        analyser.analyse(input(&world, attention)).edges.remove(0)
    };
    assert_eq!(epoch(5, [10, 900, 300, 50]).heavy_changes_since, None);
    let edge = epoch(6, [900, 0, 400, 151]);
    assert_eq!(edge.heavy_changes_since, Some(5));
    let changes: Vec<_> = edge
        .heavy_changes
        .iter()
        .map(|change| (change.flow.key::<FlowKey>().unwrap(), change.before, change.after))
        .collect();
    assert_eq!(changes, [(flow(1), 900, 0), (flow(0), 10, 900), (flow(3), 50, 151)]);
    let edge = epoch(8, [0, 0, 0, 0]);
    assert_eq!((edge.heavy_changes_since, edge.heavy_changes.len()), (None, 0));
}

#[test]
fn a_controller_that_is_behind_names_losses_all_the_same_and_sees_changes_afterwards() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let mut analyser = analyser(&layout, Tasks { heavy_hitter: 0, heavy_change: 10 });
    let mut report = |epoch: u64, packets, losses_only| {
        let mut world = world(&layout, attention, epoch);
        world.send((0, 1), flow(1), packets, |position| position == 3);
        let decoded = analyser.decoder().decode(input(&world, attention));
        let report = if losses_only {
            analyser.report_losses_only(decoded)
        } else {
            analyser.report(decoded)
        };
        assert_eq!((report.complete, lost(&report)), (true, world.lost));
        assert_eq!((report.losses_only, report.edges[0].packets_in), (losses_only, Some(packets)));
        report
    };
    let brief = report(7, 20, true);
    assert!(brief.edges[0].heavy_hitters.is_empty() && brief.edges[0].cardinality.is_none());
    let whole = report(8, 90, false);
    let changes = &whole.edges[0].heavy_changes;
    assert_eq!((changes[0].before, changes[0].after), (20, 90));
}

#[test]
fn an_epoch_without_a_packet_is_complete_and_empty() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let world = world(&layout, attention, 9);
    let report = analyser(&layout, Tasks::default()).analyse(input(&world, attention));
    assert!(report.complete && report.loss.is_empty());
    for edge in &report.edges {
        assert_eq!((edge.packets_in, edge.packets_out), (Some(0), Some(0)));
        assert_eq!((edge.cardinality, edge.entropy), (Some(0.0), Some(0.0)));
        assert!(edge.size_distribution.is_empty());
    }
}

/// An attention on the small layout of the property below.
fn attentions() -> impl Strategy<Value = Attention> {
    (1u32..40, 1u32..10, 0u32..100).prop_map(|(t_h, t_l, ll)| {
        let ll = if t_l > 1 { ll + 80 } else { 0 };
        let partition = Partition { hh: 600 - 300 - ll, hl: 300, ll };
        Attention { t_h: t_h.max(t_l), t_l, sample_rate: SampleRate::ALL, partition }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the attention, the traffic and the losses: what decodes completely is the truth,
    /// and every size lies within its bounds.
    #[test]
    fn what_is_reported_as_certain_is_true(
        attention in attentions(),
        wrapping: bool,
        flows in prop::collection::vec((0u32..1000, 0usize..3, 1u64..80, 0u64..12), 0..120),
    ) {
        let layout = Layout {
            arithmetic: if wrapping { Arithmetic::Wrapping } else { Arithmetic::Prime },
            upstream_buckets: 600,
            downstream_buckets: 500,
            ..Layout::default()
        };
        let mut world = world(&layout, attention, 3);
        for (n, from, packets, every) in flows {
            world.send((from, (from + 1) % 3), flow(n), packets, |position| {
                every > 0 && position % every == every - 1
            });
        }
        let mut analyser = analyser(&layout, Tasks { heavy_hitter: 30, heavy_change: 30 });
        let report = analyser.analyse(input(&world, attention));
        prop_assert!(report.complete);
        let certain = report.decode.hl == DecodeState::Complete
            && report.decode.ll != DecodeState::Partial;
        if certain {
            // Flows that share a bucket in every array are a set; the others are exact beside it.
            let sets: i64 = report.indistinct.iter().map(|set| set.packets).sum();
            let named: i64 = report.loss.iter().map(|loss| loss.lost as i64).sum();
            let truth: u64 = world.lost.values().sum();
            prop_assert_eq!(named + sets, truth as i64);
            for loss in report.loss.iter().filter(|loss| !loss.at_least) {
                let key = loss.flow.key().unwrap();
                prop_assert_eq!(Some(&loss.lost), world.lost.get(&key), "{}", key);
            }
            if report.indistinct.is_empty() {
                prop_assert_eq!(lost(&report), world.lost.clone());
            }
            prop_assert!(report.surplus.is_empty());
        } else {
            prop_assert!(report.loss.iter().all(|loss| loss.partial));
        }
        for (name, sent) in EDGES.iter().zip(&world.sent) {
            let sizes = &analyser.sizes()[*name];
            for (key, &packets) in sent {
                let size = sizes.size_of(&key.into()).unwrap();
                prop_assert!(size.size_min <= packets, "{key} {size:?} {packets}");
                prop_assert!(!size.exact || size.size == packets, "{key} {size:?} {packets}");
                let complete = report.edges.iter().all(|e| e.hh_decode == DecodeState::Complete);
                prop_assert!(!complete || packets <= size.size, "{key} {size:?} {packets}");
            }
        }
    }
}
