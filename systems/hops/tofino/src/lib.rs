//! The description of `p4src/hops.p4`, by which `calumma-switchd` runs `hops` on a Tofino: what its
//! tables hold, and what the words of its registers mean.
//!
//! The program has no table of flows that fills in order, as a software switch has: a flow takes
//! one of two cells, and is counted with others where both are taken. What a switch sends is the
//! same, so the controller can't tell which kind it was.

mod cells;

use std::sync::Arc;

use calumma_chamelemon::frames::hash_key;
use calumma_hops::frames::{self, Counts, OFFER};
use calumma_sketch::{HashFamily, HashKey};
use calumma_switch_host::{Session, SystemOffer};
use calumma_switchd::chamelemon::measures_ipv6;
use calumma_switchd::collection::{Groups, Record, Source};
use calumma_switchd::hashes;
use calumma_switchd::system::{Build, Closed, EpochEntries, Needs, Setup, System, Target};
use calumma_switchd::tables::{Match, TableEntry};
use calumma_wire::{Role, Side, SideKind, SystemSetup};

/// Cells of a way.
const CELLS: u32 = 2048;

/// Registers of a way; the last one is that of packets without a cell, which both ways of a gress
/// have in common.
const REGISTERS: usize = 6;

/// The system on the switches of some roles.
///
/// An edge counts a packet that leaves behind its queues, so what those lose seems to be lost
/// before the edge. Between other switches it is counted before and behind them.
#[derive(Clone, Copy, Debug)]
pub struct Hops {
    roles: &'static [Role],
}

impl Hops {
    /// On transits alone.
    pub const ON_TRANSITS: Self = Self { roles: &[Role::Transit] };

    /// On edges as well, where their queues lose nothing.
    pub const EVERYWHERE: Self = Self { roles: &[Role::Edge, Role::Transit] };
}

impl System for Hops {
    fn offer(&self) -> SystemOffer {
        SystemOffer { offer: OFFER, held: true }
    }

    fn name(&self) -> &'static str {
        "hops"
    }

    fn roles(&self) -> &'static [Role] {
        self.roles
    }

    fn program(&self) -> &'static str {
        "hops.p4"
    }

    fn landmark(&self) -> &'static str {
        "Ingress.cells.others.counts"
    }

    fn setup(
        &self,
        (role, _): (Role, Target<'_>),
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        let setup = frames::Setup::decode(&setup.setup).map_err(|problem| problem.to_string())?;
        if setup.window != 1 {
            return Err(format!("window = {}: a Tofino has one epoch's", setup.window));
        }
        Ok(Arc::new(Cells::new(role, &hash_key(&session.hash_key), measures_ipv6(session))))
    }

    fn build(&self, _: (Role, Target<'_>), _: &toml::Table) -> Result<Build, String> {
        let needs = Cells::new(Role::Transit, &HashKey::from_bytes([0; 32]), true).needs();
        Ok(Build { constants: None, defines: Vec::new(), needs })
    }
}

/// What a session counts by.
struct Cells {
    role: Role,
    family: HashFamily,
    ipv6: bool,
    /// Ingress first, two ways each.
    sources: [Source; 4],
}

impl Cells {
    fn new(role: Role, hash_key: &HashKey, ipv6: bool) -> Self {
        let family = HashFamily::new(hash_key);
        let source = |number: u8| {
            let gress = ["Ingress", "Egress"][usize::from(number / 2)];
            let way = number % 2;
            let of_way = ["owners", "src.words", "dst.words", "ports.words", "packets.counts"];
            let mut registers: Vec<String> =
                of_way.iter().map(|name| format!("{gress}.cells.way{way}.{name}")).collect();
            registers.push(format!("{gress}.cells.others.counts"));
            Source {
                number,
                registers,
                elements: CELLS,
                groups: Groups::ByElement,
                record: Record::Words(REGISTERS),
            }
        };
        Self { role, family, ipv6, sources: [0, 1, 2, 3].map(source) }
    }

    /// Entries of a table for IPv4, and for IPv6 where edges measure it.
    fn families(&self) -> impl Iterator<Item = u32> {
        0..=u32::from(self.ipv6 && self.role == Role::Transit)
    }
}

fn entry(table: &str, keys: &[(&'static str, u32)], action: &'static str) -> TableEntry {
    TableEntry {
        table: table.to_owned(),
        keys: keys.iter().map(|&(key, value)| (key, Match::Exact(value))).collect(),
        action,
        args: Vec::new(),
    }
}

impl Setup for Cells {
    fn needs(&self) -> Needs {
        let gates = [0, 1].map(|epoch| self.epoch(epoch, &[]).map(|entries| entries.gate));
        let gates = gates.into_iter().flatten().flatten();
        Needs {
            program: "hops.p4".to_owned(),
            remedy: "it has one size only",
            parts: None,
            sources: self.sources.to_vec(),
            epoch_tables: vec!["Egress.open".to_owned(), "Ingress.passing".to_owned()],
            entries: self.fixed().into_iter().chain(gates).collect(),
            totals: Vec::new(),
            entered: None,
            notices: None,
            stopped: Vec::new(),
        }
    }

    fn sources(&self, side: SideKind) -> &[Source] {
        match side {
            SideKind::Ingress => &self.sources[..2],
            SideKind::Egress => &self.sources[2..],
            SideKind::Transit => &self.sources,
            SideKind::Host => &[],
        }
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let to_host = u32::from(self.role == Role::Edge);
        let mut out = hashes::secrets(&self.family);
        out.extend(self.families().map(|ipv6| {
            entry("Egress.leaving", &[("to_host", to_host), ("ipv6", ipv6)], "count_here")
        }));
        out
    }

    /// The egress opens before the ingress does, and closes first: a packet that is in between is
    /// found to be late, or to have been sent without being received, and never to be lost.
    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        self.check(plan)?;
        let bit = (epoch & 1) as u32;
        let mut gate = vec![entry("Egress.open", &[("timestamp", bit)], "record_one")];
        if self.role == Role::Transit {
            gate.extend(self.families().map(|ipv6| {
                let keys = [("ipv6", ipv6), ("timestamp_there", bit)];
                entry("Ingress.passing", &keys, "count_passing")
            }));
        }
        Ok(EpochEntries { gate, rest: Vec::new() })
    }

    fn check(&self, plan: &[u8]) -> Result<(), String> {
        if plan.is_empty() { Ok(()) } else { Err("hops has nothing to plan".to_owned()) }
    }

    fn holding(&self, _: &[u8], _: u64) -> Option<Vec<u8>> {
        None
    }

    fn side(&self, closed: &Closed, words: &[Vec<u32>]) -> Result<Side, String> {
        let Closed { epoch, side, stall_ns, foreign_packets, .. } = *closed;
        if foreign_packets > 0 {
            return Err(format!("{foreign_packets} packets were not recorded in an open group"));
        }
        let counts = match words {
            [_, _] => cells::counted(words, REGISTERS)?,
            [_, _, _, _] => cells::passed(
                cells::counted(&words[..2], REGISTERS)?,
                cells::counted(&words[2..], REGISTERS)?,
            )?,
            _ => return Err(format!("words of {} sources", words.len())),
        };
        let Counts { flows, others } = &counts;
        let packets = flows.iter().map(|(_, packets)| packets.received).sum::<u64>();
        let packets = packets + others.received;
        let (system, counters, body) = (OFFER.system, Vec::new(), counts.encode());
        Ok(Side { system, epoch, side, stall_ns, packets, counters, body })
    }
}
