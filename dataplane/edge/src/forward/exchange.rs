//! What lcores and the slow path hand to each other, through bounded rings that nobody waits for.

use super::decide::{Arrived, Task};

/// Where a packet is on its way through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It came from a host: it enters the network if it goes on to the fabric.
    Host,
    /// It came from the fabric: it leaves the network if it goes on to a host.
    Fabric,
    /// It came from the fabric and has been recorded as having left the network.
    Left,
    /// The switch made it.
    Own,
}

/// A packet on its way to the slow path.
#[derive(Debug)]
pub struct HandOver<P> {
    /// The packet, as it came.
    pub packet: P,
    /// Position of the port it came from.
    pub port: usize,
    /// The interface it came in by.
    pub arrived: Arrived,
    /// Where it is on its way.
    pub origin: Origin,
    /// What is to be done.
    pub task: Task,
}

/// A packet on its way from the slow path.
#[derive(Debug)]
pub enum Return<P> {
    /// To be forwarded like any other; it is as it came, or the switch made it.
    Route {
        /// The packet.
        packet: P,
        /// Position of the port it came from.
        port: usize,
        /// Where it is on its way.
        origin: Origin,
    },
    /// To be sent as it is.
    Send {
        /// The frame.
        packet: P,
        /// Position of the port it leaves by.
        port: usize,
    },
    /// To be freed: an mbuf goes back to its pool where it came from, so that the slow path never
    /// makes an lcore wait for the pool.
    Free(P),
}
