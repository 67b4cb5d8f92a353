//! What a reader of frames may rely on, whatever comes over the wire.

mod samples;

use calumma_chamelemon::frames::{
    Defects, Egress, EgressSide, FrameReader, Ingress, Late, Message, Upstream, check_layout,
    decode_late,
};
use calumma_chamelemon::{Attention, Balance, Hierarchy, IngressGroup, Layout};
use calumma_plane::{MOST_STRAYS, Stray, Strays};
use calumma_sketch::fermat::Lanes;
use calumma_sketch::{AnyKey, FermatSketch, FlowKey, HashFamily, KeyKind, TowerSketch};
use calumma_wire::{HEADER_BYTES, Marking, Outcome, Problem, SwitchKind, VERSION};
use proptest::prelude::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// Messages of every kind, with all that version 2 of the bodies adds.
fn all_messages() -> Vec<(&'static str, Message)> {
    [samples::messages(), samples::recorded_messages()].concat()
}

#[test]
fn a_stream_cut_anywhere_gives_the_same_messages() {
    let layout = samples::layout();
    let messages: Vec<_> = all_messages().into_iter().map(|(_, message)| message).collect();
    let stream: Vec<u8> = messages.iter().flat_map(encoded).collect();
    for piece in [1, 2, 3, 7, 8, 64, 1000, stream.len()] {
        let mut reader = FrameReader::new();
        let mut read = Vec::new();
        for bytes in stream.chunks(piece) {
            reader.push(bytes);
            while let Some(message) = reader.next(Some(&layout)).unwrap() {
                read.push(message);
            }
        }
        assert_eq!(read, messages, "in pieces of {piece} bytes");
    }
}

#[test]
fn sketches_are_refused_before_the_layout_is_agreed_on() {
    for (name, message) in all_messages() {
        let read = Message::decode(&encoded(&message), None);
        let needs_keys = match &message {
            Message::Ingress(_) | Message::Egress(_) => true,
            Message::Sealed { late, .. } => !late.is_empty(),
            _ => false,
        };
        assert_eq!(read.is_err(), needs_keys, "{name}");
    }
}

#[test]
fn a_frame_cut_at_any_byte_names_the_field_that_is_cut() {
    let layout = samples::layout();
    for (name, message) in samples::messages() {
        let bytes = encoded(&message);
        for end in HEADER_BYTES..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            let length = (end - 4) as u32;
            cut[..4].copy_from_slice(&length.to_le_bytes());
            let error = Message::decode(&cut, Some(&layout)).unwrap_err();
            assert!(matches!(error.problem, Problem::Short { .. }), "{name} at {end}: {error}");
            assert!(error.offset <= end, "{name} at {end}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        longer[..4].copy_from_slice(&((bytes.len() - 3) as u32).to_le_bytes());
        let error = Message::decode(&longer, Some(&layout)).unwrap_err();
        // A seal without a body, and a byte more, is one whose body is cut.
        let is_cut = matches!(message, Message::Sealed { .. })
            && matches!(error.problem, Problem::Short { .. });
        assert!(is_cut || error.problem == Problem::LeftOver(1), "{name}: {error}");
    }
}

#[test]
fn a_bucket_that_is_no_sum_is_named_by_its_place() {
    let layout = samples::layout();
    let (ingress, _) = samples::groups(9);
    let mut upstream = FermatSketch::new(layout.upstream_shape());
    let key = FlowKey::from_words(0x7BCD_1234, 0x0A02_0001, 443, 6);
    upstream.insert(&HashFamily::new(&samples::hash_key()), &key, 1);
    let first = upstream.buckets().iter().position(|bucket| !bucket.is_zero()).unwrap();
    let side =
        Ingress { upstream: Upstream::undecoded(upstream), ..samples::with_hh_flows(&ingress, 9) };
    let mut bytes = encoded(&Message::Ingress(Box::new(side)));
    // The first fragment of the flow's three buckets: four columns, sent as they are.
    let columns = [0x34, 0x12, 0xCD, 0x7B].map(|byte| [1, byte, byte, byte]).concat();
    let start = bytes.windows(16).position(|window| window == columns).unwrap();
    bytes[start..start + 16].copy_from_slice(&[1, 0xFF, 0xFF, 0xFF].repeat(4));
    let error = Message::decode(&bytes, Some(&layout)).unwrap_err();
    let bitmap = 1 + (3 * layout.upstream_buckets as usize).div_ceil(8);
    // In the body, which follows the envelope's fields: no counter is sent.
    assert_eq!(error.offset, start - bitmap - HEADER_BYTES - 28);
    let message = error.to_string();
    assert!(message.contains(&format!("upstream encoder: bucket {first} holds a sum")), "{error}");
}

/// A switch that is told `keys = "dual"` and one that is not don't take each other's sketches for
/// their own.
#[test]
fn sketches_of_the_other_kind_of_key_are_refused() {
    let kinds = [
        ([samples::dual_messages(), samples::dual_recorded_messages()].concat(), samples::layout()),
        (samples::messages(), samples::dual_layout()),
    ];
    for (messages, other) in kinds {
        for (name, message) in messages {
            let sketches = matches!(message, Message::Ingress(_) | Message::Egress(_));
            let read = Message::decode(&encoded(&message), Some(&other));
            assert_eq!(read.is_err(), sketches, "{name}");
        }
    }
}

#[test]
fn an_attention_that_does_not_fit_the_layout_is_refused() {
    let message = samples::messages().into_iter().find_map(|(_, message)| match message {
        Message::Ingress(side) => Some(side),
        _ => None,
    });
    let mut side = *message.unwrap();
    side.attention.partition.hl += 1;
    let bytes = encoded(&Message::Ingress(Box::new(side)));
    let error = Message::decode(&bytes, Some(&samples::layout())).unwrap_err();
    assert!(error.to_string().contains("hh + hl + ll = 13"), "{error}");
}

/// The HH flowset of a side that has one.
fn hh_flows(side: &mut Ingress) -> &mut Vec<(FlowKey, i64)> {
    side.upstream.get_mut().unwrap().hh_flows.as_mut().unwrap()
}

/// 25,000 flows at one of four edges of the paper's sizes, as many of them heavy-hitter candidates
/// as fill the HH encoder to `load`; keys without any structure.
fn busy_side(load: f64) -> Ingress {
    let layout = Layout::default();
    let attention = Attention { t_h: 2, ..Attention::healthy(&layout, 512) };
    let family = HashFamily::new(&samples::hash_key());
    let mut group = IngressGroup::new(&layout, attention, 1).unwrap();
    let candidates = (load * 3.0 * 3584.0) as u32;
    for flow in 0..25_000_u32 {
        let word = |salt: u32| (flow ^ salt).wrapping_mul(0x9E37_79B9).rotate_left(15) ^ salt;
        let key = FlowKey::from_words(word(1), word(0x55AA), word(0x1234_5678), 6);
        let hashes = family.hash(&key);
        // Those that share counters with others become candidates by themselves.
        let packets = if flow < candidates / 2 { 3 + flow % 40 } else { 1 };
        (0..packets).for_each(|_| {
            group.record(&key, &hashes);
        });
    }
    let mut side = samples::with_hh_flows(&group, 1);
    assert!(hh_flows(&mut side).len() > candidates as usize / 2);
    side
}

#[test]
fn packed_sketches_come_out_as_they_went_in_and_damage_to_them_is_refused() {
    let layout = Layout::default();
    let side = busy_side(0.5);
    let message = Message::Ingress(Box::new(side));
    let bytes = encoded(&message);
    let raw = 32_768 + 2 * 16_384 + 3 * 4096 * 20;
    assert!(bytes.len() * 2 < raw, "{} of {raw} bytes", bytes.len());
    assert_eq!(Message::decode(&bytes, Some(&layout)), Ok(Some(message.clone())));
    for at in (100..bytes.len()).step_by(997) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x5A;
        if let Err(error) = Message::decode(&damaged, Some(&layout)) {
            assert!(error.offset <= bytes.len() && error.to_string().starts_with("byte "));
        }
    }
}

#[test]
fn flows_that_no_encoder_holds_are_refused() {
    let (ingress, _) = samples::groups(9);
    let side = samples::with_hh_flows(&ingress, 9);
    let refused = |change: fn(&mut Vec<(FlowKey, i64)>)| {
        let mut side = side.clone();
        change(hh_flows(&mut side));
        let bytes = encoded(&Message::Ingress(Box::new(side)));
        Message::decode(&bytes, Some(&samples::layout())).unwrap_err().to_string()
    };
    assert!(refused(|flows| flows.push(flows[0])).contains("flow 1 is not beyond the one before"));
    assert!(refused(|flows| flows[0].1 = -1).contains("flow 0 has 4294967295 packets"));
    let many = refused(|flows| flows.extend((0..13).map(|n| (FlowKey::from_words(n, 0, 0, 6), 1))));
    assert!(many.contains("at most 12 come out of the HH encoder"), "{many}");
}

#[test]
fn an_idle_switch_sends_next_to_nothing() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    let group = IngressGroup::<FlowKey>::new(&layout, attention, 1).unwrap();
    let side = samples::with_hh_flows(&group, 1);
    assert!(encoded(&Message::Ingress(Box::new(side))).len() < 128);
}

#[test]
fn a_layout_whose_sketches_fit_no_frame_is_refused() {
    assert_eq!(check_layout(&Layout::default()), Ok(()));
    let huge = Layout { upstream_buckets: 1 << 28, ..Layout::default() };
    assert!(check_layout(&huge).unwrap_err().contains("lower upstream_buckets"));
}

#[test]
fn a_quiet_epoch_of_the_papers_sizes_takes_a_small_part_of_its_memory() {
    let layout = Layout::default();
    let family = HashFamily::new(&samples::hash_key());
    let mut classifier = TowerSketch::new(&layout.classifier).unwrap();
    let mut upstream = FermatSketch::new(layout.upstream_shape());
    for flow in 0..500 {
        let key = FlowKey::from_words(0x0A01_0002, 0x0A02_0002, flow << 16 | 80, 6);
        upstream.insert(&family, &key, 10);
        (0..10).for_each(|_| {
            classifier.insert(&family.hash(&key));
        });
    }
    let raw = classifier.bytes() + layout.upstream_shape().total_buckets() * 20;
    let message = Message::Ingress(Box::new(Ingress {
        epoch: 1,
        attention: Attention::healthy(&layout, 512),
        defects: Defects::default(),
        packets_in: 5000,
        counters: Vec::new(),
        classifier,
        upstream: Upstream::undecoded(upstream),
        balance: None,
        key: None,
        lcores: None,
    }));
    let bytes = encoded(&message);
    assert!(bytes.len() * 6 < raw, "{} of {raw} bytes", bytes.len());
    assert_eq!(Message::decode(&bytes, Some(&layout)), Ok(Some(message)));
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        any::<u64>().prop_map(|earliest| Outcome::TooLate { earliest }),
        "\\PC{0,200}".prop_map(|reason| Outcome::Invalid { reason }),
    ]
}

fn defects() -> impl Strategy<Value = Defects> {
    any::<(u64, u64, bool)>().prop_map(|(foreign_packets, stall_ns, mixed_attention)| Defects {
        foreign_packets,
        stall_ns,
        mixed_attention,
    })
}

fn side() -> impl Strategy<Value = Message> {
    let flows = prop::collection::vec((any::<[u8; 13]>(), 1i32..1000), 0..30);
    let counters = prop::collection::vec(("[a-z.]{1,30}", any::<u64>()), 0..20);
    let hh_flows = prop::option::of(prop::collection::btree_map(
        any::<[u8; 13]>().prop_map(FlowKey::from_bytes),
        1i64..1 << 31,
        0..12,
    ));
    (any::<u64>(), defects(), any::<u64>(), counters, flows, hh_flows).prop_map(
        |(epoch, defects, packets_in, counters, flows, hh_flows)| {
            let hh_flows: Option<Vec<_>> = hh_flows.map(|flows| flows.into_iter().collect());
            let layout = samples::layout();
            let family = HashFamily::new(&samples::hash_key());
            let mut classifier = TowerSketch::new(&layout.classifier).unwrap();
            let mut upstream = FermatSketch::new(layout.upstream_shape());
            // Flows of the HH encoder are sent in place of its buckets.
            let parts = samples::attention().partition;
            let part = if hh_flows.is_some() { parts.hl_part() } else { upstream.whole() };
            for (key, packets) in flows {
                let key = FlowKey::from_bytes(key);
                upstream.insert_into(&part, &key, &family.hash(&key), packets);
                classifier.insert(&family.hash(&key));
            }
            let attention = samples::attention();
            Message::Ingress(Box::new(Ingress {
                epoch,
                attention,
                defects,
                packets_in,
                counters,
                classifier,
                upstream: AnyKey::Ipv4(Upstream { encoder: upstream, hh_flows }),
                balance: None,
                key: None,
                lcores: None,
            }))
        },
    )
}

/// A number of packets that an edge can have seen.
fn number() -> impl Strategy<Value = u64> {
    0u64..=1 << 48
}

/// Numbers that no edge can have seen would wrap where those of all edges are added up, and hide
/// losses.
#[test]
fn more_packets_than_there_can_be_are_refused() {
    let most = 1 << 48;
    let (ingress, egress) = samples::groups(9);
    let ingress = samples::with_hh_flows(&ingress, 9);
    let egress = EgressSide::of_group(9, &egress, 8, Defects::default()).to_egress();
    let beyond = |beyond| Strays::<FlowKey> { entries: Vec::new(), beyond };
    let cases = |packets: u64| {
        let balance = Some(Balance::new([0, packets, 0, 0]));
        [
            Message::Ingress(Box::new(Ingress { balance, ..ingress.clone() })),
            Message::Egress(Box::new(Egress { balance, ..egress.clone() })),
            Message::Egress(Box::new(Egress {
                strays: Some(AnyKey::Ipv4(beyond(packets))),
                ..egress.clone()
            })),
            Message::Sealed {
                epoch: 9,
                late_packets: 0,
                late: Late { unencoded: packets, strays: beyond(0) }.encode(),
            },
        ]
    };
    for (right, wrong) in cases(most).into_iter().zip(cases(most + 1)) {
        assert_eq!(Message::decode(&encoded(&right), Some(&samples::layout())), Ok(Some(right)));
        let problem = Message::decode(&encoded(&wrong), Some(&samples::layout())).unwrap_err();
        assert!(problem.to_string().contains("281474976710657 packets"), "{problem}");
    }
}

/// Packets by flow, as a table gives them.
fn strays() -> impl Strategy<Value = Strays<FlowKey>> {
    let place = (any::<[u8; 13]>(), 0u8..4, any::<u8>());
    let flows = prop::collection::btree_map(place, 1u32.., 0..40);
    (flows, number()).prop_map(|(flows, beyond)| {
        let stray = |((key, hierarchy, epochs_back), packets)| Stray {
            key: FlowKey::from_bytes(key),
            hierarchy: Hierarchy::from_bits(hierarchy),
            epochs_back,
            packets,
        };
        Strays { entries: flows.into_iter().map(stray).collect(), beyond }
    })
}

/// What version 2 of the bodies adds to sides and seals.
fn recorded() -> impl Strategy<Value = Message> {
    let balance = || prop::option::of(prop::array::uniform4(number()).prop_map(Balance::new));
    let listed = || prop::option::of(strays().prop_map(AnyKey::Ipv4));
    prop_oneof![
        (side(), balance(), any::<Option<u32>>()).prop_map(|(side, balance, lcores)| match side {
            Message::Ingress(side) => {
                Message::Ingress(Box::new(Ingress { balance, lcores, ..*side }))
            }
            other => other,
        }),
        (any::<u64>(), defects(), balance(), listed(), listed()).prop_map(
            |(packets_out, defects, balance, strays, unmarked)| {
                let (_, egress) = samples::groups(9);
                Message::Egress(Box::new(Egress {
                    epoch: 9,
                    attention: samples::attention(),
                    defects,
                    packets_out,
                    counters: Vec::new(),
                    downstream: egress.downstream().clone().into(),
                    balance,
                    strays,
                    unmarked,
                    key: packets_out.is_multiple_of(2).then_some(packets_out),
                }))
            }
        ),
        (any::<u64>(), number(), strays()).prop_map(|(late_packets, unencoded, strays)| {
            let late = Late { unencoded, strays }.encode();
            Message::Sealed { epoch: 9, late_packets, late }
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        ("\\PC{0,16}", any::<bool>(), "\\PC{0,200}").prop_map(|(edge, tofino, program)| {
            let kind = if tofino { SwitchKind::Tofino } else { SwitchKind::Software };
            let marking =
                Marking { carrier: edge.clone(), tunnels: edge.clone(), ..Marking::default() };
            Message::Hello { edge, kind, program, holding: None, marking }
        }),
        any::<[u64; 3]>().prop_map(|[sent_ns, received_ns, answered_ns]| Message::Echo {
            sent_ns,
            received_ns,
            answered_ns,
        }),
        (any::<u64>(), outcome())
            .prop_map(|(effective_epoch, outcome)| Message::Applied { effective_epoch, outcome }),
        any::<(u64, u64)>().prop_map(|(epoch, late_packets)| Message::Sealed {
            epoch,
            late_packets,
            late: Vec::new(),
        }),
        "\\PC{0,200}".prop_map(|reason| Message::Refused { reason }),
        side(),
    ]
}

proptest! {
    #[test]
    fn what_is_recorded_beside_sketches_comes_out_as_it_went_in(message in recorded()) {
        let read = Message::decode(&encoded(&message), Some(&samples::layout()));
        prop_assert_eq!(read, Ok(Some(message)));
    }

    /// Merged tables may have more flows than a frame has room for: no packet of theirs is
    /// forgotten.
    #[test]
    fn strays_beyond_what_a_frame_holds_are_counted(flows in 4000u32..4200, packets in 1u32..9) {
        let entry = |n| Stray {
            key: FlowKey::from_words(n, 1, 2, 17),
            hierarchy: Hierarchy::SampledLl,
            epochs_back: 0,
            packets,
        };
        let strays = Strays { entries: (0..flows).map(entry).collect(), beyond: 3 };
        let bytes = Late { unencoded: 0, strays: strays.clone() }.encode();
        let read = decode_late(KeyKind::Ipv4, &bytes).unwrap().unwrap();
        let read: &Late<FlowKey> = read.get().unwrap();
        prop_assert_eq!(read.strays.entries.len(), MOST_STRAYS.min(flows as usize));
        prop_assert_eq!(read.strays.packets(), strays.packets());
    }

    #[test]
    fn every_message_comes_out_as_it_went_in(message in message()) {
        let read = Message::decode(&encoded(&message), Some(&samples::layout()));
        prop_assert_eq!(read, Ok(Some(message.clone())));
        let mut older = Vec::new();
        prop_assert!(message.to_wire().encode_as(5, &mut older));
        let read = Message::decode(&older, Some(&samples::layout()));
        prop_assert_eq!(read, Ok(Some(message)));
    }

    #[test]
    fn arbitrary_bytes_give_one_error_that_names_place_and_reason(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Err(error) = Message::decode(&bytes, Some(&samples::layout())) {
            prop_assert!(error.offset <= bytes.len());
            prop_assert!(error.to_string().starts_with("byte "));
        }
        let mut reader = FrameReader::new();
        reader.push(&bytes);
        while let Ok(Some(_)) = reader.next(None) {}
    }

    #[test]
    fn arbitrary_bodies_of_every_kind_never_panic(
        kind in prop::sample::select(vec![1u8, 2, 3, 4, 5, 6, 0x81, 0x82, 0x83, 0x84, 0x85]),
        version in prop::sample::select(vec![5u8, VERSION]),
        body in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = ((body.len() + 4) as u32).to_le_bytes().to_vec();
        bytes.extend([0x1A, 0xCA, version, kind]);
        bytes.extend(body);
        if let Err(error) = Message::decode(&bytes, Some(&samples::layout())) {
            prop_assert!(error.offset <= bytes.len());
        }
    }

    #[test]
    fn a_damaged_frame_is_read_or_refused_but_never_panics(
        which in 0..all_messages().len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encoded(&all_messages()[which].1);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(Some(message)) = Message::decode(&bytes, Some(&samples::layout())) {
            // What could be read says the same when written and read again.
            let again = Message::decode(&encoded(&message), Some(&samples::layout()));
            prop_assert_eq!(again, Ok(Some(message)));
        }
    }
}
