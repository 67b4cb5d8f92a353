//! The measurement systems of a simulated network.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use calumma_analysis as analysis;
use calumma_plane::system as plane;
use serde_json::Value;

/// The number of simulated deployments, which a controller keeps for the one that comes after it.
pub(super) const DEPLOYMENT: NonZeroU16 = NonZeroU16::new(0xCA10).unwrap();

/// The systems that nodes and the controller of a simulated network know, and those that run.
#[derive(Clone, Debug)]
pub struct Systems {
    /// Those that software switches can run.
    pub on_switches: &'static [&'static dyn plane::System],
    /// Those that Tofinos can run, each with a program of its own.
    pub on_tofinos: Vec<&'static dyn calumma_switchd::system::System>,
    /// Those that the controller can analyse for.
    pub in_controller: Vec<&'static dyn analysis::System>,
    /// Names of those that run.
    pub on: Vec<String>,
    /// Their sections of the controller's file.
    pub sections: BTreeMap<String, Value>,
}

impl Default for Systems {
    /// ChameleMon runs, and the products' own lists are known.
    fn default() -> Self {
        Self {
            on_switches: calumma_edge::control::systems::SYSTEMS,
            on_tofinos: calumma_switchd::SYSTEMS.to_vec(),
            in_controller: calumma_systems::SYSTEMS.to_vec(),
            on: vec!["chamelemon".to_owned()],
            sections: BTreeMap::new(),
        }
    }
}
