//! Networks in one process, and the testbed's own tools.

mod captures;
mod cfs;
mod clocks;
mod disks;
mod generator;
mod ipfix;
mod ipfix_delays;
mod notices;
mod p4_cfs;
mod p4_edge;
mod p4_identification;
mod p4_sketchint;
mod probes;
mod replay;
mod replay_systems;
mod reports;
mod rotation;
mod scenarios;
mod simulation;
mod sketchint;
mod stacks;
mod stalls;
mod strays;
#[path = "../../../p4src/agent/tests/agent/common/mod.rs"]
mod switch;
mod tiny;
mod traffic;
mod treatments;
mod ways;
