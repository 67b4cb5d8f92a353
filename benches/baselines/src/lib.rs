//! The sketches that others published, each as its paper has it, to be measured beside ours on the
//! same packets. For benchmarks only; nothing that runs in a network uses it.
//!
//! Parameters are those of appendix C and section 5.1 of the ChameleMon paper; where that paper and
//! the programs published with it differ in what a sketch is asked, the better of the two is here.
//!
//! A sketch is given the [`Memory`] it may fill and reports what it does: keys count with the
//! length stated there (the paper's are source addresses of 4 bytes, 5-tuples have 13) and counters
//! with the width their paper gives them, whatever alignment costs in here. Where long keys make
//! the recommended number of entries too large for small sizes, the entries are cut to the share of
//! memory that they have in that paper's smallest setting.
//!
//! What a sketch can be asked is a trait each. Inserting never allocates. Samples of flows and
//! packets over a whole network ([`CSamp`], [`DusHh`], [`Uncoordinated`], [`SampledNetFlow`]) are
//! those that cooperative flow selection is measured beside.

mod chosen;
mod coco;
mod count_heap;
mod count_min;
mod csamp;
mod dus_hh;
mod elastic;
mod fcm;
mod fermat;
mod flow_radar;
mod hash;
mod hash_pipe;
mod heavy_part;
mod latency;
mod loss_radar;
mod mrac;
mod sampled_netflow;
mod shared_tower;
mod sizes;
mod sketchint;
mod top;
mod uncoordinated;
mod univmon;

use calumma_sketch::FlowKey;

pub use chosen::{Choose, FirstComeMap, HeapMap, QMaxMap};
pub use coco::CocoSketch;
pub use count_heap::CountHeap;
pub use count_min::{ConservativeUpdate, CountMin};
pub use csamp::CSamp;
pub use dus_hh::DusHh;
pub use elastic::Elastic;
pub use fcm::FcmTopK;
pub use fermat::{DecodedTower, Fermat, TowerFermat};
pub use flow_radar::FlowRadar;
pub use hash_pipe::HashPipe;
pub use latency::LatencyCountMin;
pub use loss_radar::LossRadar;
pub use mrac::Mrac;
pub use sampled_netflow::SampledNetFlow;
pub use shared_tower::{Guarded, SharedTower};
pub use sketchint::SketchIntHost;
pub use uncoordinated::Uncoordinated;
pub use univmon::UnivMon;

/// Memory of a switch: what a sketch may fill, and what a key takes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in all.
    pub bytes: usize,
    /// Bytes of a key. Keys shorter than 13 bytes are [`FlowKey`]s whose further bytes are zero.
    pub key: usize,
}

impl Memory {
    /// Memory for source addresses of IPv4: the key in the evaluation of the ChameleMon paper.
    pub fn for_addresses(bytes: usize) -> Self {
        Self { bytes, key: 4 }
    }
}

impl From<usize> for Memory {
    /// Bytes to be filled with 5-tuples.
    fn from(bytes: usize) -> Self {
        Self { bytes, key: FlowKey::LEN }
    }
}

/// Counts packets.
pub trait Insert {
    /// Counts one packet of `key`.
    fn insert(&mut self, key: &FlowKey);

    /// Counts many packets, one after another.
    fn insert_all(&mut self, packets: &[FlowKey]) {
        packets.iter().for_each(|key| self.insert(key));
    }

    /// Memory that the sketch fills on a switch, in bytes.
    fn bytes(&self) -> usize;
}

/// Tells the size of any flow.
pub trait Query {
    /// Packets of `key`, estimated.
    fn query(&self, key: &FlowKey) -> u32;
}

/// Keeps the keys of large flows.
pub trait Tracked {
    /// The flows kept and their packets, estimated; each flow once, in no order.
    fn tracked(&self) -> Vec<(FlowKey, u32)>;
}

/// Tells how many flows there were.
pub trait Cardinality {
    /// Flows, estimated.
    fn cardinality(&self) -> f64;
}

/// Tells how many flows there were of each size.
pub trait Sizes {
    /// Pairs of size in packets, ascending, and number of flows, estimated and not always whole.
    fn sizes(&self) -> Vec<(u64, f64)>;
}

/// Tells the entropy of the flow sizes.
pub trait Entropy {
    /// -sum (i / N) log2 (i / N) over the flows of i packets each, N in all; in bits.
    fn entropy(&self) -> f64;
}

/// Bytes of a 32-bit counter.
const WORD: usize = 4;
