//! The model of a Tofino switch in the place of a real one: behind the driver's interface
//! (BFRuntime over gRPC) and with network interfaces for ports, so that a control plane and a
//! program run end to end by the real protocol without hardware.
//!
//! [`Pipe`] is the thread that owns the switch and its ports; [`Driver`] the service. Changes of
//! tables take effect one by one between packets, as on hardware.
//!
//! What it is not: fast, or a whole driver. Ports are up when their interfaces are; there are no
//! digests, no learning, no loading of programs; all ports belong to one pipe.

mod pipe;
mod ports;
mod schema;
mod service;
mod tables;

use calumma_tna::Program;

pub use pipe::{Pipe, Port};
pub use service::Driver;

/// The description of a program's tables: JSON, as a compiler's `bfrt.json`.
pub fn description(program: &Program) -> Vec<u8> {
    schema::Schema::new(program, std::sync::Arc::default()).program
}
