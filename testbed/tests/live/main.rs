//! What needs root and the machine for itself: real switches, routers and applications.

mod cfs;
mod demo;
mod fabric;
mod gro;
mod machine;
mod mixed;
mod playing;
mod scenarios;
mod sketchint;
mod soak;
