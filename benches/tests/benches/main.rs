//! The benchmarks do what their numbers are named for.

mod cfs;
mod edge;
mod figures;
