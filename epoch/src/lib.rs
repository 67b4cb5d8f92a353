//! Epochs: how time is cut, how two groups of sketches rotate, and when configuration takes effect.
//!
//! Everything here is a pure state machine: time is a number that the caller passes in, groups are
//! values of any type, and nothing blocks, sleeps or shares. The software edge switch drives these
//! machines from its lcores, the Tofino switch's control plane from its timer, the replay of a
//! capture from the capture's timestamps.
//!
//! An epoch E lasts from its start B(E) to B(E + 1). Each switch goes through the same [`Event`]s
//! (Appendix B of the ChameleMon paper):
//!
//! ```text
//!      B(E)                                             B(E+1)
//!  ─────┼────────────────┼──────────────────────────┼──────┼─────────
//!    flip E          take E-1                    arm E+1  flip E+1
//!       ├─ clock+flight ─┤                          ├clock─┤
//! ```
//!
//! * *arm E*: the configuration of E is frozen and empty groups are put in place for it; from now
//!   on, packets of switches whose clocks run ahead may carry E's timestamp bit.
//! * *flip E*: packets that enter the network are stamped with E's bit and recorded in its group;
//!   the ingress group of E - 1 is finished.
//! * *take E - 1*: packets of E - 1 have left the network or are lost; its egress group is
//!   finished. Until the bit is armed again, a packet that carries it is late.

mod clock;
mod rotation;
mod schedule;
mod step;
mod timeline;

pub use clock::{ClockError, EpochClock, Guards, timestamp_bit};
pub use rotation::{Finished, Rotation};
pub use schedule::{Due, Event, Schedule};
pub use step::{RESTART_NS, StepWatch};
pub use timeline::{Timeline, TooLate};
