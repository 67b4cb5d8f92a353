//! What an edge does with packets, in one process.

mod by_port;
mod captured;
mod carriers;
mod fabric_mtu;
mod inserter;
mod int;
mod lcores;
mod passage;
mod probes;
mod two_edges;
