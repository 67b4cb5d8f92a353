//! Reports held against what really happened, packet by packet: no number that is said to be exact
//! is wrong, and no bound is broken, whatever a network did to packets.

mod doubts;
mod properties;
mod stories;
mod world;
