//! Estimators over the counters of a flow classifier and the flowset of the HH encoder: the six
//! packet accumulation tasks of the ChameleMon paper (section 4.2).
//!
//! | task | |
//! |---|---|
//! | size of a flow | [`Accumulation::size_of`] |
//! | heavy hitters | [`Accumulation::heavy_hitters`] |
//! | heavy changes | [`Accumulation::heavy_changes`] |
//! | cardinality | [`Accumulation::cardinality`], or [`cardinality()`] from the classifier alone |
//! | flow size distribution | [`Accumulation::distribution`], or [`size_distribution`] |
//! | entropy | [`Accumulation::entropy`], or [`entropy()`] of any distribution |
//!
//! [`Accumulation`] gives each task's best answer from all that an epoch left; the functions answer
//! from what they are given.
//!
//! They read a [`TowerSketch`](crate::TowerSketch), one of CU insertion only for sizes and
//! cardinality, and take what is known exactly from the flowset of the HH encoder. They keep no
//! state and decide nothing: what is done with an estimate, and whether a flowset is complete
//! enough to be trusted, is the controller's business.
//!
//! ```
//! use calumma_sketch::{FlowKey, HashFamily, HashKey, Level, TowerSketch, estimate};
//!
//! let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
//! let mut tower = TowerSketch::new(&[Level::new(8, 4096), Level::new(16, 2048)]).unwrap();
//! for flow in 0..1000 {
//!     let hashes = family.hash(&FlowKey::from_words(flow, 1, 2, 6));
//!     (0..1 + flow % 2).for_each(|_| {
//!         tower.insert(&hashes);
//!     });
//! }
//! let flows = estimate::cardinality(&tower);
//! assert!((flows.value - 1000.0).abs() < 4.0 * flows.standard_error.unwrap());
//!
//! let sizes = estimate::size_distribution(&tower, std::iter::empty());
//! assert_eq!(sizes[0].0, 1);
//! assert!((sizes[0].1 - 500.0).abs() < 50.0);
//! assert!((estimate::entropy(&sizes) - 9.9).abs() < 0.1);
//! ```

mod accumulation;
mod cardinality;
mod distribution;
mod elephants;
mod entropy;
mod index;
mod mrac;
mod size;

pub use accumulation::{Accumulation, FlowSize};
pub use cardinality::{Estimate, cardinality};
pub use distribution::{size_distribution, size_distribution_with_known, tells_distribution};
pub use entropy::entropy;
