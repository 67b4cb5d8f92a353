//! Epochs, the rotation of two groups, and configuration that takes effect at an epoch, as pure state machines.
