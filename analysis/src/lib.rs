//! What the controller and the systems it analyses for have in common.
//!
//! A *system* is a way of measuring: ChameleMon is one. The controller collects epochs, keeps
//! sockets and files, and knows of a system only its [`System`] object: archive tables, metrics and
//! alert rules that read its [`Report`]s. Reports, and what is made of them, are typed inside a
//! system's own folder and erased here, once an epoch.
//!
//! * [`run`]: how the controller runs a system's analysis;
//! * [`keys`]: by which key switches hash in which epoch;
//! * [`steer`]: plans that change while a system runs;
//! * [`report`]: an epoch's report, as far as all systems agree on it;
//! * [`table`]: tables of the archive, typed by the functions that read their columns;
//! * [`metrics`]: metrics for Prometheus;
//! * [`alert`]: what alerts watch for;
//! * [`places`]: between which switches packets were lost;
//! * [`losses`]: the same by flow and by place, as reports have it.

pub mod alert;
mod findings;
pub mod flow;
pub mod keys;
pub mod losses;
pub mod metrics;
mod node;
pub mod places;
pub mod report;
pub mod run;
pub mod steer;
mod system;
pub mod table;
mod unprobed;

pub use findings::{Findings, SystemReport};
pub use flow::Flow;
pub use keys::{HashKeys, KeyedEpochs};
pub use node::{ClockOffset, NodeEnd};
pub use report::{EpochHead, Published, Report};
pub use run::{
    Analysis, AnyAnalysis, Collected, Delivery, Deployment, Node, NodeSetup, Notice, Remembered,
};
pub use steer::{Applied, Noticed, Pins, RecentlyNoticed, Standing, Steer};
pub use system::{Panel, System, system_of, tables_of};
pub use table::Table;
pub use unprobed::Unprobed;
