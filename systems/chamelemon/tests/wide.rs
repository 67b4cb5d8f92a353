//! Groups of wide keys: IPv4 and IPv6 flows in one set of buckets.

mod common;

use calumma_chamelemon::{
    Attention, EgressGroup, Hierarchy, IngressGroup, Layout, LayoutError, Partition, SampleRate,
};
use calumma_sketch::{Arithmetic, BURST, Engine, FlowKey, KeyKind, Level, WideKey};
use common::{family, trains};
use proptest::prelude::*;

/// Flow number `n`: every other one is IPv4, and neighbours differ in few bits.
fn key(n: u32) -> WideKey {
    if n.is_multiple_of(2) {
        FlowKey::from_words(0x0A00_0000 | n, 0xC0A8_0001, n << 7, 17).into()
    } else {
        let words = [0x2001_0DB8, 0, n >> 3, n, 0xFE80_0000, n << 20, 0, 2, n << 9 | 443];
        WideKey::from_words(words, 6)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bursts_and_runs_record_what_single_packets_would(
        fingerprint: bool,
        arrays in 2u32..=5,
        packets in prop_oneof![prop::collection::vec(0u32..40, 0..2_000), trains(40, 100)],
        burst in 1..=BURST,
        seed: u64,
    ) {
        let layout = Layout {
            keys: KeyKind::Dual,
            fingerprint,
            arrays,
            upstream_buckets: 60,
            downstream_buckets: 50,
            classifier: vec![Level::new(4, 70), Level::new(16, 30)],
            ..Layout::default()
        };
        let attention = Attention {
            t_h: 60,
            t_l: 20,
            sample_rate: SampleRate::new(0.5).unwrap(),
            partition: Partition { hh: 10, hl: 33, ll: 17 },
        };
        let fast = family(seed);
        let plain = fast.clone().scalar();
        let ingress = IngressGroup::<WideKey>::new(&layout, attention, seed).unwrap();
        let egress = EgressGroup::<WideKey>::new(&layout, attention).unwrap();
        let (mut ingress_one, mut egress_one) = (ingress.clone(), egress.clone());
        let (mut ingress_runs, mut egress_runs) = (ingress.clone(), egress.clone());
        let mut others: Vec<_> = Engine::available()
            .map(|engine| (fast.clone().with_engine(engine), ingress.clone(), egress.clone()))
            .collect();
        let keys: Vec<WideKey> = packets.iter().map(|&n| key(n * n / 3)).collect();
        for keys in keys.chunks(burst) {
            let expected: Vec<Hierarchy> =
                keys.iter().map(|key| ingress_one.record(key, &plain.hash(key))).collect();
            for (key, &hierarchy) in keys.iter().zip(&expected) {
                prop_assert!(egress_one.record(key, &plain.hash(key), hierarchy));
                let run = ingress_runs.record_run(key, &plain.hash(key), 1);
                prop_assert_eq!(run.of(hierarchy), 1);
                egress_runs.record_run(key, &plain.hash(key), &run);
            }
            for (family, ingress, egress) in &mut others {
                let mut hierarchies = vec![Hierarchy::default(); keys.len()];
                ingress.record_burst(family, keys, &mut hierarchies);
                prop_assert_eq!(&hierarchies, &expected);
                prop_assert_eq!(egress.record_burst(family, keys, &hierarchies), 0);
            }
        }
        prop_assert_eq!((&ingress_runs, &egress_runs), (&ingress_one, &egress_one));
        for (_, ingress, egress) in &others {
            prop_assert_eq!((ingress, egress), (&ingress_one, &egress_one));
        }
    }
}

/// Structured keys of both families at the usual load, and beyond it with the help of hints.

#[test]
fn a_layout_says_which_keys_its_sketches_hold() {
    let dual = Layout { keys: KeyKind::Dual, ..Layout::default() };
    assert_eq!((dual.bucket_words(), Layout::default().bucket_words()), (11, 5));
    let attention = Attention::healthy(&dual, 512);
    let refused = IngressGroup::<FlowKey>::new(&dual, attention, 0).unwrap_err();
    assert_eq!(refused.to_string(), r#"keys = "dual", but these sketches hold "ipv4" keys"#);
    assert!(EgressGroup::<WideKey>::new(&Layout::default(), attention).is_err());

    let wrapping = Layout { arithmetic: Arithmetic::Wrapping, ..dual };
    assert_eq!(wrapping.validate(), Err(LayoutError::Arithmetic(KeyKind::Dual)));
    assert!(wrapping.validate().unwrap_err().to_string().contains("set arithmetic = \"prime\""));
}
