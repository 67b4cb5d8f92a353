//! Forwarding by routes: what makes the edge a router, where it is not a bump in the wire.
//!
//! A burst's way on an lcore, in passes: [`decide`] recognises plain packets ([`plain`]), looks all
//! destinations up at once and rewrites the headers; [`router`] has those packets measured that
//! enter or leave the network, and lets them wait by port. Packets that are not plain are read
//! header by header, out of the way of the others. What is forwarded by are the [`tables`], which
//! never change: new ones replace them between two bursts. Everything that is not forwarding, such
//! as ARP, neighbour discovery, pings and ICMP errors, and packets whose next hop is not known yet,
//! goes over bounded rings ([`exchange`]) to the [`slow`] path, which a [`thread`] of its own
//! runs; it also publishes the tables.
//!
//! Not here: routing protocols (routes come from the configuration), filtering, address
//! translation, bridging within a network, multicast routing.

pub mod address;
pub mod advice;
pub mod assembly;
pub mod config;
pub mod counters;
pub mod decide;
pub mod exchange;
mod found;
pub mod header;
pub mod links;
pub mod lpm;
pub mod plain;
pub mod routed;
pub mod router;
mod shorten;
pub mod slow;
pub mod tables;
pub mod thread;
mod unrouted;
