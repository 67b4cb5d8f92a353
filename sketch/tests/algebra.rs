//! The algebra of FermatSketches: whatever way packets are inserted, split, added and subtracted,
//! the same flowset comes out, and what comes out accounts for what went in.

mod common;

use std::collections::BTreeMap;

use calumma_sketch::fermat::{Decoded, P, WordsError};
use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Part, Shape};
use common::family;
use proptest::prelude::*;

type Multiset = BTreeMap<FlowKey, i64>;

/// Roomy sketches of every kind: both arithmetics, with and without fingerprint, 3 to 5 arrays.
fn shapes() -> impl Strategy<Value = Shape> {
    (prop::bool::ANY, prop::bool::ANY, 3_usize..=5).prop_map(|(prime, fingerprint, arrays)| Shape {
        arithmetic: if prime { Arithmetic::Prime } else { Arithmetic::Wrapping },
        fingerprint,
        arrays,
        buckets: 400,
    })
}

/// Few enough flows that every shape decodes them, out of a small universe of keys, so that the
/// same flow comes up again and again.
fn packets() -> impl Strategy<Value = Vec<(FlowKey, i32)>> {
    let key = prop_oneof![
        (0_u32..40).prop_map(|n| FlowKey::from_words(0x0A00_0000 + n, 7, n << 16, 6)),
        prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0x7F, 0x80, 0xFF]), 13)
            .prop_map(|bytes| FlowKey::from_bytes(bytes.try_into().unwrap())),
    ];
    // Wrapping arithmetic leaves flows of a multiple of 2^18 packets undecided.
    prop::collection::vec((key, -100_000_i32..100_000), 0..60)
}

fn insert_all(sketch: &mut FermatSketch, family: &HashFamily, packets: &[(FlowKey, i32)]) {
    packets.iter().for_each(|(key, number)| sketch.insert(family, key, *number));
}

fn multiset(packets: impl IntoIterator<Item = (FlowKey, i64)>) -> Multiset {
    let mut sum = Multiset::new();
    for (key, number) in packets {
        *sum.entry(key).or_insert(0) += number;
    }
    sum.retain(|_, number| *number != 0);
    sum
}

fn exact(packets: &[(FlowKey, i32)]) -> Multiset {
    multiset(packets.iter().map(|&(key, number)| (key, i64::from(number))))
}

fn flowset(decoded: Decoded) -> Multiset {
    assert!(decoded.is_complete(), "{} buckets remain", decoded.remaining_buckets());
    decoded.into_flowset().into_iter().collect()
}

/// Puts the decoded flows into an empty sketch, however many packets each has.
fn encode_again(shape: Shape, family: &HashFamily, flowset: &Multiset) -> FermatSketch {
    let mut sketch = FermatSketch::new(shape);
    for (key, &packets) in flowset {
        let mut rest = packets;
        while rest != 0 {
            let some = rest.clamp(-i64::from(i32::MAX), i64::from(i32::MAX));
            sketch.insert(family, key, some as i32);
            rest -= some;
        }
    }
    sketch
}

proptest! {
    #[test]
    fn any_split_and_order_of_packets_gives_the_same_sketch_and_flowset(
        shape in shapes(), packets in packets(), seed: u64, pieces in 1_usize..6,
    ) {
        let family = family(seed);
        let mut whole = FermatSketch::new(shape);
        insert_all(&mut whole, &family, &packets);

        // Dealt out to several switches, the last one's packets first, one packet in two halves.
        let mut sum = FermatSketch::new(shape);
        for piece in (0..pieces).rev() {
            let mut part = FermatSketch::new(shape);
            for (key, number) in packets.iter().skip(piece).step_by(pieces).rev() {
                part.insert(&family, key, number / 2);
                part.insert(&family, key, number - number / 2);
            }
            sum.add(&part).unwrap();
        }
        prop_assert_eq!(&sum, &whole);
        prop_assert_eq!(flowset(whole.decode(&family)), exact(&packets));
    }

    #[test]
    fn upstream_minus_downstream_is_exactly_the_lost_multiset(
        shape in shapes(), sent in packets(), seed: u64, lost_of in 1_i32..50,
    ) {
        let family = family(seed);
        let sent: Vec<_> = sent.into_iter().map(|(key, n)| (key, n.abs())).collect();
        let arrived: Vec<_> = sent.iter().map(|&(key, n)| (key, n - n.min(lost_of))).collect();
        let (mut upstream, mut downstream) = (FermatSketch::new(shape), FermatSketch::new(shape));
        insert_all(&mut upstream, &family, &sent);
        insert_all(&mut downstream, &family, &arrived);
        upstream.subtract(&downstream).unwrap();
        let lost: Vec<_> = sent.iter().map(|&(key, n)| (key, n.min(lost_of))).collect();
        prop_assert_eq!(flowset(upstream.clone().decode(&family)), exact(&lost));

        // The other way round every count is negative, and both together are nothing.
        let mut opposite = FermatSketch::new(shape);
        opposite.subtract(&upstream).unwrap();
        let negative: Vec<_> = lost.iter().map(|&(key, n)| (key, -n)).collect();
        prop_assert_eq!(flowset(opposite.clone().decode(&family)), exact(&negative));
        opposite.add(&upstream).unwrap();
        prop_assert_eq!(opposite, FermatSketch::new(shape));
    }

    #[test]
    fn encoding_packet_by_packet_equals_inserting_their_number(
        shape in shapes(), packets in packets(), seed: u64,
    ) {
        let family = family(seed);
        let part = Part::new(17, 300);
        let (mut encoded, mut inserted) = (FermatSketch::new(shape), FermatSketch::new(shape));
        for (key, number) in packets {
            let (hashes, number) = (family.hash(&key), number.rem_euclid(20));
            (0..number).for_each(|_| encoded.encode(&part, &key, &hashes));
            inserted.insert_into(&part, &key, &hashes, number);
        }
        prop_assert_eq!(encoded, inserted);
    }

    #[test]
    fn the_parts_of_a_divided_sketch_decode_on_their_own(
        shape in shapes(), hh in packets(), hl in packets(), ll in packets(), seed: u64,
    ) {
        let family = family(seed);
        let mut divided = FermatSketch::new(shape.with_buckets(1084));
        let parts = [Part::new(683, 401), Part::new(350, 333), Part::new(0, 350)];
        for (part, packets) in parts.iter().zip([&hh, &hl, &ll]) {
            for (key, number) in packets {
                divided.insert_into(part, key, &family.hash(key), *number);
            }
        }
        for (part, packets) in parts.iter().zip([hh, hl, ll]) {
            let alone = divided.part(part);
            let mut undivided = FermatSketch::new(shape.with_buckets(part.len() as usize));
            insert_all(&mut undivided, &family, &packets);
            prop_assert_eq!(&alone, &undivided);
            prop_assert_eq!(flowset(alone.decode(&family)), exact(&packets));
        }
    }

    #[test]
    fn words_give_the_sketch_back(shape in shapes(), packets in packets(), seed: u64) {
        let mut sketch = FermatSketch::new(shape);
        insert_all(&mut sketch, &family(seed), &packets);
        let words: Vec<u32> = sketch.words().collect();
        prop_assert_eq!(words.len(), shape.total_buckets() * shape.arithmetic.words());
        prop_assert_eq!(FermatSketch::from_words(shape, words), Ok(sketch));
    }

    #[test]
    fn garbage_always_ends_and_is_never_called_complete_wrongly(
        shape in shapes(),
        buckets in 1_usize..24,
        words in prop::collection::vec(
            prop_oneof![4 => Just(0), 2 => 0_u32..5, 1 => any::<u32>(), 1 => Just(P - 1)],
            8 * 5 * 24,
        ),
        seed: u64,
    ) {
        let family = family(seed);
        let shape = shape.with_buckets(buckets);
        let words = words.into_iter().map(|word| match shape.arithmetic {
            Arithmetic::Prime => word % P,
            Arithmetic::Wrapping => word,
        });
        let words = words.take(shape.total_buckets() * shape.arithmetic.words());
        let garbage = FermatSketch::from_words(shape, words).unwrap();
        let decoded = garbage.clone().decode(&family);
        if decoded.is_complete() {
            let flows = decoded.into_flowset().into_iter().collect();
            prop_assert_eq!(encode_again(shape, &family, &flows), garbage);
        }
    }

    #[test]
    fn an_overloaded_sketch_is_partial_or_right(
        shape in shapes(), flows in 1_u32..60, packets in 1_i32..4, buckets in 1_usize..20,
        seed: u64,
    ) {
        let family = family(seed);
        let shape = shape.with_buckets(buckets);
        let packets: Vec<_> =
            (0..flows).map(|n| (FlowKey::from_words(n, !n, n * n, 17), packets)).collect();
        let mut sketch = FermatSketch::new(shape);
        insert_all(&mut sketch, &family, &packets);
        let decoded = sketch.clone().decode(&family);
        if decoded.is_complete() {
            let flows = decoded.into_flowset().into_iter().collect();
            prop_assert_eq!(encode_again(shape, &family, &flows), sketch);
        } else {
            prop_assert!(decoded.remaining_buckets() > 0);
        }
    }
}

fn both() -> [Shape; 2] {
    [Arithmetic::Prime, Arithmetic::Wrapping].map(|arithmetic| Shape {
        arithmetic,
        buckets: 8,
        ..Shape::default()
    })
}

fn decode_one(shape: Shape, key: FlowKey, packets: i32) -> Decoded {
    let family = family(1);
    let mut sketch = FermatSketch::new(shape);
    sketch.insert(&family, &key, packets);
    sketch.decode(&family)
}

#[test]
fn keys_of_zeros_and_of_ones_decode() {
    for shape in both() {
        for fingerprint in [false, true] {
            for byte in [0, 0xFF] {
                let (shape, key) =
                    (Shape { fingerprint, ..shape }, FlowKey::from_bytes([byte; 13]));
                for packets in [1, -1, 2, 1_000_003] {
                    let decoded = decode_one(shape, key, packets);
                    assert!(decoded.is_complete(), "{shape:?} {key} {packets}");
                    assert_eq!(decoded.packets_of(&key), Some(i64::from(packets)));
                }
            }
        }
    }
}

#[test]
fn keys_whose_fields_lie_around_the_prime_decode() {
    for shape in both() {
        for word in [P - 1, P, P + 1, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, u32::MAX] {
            let key = FlowKey::from_words(word, !word, word, 0xFF);
            let decoded = decode_one(shape, key, 7);
            assert_eq!(decoded.packets_of(&key), Some(7), "{shape:?} {key}");
            assert!(decoded.is_complete());
        }
    }
}

#[test]
fn the_extreme_counts_decode() {
    let key = FlowKey::from_words(0xDEAD_BEEF, 0x0BAD_CAFE, 0x1234_5678, 6);
    for packets in [i32::MAX, -i32::MAX, i32::MAX - 1, i32::MIN + 1] {
        for shape in both() {
            let decoded = decode_one(shape, key, packets);
            assert_eq!(decoded.packets_of(&key), Some(i64::from(packets)), "{shape:?}");
            assert!(decoded.is_complete());
        }
    }
    let [prime, wrapping] = both();
    assert_eq!(decode_one(prime, key, i32::MIN).packets_of(&key), Some(i64::from(i32::MIN)));
    // Divisible by 2^18: the key's upper bits are lost, so the flow is refused, never guessed.
    let refused = decode_one(wrapping, key, i32::MIN);
    assert!(!refused.is_complete() && refused.flowset().is_empty());
}

#[test]
fn a_count_that_equals_the_prime_when_read_unsigned_is_a_small_negative_one() {
    let key = FlowKey::from_words(1, 2, 3, 4);
    let packets = P as i32;
    assert_eq!(packets, -5);
    for shape in both() {
        assert_eq!(decode_one(shape, key, packets).packets_of(&key), Some(-5));
    }
}

#[test]
fn flows_that_cancel_in_number_but_not_in_kind_stay_visible() {
    let family = family(1);
    let (lost, surplus) = (FlowKey::from_words(1, 2, 3, 4), FlowKey::from_words(5, 6, 7, 8));
    for shape in both() {
        // One bucket an array: counts are zero, fragments are not.
        let mut sketch = FermatSketch::new(shape.with_buckets(1));
        sketch.insert(&family, &lost, 9);
        sketch.insert(&family, &surplus, -9);
        let decoded = sketch.decode(&family);
        assert!(!decoded.is_complete() && decoded.flowset().is_empty());
        assert_eq!(decoded.remaining_buckets(), 3);
        // With room for both, each comes out with its sign.
        let mut sketch = FermatSketch::new(shape.with_buckets(64));
        sketch.insert(&family, &lost, 9);
        sketch.insert(&family, &surplus, -9);
        let decoded = sketch.decode(&family);
        assert!(decoded.is_complete());
        assert_eq!(decoded.packets_of(&lost), Some(9));
        assert_eq!(decoded.packets_of(&surplus), Some(-9));
    }
}

#[test]
fn sums_that_are_multiples_of_the_prime_are_no_wrong_flow() {
    // Two flows whose first fragments sum to 0 modulo p beside a count of 2.
    let family = family(1);
    let [prime, _] = both();
    let mut words = vec![0; prime.total_buckets() * prime.arithmetic.words()];
    words[4] = 2;
    words[prime.buckets * 5 + 4] = 2;
    words[2 * prime.buckets * 5 + 4] = 2;
    let sketch = FermatSketch::from_words(prime, words).unwrap();
    let decoded = sketch.clone().decode(&family);
    if decoded.is_complete() {
        let flows = decoded.into_flowset().into_iter().collect();
        assert_eq!(encode_again(prime, &family, &flows), sketch);
    }
}

#[test]
fn words_that_are_no_sketch_say_why() {
    for shape in both() {
        let number = shape.total_buckets() * shape.arithmetic.words();
        let zeros = |number| std::iter::repeat_n(0, number);
        assert!(FermatSketch::<FlowKey>::from_words(shape, zeros(number)).is_ok());
        assert_eq!(
            FermatSketch::<FlowKey>::from_words(shape, zeros(number - 1)),
            Err(WordsError::TooFew { buckets: shape.total_buckets() - 1 })
        );
        assert_eq!(
            FermatSketch::<FlowKey>::from_words(shape, zeros(number + 1)),
            Err(WordsError::TooMany)
        );
    }
    let [prime, wrapping] = both();
    let sum_of = |word| [0, 0, 0, 0, 1].into_iter().chain([0, word]).chain(std::iter::repeat(0));
    let words = |shape: Shape, word| {
        sum_of(word).take(shape.total_buckets() * shape.arithmetic.words()).collect::<Vec<_>>()
    };
    assert_eq!(
        FermatSketch::<FlowKey>::from_words(prime, words(prime, P)),
        Err(WordsError::OutOfRange { bucket: 1 })
    );
    assert!(FermatSketch::<FlowKey>::from_words(prime, words(prime, P - 1)).is_ok());
    assert!(FermatSketch::<FlowKey>::from_words(wrapping, words(wrapping, u32::MAX)).is_ok());
}

#[test]
fn sketches_of_different_shapes_do_not_mix() {
    let [prime, wrapping] = both();
    for other in [
        wrapping,
        Shape { fingerprint: false, ..prime },
        Shape { arrays: 4, ..prime },
        prime.with_buckets(9),
    ] {
        let mut sketch = FermatSketch::<FlowKey>::new(prime);
        let error = sketch.add(&FermatSketch::new(other)).unwrap_err();
        assert!(error.to_string().contains("different shapes"), "{error}");
        assert!(sketch.subtract(&FermatSketch::new(other)).is_err());
    }
}
