//! ChameleMon: packet loss and six accumulation tasks from sketches at the edge, with attention
//! that follows the state of the network (ChameleMon paper, sections 3 and 4).
//!
//! [`plane`] is what an lcore keeps for one epoch: a flow classifier and flow encoders, divided by
//! the attention that holds. [`Layout`] fixes what all switches of a deployment must share,
//! [`Attention`] what the controller may move from epoch to epoch. [`frames`] is how all of that is
//! sent, [`switch`] how a switch runs it. What the controller makes of it is not here.

pub mod frames;
pub mod lcores;
pub mod plane;
pub mod switch;

pub use calumma_plane::{Hierarchy, Run};
pub use plane::any::{EgressGroups, IngressGroups};
pub use plane::attention::{Attention, AttentionError, SampleRate};
pub use plane::balance::Balance;
pub use plane::group::{EgressGroup, IngressGroup};
pub use plane::late::LatePackets;
pub use plane::layout::{Layout, LayoutError, Partition};
pub use switch::{ChameleMon, SetupError, SwitchHalf};
