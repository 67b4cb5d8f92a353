//! The software edge switch.
