//! What the controller's users rely on.

mod analysis;
mod program;
mod stories;
mod world;
