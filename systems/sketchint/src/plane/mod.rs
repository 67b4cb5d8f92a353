//! What a switch does for SketchINT: sinks record what the stacks of packets for hosts say, each
//! window into sketches of its own.

mod record;

pub use self::record::{Leaving, SinkSetup, SinkWindow};
