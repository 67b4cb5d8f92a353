//! DPDK's own sketch counts, finds the heavy flows, and starts anew.

mod common;

use dpdk::{MemberSketch, MemberSketchConfig};

#[test]
fn the_membership_library_counts_flows_and_keeps_the_heavy_ones() {
    let eal = common::eal(1, &[]);
    let config = MemberSketchConfig { key_len: 13, error_rate: 0.001, sample_rate: 1.0, top_k: 16 };
    let unlike = MemberSketchConfig { key_len: 0, ..config };
    assert!(MemberSketch::new(&eal, "refused", unlike).is_err());

    let mut sketch = MemberSketch::new(&eal, "flows", config).unwrap();
    // About 4 columns for each part of the error, in at least 5 rows of 8 bytes.
    assert!(sketch.bytes() >= 3900 * 5 * 8);
    let key = |flow: u8| [flow; 13];
    for packet in 0..40_000_u32 {
        // Every fourth packet is of flow 1, every eighth of flow 2, the others of 200 flows.
        let flow = match packet % 8 {
            0 | 4 => 1,
            2 => 2,
            _ => 3 + (packet % 199) as u8,
        };
        sketch.insert(&key(flow));
    }
    for (flow, packets) in [(1, 10_000), (2, 5_000)] {
        let counted = sketch.query(&key(flow));
        assert!((packets..packets + 200).contains(&counted), "{counted}");
    }
    let heavy = sketch.heavy_flows().unwrap();
    assert!(heavy.len() <= 17);
    assert!(heavy.iter().any(|(flow, packets)| *flow == key(1) && *packets >= 10_000));

    sketch.clear();
    assert_eq!(sketch.query(&key(1)), 0);
}
