//! The cases of the sketches themselves.

use std::hint::black_box;

use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Layout};
use calumma_plane::Record;
use calumma_sketch::BURST;
use calumma_sketch::{
    Arithmetic, FermatSketch, FlowKey, HashFamily, Hashes, Key, Shape, TowerSketch, estimate,
};

use crate::measure::{Case, Watch};
use crate::workload::{self, losses};

/// Nanoseconds for each of `number` things that `work` does.
pub fn ns_each(number: usize, work: impl FnOnce()) -> f64 {
    let start = Watch::start();
    work();
    start.nanos() / number as f64
}

/// Millions a second of `number` things that `work` does.
pub fn mpps(number: usize, work: impl FnOnce()) -> f64 {
    1_000.0 / ns_each(number, work)
}

/// Hashing in bursts.
pub fn hash<'a, K: Key>(name: &str, family: HashFamily, packets: &'a [K]) -> Case<'a> {
    Case::new(name, "ns/packet", move || {
        let mut hashes = [Hashes::default(); BURST];
        ns_each(packets.len(), || {
            for burst in packets.chunks(BURST) {
                family.hash_burst(burst, &mut hashes[..burst.len()]);
                black_box(&hashes);
            }
        })
    })
}

/// Hashing and inserting into the classifier of the layout.
pub fn classify<'a>(
    name: &str,
    family: HashFamily,
    layout: &Layout,
    packets: &'a [FlowKey],
) -> Case<'a> {
    let tower = TowerSketch::new(&layout.classifier).expect("a valid classifier");
    let mut tower = tower.with_insertion(layout.insertion);
    Case::new(name, "Mpps", move || {
        tower.clear();
        let mut hashes = [Hashes::default(); BURST];
        mpps(packets.len(), || {
            for burst in packets.chunks(BURST) {
                let hashes = &mut hashes[..burst.len()];
                family.hash_burst(burst, hashes);
                for hashes in hashes {
                    black_box(tower.insert(hashes));
                }
            }
        })
    })
}

/// All the ingress work of a switch under the layout and attention given.
pub fn ingress<'a, K: Key>(
    name: &str,
    family: HashFamily,
    layout: &Layout,
    attention: Attention,
    packets: &'a [K],
) -> Case<'a> {
    let mut group = IngressGroup::<K>::new(layout, attention, 1).expect("a valid layout");
    Case::new(name, "Mpps", move || {
        group.clear();
        let mut hierarchies = [Hierarchy::default(); BURST];
        mpps(packets.len(), || {
            for burst in packets.chunks(BURST) {
                group.record_burst(&family, burst, &mut hierarchies[..burst.len()]);
                black_box(&hierarchies);
            }
        })
    })
}

/// All the egress work of a switch; the packets carry what ingress made of them.
pub fn egress<'a, K: Key>(
    name: &str,
    family: HashFamily,
    layout: &Layout,
    attention: Attention,
    packets: &'a [K],
) -> Case<'a> {
    let mut ingress = IngressGroup::new(layout, attention, 1).expect("a valid layout");
    let mut carried = vec![Hierarchy::default(); packets.len()];
    for (burst, carried) in packets.chunks(BURST).zip(carried.chunks_mut(BURST)) {
        ingress.record_burst(&family, burst, carried);
    }
    let mut group = EgressGroup::<K>::new(layout, attention).expect("a valid layout");
    Case::new(name, "Mpps", move || {
        group.clear();
        mpps(packets.len(), || {
            for (burst, carried) in packets.chunks(BURST).zip(carried.chunks(BURST)) {
                black_box(group.record_burst(&family, burst, carried));
            }
        })
    })
}

/// Decoding `flows` flows of keys `K` at load factor 0.7, with or without the flows put into a hash
/// map.
pub fn decode<K: Key + From<FlowKey>>(
    name: &str,
    family: HashFamily,
    arithmetic: Arithmetic,
    flows: usize,
    by_key: bool,
) -> Case<'static> {
    let keys = workload::keys(flows, 11);
    let buckets = (flows as f64 / 0.7 / 3.0).ceil() as usize;
    let shape = Shape { arithmetic, ..Shape::default() }.with_buckets(buckets);
    let mut sketch = FermatSketch::new(shape);
    for (flow, key) in keys.iter().enumerate() {
        sketch.insert(&family, &K::from(*key), losses(flow));
    }
    let times = (50_000 / flows).max(1);
    Case::new(name, "ns/flow", move || {
        let copies: Vec<_> = (0..times).map(|_| sketch.clone()).collect();
        ns_each(times * flows, || {
            for copy in copies {
                let decoded = copy.decode(&family);
                assert!(decoded.flows().len() + 10 > flows, "most flows decode");
                if by_key {
                    black_box(decoded.into_flowset());
                } else {
                    black_box(decoded);
                }
            }
        })
    })
}

/// Bytes read and written a nanosecond, that is gigabytes a second, by an operation on sketches of
/// `buckets` buckets an array, and by the machine's own copy of as much memory.
pub fn algebra(arithmetic: Arithmetic, buckets: usize) -> Vec<Case<'static>> {
    let shape = Shape { arithmetic, ..Shape::default() }.with_buckets(buckets);
    let family = HashFamily::new(&calumma_sketch::HashKey::from_bytes([9; 32]));
    let mut one = FermatSketch::new(shape);
    for (flow, key) in workload::keys(buckets, 5).iter().enumerate() {
        one.insert(&family, key, losses(flow));
    }
    let bytes = size_of_val(one.buckets());
    let times = (32 << 20) / bytes + 1;
    let per_ns = move |moved: usize, work: &mut dyn FnMut()| {
        let start = Watch::start();
        (0..times).for_each(|_| work());
        (moved * times) as f64 / start.nanos()
    };
    let (mut a, mut b, mut c, mut d) = (one.clone(), one.clone(), one.clone(), one.clone());
    let (one_a, one_b, one_c) = (one.clone(), one.clone(), one);
    let name = |operation: &str| {
        let arithmetic = if arithmetic == Arithmetic::Prime { "prime" } else { "wrapping" };
        format!("sketch.{operation}.{arithmetic}.{}k.gbps", bytes >> 10)
    };
    vec![
        Case::new(&name("add"), "GB/s", move || {
            per_ns(3 * bytes, &mut || a.add(black_box(&one_a)).expect("same shape"))
        }),
        Case::new(&name("subtract"), "GB/s", move || {
            per_ns(3 * bytes, &mut || b.subtract(black_box(&one_b)).expect("same shape"))
        }),
        Case::new(&name("clear"), "GB/s", move || per_ns(bytes, &mut || black_box(&mut c).clear())),
        Case::new(&name("snapshot"), "GB/s", move || {
            per_ns(2 * bytes, &mut || black_box(&mut d).clone_from(&one_c))
        }),
    ]
}

/// The whole flow size distribution from the default classifier.
pub fn em(name: &str, family: &HashFamily, layout: &Layout, packets: &[FlowKey]) -> Case<'static> {
    let mut tower = TowerSketch::new(&layout.classifier).expect("a valid classifier");
    for key in packets {
        tower.insert(&family.hash(key));
    }
    Case::new(name, "ms", move || {
        let start = Watch::start();
        black_box(estimate::size_distribution(&tower, std::iter::empty()));
        start.nanos() / 1e6
    })
}
