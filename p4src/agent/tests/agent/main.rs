//! The control plane of a Tofino edge, over the model of the switch.

mod cfs;
mod cfs_edge;
mod cfs_loops;
mod cfs_windows;
mod collect;
mod common;
mod daemon;
mod equal_sketches;
mod faults;
mod forwarding;
mod generated;
mod hops;
mod identification;
mod notices;
mod operation;
mod rig;
mod sketchint;
mod sketchint_edge;
mod sketchint_inflated;
mod sketchint_windows;
mod slow;
