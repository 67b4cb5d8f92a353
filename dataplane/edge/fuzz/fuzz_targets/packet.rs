//! Any bytes as a packet through an ingress and an egress edge, with every carrier: parse, mark,
//! encode, restore. Nothing panics, and packets come out as they went in.
//!
//! Run with `cargo +nightly fuzz run fuzz-edge-packet` in `dataplane/edge/`. Input is a byte that
//! says how many bytes a capture has cut off, and a packet; real ones are written to the folder
//! that `CALUMMA_SEEDS` names.
#![no_main]

#[path = "../../tests/packets/captured.rs"]
mod captured;

#[path = "../../tests/packets/passage/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod passage;

use std::cell::RefCell;

use calumma_edge::parse::tunnel::Tunnels;
use libfuzzer_sys::fuzz_target;
use passage::{CARRIERS, Passage, cut};

thread_local! {
    static PASSAGES: RefCell<Vec<Passage>> = RefCell::new(
        CARRIERS
            .iter()
            .flat_map(|&(_, carrier)| {
                [Tunnels::Outer, Tunnels::Inner].map(|tunnels| Passage::new(carrier, tunnels))
            })
            .collect(),
    );
}

fuzz_target!(
    init: captured::write_seeds(&[0]),
    |input: &[u8]| {
        let Some((missing, packet)) = input.split_first() else { return };
        let frame = cut(packet, packet.len() + usize::from(*missing));
        PASSAGES.with_borrow_mut(|passages| {
            for passage in passages {
                passage.pass(std::slice::from_ref(&frame));
            }
        });
    }
);
