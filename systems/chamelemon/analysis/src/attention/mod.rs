//! Shifting measurement attention (section 4.3 of the ChameleMon paper): from what an epoch showed
//! to the configuration that later ones should be measured under, and why.
//!
//! [`plan`] is a pure function of an [`Observation`], the attention that stands for the epoch to
//! come, the memory of the switches, the operator's [`Bounds`], and a small [`Memory`]. It does not
//! know about clocks, connections or files: when a plan takes effect and whether it is applied
//! at all is the server's business.
//!
//! A plan made from epoch e takes effect two epochs later or more, so those in between are still
//! measured as e was. Therefore a plan is worked out from the attention that an epoch *was measured
//! under*, but compared with the one that *stands*, and leaves it alone where it will do.
//!
//! Where the paper approaches a good configuration in several epochs, this gets there in one
//! step whenever the epoch shows enough:
//!
//! * how many flows would be HH candidates at any T_h follows from the flow size distribution and
//!   from what the classifier's counters hold (`candidates`), or is counted in the HH flowset;
//! * how many victims would be HL or LL at any T_l follows from their sizes and losses (`victims`);
//! * how full a part was that did not decode follows from its empty buckets, and where there are
//!   none, or an HH encoder that failed hides all losses, from the number of packets lost: that is
//!   always known.

mod bounds;
mod candidates;
mod heavy_hitters;
mod load;
mod losses;
mod memory;
mod observation;
mod plan;
mod threshold;
mod victims;

pub use bounds::Bounds;
pub use candidates::Candidates;
pub use memory::Memory;
pub use observation::{EdgeObservation, Encoder, Lazy, Observation};
pub use plan::{Plan, plan};
pub use victims::{Victim, Victims};

use calumma_chamelemon::{Attention, Layout};

/// Plans one epoch after the other: [`plan`] with all that it needs.
#[derive(Clone, Debug)]
pub struct Planner {
    layout: Layout,
    bounds: Bounds,
    memory: Memory,
}

impl Planner {
    /// A planner for switches of `layout` that remembers nothing.
    ///
    /// # Errors
    /// When the bounds don't fit the layout.
    pub fn new(layout: Layout, bounds: Bounds) -> Result<Self, String> {
        bounds.check(&layout)?;
        Ok(Self { layout, bounds, memory: Memory::default() })
    }

    /// The attention for the epochs to come, where `standing` is what they would be measured under
    /// otherwise.
    pub fn next(&mut self, observation: &Observation<'_>, standing: &Attention) -> Plan {
        plan(observation, standing, &self.layout, &self.bounds, &mut self.memory)
    }
}
