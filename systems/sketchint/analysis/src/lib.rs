//! What the controller makes of SketchINT: latencies by flow and switch, paths, heavy hitters and
//! changes at every switch, and what sinks count by themselves.
//!
//! [`calumma_sketchint`] has the frames. `docs/sketchint.md` is the operator's page.
//!
//! | module | |
//! |---|---|
//! | `analysis` | how the controller runs it |
//! | `parameters` | the operator's section |
//! | `lifecycle` | how INT goes on and off in a network |
//! | `windows` | how windows of sinks are read and checked, and the report on one |
//! | `view` | a window as one sink saw it, and what that says of a flow |
//! | `sums` | latencies of a flow at a switch: means and percentiles |
//! | `delays` | latencies of flows of which all packets say them |
//! | `sampling` | what a share of packets says of all |
//! | `local` | heavy hitters, cardinality, sizes and entropy over all packets of a sink |
//! | `nodes` | switches: latencies, queues, heavy hitters |
//! | `links` | links between switches |
//! | `sources` | what sources did with packets from hosts |
//! | `memory` | the latest windows, for questions about any flow |
//! | `suspects` | where flows that lost packets had their paths in common |
//! | `changes` | what is other than in the window before |
//! | `report` | the report's types |
//! | `tables`, `metrics`, `alert` | what else is read off it |

mod alert;
mod analysis;
mod changes;
mod delays;
mod lifecycle;
mod links;
mod local;
mod memory;
pub mod metrics;
mod nodes;
mod parameters;
pub mod report;
mod sampling;
mod sources;
mod sums;
pub mod suspects;
mod tables;
mod view;
mod windows;

use calumma_analysis::Panel;

pub use crate::alert::Watch;
pub use crate::analysis::SketchInt;
pub use crate::delays::Delays;
pub use crate::memory::FlowInWindow;
pub use crate::sources::SourceReport;
pub use crate::tables::TABLES;
pub use crate::windows::{Delivered, Limits, Windows};

/// The dashboard's panels.
pub const PANELS: &[Panel] = &[Panel {
    name: "latency",
    title: "Latencies of switches and flows",
    script: include_str!("latency.js"),
}];
