//! The algebra of residuals, and decoding them beside the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::network::{Decoded, decode};
use super::*;
use crate::burst::BURST;
use crate::simd::{Engine, Work};
use crate::table::Refused;
use crate::{FlowKey, HashKey, WideKey};

fn family() -> &'static HashFamily {
    static FAMILY: LazyLock<HashFamily> =
        LazyLock::new(|| HashFamily::new(&HashKey::from_bytes([5; 32])));
    &FAMILY
}

fn key<K: Key>(number: u32) -> K {
    K::from_word_fn(|at| number.rotate_left(7 * at as u32) ^ at as u32, 6)
}

fn counts(packets: u64, bytes: u64) -> Counts {
    Counts { packets, bytes }
}

/// How the tests make either kind.
trait Made<K: Key>: Residual<K> {
    fn new(shape: Shape) -> Self;
}

impl<K: Key> Made<K> for Fermat<K> {
    fn new(shape: Shape) -> Self {
        Fermat::new(shape)
    }
}

impl<K: Key> Made<K> for FlowRadar<K> {
    fn new(shape: Shape) -> Self {
        FlowRadar::new(shape)
    }
}

fn filled<K: Key, R: Made<K>>(shape: Shape, flows: &BTreeMap<u32, Counts>) -> R {
    let mut residual = R::new(shape);
    for (&number, &counts) in flows {
        residual.insert(&key(number), &family().hash(&key::<K>(number)), counts);
    }
    residual
}

/// A residual by itself.
fn decoded<K: Key, R: Residual<K>>(residual: R) -> Decoded<K> {
    let mut all = decode(family(), vec![Some(residual)], &[], |_, nodes| nodes.push(0));
    all.remove(0).unwrap()
}

fn expected<K: Key>(flows: &BTreeMap<u32, Counts>) -> Vec<(K, Counts)> {
    let mut flows: Vec<_> = flows.iter().map(|(&number, &counts)| (key(number), counts)).collect();
    flows.sort_unstable_by_key(|&(key, _)| key);
    flows
}

fn some_flows(most: usize) -> impl Strategy<Value = BTreeMap<u32, Counts>> {
    let one = (1_u64..5_000, 0_u64..1 << 40).prop_map(|(packets, bytes)| counts(packets, bytes));
    prop::collection::btree_map(0_u32..10_000, one, 0..most)
}

/// So large that few flows hardly ever share all buckets.
const SHAPE: Shape = Shape { buckets: 1200, filter_bits: 1 << 14 };

/// Residuals of one kind and one kind of key keep the algebra.
fn algebra<K: Key, R: Made<K> + Clone>(
    flows: &BTreeMap<u32, Counts>,
    others: &BTreeMap<u32, Counts>,
) -> Result<(), TestCaseError> {
    let residual: R = filled(SHAPE, flows);
    for &number in flows.keys() {
        prop_assert!(residual.may_hold(&family().hash(&key::<K>(number))));
    }
    // Packet by packet, in bursts, is the same.
    let packets: Vec<(u32, u32)> = flows
        .iter()
        .flat_map(|(&number, counts)| {
            (0..counts.packets.min(5)).map(move |packet| (number, 60 + packet as u32))
        })
        .collect();
    let (mut one_by_one, mut in_bursts) = (R::new(SHAPE), R::new(SHAPE));
    for burst in packets.chunks(BURST) {
        let keys: Vec<K> = burst.iter().map(|&(number, _)| key(number)).collect();
        let bytes: Vec<u32> = burst.iter().map(|&(_, bytes)| bytes).collect();
        let mut hashes = HashColumns::default();
        family().hash_columns(&keys, &mut hashes);
        let chosen = 0xFFFF_F0FF;
        for (packet, &bytes) in bytes.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1) {
            one_by_one.insert(&keys[packet], &hashes.of(packet), counts(1, bytes.into()));
        }
        let burst = InBurst { to: &mut in_bursts, keys: &keys, hashes: &hashes, bytes: &bytes };
        Engine::detect().run(Insert(burst, chosen));
    }
    in_bursts.subtract(&one_by_one).unwrap();
    prop_assert_eq!(in_bursts.remaining(), 0);

    // What was added is taken out again, and what is left decodes.
    let other: R = filled(SHAPE, others);
    let mut both = residual.clone();
    both.merge(&other).unwrap();
    let shared: BTreeSet<u32> =
        flows.keys().copied().filter(|number| others.contains_key(number)).collect();
    if shared.is_empty() {
        let sum = flows.iter().chain(others).map(|(&number, &counts)| (number, counts)).collect();
        let all = decoded(both.clone());
        if all.is_complete {
            prop_assert_eq!(all.flows, expected::<K>(&sum));
        }
    }
    both.subtract(&other).unwrap();
    let left = decoded(both);
    prop_assert!(left.is_complete, "{} buckets remain", left.remaining);
    prop_assert_eq!(left.flows, expected::<K>(flows));
    let other_shape = Shape { buckets: 1201, ..SHAPE };
    let mut cleared = residual;
    prop_assert!(cleared.merge(&R::new(other_shape)).is_err());
    cleared.clear();
    prop_assert_eq!(cleared.remaining(), 0);
    prop_assert!(flows.keys().all(|&it| !cleared.may_hold(&family().hash(&key::<K>(it)))));
    Ok(())
}

struct InBurst<'a, K, R> {
    to: &'a mut R,
    keys: &'a [K],
    hashes: &'a HashColumns,
    bytes: &'a [u32],
}

struct Insert<'a, K, R>(InBurst<'a, K, R>, u32);

impl<K: Key, R: Residual<K>> Work for Insert<'_, K, R> {
    type Output = ();

    fn work(self, isa: impl Isa) {
        let InBurst { to, keys, hashes, bytes } = self.0;
        to.insert_burst(isa, keys, hashes, bytes, self.1);
    }
}

/// A network of nodes, flows that pass some of them, and what tables hold.
struct Played<K, R> {
    residuals: Vec<Option<R>>,
    known: Vec<(usize, K, Counts)>,
    /// What each node's residual was given.
    truth: Vec<BTreeMap<u32, Counts>>,
}

/// `lossy` of a thousand hops lose packets of a flow; `in_tables` of a thousand flows are in the
/// first table on their way.
fn play<K: Key, R: Made<K>>(
    seed: u64,
    [nodes, flows]: [u32; 2],
    shape: Shape,
    [in_tables, lossy]: [u32; 2],
) -> Played<K, R> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut truth = vec![BTreeMap::new(); nodes as usize];
    let mut known = Vec::new();
    for number in 0..flows {
        let mut packets = rng.random_range(1..100);
        let is_in_table = rng.random_range(0..1000) < in_tables;
        let first = rng.random_range(0..nodes);
        for hop in 0..4.min(nodes) {
            let node = ((first + hop) % nodes) as usize;
            if rng.random_range(0..1000) < lossy && packets > 0 {
                packets = rng.random_range(0..packets);
            }
            let counted = counts(packets, packets * 100 + u64::from(number) % 7);
            if packets == 0 {
                continue;
            }
            if hop == 0 && is_in_table {
                known.push((node, key(number), counted));
            } else {
                truth[node].insert(number, counted);
            }
        }
    }
    let residuals = truth.iter().map(|flows| Some(filled(shape, flows))).collect();
    Played { residuals, known, truth }
}

/// Decodes a network, and how many of its nodes came out complete, all of them right.
fn complete<K: Key, R: Residual<K>>(played: Played<K, R>) -> usize {
    let nodes = played.residuals.len();
    let all =
        decode(family(), played.residuals, &played.known, |_, places| places.extend(0..nodes));
    let mut complete = 0;
    for (node, flows) in all.into_iter().map(Option::unwrap).zip(&played.truth) {
        if node.is_complete {
            assert_eq!(node.flows, expected::<K>(flows));
            complete += 1;
        } else {
            assert!(node.flows.is_empty() && node.remaining > 0);
        }
    }
    complete
}

proptest! {
    #[test]
    fn residuals_add_and_subtract(flows in some_flows(60), others in some_flows(60)) {
        algebra::<FlowKey, Fermat<FlowKey>>(&flows, &others)?;
        algebra::<FlowKey, FlowRadar<FlowKey>>(&flows, &others)?;
        algebra::<WideKey, Fermat<WideKey>>(&flows, &others)?;
        algebra::<WideKey, FlowRadar<WideKey>>(&flows, &others)?;
    }

    /// Whatever the load, what is given is the truth.
    #[test]
    fn a_network_decodes_to_the_truth_or_says_that_it_does_not(
        seed: u64, nodes in 1_u32..8, flows in 0_u32..800, in_tables in 0_u32..=1000,
        lossy in prop_oneof![Just(0_u32), 0_u32..300], bits in 8_usize..16,
        buckets in prop_oneof![Just(100_usize), 2_usize..12],
    ) {
        let shape = Shape { buckets, filter_bits: 1 << bits };
        let size = [nodes, flows];
        complete(play::<FlowKey, Fermat<FlowKey>>(seed, size, shape, [in_tables, lossy]));
        complete(play::<FlowKey, FlowRadar<FlowKey>>(seed, size, shape, [in_tables, lossy]));
        complete(play::<WideKey, FlowRadar<WideKey>>(seed, size, shape, [in_tables, lossy]));
        complete(play::<WideKey, Fermat<WideKey>>(seed, size, shape, [in_tables, lossy]));
    }

    /// Contents that no packets left end as well.
    #[test]
    fn any_amounts_end(amounts in prop::collection::vec(
        (0_u32..40, -3_i32..3, any::<i64>(), any::<i64>()), 0..80,
    )) {
        let shape = Shape { buckets: 7, filter_bits: 256 };
        let mut fermat = Fermat::<FlowKey>::new(shape);
        let mut radar = FlowRadar::<FlowKey>::new(shape);
        for (number, flows, packets, bytes) in amounts {
            let (key, amount) = (key(number), Amount { flows, packets, bytes });
            let hashes = family().hash(&key);
            fermat.insert(&key, &hashes, counts(0, 0));
            radar.insert(&key, &hashes, counts(0, 0));
            fermat.add(&key, &hashes, amount);
            radar.add(&key, &hashes, amount);
        }
        decoded(fermat);
        decoded(radar);
    }
}

#[test]
fn what_tables_hold_makes_room_for_many_times_the_flows() {
    // 2,000 flows pass each of five nodes, which have 360 buckets each; 90 % are in tables.
    let shape = Shape { buckets: 120, filter_bits: 40_000 };
    let all = |known| complete(play::<FlowKey, Fermat<FlowKey>>(3, [5, 2500], shape, [known, 0]));
    assert_eq!((all(920), all(0)), (5, 0));
    let radar =
        |known| complete(play::<FlowKey, FlowRadar<FlowKey>>(3, [5, 2500], shape, [known, 0]));
    assert_eq!((radar(920), radar(0)), (5, 0));
}

#[test]
fn flows_that_lost_packets_come_out_of_sums_and_keep_cells_full() {
    let size = [5, 1500];
    let known = [1000, 30];
    assert_eq!(complete(play::<FlowKey, Fermat<FlowKey>>(8, size, SHAPE, known)), 5);
    assert_eq!(complete(play::<FlowKey, FlowRadar<FlowKey>>(8, size, SHAPE, known)), 0);
}

#[test]
fn what_is_taken_out_where_it_never_was_comes_out_again() {
    // A filter so small that it says yes to all.
    let shape = Shape { buckets: 120, filter_bits: 1 };
    let flows: BTreeMap<u32, Counts> = (0..100).map(|it| (it, counts(2, 120))).collect();
    let known: Vec<_> = (5_000..5_100).map(|it| (1, key::<FlowKey>(it), counts(3, 180))).collect();
    let decode = |residual: Fermat<FlowKey>| {
        let all = decode(family(), vec![Some(residual)], &known, |_, nodes| nodes.push(0));
        all.into_iter().next().flatten().unwrap()
    };
    let fermat = decode(filled(shape, &flows));
    assert!(fermat.is_complete);
    assert_eq!(fermat.flows, expected::<FlowKey>(&flows));
}

#[test]
fn a_flow_whose_first_packet_was_not_known_for_it_comes_out_where_it_is_known() {
    // Keys of later flows are in no cell, since the full filter takes them for earlier ones.
    let shape = Shape { buckets: 60, filter_bits: 1 };
    let flows: BTreeMap<u32, Counts> = (0..80).map(|it| (it, counts(2, 120))).collect();
    let residual: FlowRadar<FlowKey> = filled(shape, &flows);
    let unknown = decoded(residual.clone());
    assert!(!unknown.is_complete && unknown.flows.is_empty());
    let known: Vec<_> =
        expected(&flows).into_iter().map(|(key, counts)| (7, key, counts)).collect();
    let all = decode(family(), vec![Some(residual)], &known, |_, nodes| nodes.push(0));
    assert_eq!(all[0].as_ref().unwrap().flows, expected::<FlowKey>(&flows));
}

/// Two flows share all their cells. One is known from a switch that saw a packet more of it: taken
/// out with that, it leaves the other alone with a packet too few, and no cell shows it.
#[test]
fn cells_that_come_out_empty_prove_nothing_by_themselves() {
    let shape = Shape { buckets: 2, filter_bits: 1 << 10 };
    let part = whole(shape);
    let cells = |number: u32| places(&part, &family().hash(&key::<FlowKey>(number)));
    let other = (1..1000).find(|&number| cells(number) == cells(0)).unwrap();
    let flows = BTreeMap::from([(0, counts(3, 300)), (other, counts(5, 500))]);
    let decoded = |of_known: Counts| {
        let radar: FlowRadar<FlowKey> = filled(shape, &flows);
        let known = [(1, key::<FlowKey>(0), of_known)];
        let all = decode(family(), vec![Some(radar)], &known, |_, nodes| nodes.push(0));
        all.into_iter().next().flatten().unwrap()
    };
    assert_eq!(decoded(counts(3, 300)).flows, expected::<FlowKey>(&flows));
    for wrong in [counts(4, 400), counts(2, 300), counts(3, 299)] {
        let partial = Decoded { is_complete: false, flows: Vec::new(), remaining: 1 };
        assert_eq!(decoded(wrong), partial);
    }
}

/// What is sent of a residual's contents is the same residual.
#[test]
fn cells_and_their_filter_come_back_as_they_were() {
    let flows: BTreeMap<u32, Counts> = (0..90).map(|it| (it, counts(2, 120))).collect();
    let radar: FlowRadar<WideKey> = filled(Shape { buckets: 20, filter_bits: 1 << 10 }, &flows);
    let filter = radar.filter();
    let (cells, checks, packets) = (radar.cells().to_vec(), radar.checks(), radar.packets());
    let read = FlowRadar::from_contents(cells.clone(), &filter, checks, packets);
    assert_eq!(read.as_ref(), Some(&radar));
    assert!(FlowRadar::from_contents(cells.clone(), &filter[1..], checks, packets).is_none());
    assert!(FlowRadar::from_contents(cells[1..].to_vec(), &filter, checks, packets).is_none());
}

#[test]
fn more_packets_than_buckets_can_tell_apart_are_none() {
    let flows = BTreeMap::from([(1, counts(1 << 31, 5)), (2, counts(1, 1))]);
    let fermat: Fermat<FlowKey> = filled(SHAPE, &flows);
    assert!(!decoded(fermat).is_complete);
    let radar: FlowRadar<FlowKey> = filled(SHAPE, &flows);
    assert_eq!(decoded(radar).flows, expected::<FlowKey>(&flows));
}

/// Two switches with full tables, each of which holds flows that the other refused or evicted. What
/// their tables know of these takes the place of filters of the residuals' own, and what was sent
/// as words is the same residual.
#[test]
fn tables_know_which_flows_are_in_a_residual() {
    use crate::table::{BoundedTable, Capacity, Rank, Sink};

    struct Beside(Fermat<FlowKey>, FlowKey);
    impl Sink<FlowKey, Counts> for Beside {
        fn count(&mut self, value: &mut Counts, _: std::ops::Range<usize>) {
            *value = counts(value.packets + 1, value.bytes + 60);
        }
        fn refuse(&mut self, _: std::ops::Range<usize>) {
            self.0.insert(&self.1, &family().hash(&self.1), counts(1, 60));
        }
        fn evict(&mut self, flow: &FlowKey, _: Rank, value: &Counts) {
            self.0.insert(flow, &family().hash(flow), *value);
        }
    }

    const FLOWS: u32 = 1000;
    // Each residual has 500 flows in 210 buckets: only the other's table gives them away.
    const BUCKETS: usize = 70;
    let (mut known, mut residuals) = (Vec::new(), Vec::new());
    for node in 0..2 {
        let mut table = BoundedTable::new(Capacity { entries: 500, filter_bits: 1 << 15 });
        let mut sink = Beside(Fermat::without_filter(BUCKETS), FlowKey::default());
        for packet in 0..3 * FLOWS {
            let number = packet % FLOWS;
            sink.1 = key(number);
            let grade = if node == 0 { number } else { FLOWS - number };
            let hashes = family().hash(&sink.1);
            let flow = sink.1;
            table.record_run(family(), &flow, (&hashes, Rank::new(2, grade)), 1, &mut sink);
        }
        table.finish(family(), &mut sink);
        known.extend(table.iter().map(|(flow, _, value)| (node, *flow, *value)));
        let Contents { sums, bytes, packets } = sink.0.contents();
        let words: Vec<u32> = sums.words().collect();
        assert_eq!(words.len(), 3 * BUCKETS * Fermat::<FlowKey>::words_of_a_bucket());
        let read = Fermat::from_contents(BUCKETS, words.clone(), bytes, packets).unwrap();
        assert_eq!(read, sink.0);
        let short = Fermat::<FlowKey>::from_contents(BUCKETS, words, &bytes[1..], packets);
        assert!(short.is_err());
        let tables = table.refused();
        let filter: Vec<u32> = tables.words().collect();
        assert_eq!(Refused::from_words(&filter).as_ref(), Some(&tables));
        assert!(Refused::from_words(&filter[1..]).is_none());
        residuals.push(Some(read.known_by(vec![tables])));
    }
    let all = |_: &FlowKey, nodes: &mut Vec<usize>| nodes.extend([0, 1]);
    for of in decode(family(), residuals, &known, all) {
        let of = of.unwrap();
        assert!(of.is_complete && of.flows.len() == 500, "{} buckets remain", of.remaining);
        assert!(of.flows.iter().all(|(_, it)| *it == counts(3, 180)));
    }
}

/// What was given no bits for a filter has one, and what has none may have any flow.
#[test]
fn without_a_filter_every_flow_may_be_there() {
    let hashes = family().hash(&key::<FlowKey>(1));
    let shape = Shape { buckets: 16, filter_bits: 0 };
    assert!(!Fermat::<FlowKey>::new(shape).may_hold(&hashes));
    assert!(!FlowRadar::<FlowKey>::new(shape).may_hold(&hashes));
    assert!(Fermat::<FlowKey>::without_filter(16).may_hold(&hashes));
}
