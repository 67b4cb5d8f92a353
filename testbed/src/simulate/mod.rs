//! A whole network in one process and in virtual time.
//!
//! Switches, frames and controller are the live ones' own code ([`calumma_edge::worker`], or the P4
//! program on the model of a Tofino; [`calumma_wire`], [`calumma_controller`]); hosts, links,
//! clocks and the connections in between are simulated. Any list of measurement systems runs on
//! them. Everything is drawn from a seed: two runs
//! are alike, to the byte.
//!
//! Flows travel packet by packet, as bytes through the switch's parser ([`Detail::Packets`]), or as
//! runs of packets back to back ([`Detail::Runs`]), which leave the same sketches as those packets
//! and make a hundred thousand flows an epoch affordable.

mod archived;
mod captured;
mod clock;
mod control;
mod controller;
mod judge;
mod lane;
mod link;
mod nat;
mod network;
mod node;
mod notices;
mod numbers;
mod paths;
mod send;
mod software;
mod stay;
mod systems;
mod tofino;
mod truth;
mod way;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use calumma_analysis::Report;
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::Tasks;
use calumma_controller::attention::Bounds;
use calumma_controller::carrier::needs_tos;
use calumma_controller::report::EpochReport;
use calumma_epoch::EpochClock;
use calumma_sketch::HashKey;

use crate::carrier::Carrier;
use crate::topology::Topology;
use crate::workload::Traffic;

pub use self::archived::Kept;
pub use self::clock::SwitchClock;
pub use self::control::ControlQuality;
pub use self::judge::{Judgement, Wrong};
pub use self::network::Simulation;
pub use self::software::Lcores;
pub use self::stay::{Met, Queues, SwitchQuality};
pub use self::systems::Systems;
pub use self::truth::{
    AtSwitches, Came, Entered, EpochTruth, FlowTruth, Sent, Stranger, Treatment,
};

/// About when simulations take place, in nanoseconds since the Unix epoch.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// What a simulation measures by.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory of the switches.
    pub layout: Layout,
    /// Secret from which the hash tables are drawn.
    pub hash_key: HashKey,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// Thresholds and division of memory to begin with.
    pub attention: Attention,
    /// Within which bounds the controller moves attention; it leaves it alone where absent.
    pub planner: Option<Bounds>,
    /// What to report.
    pub tasks: Tasks,
    /// Whether ChameleMon reports losses alone, which takes a tenth of the time.
    pub losses_only: bool,
    /// How long the controller waits for what is missing of an epoch, in nanoseconds.
    pub grace_ns: u64,
    /// How finely traffic is simulated.
    pub detail: Detail,
    /// What each switch does to packets, by its position; those that are not here do nothing.
    pub switches: Vec<SwitchQuality>,
    /// Lcores of software switches; more than one with [`Detail::Packets`] only.
    pub lcores: Lcores,
    /// Whether edges probe the paths between them.
    pub probes: bool,
    /// How packets carry their marks.
    pub carrier: Carrier,
    /// Where flows, victims and delays are drawn from.
    pub seed: u64,
    /// The measurement systems.
    pub systems: Systems,
}

impl Setup {
    /// Checks that what carries and measures packets can be simulated.
    fn check_switches(&self, topology: &Topology) -> Result<()> {
        ensure!(
            self.carrier == Carrier::Tos || matches!(self.detail, Detail::Packets { .. }),
            "carrier: other marks than those of \"tos\" with detail = \"packets\" only, as runs have \
             no headers"
        );
        self.lcores.check()?;
        ensure!(
            self.lcores.count == 1 || matches!(self.detail, Detail::Packets { .. }),
            "lcores: more than one with detail = \"packets\" only, as a run comes to one"
        );
        let modelled = (0..topology.switches()).any(|at| topology.is_tofino(at));
        ensure!(
            self.carrier == Carrier::Tos || !modelled,
            "carrier: other marks than those of \"tos\" of software switches only"
        );
        ensure!(
            self.carrier != Carrier::Auto
                || needs_tos(&self.systems.in_controller, &self.systems.on).is_none(),
            "carrier = \"auto\": the controller would take the ToS byte; leave it out"
        );
        Ok(())
    }

    /// Checks that a kind of traffic can be simulated so.
    fn check_traffic(&self, kind: &Traffic) -> Result<()> {
        kind.check_keys(self.layout.keys)?;
        ensure!(
            kind.ttl_each.is_empty() || matches!(self.detail, Detail::Packets { .. }),
            "ttl_each: with detail = \"packets\" only, as runs have one time to live"
        );
        Ok(())
    }
}

/// How finely traffic is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detail {
    /// All packets that a flow sends in an epoch leave its host at once.
    Runs,
    /// Packet by packet.
    Packets {
        /// Share of an epoch over which a flow spreads its packets.
        spread: f64,
    },
}

/// An epoch that ChameleMon has reported, and what really happened in it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the controller says.
    pub report: EpochReport,
    /// What it should have seen.
    pub truth: EpochTruth,
    /// Bytes of the frames that all edges sent of it, where they are counted.
    pub frame_bytes: Option<u64>,
    /// From its last side to what was planned from it, by this machine's clock.
    pub response: Duration,
}

/// What another system has reported, and what really happened.
#[derive(Clone, Debug)]
pub struct SystemOutcome {
    /// The epoch, counted from 0; of a window, its first.
    pub epoch: u64,
    /// The report.
    pub report: Arc<dyn Report>,
    /// The same as a line of JSON.
    pub json: String,
    /// What happened in the epoch; of a window, in each of its epochs.
    pub truth: Vec<EpochTruth>,
}
