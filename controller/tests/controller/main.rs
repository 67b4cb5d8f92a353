//! What the controller's users rely on.

mod analysis;
mod program;
mod shifting;
mod stories;
mod world;
