//! Cases of what saves memory: decoding with hints.

use std::hint::black_box;

use calumma_sketch::{Arithmetic, FermatSketch, FlowKey, HashFamily, Shape};

use crate::measure::Case;
use crate::workload::{self, losses};

/// Decoding as many flows as give the load factor in 3 x 4096 buckets, hinted of them being known
/// and a share of the hints being stale.
pub fn hinted(
    name: &str,
    family: HashFamily,
    arithmetic: Arithmetic,
    load: f64,
    hinted: f64,
    stale: f64,
) -> Case<'static> {
    let shape = Shape { arithmetic, ..Shape::default() };
    let flows = (load * shape.total_buckets() as f64) as usize;
    let known = (hinted * flows as f64) as usize;
    let gone = (stale * known as f64) as usize;
    let keys = workload::keys(flows + gone, 17);
    let hints: Vec<FlowKey> = [&keys[..known], &keys[flows..]].concat();
    let mut sketch = FermatSketch::new(shape);
    for (flow, key) in keys[..flows].iter().enumerate() {
        sketch.insert(&family, key, losses(flow));
    }
    Case::new(name, "ns/flow", move || {
        let copy = sketch.clone();
        crate::cases::ns_each(flows, || {
            let decoded = copy.decode_with_hints(&family, &hints);
            assert!(decoded.is_complete(), "a load below the limit");
            black_box(decoded);
        })
    })
}
