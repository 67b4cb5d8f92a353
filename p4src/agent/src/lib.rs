//! The control plane of a hardware edge switch: what its P4 program is built with and what its
//! tables hold.
//!
//! Everything here comes from the functions that the software edge uses, so that both kinds of
//! switch agree bit for bit ([`program`] writes the constants that the P4 program includes,
//! [`entries`] the table entries of a deployment and of an epoch).

pub mod collection;
pub mod entries;
pub mod program;
