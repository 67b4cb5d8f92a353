//! Nothing that runs once a packet, and nothing that runs while an lcore waits, takes memory.

mod common;

use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout, Partition};
use calumma_plane::UNDATED;
use calumma_sketch::BURST;
use calumma_sketch::{Arithmetic, Engine, FermatSketch, FlowKey, Hashes, Shape};
use calumma_testenv::Counting;
use common::family;

#[global_allocator]
static COUNTING: Counting = Counting;

fn keys() -> Vec<FlowKey> {
    (0..200).map(|n| FlowKey::from_words(0x0A00_0000 + n % 70, n, 443, 6)).collect()
}

#[test]
fn bursts_take_no_memory() {
    let layout = Layout::default();
    let attention = Attention::healthy(&layout, 512);
    for engine in Engine::available() {
        let family = family(1).with_engine(engine);
        let mut ingress = IngressGroup::new(&layout, attention, 1).unwrap();
        let mut egress = EgressGroup::new(&layout, attention).unwrap();
        let keys = keys();
        let mut hierarchies = [Hierarchy::default(); BURST];
        let taken = Counting::during(|| {
            for keys in keys.chunks(BURST) {
                let hierarchies = &mut hierarchies[..keys.len()];
                ingress.record_burst(&family, keys, hierarchies);
                egress.record_burst(&family, keys, hierarchies);
            }
        });
        assert_eq!(taken, 0, "{}", engine.name());
        assert!(egress.downstream().packets() > 0);
    }
}

#[test]
fn packets_that_no_bucket_holds_take_no_memory() {
    let layout = Layout { downstream_buckets: 32, ..Layout::default() };
    let partition = Partition { ll: 0, ..Attention::healthy(&layout, 16).partition };
    let attention = Attention { partition, ..Attention::healthy(&layout, 16) };
    let family = family(3);
    let mut egress = EgressGroup::new(&layout, attention).unwrap();
    let keys = keys();
    let taken = Counting::during(|| {
        for keys in keys.chunks(BURST) {
            let hierarchies = [Hierarchy::SampledLl; BURST];
            let misfits = egress.record_burst(&family, keys, &hierarchies[..keys.len()]);
            assert_eq!(misfits as usize, keys.len());
            keys.iter().for_each(|key| egress.record_unmarked(key, UNDATED));
        }
    });
    assert_eq!(taken, 0);
    for strays in [egress.strays(), egress.unmarked()] {
        assert!(strays.beyond > 0, "more flows than there is room for");
        assert_eq!(strays.packets(), keys.len() as u64);
    }
}

#[test]
fn single_packets_and_the_algebra_take_no_memory() {
    for arithmetic in [Arithmetic::Prime, Arithmetic::Wrapping] {
        let family = family(2);
        let shape = Shape { arithmetic, ..Shape::default() };
        let (mut one, other) = (FermatSketch::new(shape), FermatSketch::new(shape));
        let mut copy = FermatSketch::new(shape);
        let layout = Layout { arithmetic, ..Layout::default() };
        let attention = Attention::healthy(&layout, 512);
        let mut ingress = IngressGroup::new(&layout, attention, 1).unwrap();
        let keys = keys();
        let mut hashes = vec![Hashes::default(); keys.len()];
        let taken = Counting::during(|| {
            family.hash_burst(&keys, &mut hashes);
            for (key, hashes) in keys.iter().zip(&hashes) {
                one.insert(&family, key, 3);
                one.encode(&one.whole(), key, hashes);
                ingress.record(key, hashes);
                assert!(ingress.classifier().query(hashes) > 0);
            }
            one.add(&other).unwrap();
            copy.clone_from(&one);
            one.subtract(&copy).unwrap();
            copy.clear();
        });
        assert_eq!(taken, 0, "{arithmetic:?}");
        assert_eq!(one, copy);
    }
}

#[test]
fn the_count_sees_what_does_take_memory() {
    assert!(Counting::during(|| drop(FermatSketch::<FlowKey>::new(Shape::default()))) > 0);
}
