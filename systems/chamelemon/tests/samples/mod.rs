//! One message of every kind, with small sketches that really recorded packets.

use calumma_chamelemon::frames::{
    Defects, Egress, Holding, Ingress, Late, Message, OLDEST_VERSION, Upstream,
};
use calumma_chamelemon::{
    Attention, Balance, EgressGroup, Hierarchy, IngressGroup, Layout, Partition, SampleRate,
};
use calumma_epoch::Guards;
use calumma_plane::{Stray, Strays};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key, KeyKind, Level, WideKey};
use calumma_wire::{Marking, Outcome, SwitchKind};

/// A layout small enough to look at in a hex dump.
pub(crate) fn layout() -> Layout {
    Layout {
        upstream_buckets: 12,
        downstream_buckets: 8,
        classifier: vec![Level::new(4, 30), Level::new(8, 20), Level::new(16, 10)],
        ..Layout::default()
    }
}

/// The same for IPv6 as well.
pub(crate) fn dual_layout() -> Layout {
    Layout { keys: KeyKind::Dual, ..layout() }
}

pub(crate) fn attention() -> Attention {
    Attention {
        t_h: 3,
        t_l: 2,
        sample_rate: SampleRate::new(0.5).unwrap(),
        partition: Partition { hh: 4, hl: 5, ll: 3 },
    }
}

/// One that both versions of the protocol can say.
pub(crate) fn hash_key() -> HashKey {
    HashKey::with_public_generators(std::array::from_fn(|at| at as u8))
}

/// The sketches of two edges between which the third packet of every flow is lost.
pub(crate) fn groups(epoch: u64) -> (IngressGroup, EgressGroup) {
    let key = |host| FlowKey::v4([10, 1, 0, host].into(), [10, 2, 0, 1].into(), 40_000, 443, 6);
    groups_of(&layout(), [key(1), key(2)], epoch)
}

/// The same of an IPv4 and an IPv6 flow.
pub(crate) fn dual_groups(epoch: u64) -> (IngressGroup<WideKey>, EgressGroup<WideKey>) {
    let four = WideKey::v4([10, 1, 0, 1].into(), [10, 2, 0, 1].into(), 40_000, 443, 6);
    let [src, dst] = [1, 2].map(|net| [0x2001, 0xDB8, net, 0, 0, 0, 0, 1].into());
    groups_of(&dual_layout(), [four, WideKey::v6(src, dst, 40_000, 443, 6)], epoch)
}

fn groups_of<K: Key>(
    layout: &Layout,
    flows: [K; 2],
    epoch: u64,
) -> (IngressGroup<K>, EgressGroup<K>) {
    let family = HashFamily::new(&hash_key());
    let mut ingress = IngressGroup::new(layout, attention(), epoch).unwrap();
    let mut egress = EgressGroup::new(layout, attention()).unwrap();
    for key in flows {
        let hashes = family.hash(&key);
        for packet in 1..=4 {
            let hierarchy = ingress.record(&key, &hashes);
            if packet != 3 {
                egress.record(&key, &hashes, hierarchy);
            }
        }
    }
    (ingress, egress)
}

/// The ingress side of a switch that decoded its HH encoder.
pub(crate) fn with_hh_flows<K: Key>(group: &IngressGroup<K>, epoch: u64) -> Ingress {
    let family = HashFamily::new(&hash_key());
    let hh = group.attention().partition.hh_part();
    let decoded = group.upstream().part(&hh).decode(&family);
    assert!(decoded.is_complete());
    let mut hh_flows = decoded.flows().to_vec();
    hh_flows.sort();
    let mut encoder = group.upstream().clone();
    for (key, packets) in &hh_flows {
        encoder.insert_into(&hh, key, &family.hash(key), -*packets as i32);
    }
    Ingress {
        epoch,
        attention: *group.attention(),
        defects: Defects::default(),
        packets_in: 8,
        counters: Vec::new(),
        classifier: group.classifier().clone(),
        upstream: K::any(Upstream { encoder, hh_flows: Some(hh_flows) }),
        balance: None,
        key: None,
        lcores: None,
    }
}

/// One message of every kind, by the name of its golden file.
pub(crate) fn messages() -> Vec<(&'static str, Message)> {
    let epoch = 34_000_000_001;
    let (ingress, egress) = groups(epoch);
    vec![
        (
            "hello",
            Message::Hello {
                edge: "e1".to_owned(),
                kind: SwitchKind::Tofino,
                program: "calumma-switchd 0.1.0".to_owned(),
                holding: None,
                marking: Marking::default(),
            },
        ),
        (
            "hello-again",
            Message::Hello {
                edge: "e1".to_owned(),
                kind: SwitchKind::Software,
                program: "calumma-edge 0.1.0".to_owned(),
                holding: Some(Holding { attention: attention(), effective_epoch: epoch }),
                marking: Marking {
                    carrier: "shim 0x88b5".to_owned(),
                    tunnels: "inner".to_owned(),
                    ..Marking::default()
                },
            },
        ),
        (
            "welcome",
            Message::Welcome {
                version: OLDEST_VERSION,
                layout: layout(),
                hash_key: hash_key(),
                epoch_length_ns: 50_000_000,
                guards: Guards { clock_ns: 1_000_000, flight_ns: 10_000_000 },
                attention: attention(),
                effective_epoch: epoch,
            },
        ),
        ("refused", Message::Refused { reason: "no edge is called e9".to_owned() }),
        ("reconfigure", Message::Reconfigure { effective_epoch: epoch, attention: attention() }),
        (
            "applied-accepted",
            Message::Applied { effective_epoch: epoch, outcome: Outcome::Accepted },
        ),
        (
            "applied-too-late",
            Message::Applied {
                effective_epoch: epoch,
                outcome: Outcome::TooLate { earliest: epoch + 1 },
            },
        ),
        (
            "applied-invalid",
            Message::Applied {
                effective_epoch: epoch,
                outcome: Outcome::Invalid { reason: "t_l = 0".to_owned() },
            },
        ),
        (
            "ingress",
            Message::Ingress(Box::new(Ingress {
                epoch,
                attention: *ingress.attention(),
                defects: Defects { stall_ns: 12_000_000, ..Defects::default() },
                packets_in: 8,
                counters: vec![("received.host".to_owned(), 9), ("transmitted".to_owned(), 8)],
                classifier: ingress.classifier().clone(),
                upstream: Upstream::undecoded(ingress.upstream().clone()),
                balance: None,
                key: None,
                lcores: None,
            })),
        ),
        ("ingress-flows", Message::Ingress(Box::new(with_hh_flows(&ingress, epoch)))),
        (
            "egress",
            Message::Egress(Box::new(Egress {
                epoch,
                attention: *egress.attention(),
                defects: Defects { foreign_packets: 2, stall_ns: 3_000_000, mixed_attention: true },
                packets_out: 6,
                counters: Vec::new(),
                downstream: egress.downstream().clone().into(),
                balance: None,
                strays: None,
                unmarked: None,
                key: None,
            })),
        ),
        (
            "welcome-dual",
            Message::Welcome {
                version: OLDEST_VERSION,
                layout: dual_layout(),
                hash_key: hash_key(),
                epoch_length_ns: 50_000_000,
                guards: Guards { clock_ns: 1_000_000, flight_ns: 10_000_000 },
                attention: attention(),
                effective_epoch: epoch,
            },
        ),
        ("sealed", Message::Sealed { epoch, late_packets: 5, late: Vec::new() }),
        ("probe", Message::Probe { sent_ns: 1_700_000_000_000_000_000 }),
        (
            "echo",
            Message::Echo {
                sent_ns: 1_700_000_000_000_000_000,
                received_ns: 1_700_000_000_000_300_000,
                answered_ns: 1_700_000_000_000_310_000,
            },
        ),
        ("reported", Message::Reported { epoch }),
    ]
}

/// Sketches of wide keys, by the name of their golden file; [`dual_layout`] is theirs.
pub(crate) fn dual_messages() -> Vec<(&'static str, Message)> {
    let epoch = 34_000_000_001;
    let (ingress, egress) = dual_groups(epoch);
    let undecoded = Ingress {
        upstream: Upstream::undecoded(ingress.upstream().clone()),
        ..with_hh_flows(&ingress, epoch)
    };
    vec![
        ("dual-ingress", Message::Ingress(Box::new(undecoded))),
        ("dual-ingress-flows", Message::Ingress(Box::new(with_hh_flows(&ingress, epoch)))),
        (
            "dual-egress",
            Message::Egress(Box::new(Egress {
                epoch,
                attention: *egress.attention(),
                defects: Defects::default(),
                packets_out: 6,
                counters: Vec::new(),
                downstream: egress.downstream().clone().into(),
                balance: None,
                strays: None,
                unmarked: None,
                key: None,
            })),
        ),
    ]
}

/// Packets of two flows that no sketch holds, one of them by two marks.
pub(crate) fn strays<K: Key>(flows: [K; 2]) -> Strays<K> {
    let stray =
        |key, hierarchy, epochs_back, packets| Stray { key, hierarchy, epochs_back, packets };
    let mut entries = vec![
        stray(flows[0], Hierarchy::SampledLl, 0, 3),
        stray(flows[0], Hierarchy::HlCandidate, 2, 1),
        stray(flows[1], Hierarchy::HhCandidate, 0, 70_000),
    ];
    entries.sort();
    Strays { entries, beyond: 9 }
}

/// Sides and seals with what version 2 of the bodies adds, by the name of their golden file.
pub(crate) fn recorded_messages() -> Vec<(&'static str, Message)> {
    let epoch = 34_000_000_001;
    let (ingress, egress) = groups(epoch);
    let flows =
        [1, 2].map(|host| FlowKey::v4([172, 16, 0, host].into(), [10, 2, 0, 1].into(), 7, 443, 17));
    let late = Late { unencoded: 4, strays: strays(flows) };
    vec![
        (
            "ingress-balance",
            Message::Ingress(Box::new(Ingress {
                balance: Some(Balance::new([0, 3, 4, 1])),
                key: Some(hash_key().id()),
                lcores: Some(3),
                ..with_hh_flows(&ingress, epoch)
            })),
        ),
        (
            "egress-strays",
            Message::Egress(Box::new(Egress {
                epoch,
                attention: *egress.attention(),
                defects: Defects { foreign_packets: 70_003, ..Defects::default() },
                packets_out: 70_009,
                counters: Vec::new(),
                downstream: egress.downstream().clone().into(),
                balance: Some(Balance::new([0, 5, 4, 70_000])),
                strays: Some(Key::any(strays(flows))),
                unmarked: Some(Key::any(Strays::<FlowKey>::default())),
                key: Some(hash_key().id()),
            })),
        ),
        ("sealed-late", Message::Sealed { epoch, late_packets: 70_013, late: late.encode() }),
    ]
}

/// The same of wide keys.
pub(crate) fn dual_recorded_messages() -> Vec<(&'static str, Message)> {
    let epoch = 34_000_000_001;
    let (_, egress) = dual_groups(epoch);
    let [src, dst] = [1, 2].map(|net| [0x2001, 0xDB8, net, 0, 0, 0, 0, 1].into());
    let flows = [7, 8].map(|port| WideKey::v6(src, dst, port, 443, 17));
    vec![(
        "dual-egress-strays",
        Message::Egress(Box::new(Egress {
            epoch,
            attention: *egress.attention(),
            defects: Defects::default(),
            packets_out: 6,
            counters: Vec::new(),
            downstream: egress.downstream().clone().into(),
            balance: None,
            strays: None,
            unmarked: Some(Key::any(strays(flows))),
            key: None,
        })),
    )]
}
