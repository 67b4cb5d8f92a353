//! What the controller's users rely on.

mod analysis;
mod api;
mod browser;
mod client;
mod dashboard;
mod program;
mod shifting;
mod stories;
mod world;
