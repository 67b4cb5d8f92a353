//! What the controller makes of SketchINT: latencies by flow and switch, paths, heavy hitters and
//! changes at every switch, and what sinks count by themselves.
//!
//! [`calumma_sketchint`] has the frames. `docs/sketchint.md` is the operator's page.

pub mod lifecycle;
pub mod parameters;
