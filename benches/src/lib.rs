//! What the benchmarks share: workloads, taking turns at measuring, and peers of the sketches.
//!
//! For benchmarks only; nothing that runs in a network uses it.

pub mod cases;
pub mod figures;
pub mod measure;
pub mod peers;
pub mod workload;
