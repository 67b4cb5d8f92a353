//! The central controller: collects what every node measures epoch by epoch, decodes them, and
//! answers the operator's questions.
//!
//! Five parts, each usable without the next:
//!
//! * [`report`]: what is said about an epoch, and [`summary`], the same in few numbers;
//! * [`analyse`]: from all edges' sketches of an epoch to its report. Pure; a replay of a capture
//!   uses it as the live controller does;
//! * [`attention`]: from what an epoch showed to how later ones are to be measured. Pure;
//! * [`collect`]: from frames in any order to whole epochs in order, for any measurement system;
//!   [`chamelemon`]: the same of ChameleMon's frames; [`analysing`]: on to the reports of any other
//!   system. Pure; time is passed in;
//! * [`cfs`], [`sketchint`]: what the HTTP API answers about those systems alone;
//! * [`clocks`]: how far the edges' clocks are apart. Pure;
//! * [`steering`]: plans that change while a system runs, on their way to its nodes. Pure;
//! * [`server`]: sockets, threads, files and the terminal around them; [`program`] is all of it as
//!   the program.
//!
//! The rule throughout: incomplete is allowed, wrong is not. What is missing, late or undecodable
//! is carried into the report and never becomes a loss.

pub mod alert;
pub mod analysing;
pub mod api;
pub mod carrier;
pub mod cfs;
pub mod chamelemon;
pub mod clocks;
pub mod collect;
pub mod config;
mod doubts;
pub mod ipfix;
mod keep;
pub mod metrics;
pub mod output;
pub mod paths;
pub mod program;
pub mod server;
pub mod sketchint;
mod spans;
pub mod steering;
pub mod summary;
mod topology;

pub use calumma_chamelemon_analysis::{analyse, attention, report};

pub use analyse::{Analyser, EdgeInput, EpochInput, Tasks};
pub use chamelemon::Collector;
pub use config::Config;
pub use report::EpochReport;
pub use summary::EpochSummary;
