//! The model of a Tofino: what it accepts, refuses and computes.

mod conformance;
mod control_plane;
mod edge;
mod fuzz;
mod rejected;
mod telemetry;
