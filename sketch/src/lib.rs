//! The data structures Calumma measures with, and the estimators that read them.
//!
//! An edge switch keeps two kinds of sketch: a *flow classifier* ([`TowerSketch`]) that tells how
//! large a flow has become, and *flow encoders* ([`FermatSketch`]) from which exact flow keys and
//! packet counts can be decoded. [`IngressGroup`] and [`EgressGroup`] put them together as every
//! edge switch does for one epoch. [`Layout`] fixes what all switches of a deployment must share,
//! [`Attention`] what the controller may move from epoch to epoch.
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

pub mod any;
pub mod attention;
mod burst;
pub mod estimate;
pub mod fermat;
pub mod group;
pub mod hash;
pub mod key;
pub mod layout;
mod memory;
pub mod simd;
pub mod tower;

pub use any::{AnyKey, EgressGroups, Encoders, IngressGroups, Keyed};
pub use attention::{Attention, AttentionError, Hierarchy, SampleRate};
pub use fermat::{Arithmetic, Decoded, FermatSketch, Shape, ShapeMismatch};
pub use group::{EgressGroup, IngressGroup, Run};

pub use hash::{HashFamily, HashKey, Hashes};
pub use key::{FlowKey, Key, KeyKind, WideKey};
pub use layout::{Layout, LayoutError, Part, Partition};
pub use simd::Engine;
pub use tower::{Insertion, Level, TowerSketch};
