//! The hardware switch in the simulation: the P4 program on the model of a Tofino, its tables
//! filled with the control plane's own entries. What its driver and the collection packets do takes
//! no time here; live fabrics have both.

use anyhow::{Context, Result};
use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::frames::{Defects, EgressSide, IngressSide, SwitchSession};
use calumma_chamelemon::{Attention, Layout};
use calumma_edge::carrier::{Mark, PlainTos};
use calumma_edge::packet::Packet;
use calumma_epoch::{Event, Schedule, Timeline, timestamp_bit};
use calumma_plane::MarkedRun;
use calumma_sketch::{HashFamily, WideKey};
use calumma_switchd::chamelemon::sketches::{EgressSketches, IngressSketches};
use calumma_switchd::chamelemon::{Source, entries};
use calumma_switchd::hashes;
use calumma_switchd::tables::{Match, TableEntry};
use calumma_tna::{Entry, Switch};

use super::network::{Bytes, IP_OFFSET};
use super::node::Finished;
use super::way::mark_of;
use crate::calumma::p4;
use crate::workload::frame;

/// Its ports: one for all hosts, one for the fabric.
const HOST: u16 = 1;
const FABRIC: u16 = 2;

/// How often it looks out for a session when it has none.
const IDLE_NS: u64 = 1_000_000;

/// A modelled switch.
#[derive(Debug)]
pub(super) struct Tofino {
    session: Option<Box<Session>>,
    idle_until_ns: u64,
}

/// What is measured, and by which switch: each layout is a program of its own.
#[derive(Debug)]
struct Session {
    switch: Switch,
    layout: Layout,
    schedule: Schedule,
    first_epoch: u64,
    plans: Timeline<Attention>,
    groups: [Group; 2],
    /// Packets of hierarchy 0 that had left when a group was closed last.
    unencoded: u64,
}

/// The group of a timestamp bit.
#[derive(Debug, Default)]
struct Group {
    /// The epoch under way, and all that the tables hold for it.
    measured: Option<(Attention, Vec<TableEntry>)>,
    /// The last epoch, and how many packets had found no buckets when it was closed.
    closed: Option<(u64, u64)>,
    /// How many packets had found no buckets when the group was opened.
    opened: Option<u64>,
}

impl Tofino {
    pub(super) fn new() -> Self {
        Self { session: None, idle_until_ns: 0 }
    }

    /// What its clock shows when it has something to do next.
    pub(super) fn next_due_ns(&self) -> u64 {
        match &self.session {
            Some(session) => session.schedule.next_at_ns(),
            None => self.idle_until_ns,
        }
    }

    /// Does what is due first; its clock shows `shown_ns`. Gives what is finished.
    pub(super) fn step(
        &mut self,
        session: Option<&SwitchSession>,
        shown_ns: u64,
    ) -> Result<Vec<Finished>> {
        match (&mut self.session, session) {
            (Some(running), Some(session)) => running.step(session, shown_ns),
            _ => {
                self.idle_until_ns = shown_ns + IDLE_NS;
                Ok(Vec::new())
            }
        }
    }

    pub(super) fn begin(&mut self, plan: &SessionPlan) -> Result<()> {
        self.session = Some(Box::new(Session::new(plan)?));
        Ok(())
    }

    /// Ends the session: packets pass as they are.
    pub(super) fn end(&mut self) {
        self.session = None;
        self.idle_until_ns = 0;
    }

    pub(super) fn attend(&mut self, epoch: u64, attention: Attention) {
        if let Some(session) = &mut self.session {
            // An epoch that is too late is refused before.
            let _ = session.plans.change(epoch, attention);
        }
    }

    pub(super) fn ingress(&mut self, packet: &mut Bytes) {
        self.pass(HOST, packet);
    }

    pub(super) fn egress(&mut self, packet: &mut Bytes) {
        self.pass(FABRIC, packet);
    }

    /// What a run stands for goes through the switch packet by packet.
    pub(super) fn enter_run(&mut self, key: &WideKey, packets: u32) -> MarkedRun {
        let mut bit = 0;
        let mut hierarchy = || {
            let mut packet = Bytes::new(frame(key, 60));
            self.ingress(&mut packet);
            let mark = mark_of(&packet);
            bit = mark.bit;
            mark.hierarchy
        };
        let run = (0..packets).map(|_| hierarchy()).collect();
        MarkedRun { bit, run }
    }

    pub(super) fn leave_run(&mut self, key: &WideKey, MarkedRun { bit, run }: MarkedRun) {
        for (hierarchy, packets) in run.by_hierarchy() {
            for _ in 0..packets {
                let mut packet = Bytes::new(frame(key, 60));
                PlainTos::default().write(
                    packet.bytes_mut(),
                    IP_OFFSET,
                    Mark::plain(bit, hierarchy),
                );
                self.egress(&mut packet);
            }
        }
    }

    /// A packet goes in through a port, and out through the other one as long as it was.
    fn pass(&mut self, port: u16, packet: &mut Bytes) {
        let Some(session) = &mut self.session else { return };
        let before = packet.clone();
        session.switch.inject_with(port, before.bytes(), |_, bytes| {
            packet.bytes_mut().copy_from_slice(bytes);
        });
    }
}

impl Session {
    fn new(plan: &SessionPlan) -> Result<Self> {
        let SessionPlan { layout, hash_key, clock, first_epoch, attention } = plan;
        let mut switch = Switch::new(&p4::program(layout)?);
        for entry in hashes::secrets(&HashFamily::new(hash_key)) {
            add(&mut switch, &entry)?;
        }
        for (port, peer) in [(HOST, FABRIC), (FABRIC, HOST)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", peer);
            switch.add_entry("port_pair", &send)?;
        }
        let host = Entry::new("host").exact("ingress_port", HOST);
        switch.add_entry("Ingress.host_ports", &host)?;
        let host = Entry::new("host").exact("egress_port", HOST).arg("dscp", 0u8);
        switch.add_entry("Egress.host_ports", &host)?;
        // Not the first epoch's: packets that enter before it are not taken for its own.
        let bit = u128::from(first_epoch & 1 ^ 1);
        switch.set_default_action("Ingress.timestamp", "set_timestamp", &[("value", bit)])?;
        Ok(Self {
            switch,
            layout: layout.clone(),
            schedule: Schedule::starting_with(*clock, *first_epoch),
            first_epoch: *first_epoch,
            plans: Timeline::new(*attention),
            groups: Default::default(),
            unencoded: 0,
        })
    }

    fn step(&mut self, session: &SwitchSession, shown_ns: u64) -> Result<Vec<Finished>> {
        match self.schedule.due(shown_ns).map(|due| due.event) {
            Some(Event::Arm(epoch)) => self.arm(epoch),
            Some(Event::Flip(epoch)) => self.flip(session, epoch),
            Some(Event::Take(epoch)) if epoch >= self.first_epoch => self.take(epoch),
            _ => Ok(Vec::new()),
        }
    }

    /// Fills the tables of an epoch; packets of the last one with its timestamp bit are no longer
    /// late.
    fn arm(&mut self, epoch: u64) -> Result<Vec<Finished>> {
        let attention = self.plans.freeze(epoch);
        let entries = entries::epoch(&self.layout, &attention, epoch);
        for entry in &entries {
            add(&mut self.switch, entry)?;
        }
        let counted = self.left(2)?;
        let group = &mut self.groups[timestamp_bit(epoch)];
        group.measured = Some((attention, entries));
        group.opened = Some(counted);
        let sealed = group
            .closed
            .take()
            .map(|(epoch, before)| Finished::Sealed { epoch, late_packets: counted - before });
        Ok(sealed.into_iter().collect())
    }

    /// Stamps with the next epoch's bit, and reads the ingress side of the one that ends.
    fn flip(&mut self, session: &SwitchSession, epoch: u64) -> Result<Vec<Finished>> {
        let bit = u128::from(epoch & 1);
        self.switch.set_default_action("Ingress.timestamp", "set_timestamp", &[("value", bit)])?;
        let before = epoch - 1;
        let Some((attention, _)) = &self.groups[timestamp_bit(before)].measured else {
            // What entered before the first epoch is of none.
            self.clear(&Source::INGRESS, timestamp_bit(before))?;
            return Ok(Vec::new());
        };
        let words = self.words(&Source::INGRESS, timestamp_bit(before))?;
        let IngressSketches { packets, classifier, upstream } =
            IngressSketches::new(&self.layout, &words)?;
        let (side, _) = session.ingress(&IngressSide {
            epoch: before,
            attention,
            defects: Defects::default(),
            packets,
            classifier: &classifier,
            upstream: &upstream,
            balance: None,
        });
        Ok(vec![Finished::Side(side)])
    }

    /// Reads the egress side of an epoch, empties its tables and clears its registers.
    fn take(&mut self, epoch: u64) -> Result<Vec<Finished>> {
        let bit = timestamp_bit(epoch);
        // While both groups are open, no packet comes late: one without buckets is foreign.
        let opened = self.groups[timestamp_bit(epoch + 1)].opened;
        let foreign = self.left(2)?;
        let foreign_packets = opened.map_or(0, |opened| foreign - opened);
        self.groups[bit].opened = None;
        let Some((attention, entries)) = self.groups[bit].measured.take() else {
            return Ok(Vec::new());
        };
        for entry in &entries {
            self.switch.delete_entry(&entry.table, &modelled(entry))?;
        }
        let unencoded = self.left(0)?;
        let words = self.words(&Source::EGRESS, bit)?;
        let EgressSketches { encoded, downstream } = EgressSketches::new(&self.layout, &words)?;
        let side = EgressSide {
            epoch,
            attention: &attention,
            defects: Defects { foreign_packets, ..Defects::default() },
            packets: encoded + unencoded - self.unencoded,
            downstream: &downstream,
            balance: None,
            strays: None,
            unmarked: None,
        };
        let side = side.to_wire();
        self.unencoded = unencoded;
        self.groups[bit].closed = Some((epoch, self.left(2)?));
        self.clear(&Source::ALL, bit)?;
        Ok(vec![Finished::Side(side)])
    }

    /// Packets that have left so far: 0 those of hierarchy 0, 2 those that found no buckets.
    fn left(&self, kind: usize) -> Result<u64> {
        Ok(self.switch.read_counter("Egress.packets", kind)?.packets)
    }

    /// The words of a group, source by source.
    fn words(&self, sources: &[Source], bit: usize) -> Result<Vec<Vec<u32>>> {
        let words = |source: &Source| -> Result<Vec<u32>> {
            let source = source.of(&self.layout);
            let mut lanes = Vec::new();
            for name in &source.registers {
                lanes.extend(self.switch.read_register_lanes(name)?);
            }
            let elements = source.elements as usize;
            let group = bit * elements..(bit + 1) * elements;
            Ok(group.flat_map(|at| lanes.iter().map(move |lane| lane[at])).collect())
        };
        sources.iter().map(words).collect()
    }

    fn clear(&mut self, sources: &[Source], bit: usize) -> Result<()> {
        for source in sources {
            let source = source.of(&self.layout);
            let elements = source.elements as usize;
            for name in &source.registers {
                let lanes = self.switch.read_register_lanes(name)?.len();
                for at in bit * elements..(bit + 1) * elements {
                    self.switch.write_register(name, at, &[0, 0][..lanes])?;
                }
            }
        }
        Ok(())
    }
}

fn add(switch: &mut Switch, entry: &TableEntry) -> Result<()> {
    let added = if entry.keys.is_empty() {
        let args: Vec<_> = entry.args.iter().map(|&(name, value)| (name, value.into())).collect();
        switch.set_default_action(&entry.table, entry.action, &args)
    } else {
        switch.add_entry(&entry.table, &modelled(entry))
    };
    added.with_context(|| format!("an entry of {}", entry.table))
}

/// An entry of the control plane as the model takes it.
fn modelled(entry: &TableEntry) -> Entry {
    let keys = entry.keys.iter().fold(Entry::new(entry.action), |out, (key, field)| match *field {
        Match::Exact(value) => out.exact(key, value),
        Match::Range(low, high) => out.range(key, low, high),
    });
    entry.args.iter().fold(keys, |out, (name, value)| out.arg(name, *value))
}
