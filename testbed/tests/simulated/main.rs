//! Networks in one process, and the testbed's own tools.

mod cfs;
mod clocks;
mod generator;
mod p4_edge;
mod probes;
mod replay;
mod rotation;
mod scenarios;
mod simulation;
mod stalls;
mod tiny;
mod traffic;
mod treatments;
mod ways;
