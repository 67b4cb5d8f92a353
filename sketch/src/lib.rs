//! The data structures Calumma measures with, and the estimators that read them.
//!
//! An edge switch keeps two kinds of sketch: a *flow classifier* ([`TowerSketch`]) that tells how
//! large a flow has become, and *flow encoders* ([`FermatSketch`]) from which exact flow keys and
//! packet counts can be decoded. For those flows that a switch chooses there are exact counts in a
//! [`BoundedTable`](table::BoundedTable), those it has no room for are in a [`residual`], and a
//! [`HyperLogLog`] tells how many there were. How a measurement system puts them together is that
//! system's business (`systems/`), not this crate's.
//!
//! Nothing here does I/O, reads a clock or allocates while a packet is recorded. The numbers that
//! software and hardware switches must agree on are written down in `docs/contract.md`.
//!
//! ```
//! use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey, Shape};
//!
//! let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
//! let shape = Shape::default().with_buckets(64);
//! let flow = FlowKey::v4([10, 1, 0, 2].into(), [10, 2, 0, 2].into(), 40_000, 5_201, 6);
//!
//! let mut upstream = FermatSketch::new(shape);
//! let mut downstream = FermatSketch::new(shape);
//! upstream.insert(&family, &flow, 10);
//! downstream.insert(&family, &flow, 7);
//!
//! upstream.subtract(&downstream).unwrap();
//! let lost = upstream.decode(&family);
//! assert!(lost.is_complete());
//! assert_eq!(lost.packets_of(&flow), Some(3));
//! ```

pub mod burst;
mod distinct;
pub mod estimate;
pub mod fermat;
pub mod grade;
pub mod hash;
pub mod key;
mod memory;
mod part;
pub mod residual;
pub mod simd;
pub mod sketchint;
pub mod table;
pub mod tower;

pub use burst::BURST;
pub use distinct::{Beyond, HyperLogLog};
pub use fermat::{Arithmetic, Decoded, FermatSketch, Indistinct, Shape, ShapeMismatch};
pub use hash::{AddressHash, HashColumns, HashFamily, HashKey, Hashes};
pub use key::{AnyKey, Encoders, FlowKey, Key, KeyKind, Keyed, WideKey};
pub use memory::{Arena, Zeros};
pub use part::Part;
pub use simd::Engine;
pub use tower::{Insertion, Level, TowerSketch};
