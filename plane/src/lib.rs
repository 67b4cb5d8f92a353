//! What the data planes of all measurement systems share, free of ports, sockets and clocks.
//!
//! A burst of [packets](packet) is [parsed](parse) once into its [`Flows`]; every system that is on
//! then walks the whole burst ([`LcoreSystem`]): what enters the network, passes from fabric to
//! fabric, leaves it. The [carrier] writes the [`Mark`] that travels with a packet and reads it
//! again. A [`Worker`] is one lcore's share of all this. Its [`Measurement`] moves the systems'
//! groups through the epochs; finished ones are merged over the lcores by a [`LcoreMerger`].
//!
//! A switch, the simulator and the replay of captures drive the very same code. Not here: what a
//! system records (`systems/`), and how packets are received, forwarded and sent (`dataplane/`).

pub mod arrival;
pub mod carrier;
pub mod checksum;
pub mod counters;
pub mod counting;
pub mod flow_set;
pub mod flow_table;
mod flows;
pub mod int;
pub mod mark;
pub mod measure;
pub mod merge;
pub mod outlet;
pub mod packet;
pub mod parse;
pub mod probe;
pub mod run;
pub mod secret;
pub mod slots;
pub mod strays;
pub mod sync;
pub mod system;
pub mod tag;
pub mod worker;

pub use arrival::Arrival;
pub use carrier::{Carrier, Mark};
pub use counters::Counters;
pub use counting::CountEach;
pub use flow_set::FlowSet;
pub use flow_table::{FlowList, FlowTable};
pub use flows::{Flows, OfBit};
pub use mark::Hierarchy;
pub use measure::Measurement;
pub use merge::{LcoreMerger, Part};
pub use packet::Packet;
pub use run::{MarkedRun, Run};
pub use slots::Slots;
pub use strays::{AnyStrays, MOST_STRAYS, Stray, StrayTable, Strays, UNDATED};
pub use system::{AnyRecord, LcoreSystem, Record, Recorded, SwitchSystem};
pub use worker::Worker;
