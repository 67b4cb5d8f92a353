//! What the controller's users rely on.

mod analysis;
mod any;
mod archive;
mod ipfix;
mod metrics;
mod program;
mod shifting;
mod stories;
mod webhooks;
mod world;
