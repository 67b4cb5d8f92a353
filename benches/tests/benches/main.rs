//! The benchmarks do what their numbers are named for.

mod edge;
mod figures;
