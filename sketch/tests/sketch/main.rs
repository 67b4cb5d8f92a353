//! What the sketches' users rely on.

mod accumulation;
mod chosen;
#[path = "../common/mod.rs"]
mod common;
mod contract;
mod estimates;
mod hashes;
mod hints;
mod indistinct;
mod pairs;
mod robustness;
mod selection;
mod sizing;
mod sketchint;
mod wide;
