//! The frames between a node and the controller.
//!
//! Both communicate over one long-lived TCP connection, which the node opens. A frame is, all
//! numbers little-endian:
//!
//! ```text
//!  0        4       6         7      8
//!  ├────────┼───────┼─────────┼──────┼────────────── ─ ─
//!  │ length │ magic │ version │ kind │ fields
//!  └────────┴───────┴─────────┴──────┴────────────── ─ ─
//!           └──────────── length bytes ──────────── ─ ─┘
//! ```
//!
//! The frames are an envelope: what a measurement system puts into them is opaque here, and named
//! by the system's [`SystemId`]. The node sends [`Hello`](Message::Hello) with the systems that it
//! can run; the controller answers with [`Welcome`](Message::Welcome), which holds all that the
//! node measures by, a setup and a plan for each system, or with [`Refused`](Message::Refused).
//! A node may leave it to the controller by which carrier it marks packets: it offers several
//! ([`Marking::offers`]), and [`Welcome::carrier`] is the one.
//! From then on the node pushes, for each epoch and system, its [`Side`](Message::Side)s and at
//! last a [`Sealed`](Message::Sealed) frame; the controller sends
//! [`Reconfigure`](Message::Reconfigure) when a plan is to change, and the node answers
//! [`Applied`](Message::Applied). What a system reports before its epoch is over comes in a
//! [`Notice`](Message::Notice). A system that the receiver does not run is skipped. A side that is
//! longer than a frame may be comes in [`parts`].
//!
//! ```text
//!  side frame
//!  8        9       17     18       26        34         36
//!  ├────────┼───────┼──────┼────────┼─────────┼──────────┼───────── ─ ─┼────── ─ ─
//!  │ system │ epoch │ side │ stall  │ packets │ counters │ name, value │ body
//!  │  id    │       │      │  ns    │         │  number  │  of each    │ (opaque)
//!  └────────┴───────┴──────┴────────┴─────────┴──────────┴───────── ─ ─┴────── ─ ─
//! ```
//!
//! All the while the controller sends [`Probe`](Message::Probe)s, which the node answers with an
//! [`Echo`](Message::Echo) at once, to measure how far their clocks are apart; and it says which
//! epochs it has [`Reported`](Message::Reported), so that the node holds those that it has not,
//! and sends them again to the next controller should this one go.
//!
//! Edges that offer [`SystemId::PROBES`] send one another probes as the controller
//! [wants](Message::PathsWanted), and say what they have [seen](Message::PathsSeen) of the network
//! by them.
//!
//! Frames of the version before, [`v5`], are read and written as well. A controller answers in the
//! version of the node's hello; a node falls back to it when a controller refuses its own.
//!
//! [`body`], [`fields!`] and [`columns`] are how bodies are read and written. Nothing here does
//! I/O: [`FrameReader`] takes bytes from whatever socket there is.
//!
//! ```
//! use calumma_wire::{FrameReader, Hello, Marking, Message, Offer, Role, SwitchKind, SystemId};
//!
//! let mut bytes = Vec::new();
//! let hello = Message::Hello(Box::new(Hello {
//!     node: "e1".to_owned(),
//!     role: Role::Edge,
//!     kind: SwitchKind::Software,
//!     program: "calumma-edge 0.1.0".to_owned(),
//!     marking: Marking::default(),
//!     systems: vec![Offer { system: SystemId::CHAMELEMON, lowest: 1, highest: 1 }],
//!     holding: Vec::new(),
//! }));
//! hello.encode(&mut bytes);
//!
//! let mut reader = FrameReader::new();
//! reader.push(&bytes[..5]);
//! assert_eq!(reader.next_message(), Ok(None));
//! reader.push(&bytes[5..]);
//! assert_eq!(reader.next_message(), Ok(Some(hello)));
//! ```

pub mod body;
pub mod columns;
mod domain;
mod error;
mod fields;
mod frame;
mod layout;
mod message;
pub mod parts;
mod paths;
mod system;
pub mod v5;

pub use domain::{DEFAULT_FABRIC_MTU, Domain, LEAST_FABRIC_MTU, MAX_PREFIXES, Prefix};
pub use error::{DecodeError, Problem};
pub use fields::{Marking, Outcome, Role, SideKind, SwitchKind};
pub use frame::{
    FrameReader, HEADER_BYTES, MAGIC, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, MAX_TO_NODE_BYTES,
    OLDEST_VERSION, VERSION,
};
pub use layout::{Fields, Number};
pub use message::{Generators, Hello, Message, Secret, Side, Welcome};
pub use paths::{MAX_PATH_ENTRIES, NO_MARK, PathsSeen, PathsWanted, ProbeSeen};
pub use system::{Offer, SystemId, SystemSetup};

/// Longest name of a node, in bytes; longer ones are cut when encoded.
pub const MAX_NAME_BYTES: usize = 64;

/// Longest reason or program version, in bytes; longer ones are cut when encoded.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Most counters a frame carries; further ones are left out when encoded.
pub const MAX_COUNTERS: usize = 1024;

/// Most systems that a frame is about; further ones are left out when encoded.
pub const MAX_SYSTEMS: usize = 16;

/// Most carriers that a switch offers; further ones are left out when encoded.
pub const MAX_CARRIERS: usize = 8;
