//! Routers between hosts and a fabric, without ports and in virtual time: real mbufs, DPDK's tables
//! of routes, the slow path stepped by hand. And an lcore that polls a ring, in real time.

mod arrivals;
mod by_port;
mod chains;
mod conservation;
mod edge;
mod floods;
mod frames;
mod generations;
#[path = "../packets/inserter.rs"]
#[allow(dead_code, reason = "tests of packets use more of it")]
mod inserter;
mod int;
mod measured;
mod neighbours;
mod passed;
mod received;
mod sent;
mod traffic;
mod waiting;
