//! ChameleMon on a Tofino: `p4src/edge.p4`, and what a controller's words mean to it.
//!
//! The numbers come from the functions that the software edge uses, so that both kinds of switch
//! agree bit for bit: [`program`] writes the constants that the P4 program includes, [`entries`]
//! the table entries of an epoch, [`sketches`] makes sketches of its registers.

pub mod entries;
pub mod program;
pub mod sketches;
mod sources;
mod strays;

use std::sync::Arc;

use calumma_chamelemon::frames::{
    self, Defects, EgressSide, Holding, IngressSide, Late, SessionPlan, SwitchSession, VERSION,
    decode_plan,
};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_plane::Strays;
use calumma_sketch::{HashFamily, HashKey, KeyKind};
use calumma_switch_host::{Session, SystemOffer};
use calumma_wire::{Role, Side, SideKind, SystemSetup};

use crate::notices::Received;
use crate::system::{Build, Closed, Constants, EpochEntries, Needs, Setup, System, Target};
use crate::tables::TableEntry;
use crate::{collection, hashes};
use sketches::{EgressSketches, IngressSketches};

pub use sources::Source;

/// ChameleMon's description.
#[derive(Clone, Copy, Debug)]
pub struct ChameleMon;

impl System for ChameleMon {
    fn offer(&self) -> SystemOffer {
        SystemOffer { offer: frames::OFFER, held: true }
    }

    fn name(&self) -> &'static str {
        "chamelemon"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Edge]
    }

    fn program(&self) -> &'static str {
        "edge.p4"
    }

    fn landmark(&self) -> &'static str {
        "Ingress.classifier.level0.counters"
    }

    fn hashes(&self, _: Role) -> bool {
        true
    }

    fn setup(
        &self,
        _: (Role, Target<'_>),
        session: &Session,
        setup: &SystemSetup,
    ) -> Result<Arc<dyn Setup>, String> {
        let Session { hash_key, clock, first_epoch, .. } = session;
        let plan = SessionPlan::decode(setup, hash_key, *clock, *first_epoch)?;
        program::check(&plan.layout).map_err(|problem| problem.to_string())?;
        Ok(Arc::new(Sketches {
            ingress: described(&Source::INGRESS, &plan.layout),
            egress: described(&Source::EGRESS, &plan.layout),
            session: SwitchSession::new(plan).with_version(setup.version),
        }))
    }

    fn build(&self, _: (Role, Target<'_>), controller: &toml::Table) -> Result<Build, String> {
        #[derive(serde::Deserialize)]
        struct Controller {
            #[serde(default)]
            layout: Layout,
        }
        let read: Result<Controller, _> = controller.clone().try_into();
        let Controller { layout } = read.map_err(|problem| problem.to_string())?;
        let text = program::contract(&layout).map_err(|problem| problem.to_string())?;
        Ok(Build {
            constants: Some(Constants { file: program::CONTRACT, text }),
            defines: program::defines(&layout),
            needs: needs(&layout),
        })
    }
}

/// The sketches of a session.
#[derive(Debug)]
struct Sketches {
    session: SwitchSession,
    ingress: Vec<collection::Source>,
    egress: Vec<collection::Source>,
}

impl Sketches {
    fn layout(&self) -> &Layout {
        &self.session.plan().layout
    }
}

/// Whether the edges of a session mark and measure IPv6 packets: where ChameleMon runs, by its
/// keys.
pub fn measures_ipv6(session: &Session) -> bool {
    let setup = session.setup_of(frames::ID);
    let layout = setup.and_then(|setup| frames::decode_setup(&setup.setup).ok());
    layout.is_none_or(|layout| layout.keys == KeyKind::Dual)
}

fn described(sources: &[Source], layout: &Layout) -> Vec<collection::Source> {
    sources.iter().map(|source| source.of(layout)).collect()
}

/// What `edge.p4` must have for a layout.
pub fn needs(layout: &Layout) -> Needs {
    let buckets = layout.upstream_buckets.min(layout.downstream_buckets) / 4;
    let attention = Attention {
        t_h: 30,
        t_l: 3,
        sample_rate: SampleRate::ALL,
        partition: Partition { hh: buckets, hl: buckets, ll: buckets },
    };
    // With buckets for every hierarchy, and without.
    let bare = Attention { partition: Partition { hh: 0, hl: 0, ll: 0 }, ..attention };
    let mut entries = hashes::secrets(&HashFamily::new(&HashKey::from_bytes([0; 32])));
    for (epoch, attention) in [(0, attention), (1, attention), (2, bare)] {
        entries.extend(entries::epoch(layout, &attention, epoch));
    }
    Needs {
        program: format!("edge.p4 with {:?} arithmetic", layout.arithmetic),
        remedy: "build the program with the constants that `calumma-switchd contract` writes for that \
                 layout",
        parts: None,
        sources: described(&Source::ALL, layout),
        epoch_tables: entries::epoch_tables(),
        entries,
        totals: Vec::new(),
        entered: Some("Ingress.entered"),
        notices: Some(strays::STREAMS),
        stopped: Vec::new(),
    }
}

impl Setup for Sketches {
    fn needs(&self) -> Needs {
        needs(self.layout())
    }

    fn sources(&self, side: SideKind) -> &[collection::Source] {
        match side {
            SideKind::Ingress => &self.ingress,
            SideKind::Egress => &self.egress,
            SideKind::Transit | SideKind::Host => &[],
        }
    }

    fn fixed(&self) -> Vec<TableEntry> {
        hashes::secrets(&HashFamily::new(&self.session.plan().hash_key))
    }

    fn epoch(&self, epoch: u64, plan: &[u8]) -> Result<EpochEntries, String> {
        let attention = self.session.check(plan)?;
        let all = entries::epoch(self.layout(), &attention, epoch);
        let (gate, rest) = all.into_iter().partition(|entry| entry.table == entries::MASKS);
        Ok(EpochEntries { gate, rest })
    }

    fn check(&self, plan: &[u8]) -> Result<(), String> {
        self.session.check(plan).map(drop)
    }

    fn holding(&self, plan: &[u8], effective_epoch: u64) -> Option<Vec<u8>> {
        let attention = decode_plan(plan).ok()?;
        Some(Holding { attention, effective_epoch }.encode())
    }

    fn side(&self, closed: &Closed, words: &[Vec<u32>]) -> Result<Side, String> {
        let Closed { epoch, stall_ns, entered, .. } = *closed;
        let attention = &self.session.check(&closed.plan)?;
        let defects = Defects { stall_ns, ..Defects::default() };
        let nonsense = |problem: sketches::Nonsense| problem.to_string();
        if closed.side == SideKind::Ingress {
            let IngressSketches { classifier, upstream } =
                IngressSketches::new(self.layout(), words).map_err(nonsense)?;
            let (classifier, upstream) = (&classifier, &upstream);
            let side = IngressSide {
                epoch,
                attention,
                defects,
                packets: entered,
                classifier,
                upstream,
                balance: None,
                key: None,
                // All ports lie in one pipe.
                lcores: Some(1),
            };
            return Ok(self.session.ingress(&side).0);
        }
        let EgressSketches { encoded, downstream } =
            EgressSketches::new(self.layout(), words).map_err(nonsense)?;
        let notices = |stream: usize| closed.notices.get(stream);
        let misfits = notices((epoch & 1) as usize);
        let foreign_packets = misfits.map_or(closed.foreign_packets, Received::events);
        let defects = Defects { foreign_packets, ..defects };
        let strays = misfits.map(|of| strays::misfits(of, epoch));
        let packets = encoded + closed.unrecorded + strays.as_ref().map_or(0, strays::of_epoch);
        // Where they are only counted, each may have been one of a flow that seems to have lost it.
        let of_count = |beyond| Strays { entries: Vec::new(), beyond };
        let unmarked = closed.unmarked.map(|counted| {
            let of = |received| strays::unmarked(received, epoch);
            notices(strays::UNMARKED).map_or_else(|| of_count(counted), of)
        });
        let side = EgressSide {
            epoch,
            attention,
            defects,
            packets,
            downstream: &downstream,
            balance: None,
            strays,
            unmarked,
            key: None,
        };
        Ok(self.session.egress(side))
    }

    fn seal(&self, epoch: u64, counted: u64, notices: &[Received]) -> (u64, Vec<u8>) {
        let Some(late) = notices.get((epoch & 1) as usize) else { return (counted, Vec::new()) };
        let packets = late.events();
        if self.session.version() < VERSION {
            return (packets, Vec::new());
        }
        let strays = strays::late(late, epoch);
        (packets, Late { unencoded: 0, strays }.encode())
    }
}

#[cfg(test)]
mod tests {
    use calumma_epoch::{EpochClock, Guards};
    use calumma_sketch::either;
    use calumma_wire::Message;

    use super::*;

    /// Sketches of the default layout.
    fn sketches() -> (Sketches, Attention) {
        let (layout, hash_key) = (Layout::default(), HashKey::from_bytes([7; 32]));
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let partition = Partition { hh: 1024, hl: 2500, ll: 572 };
        let attention = Attention { t_h: 30, t_l: 3, sample_rate: SampleRate::ALL, partition };
        let plan = SessionPlan { layout, hash_key, clock, first_epoch: 1000, attention };
        let sketches = Sketches {
            ingress: described(&Source::INGRESS, &plan.layout),
            egress: described(&Source::EGRESS, &plan.layout),
            session: SwitchSession::new(plan).with_version(frames::OFFER.highest),
        };
        (sketches, attention)
    }

    #[test]
    fn packets_of_a_flow_that_the_classifier_has_no_more_room_for_are_all_there() {
        let (sketches, attention) = sketches();
        let layout = sketches.layout();
        let mut words: Vec<Vec<u32>> = sketches
            .ingress
            .iter()
            .map(|source| vec![0; source.elements as usize * source.registers.len()])
            .collect();
        (words[0][5], words[1][7]) = (0xFF, 0xFFFF);
        let plan = frames::encode_plan(&attention).into();
        let closed = Closed::in_time(1000, SideKind::Ingress, plan);
        let side = sketches.side(&Closed { entered: 200_000, ..closed }, &words).unwrap();
        let read = frames::Message::read(Message::Side(Box::new(side)), Some(layout)).unwrap();
        let Some(frames::Message::Ingress(read)) = read else { panic!("an ingress side") };
        assert_eq!(read.packets_in, 200_000);
    }

    #[test]
    fn packets_without_a_mark_may_have_been_of_any_flow() {
        let (sketches, attention) = sketches();
        let layout = sketches.layout();
        let words: Vec<Vec<u32>> = sketches
            .sources(SideKind::Egress)
            .iter()
            .map(|source| vec![0; source.elements as usize * 5])
            .collect();
        for (unmarked, wanted) in [(None, None), (Some(0), Some(0)), (Some(17), Some(17))] {
            let plan = frames::encode_plan(&attention).into();
            let closed = Closed { unmarked, ..Closed::in_time(1000, SideKind::Egress, plan) };
            let side = sketches.side(&closed, &words).unwrap();
            let read = frames::Message::read(Message::Side(Box::new(side)), Some(layout)).unwrap();
            let Some(frames::Message::Egress(read)) = read else { panic!("an egress side") };
            let beyond = read.unmarked.as_ref().map(|of| either!(of, strays => strays.beyond));
            assert_eq!(beyond, wanted);
        }
    }
}
