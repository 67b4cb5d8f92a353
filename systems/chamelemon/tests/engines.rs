//! Vector instructions and bursts give, bit for bit, what plain code gives packet by packet.

mod common;

use calumma_chamelemon::{
    Attention, EgressGroup, Hierarchy, IngressGroup, Layout, Partition, SampleRate,
};
use calumma_sketch::BURST;
use calumma_sketch::{Arithmetic, Engine, FermatSketch, FlowKey, Insertion, KeyKind, Level, Shape};
use common::{family, trains};
use proptest::prelude::*;

fn key(n: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 | n, 0xC0A8_0001 ^ n << 7, n.wrapping_mul(0x9E37_79B9), n as u8)
}

fn arithmetic() -> impl Strategy<Value = Arithmetic> {
    prop::sample::select(vec![Arithmetic::Prime, Arithmetic::Wrapping])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bursts_record_what_single_packets_would(
        arithmetic in arithmetic(),
        fingerprint: bool,
        arrays in 2u32..=5,
        narrow in prop::sample::select(vec![2u32, 4, 8]),
        insertion in prop::sample::select(vec![Insertion::Cm, Insertion::Cu]),
        packets in prop_oneof![prop::collection::vec(0u32..40, 0..3_000), trains(40, 150)],
        burst in 1..=BURST,
        seed: u64,
    ) {
        let layout = Layout {
            keys: KeyKind::Ipv4,
            arithmetic,
            fingerprint,
            arrays,
            upstream_buckets: 60,
            downstream_buckets: 50,
            classifier: vec![Level::new(narrow, 70), Level::new(16, 30), Level::new(32, 20)],
            insertion,
        };
        let attention = Attention {
            t_h: 60,
            t_l: 20,
            sample_rate: SampleRate::new(0.5).unwrap(),
            partition: Partition { hh: 10, hl: 33, ll: 17 },
        };
        let fast = family(seed);
        let plain = fast.clone().scalar();
        let ingress = IngressGroup::new(&layout, attention, seed).unwrap();
        let egress = EgressGroup::new(&layout, attention).unwrap();
        let (mut ingress_one, mut egress_one) = (ingress.clone(), egress.clone());
        let mut others: Vec<_> = Engine::available()
            .map(|engine| (fast.clone().with_engine(engine), ingress.clone(), egress.clone()))
            .collect();

        let keys: Vec<FlowKey> = packets.iter().map(|&n| key(n * n / 3)).collect();
        for keys in keys.chunks(burst) {
            let expected: Vec<Hierarchy> =
                keys.iter().map(|key| ingress_one.record(key, &plain.hash(key))).collect();
            for (key, &hierarchy) in keys.iter().zip(&expected) {
                prop_assert!(egress_one.record(key, &plain.hash(key), hierarchy));
            }
            for (family, ingress, egress) in &mut others {
                let mut hierarchies = vec![Hierarchy::default(); keys.len()];
                ingress.record_burst(family, keys, &mut hierarchies);
                prop_assert_eq!(&hierarchies, &expected);
                prop_assert_eq!(egress.record_burst(family, keys, &hierarchies), 0);
            }
        }
        for (_, ingress, egress) in &others {
            prop_assert_eq!(ingress, &ingress_one);
            prop_assert_eq!(egress, &egress_one);
        }
    }

    #[test]
    fn every_engine_decodes_the_same_from_any_contents(
        arithmetic in arithmetic(),
        flows in 0u32..400,
        garbage in prop::collection::vec((0usize..900, any::<u32>()), 0..3),
        seed: u64,
    ) {
        let shape = Shape { arithmetic, ..Shape::default() }.with_buckets(100);
        let fast = family(seed);
        let mut sketch = FermatSketch::new(shape);
        for n in 0..flows {
            sketch.insert(&fast, &key(n), n as i32 * 5_003 - 9_000);
        }
        let mut words: Vec<u32> = sketch.words().collect();
        for (at, word) in garbage {
            words[at] = word % 4_294_967_291;
        }
        let sketch = FermatSketch::<FlowKey>::from_words(shape, words).unwrap();
        let expected = sketch.clone().decode(&fast.clone().scalar());
        for engine in Engine::available() {
            let decoded = sketch.clone().decode(&fast.clone().with_engine(engine));
            prop_assert_eq!(&decoded, &expected, "{}", engine.name());
        }
    }
}

/// No packet of the deployment carries a hierarchy without buckets, nor 0 where all are encoded.
#[test]
fn what_nobody_marks_so_is_foreign_to_a_burst_as_to_a_packet() {
    let layout = Layout::default();
    let family = family(1);
    let empty = || EgressGroup::new(&layout, Attention::healthy(&layout, 512)).unwrap();
    let (mut egress, mut one_by_one) = (empty(), empty());
    let carried = [Hierarchy::SampledLl, Hierarchy::NonSampledLl, Hierarchy::HhCandidate];
    let keys = [key(1), key(2), key(3)];
    assert_eq!(egress.record_burst(&family, &keys, &carried), 2);
    assert_eq!(egress.downstream().packets(), 1);
    let single = keys
        .iter()
        .zip(carried)
        .map(|(key, hierarchy)| one_by_one.record(key, &family.hash(key), hierarchy));
    assert!(single.eq([false, false, true]));
    assert_eq!(egress, one_by_one);
}
