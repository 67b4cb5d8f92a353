//! What ChameleMon puts into the [envelope](calumma_wire): layout, attention, sketches.
//!
//! All numbers are little-endian. A *setup* is the [`Layout`], a *plan* the [`Attention`]; what a
//! switch *holds* is an attention and the epoch from which it holds. The body of a side begins with
//!
//! ```text
//!  0                                                24                32      33
//!  ├──────┬─────┬─────────────┬──────┬──────┬───────┼─────────────────┼───────┼───── ─ ─
//!  │ T_h  │ T_l │ sample rate │ HH   │ HL   │ LL    │ foreign packets │ mixed │ sketches
//!  └──────┴─────┴─────────────┴──────┴──────┴───────┴─────────────────┴───────┴───── ─ ─
//! ```
//!
//! and goes on, on the ingress side, with the flow classifier and the upstream flow encoder; on the
//! egress side, with the downstream flow encoder. Sketches are sent byte column by byte column,
//! without buckets and columns that are zero, and packed. An HH encoder that the switch could
//! decode goes out as the flows that came out of it. Bodies of sides can only be read with the
//! layout that their sketches were built by. Behind the sketches, version 2 has what was recorded
//! beside them: packets by hierarchy, by flow those that no sketch holds, the number of the key
//! that flows were hashed by, and how many lcores took part.
//!
//! [`SwitchSession`] is a switch's side of this; [`Message`] has all that is sent about ChameleMon.

mod fields;
mod message;
mod records;
mod session;
mod side;
mod sketches;

use calumma_wire::{Offer, SystemId};

pub use calumma_plane::secret::{hash_key, secret};
pub use calumma_plane::strays::{AnyStrays, Stray, Strays};
pub use fields::{
    Defects, Holding, check_layout, decode_plan, decode_setup, encode_plan, encode_setup,
};
pub use message::{FrameReader, Message, setup};
pub use records::{AnyLate, Late, decode_late};
pub use session::{SessionPlan, SwitchSession};
pub use side::{Egress, EgressSide, Ingress, IngressSide, Upstream, Upstreams};

#[cfg(doc)]
use crate::{Attention, Layout};

/// ChameleMon's number in the envelope.
pub const ID: SystemId = SystemId::CHAMELEMON;

/// The version of the bodies that this crate writes.
pub const VERSION: u8 = 2;

/// The lowest version of the bodies that it reads, and writes to those that read no other: without
/// what is recorded beside the sketches.
pub const OLDEST_VERSION: u8 = 1;

/// What a switch that runs ChameleMon offers.
pub const OFFER: Offer = Offer { system: ID, lowest: OLDEST_VERSION, highest: VERSION };
