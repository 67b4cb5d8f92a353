//! SketchINT on a Tofino: `p4src/sketchint.p4`. Between other switches it pushes the switch's hop
//! onto the stacks that pass, and records nothing. On an edge it is a source and a sink as well.
//!
//! As a software switch does, it pushes from the session's first entries on, whatever the plan: it
//! is the sources that begin and end. The plans that it has accepted say to the controller how far
//! it is.

mod edge;
mod inflated;
pub mod logarithms;
pub mod sizes;
mod window;

use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_chamelemon::frames::hash_key;
use calumma_plane::int::{Insertion, Instructions};
use calumma_sketch::HashKey;
use calumma_sketchint::frames::{Holding, OFFER, Plan, Setup as Words};
use calumma_switch_host::{Session, SystemOffer};
use calumma_wire::{Role, Side, SideKind, SystemSetup};

use self::edge::Edge;
use self::sizes::{SIZES, Sizes};
use crate::collection::Source;
use crate::forwarding::INT_VERSION;
use crate::system::{Build, Closed, Constants, EpochEntries, Needs, Setup, System, Target, Total};
use crate::tables::{Match, TableEntry};

/// The program.
const PROGRAM: &str = "sketchint.p4";

/// The hash units of an edge's program, of IPv4 and of IPv6: it knows flows by wide keys, as
/// switches do where no other system runs.
pub const HASH_UNITS: [[&str; 2]; 2] = [["mapped_x", "mapped_y"], ["wide_x", "wide_y"]];

/// The table of the domain whose stacks are pushed onto.
const DOMAIN: &str = "Egress.push.domain";

/// What becomes of packets with the marker, by its cells.
const PACKETS: &str = "Egress.push.packets";

/// SketchINT's description.
#[derive(Clone, Copy, Debug)]
pub struct SketchInt;

impl System for SketchInt {
    fn offer(&self) -> SystemOffer {
        SystemOffer { offer: OFFER, held: true }
    }

    fn name(&self) -> &'static str {
        "sketchint"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn program(&self) -> &'static str {
        PROGRAM
    }

    fn landmark(&self) -> &'static str {
        DOMAIN
    }

    /// Stacks need a bit of the ToS byte.
    fn may_go_by_identification(&self) -> bool {
        false
    }

    fn hashes(&self, role: Role) -> bool {
        role == Role::Edge
    }

    fn setup(
        &self,
        (role, _): (Role, Target<'_>),
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        let bytes = setup.setup.clone();
        let words = Words::decode(&bytes).map_err(|problem| problem.to_string())?;
        Plan::decode(&setup.plan).map_err(|problem| problem.to_string())?;
        let node = session.node_id.and_then(NonZeroU16::new);
        let node = node.ok_or("the controller has given this node no number")?;
        let Words { domain, instructions, hops, window_epochs, udp_port, .. } = words;
        if instructions != Instructions::DEFAULT {
            return Err("a Tofino says of itself its number and the hop latency: set [sketchint] \
                        instructions = [\"node-id\", \"latency\"], or run software switches"
                .to_owned());
        }
        if let Some(port) = udp_port {
            return Err(format!(
                "a Tofino finds stacks by the DSCP alone: leave [sketchint] udp_port = {port} out, \
                 or run software switches"
            ));
        }
        let insertion = Insertion { domain, node, instructions, hops, udp_port };
        let transit = Transit { setup: bytes, insertion, window: window_epochs.into() };
        if role != Role::Edge {
            return Ok(Arc::new(transit));
        }
        let key = hash_key(&session.hash_key);
        Ok(Arc::new(Edge::new(transit, (setup.version, words), &key)?))
    }

    fn build(
        &self,
        (role, _): (Role, Target<'_>),
        controller: &toml::Table,
    ) -> Result<Build, String> {
        let (domain, node) = (NonZeroU16::MIN, NonZeroU16::MIN);
        let instructions = Instructions::DEFAULT;
        let insertion = Insertion { domain, node, instructions, hops: 1, udp_port: None };
        let transit = Transit { setup: Vec::new(), insertion, window: 1 };
        if role != Role::Edge {
            let defines = vec![("ROLE_TRANSIT".to_owned(), "1".to_owned())];
            return Ok(Build { constants: None, defines, needs: transit.needs() });
        }
        let section = controller.get(self.name()).and_then(toml::Value::as_table);
        let sizes = Sizes::of_section(section)?;
        let edge = Edge::of_sizes(transit, sizes, &HashKey::from_bytes([0; 32]));
        let constants = Constants { file: SIZES, text: sizes.constants() };
        Ok(Build { constants: Some(constants), defines: Vec::new(), needs: edge.needs() })
    }
}

/// What a session pushes.
#[derive(Debug)]
struct Transit {
    /// The controller's words.
    setup: Vec<u8>,
    insertion: Insertion,
    window: u64,
}

impl Setup for Transit {
    fn window(&self) -> u64 {
        self.window
    }

    fn needs(&self) -> Needs {
        let total = |name, cell| Total { name, counter: PACKETS, cell };
        Needs {
            program: PROGRAM.to_owned(),
            remedy: "it has one size only",
            parts: None,
            sources: Vec::new(),
            epoch_tables: Vec::new(),
            entries: self.fixed(),
            totals: vec![
                total("sketchint.pushed", 1),
                total("sketchint.hops_exceeded", 2),
                total("sketchint.mtu_exceeded", 3),
                total("sketchint.foreign", 4),
            ],
            entered: None,
            notices: None,
            stopped: Vec::new(),
        }
    }

    fn sources(&self, _: SideKind) -> &[Source] {
        &[]
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let Insertion { domain, node, instructions, .. } = self.insertion;
        let keys = [
            ("hdr.telemetry.version", INT_VERSION),
            ("hdr.telemetry.reserved", 0),
            ("hdr.telemetry.words", instructions.words() as u32),
            ("hdr.telemetry.instructions", instructions.bits().into()),
            ("hdr.telemetry.domain", domain.get().into()),
            ("hdr.telemetry.own_instructions", 0),
            ("hdr.telemetry.own_flags", 0),
            ("hdr.shim.length[0:0]", 1),
        ];
        vec![TableEntry {
            table: DOMAIN.to_owned(),
            keys: keys.map(|(key, value)| (key, Match::Exact(value))).to_vec(),
            action: "push_as",
            args: vec![("number", node.get().into())],
        }]
    }

    fn epoch(&self, _: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        self.check(plan)?;
        Ok(EpochEntries::default())
    }

    fn check(&self, plan: &[u8]) -> Result<(), String> {
        Plan::decode(plan).map(drop).map_err(|problem| problem.to_string())
    }

    fn holding(&self, plan: &[u8], epoch: u64) -> Option<Vec<u8>> {
        let plan = Plan::decode(plan).ok()?;
        Some(Holding { setup: self.setup.clone(), epoch, plan }.encode())
    }

    /// A switch between others keeps nothing of packets.
    fn side(&self, closed: &Closed, _: &[Vec<u32>]) -> Result<Side, String> {
        let Closed { epoch, side, stall_ns, .. } = *closed;
        let (counters, body) = (Vec::new(), Vec::new());
        Ok(Side { system: OFFER.system, epoch, side, stall_ns, packets: 0, counters, body })
    }
}
