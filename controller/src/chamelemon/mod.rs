//! What the controller does for ChameleMon beside collecting and reporting, which it does for every
//! system.

pub mod collect;

pub use collect::Collector;
