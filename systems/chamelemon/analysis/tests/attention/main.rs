//! Attention in a closed loop: measured, decoded, planned, and measured under the plan.

mod network;
mod properties;
mod stories;
