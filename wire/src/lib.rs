//! The frames between an edge switch and the controller.
