//! SketchINT: what packets met at every switch on their way, from INT compressed into
//! TowerSketches.
//!
//! [`plane`] is what a switch does, [`frames`] what goes over the wire. What the controller makes
//! of it is `calumma-sketchint-analysis`. How INT is put into packets and taken out of them is
//! `calumma-plane`'s (`int`), the sketches are `calumma-sketch`'s (`sketchint`).

pub mod frames;
pub mod plane;

pub use plane::SketchInt;
