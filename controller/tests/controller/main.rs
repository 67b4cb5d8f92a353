//! What the controller's users rely on.

mod agreement;
mod analysis;
mod any;
mod api;
mod archive;
mod browser;
mod client;
mod dashboard;
mod dual_stack;
mod ipfix;
mod keys;
mod metrics;
mod peer;
mod program;
mod schema;
mod shifting;
mod stories;
mod systems;
mod trust;
mod unprobed;
mod versions;
mod webhooks;
mod world;
