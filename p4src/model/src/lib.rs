//! Runs P4_16 programs written for the Tofino Native Architecture without hardware.
//!
//! A program is read like a compiler reads it (preprocessor, parser, types), checked against the
//! limits of the hardware that decide whether it could run there (stateful ALUs, one access to a
//! register for a packet, match kinds), and executed packet by packet:
//!
//! ```
//! use calumma_tna::{Entry, Program, Switch};
//!
//! # let text = include_str!("../tests/programs/forward.p4");
//! let program = Program::from_text("forward.p4", text, &[])?;
//! let mut switch = Switch::new(&program);
//! switch.add_entry("forward", &Entry::new("send").exact("ig_intr_md.ingress_port", 1u16).arg("port", 2u16))?;
//! let sent = switch.inject(1, &[0xab; 64]);
//! assert_eq!(sent, [(2, vec![0xab; 64])]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The path of a program: [`Program::load`] runs `source` (tokens), `syntax` (tree) and `lower`
//! (checked code with all names resolved) and `optimize`; [`Switch::inject`] runs `exec` on that
//! code.
//!
//! What it is not: a compiler. It does not place tables in stages nor fields in containers, so a
//! program that runs here may still not fit. What it does not support is an error at load time
//! that names the line; nothing is skipped.

mod arch;
mod error;
mod exec;
mod hash;
mod ir;
mod lower;
mod ops;
mod optimize;
mod program;
mod source;
mod switch;
mod syntax;
mod table;
mod types;

pub use error::{ControlError, LoadError, Location};
pub use exec::Count;
pub use ir::{CounterKind, FieldMatch, MatchKind};
pub use program::{ActionInfo, CounterInfo, HashInfo, KeyInfo, Program, RegisterInfo, TableInfo};
pub use switch::{DigestRecord, Entry, EntryInfo, MirrorSession, Statistics, Switch};
