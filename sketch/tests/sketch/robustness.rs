//! Buckets that mean something else than they seem: what decoding says of them is right or partial.

use crate::common::family;
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Shape, fermat};

const KINDS: [Shape; 3] = [
    Shape { arithmetic: Arithmetic::Prime, fingerprint: true, arrays: 3, buckets: 8 },
    Shape { arithmetic: Arithmetic::Prime, fingerprint: false, arrays: 3, buckets: 8 },
    Shape { arithmetic: Arithmetic::Wrapping, fingerprint: false, arrays: 3, buckets: 8 },
];

fn key(n: u32) -> FlowKey {
    FlowKey::from_words(0x0A00_0000 + n, 0x0B00_0000, 80, 17)
}

fn bucket_in_first_array(shape: Shape, family: &HashFamily, key: &FlowKey) -> u32 {
    FermatSketch::<FlowKey>::new(shape).whole().bucket(family.hash(key).array_word(0))
}

#[test]
fn false_positives_of_verification_cancel_or_stay_visible() {
    // Two flows of a packet each in one bucket, and the key half way between them belongs there,
    // too: nothing but a fingerprint tells that bucket from a pure one.
    let family = family(1);
    for shape in KINDS {
        let (mut mistakable, mut complete) = (0, 0);
        for n in (0..20_000).step_by(4) {
            let [low, mean, high] = [key(n), key(n + 1), key(n + 2)];
            let at = [low, mean, high].map(|key| bucket_in_first_array(shape, &family, &key));
            if at != [at[0]; 3] {
                continue;
            }
            mistakable += 1;
            let mut sketch = FermatSketch::new(shape);
            sketch.insert(&family, &low, 1);
            sketch.insert(&family, &high, 1);
            let decoded = sketch.decode(&family);
            if decoded.is_complete() {
                complete += 1;
                let mut flows = decoded.flows().to_vec();
                flows.sort();
                assert_eq!(flows, [(low, 1), (high, 1)], "{shape:?}");
            } else {
                assert!(decoded.remaining_buckets() > 0, "{shape:?}");
            }
        }
        assert!(mistakable > 50, "{mistakable}");
        assert!(complete * 10 > mistakable * 9, "{shape:?}: {complete} of {mistakable}");
    }
}

#[test]
fn counts_that_wrapped_are_no_wrong_flow() {
    // 2^32 - 2 packets of one flow: a bucket can't tell them from -2.
    let family = family(2);
    for shape in KINDS {
        let mut sketch = FermatSketch::new(shape);
        sketch.insert(&family, &key(7), i32::MAX);
        sketch.insert(&family, &key(7), i32::MAX);
        let decoded = sketch.decode(&family);
        match shape.arithmetic {
            // The fragments are those of 2^32 - 2 packets and no key's times -2.
            Arithmetic::Prime => {
                assert!(!decoded.is_complete() && decoded.flows().is_empty(), "{decoded:?}");
            }
            // Everything is modulo 2^32 alike.
            Arithmetic::Wrapping => assert_eq!(decoded.flows(), [(key(7), -2)]),
        }
    }
}

#[test]
fn as_many_packets_as_the_prime_leave_no_fragments_and_no_wrong_flow() {
    let family = family(3);
    for shape in [KINDS[0], KINDS[1]] {
        for key in [key(9), FlowKey::default()] {
            let mut sketch = FermatSketch::new(shape);
            let half = (fermat::P / 2) as i32;
            for packets in [half, half, 1] {
                sketch.insert(&family, &key, packets);
            }
            assert!(sketch.buckets().iter().all(|bucket| bucket.0[..4] == [0; 4]));
            assert_eq!(sketch.packets(), -5);
            let decoded = sketch.decode(&family);
            // A key of zeros has no fragments whatever its packets, if no fingerprint is summed.
            if key == FlowKey::default() && !shape.fingerprint {
                assert_eq!(decoded.flows(), [(key, -5)]);
            } else {
                assert!(!decoded.is_complete(), "{shape:?} {key}");
                assert!(decoded.flows().iter().all(|&(flow, _)| flow != key), "{decoded:?}");
            }
        }
    }
}

#[test]
fn more_subtracted_than_added_is_a_negative_number_of_packets() {
    let family = family(4);
    for shape in KINDS {
        let (mut sent, mut arrived) = (FermatSketch::new(shape), FermatSketch::new(shape));
        sent.insert(&family, &key(1), 3);
        // Duplicated on its way.
        arrived.insert(&family, &key(1), 5);
        sent.insert(&family, &key(2), 4);
        sent.subtract(&arrived).unwrap();
        let lost = sent.decode(&family);
        assert!(lost.is_complete());
        assert_eq!((lost.packets_of(&key(1)), lost.packets_of(&key(2))), (Some(-2), Some(4)));
    }
}
