//! Frames between switches and the controller.

mod frames;
mod golden;
mod samples;
