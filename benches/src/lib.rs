//! What the benchmarks share: workloads, taking turns at measuring, and peers of the sketches.
//!
//! For benchmarks only; nothing that runs in a network uses it.

pub mod cases;
pub mod cfs;
pub mod chosen;
pub mod controller;
pub mod cooperation;
pub mod crowd;
pub mod edge;
pub mod figures;
pub mod load;
pub mod measure;
pub mod memory;
pub mod network;
pub mod passport;
pub mod peers;
pub mod rte_hash;
pub mod sketchint;
pub mod windows;
pub mod workload;
