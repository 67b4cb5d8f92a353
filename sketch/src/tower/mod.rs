//! TowerSketch: approximate flow sizes from arrays of counters of rising width (section 3.2.1 of
//! the ChameleMon paper; SketchINT, section IV).
//!
//! Narrow counters are many and tell mice apart; wide ones are few and hold the elephants. A
//! counter at its maximum has overflowed and stands for infinity. An estimate never lies below
//! the truth.

mod level;
mod sketch;
mod weighted;

pub use level::{Level, LevelError, MAX_LEVELS, MOST_LEVELS, OVERFLOW, validate_levels};
pub(crate) use sketch::Stratum;
pub use sketch::{CountersError, Insertion, TowerSketch};
pub use weighted::Rule;
