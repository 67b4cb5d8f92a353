//! The frames between an edge switch and the controller.
//!
//! Both talk over one long-lived TCP connection, which the switch opens. A frame is, all numbers
//! little-endian:
//!
//! ```text
//!  0        4       6         7      8
//!  ├────────┼───────┼─────────┼──────┼────────────── ─ ─
//!  │ length │ magic │ version │ kind │ body
//!  └────────┴───────┴─────────┴──────┴────────────── ─ ─
//!           └──────────── length bytes ──────────── ─ ─┘
//! ```
//!
//! The switch says [`Hello`](Message::Hello); the controller answers with
//! [`Welcome`](Message::Welcome), which holds all that a switch measures by, or with
//! [`Refused`](Message::Refused). From then on the switch pushes, for each epoch, an
//! [`Ingress`](Message::Ingress) and an [`Egress`](Message::Egress) frame with its sketches and at
//! last a [`Sealed`](Message::Sealed) one; the controller sends
//! [`Reconfigure`](Message::Reconfigure) when attention is to move, and the switch answers
//! [`Applied`](Message::Applied).
//!
//! All the while the controller sends [`Probe`](Message::Probe)s, which the switch answers with an
//! [`Echo`](Message::Echo) at once, to measure how far their clocks are apart; and it says which
//! epochs it has [`Reported`](Message::Reported), so that the switch holds those that it has not,
//! and sends them again to the next controller should this one go.
//!
//! Sketches are sent byte column by byte column, without buckets and columns that are zero, and
//! packed. An HH encoder that the switch could decode goes out as the flows that came out of it.
//! Sketches can only be read with the [`Layout`](calumma_chamelemon::Layout) they were built by,
//! so both kinds of sketch frame are refused before the layout is known.
//!
//! Nothing here does I/O: [`FrameReader`] takes bytes from whatever socket there is.
//!
//! ```
//! use calumma_wire::{FrameReader, Marking, Message, SwitchKind};
//!
//! let mut bytes = Vec::new();
//! let hello = Message::Hello {
//!     edge: "e1".to_owned(),
//!     kind: SwitchKind::Software,
//!     program: "calumma-edge 0.1.0".to_owned(),
//!     holding: None,
//!     marking: Marking::default(),
//! };
//! hello.encode(&mut bytes);
//!
//! let mut reader = FrameReader::new();
//! reader.push(&bytes[..5]);
//! assert_eq!(reader.next(None), Ok(None));
//! reader.push(&bytes[5..]);
//! assert_eq!(reader.next(None), Ok(Some(hello)));
//! ```

mod body;
mod columns;
mod error;
mod fields;
mod frame;
mod message;
mod sketches;

pub use error::{DecodeError, Problem};
pub use fields::{Defects, Holding, Marking, Outcome, SwitchKind};
pub use frame::{FrameReader, HEADER_BYTES, MAGIC, MAX_FRAME_BYTES, VERSION, check_layout};
pub use message::{
    Egress, Ingress, Message, SideHead, Upstream, Upstreams, encode_egress, encode_ingress,
};

/// Longest name of an edge, in bytes; longer ones are cut when encoded.
pub const MAX_NAME_BYTES: usize = 64;

/// Longest reason or program version, in bytes; longer ones are cut when encoded.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Most counters a frame carries; further ones are left out when encoded.
pub const MAX_COUNTERS: usize = 1024;
