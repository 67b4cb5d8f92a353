//! What the controller makes of ChameleMon's sides (ChameleMon paper, sections 4.2 and 4.3). Pure:
//! no I/O, no clock, no threads.
//!
//! * [`report`]: the report on an epoch;
//! * [`analyse`]: from all edges' sketches of an epoch to its report. A replay of a capture uses it
//!   as the live controller does;
//! * [`attention`]: from what an epoch showed to how later ones are to be measured;
//! * [`ChameleMon`]: what reports bring to the controller: tables of its archive, metrics, alerts.
//!
//! The rule throughout: incomplete is allowed, wrong is not. What is missing, late or undecodable
//! is carried into the report and never becomes a loss.

mod alert;
pub mod analyse;
pub mod attention;
mod metrics;
pub mod report;
mod system;
mod tables;

pub use analyse::{Analyser, EdgeInput, EpochInput, Tasks};
pub use report::EpochReport;
pub use system::{ChameleMon, NAME};
pub use tables::TABLES;
