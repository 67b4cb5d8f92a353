//! What a switch does for SketchINT: sinks record what the stacks of packets for hosts say, each
//! window into sketches of its own.

mod attended;
mod lcore;
mod record;
mod report;
mod switch;

pub use self::record::{Leaving, SinkSetup, SinkWindow};
pub use self::switch::SketchInt;
