//! What every kind of switch has beside measuring.
//!
//! Its side of the conversation with the controller: the connection and its upkeep, the answers,
//! and the frames about epochs that are held until the controller has reported them. A
//! [`Conversation`] is driven in steps by a thread of the switch and never blocks it; what is to be
//! done it asks of a [`Measurer`]. How a switch measures, by which systems and with which threads,
//! is its own business. What carries the conversation is a [`Transport`]: [`Tcp`], with TLS or
//! without, or a [`Pipe`] in a simulation.
//!
//! [`run`], [`Signals`] and [`Supervisor`] are its host's side, [`metrics`] what Prometheus reads.

mod clock;
mod conversation;
mod link;
pub mod metrics;
mod pipe;
mod queue;
mod role;
mod service;
mod stream;
mod totals;
mod transport;

pub use calumma_trust::TlsFiles;
pub use clock::{WatchedClock, steady_ns, unix_ns};
pub use conversation::{Conversation, Identity, Measurer, Session, SystemOffer, UNDELIVERED};
pub use link::MOST_HELD;
pub use pipe::Pipe;
pub use role::NodeRole;
pub use service::{Signals, Supervisor, run};
pub use stream::check_exposure;
pub use transport::{Tcp, Transport};
