//! What an edge switch keeps and does for ChameleMon, packet by packet: no I/O, no clock.

pub mod any;
pub mod attention;
pub mod balance;
pub mod group;
pub mod late;
pub mod layout;
pub(crate) mod lcore;
