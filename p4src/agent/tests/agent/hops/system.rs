//! The description of `p4src/hops.p4`: what a system brings along for the daemon to run it.

use std::sync::Arc;

use calumma_chamelemon::frames::hash_key;
use calumma_sketch::{HashFamily, HashKey};
use calumma_switch_host::{Session, SystemOffer};
use calumma_switchd::collection::{Record, Source};
use calumma_switchd::hashes;
use calumma_switchd::system::{Build, Closed, EpochEntries, Needs, Setup, System};
use calumma_switchd::tables::{Match, TableEntry};
use calumma_wire::{Offer, Role, Side, SideKind, SystemId, SystemSetup};

/// Its number.
pub(crate) const ID: SystemId = SystemId(SystemId::EXPERIMENTS.0 + 1);

/// Cells of a group: the flows of a cell agree in so many values of the low bits of their first
/// word.
pub(crate) const CELLS: u32 = 256;

pub(crate) struct Hops;

impl System for Hops {
    fn offer(&self) -> SystemOffer {
        SystemOffer { offer: Offer { system: ID, lowest: 1, highest: 1 }, held: true }
    }

    fn name(&self) -> &'static str {
        "hops"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge, Role::Transit]
    }

    fn program(&self) -> &'static str {
        "hops.p4"
    }

    fn landmark(&self) -> &'static str {
        "Ingress.cells.packets"
    }

    fn setup(
        &self,
        role: Role,
        session: &Session,
        _: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        Ok(Arc::new(Cells::new(role, &hash_key(&session.hash_key))))
    }

    fn build(&self, _: &toml::Table) -> Result<Build, String> {
        let needs = Cells::new(Role::Edge, &HashKey::from_bytes([0; 32])).needs();
        Ok(Build { constants: None, defines: Vec::new(), needs })
    }
}

struct Cells {
    role: Role,
    family: HashFamily,
    sources: [Source; 2],
}

impl Cells {
    fn new(role: Role, hash_key: &HashKey) -> Cells {
        let family = HashFamily::new(hash_key);
        let source = |number, register: &str| Source {
            number,
            registers: vec![register.to_owned()],
            elements: CELLS,
            record: Record::Words(1),
        };
        let sources = [source(0, "Ingress.cells.packets"), source(1, "Egress.cells.packets")];
        Cells { role, family, sources }
    }
}

impl Setup for Cells {
    fn needs(&self) -> Needs {
        let gates = [0, 1].map(|epoch| self.epoch(epoch, &[]).map(|entries| entries.gate));
        let gates = gates.into_iter().flatten().flatten();
        Needs {
            program: "hops.p4".to_owned(),
            remedy: "it has one size only",
            sources: self.sources.to_vec(),
            epoch_tables: vec!["Egress.open".to_owned()],
            entries: self.fixed().into_iter().chain(gates).collect(),
        }
    }

    fn sources(&self, side: SideKind) -> &[Source] {
        let [entering, leaving] = &self.sources;
        std::slice::from_ref(if side == SideKind::Ingress { entering } else { leaving })
    }

    fn fixed(&self) -> Vec<TableEntry> {
        let to_host = u32::from(self.role == Role::Edge);
        let mut out = hashes::secrets(&self.family);
        out.push(TableEntry {
            table: "Egress.leaving".to_owned(),
            keys: vec![("to_host", Match::Exact(to_host))],
            action: "count_here",
            args: Vec::new(),
        });
        out
    }

    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        self.check(plan)?;
        let gate = vec![TableEntry {
            table: "Egress.open".to_owned(),
            keys: vec![("timestamp", Match::Exact((epoch & 1) as u32))],
            action: "record_one",
            args: Vec::new(),
        }];
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
        assert_eq!(foreign_packets, 0, "all groups that are open record every packet");
        let [cells] = words else { return Err(format!("words of {} sources", words.len())) };
        let packets = cells.iter().copied().map(u64::from).sum();
        let body = cells.iter().flat_map(|packets| packets.to_le_bytes()).collect();
        Ok(Side { system: ID, epoch, side, stall_ns, packets, counters: Vec::new(), body })
    }
}
