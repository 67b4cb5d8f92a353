//! SketchINT on a Tofino between other switches: `p4src/sketchint.p4`, which pushes the switch's
//! hop onto the stacks that pass, and records nothing.
//!
//! As a software switch does, it pushes from the session's first entries on, whatever the plan: it
//! is the sources that begin and end. The plans that it has accepted say to the controller how far
//! it is.

use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_plane::int::{Insertion, Instructions};
use calumma_sketchint::frames::{Holding, OFFER, Plan, Setup as Words};
use calumma_switch_host::{Session, SystemOffer};
use calumma_wire::{Role, Side, SideKind, SystemSetup};

use crate::collection::Source;
use crate::system::{Build, Closed, EpochEntries, Needs, Setup, System, Total};
use crate::tables::{Match, TableEntry};

/// The table of the domain whose stacks are pushed onto.
const DOMAIN: &str = "Egress.push.domain";

/// What becomes of packets with the marker, by its cells.
const PACKETS: &str = "Egress.push.packets";

/// The version of INT-MD.
const VERSION: u32 = 2;

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
        &[Role::Transit]
    }

    fn program(&self) -> &'static str {
        "sketchint.p4"
    }

    fn landmark(&self) -> &'static str {
        DOMAIN
    }

    fn setup(
        &self,
        _role: Role,
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        let bytes = setup.setup.clone();
        let Words { domain, instructions, hops, window_epochs, .. } =
            Words::decode(&bytes).map_err(|problem| problem.to_string())?;
        Plan::decode(&setup.plan).map_err(|problem| problem.to_string())?;
        let node = session.node_id.and_then(NonZeroU16::new);
        let node = node.ok_or("the controller has given this node no number")?;
        if instructions != Instructions::DEFAULT {
            return Err("a Tofino says of itself its number and the hop latency: set [sketchint] \
                        instructions = [\"node-id\", \"latency\"], or run software switches"
                .to_owned());
        }
        let insertion = Insertion { domain, node, instructions, hops };
        Ok(Arc::new(Transit { setup: bytes, insertion, window: window_epochs.into() }))
    }

    fn build(&self, _: &toml::Table) -> Result<Build, String> {
        let (domain, node) = (NonZeroU16::MIN, NonZeroU16::MIN);
        let instructions = Instructions::DEFAULT;
        let insertion = Insertion { domain, node, instructions, hops: 1 };
        let needs = Transit { setup: Vec::new(), insertion, window: 1 }.needs();
        let defines = vec![("ROLE_TRANSIT".to_owned(), "1".to_owned())];
        Ok(Build { constants: None, defines, needs })
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
            program: "sketchint.p4".to_owned(),
            remedy: "it has one size only",
            sources: Vec::new(),
            epoch_tables: Vec::new(),
            entries: self.fixed(),
            totals: vec![
                total("sketchint.pushed", 1),
                total("sketchint.hops_exceeded", 2),
                total("sketchint.mtu_exceeded", 3),
                total("sketchint.foreign", 4),
            ],
            notices: None,
        }
    }

    fn sources(&self, _: SideKind) -> &[Source] {
        &[]
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let Insertion { domain, node, instructions, .. } = self.insertion;
        let keys = [
            ("hdr.telemetry.version", VERSION),
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
