//! What a switch does for `hops`: a table of flows for each window, filled by whatever passes.

use std::collections::HashMap;

use calumma_plane::slots::AnySlots;
use calumma_plane::system::{
    FinishedSide, Groups, LcoreHalf, LcoreSystem, Notes, Record, Recorded, SessionContext,
    SwitchSystem, System,
};
use calumma_plane::worker::Sent;
use calumma_plane::{AnyRecord, Counters, Flows, MarkedRun, Run, Slots};
use calumma_sketch::{AnyKey, FlowKey, Key, KeyKind, WideKey};
use calumma_wire::{Offer, Role, Side, SystemSetup};
use foldhash::fast::RandomState;

use crate::frames::{Counts, OFFER, Packets, Setup};

/// The system, which runs on all switches.
#[derive(Clone, Copy, Debug)]
pub struct Hops;

impl System for Hops {
    fn name(&self) -> &'static str {
        "hops"
    }

    fn offer(&self) -> Offer {
        OFFER
    }

    fn runs_as(&self, role: Role) -> bool {
        matches!(role, Role::Edge | Role::Transit)
    }

    fn begin(
        &self,
        session: &SessionContext,
        setup: &SystemSetup,
    ) -> Result<Box<dyn SwitchSystem>, String> {
        let setup = Setup::decode(&setup.setup).map_err(|problem| problem.to_string())?;
        Ok(Box::new(OnSwitch { setup, first_epoch: session.first_epoch }))
    }
}

/// Packets by flow. It takes its memory once, and never more.
#[derive(Clone, Debug)]
struct Table<K> {
    flows: HashMap<K, Packets, RandomState>,
    most: usize,
    others: Packets,
}

impl<K: Key> Table<K> {
    fn new(most: u16) -> Self {
        let most = usize::from(most);
        let flows = HashMap::with_capacity_and_hasher(most, RandomState::default());
        Self { flows, most, others: Packets::default() }
    }

    fn add(&mut self, key: &K, packets: Packets) {
        let full = self.flows.len() == self.most;
        match self.flows.get_mut(key) {
            Some(counted) => *counted += packets,
            None if full => self.others += packets,
            None => {
                self.flows.insert(*key, packets);
            }
        }
    }
}

impl<K: Key> Record for Table<K> {
    type Plan = ();

    fn begin(&mut self, (): &(), _epoch: u64) {}

    fn plan(&self) -> &() {
        &()
    }

    fn merge(&mut self, other: &Self) {
        other.flows.iter().for_each(|(key, packets)| self.add(key, *packets));
        self.others += other.others;
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.others = Packets::default();
    }
}

/// Its half on an lcore.
#[derive(Debug)]
struct OnLcore<K: Key>(Slots<Table<K>, Table<K>>);

impl<K: Key> OnLcore<K> {
    fn by_bit(&mut self, bit: usize, keys: impl Iterator<Item = (K, u64)>) {
        if let Some(record) = self.0.by_bit(bit) {
            keys.for_each(|(key, packets)| received(record, &key, packets));
        } else {
            self.0.late(bit, keys.map(|(_, packets)| packets).sum());
        }
    }
}

fn received<K: Key>(record: &mut Recorded<Table<K>>, key: &K, packets: u64) {
    record.group.add(key, Packets { received: packets, refused: 0 });
    record.packets += packets;
}

impl<K: Key> LcoreSystem<K> for OnLcore<K> {
    fn slots(&mut self) -> &mut dyn AnySlots {
        &mut self.0
    }

    fn wants_transit(&self) -> bool {
        true
    }

    fn wants_sent(&self) -> bool {
        true
    }

    fn enter(&mut self, flows: &mut Flows<K>, _counters: &mut Counters) {
        if let Some(record) = self.0.ingress() {
            flows.keys().iter().for_each(|key| received(record, key, 1));
        }
    }

    fn transit(&mut self, flows: &mut Flows<K>, counters: &mut Counters) {
        self.leave(flows, counters);
    }

    fn leave(&mut self, flows: &Flows<K>, _counters: &mut Counters) {
        flows.by_bit(|of| self.by_bit(of.bit, of.keys.iter().map(|&key| (key, 1))));
        for (at, _) in flows.stale() {
            self.0.outdated(flows.mark(at).bit, 1);
        }
    }

    /// Refused packets go where they were recorded; one whose epoch was over was not.
    fn sent(&mut self, flows: &Flows<K>, sent: Sent, _counters: &mut Counters) {
        for at in (0..flows.len()).filter(|at| sent.refused >> at & 1 == 1 && flows.is_marked(*at))
        {
            let entering = flows.is_entering(at);
            let bit = flows.mark(at).bit;
            let record = if entering { self.0.ingress() } else { self.0.by_bit(bit) };
            if let Some(record) = record {
                record.group.add(&flows.keys()[at], Packets { received: 0, refused: 1 });
            }
        }
    }

    fn enter_run(&mut self, key: &K, packets: u32, _counters: &mut Counters) -> Run {
        if let Some(record) = self.0.ingress() {
            received(record, key, packets.into());
        }
        Run::unencoded(packets)
    }

    fn leave_run(&mut self, key: &K, marked: &MarkedRun, _counters: &mut Counters) {
        self.by_bit(marked.bit, [(*key, marked.run.packets().into())].into_iter());
    }
}

/// Its half on the control thread.
#[derive(Debug)]
struct OnSwitch {
    setup: Setup,
    first_epoch: u64,
}

impl OnSwitch {
    fn half<K: Key>(&self) -> Box<dyn LcoreSystem<K>> {
        Box::new(OnLcore(Slots::new(self.first_epoch, self.setup.window.into(), ())))
    }

    fn empty<K: Key>(&self) -> Groups {
        let table = || Box::new(Recorded::new(Table::<K>::new(self.setup.flows)));
        Groups { ingress: table(), by_bit: table() }
    }
}

impl SwitchSystem for OnSwitch {
    fn on_lcore(&self, keys: KeyKind) -> AnyKey<LcoreHalf> {
        match keys {
            KeyKind::Ipv4 => AnyKey::Ipv4(self.half()),
            KeyKind::Dual => AnyKey::Dual(self.half()),
        }
    }

    fn groups(&self, keys: KeyKind) -> Groups {
        match keys {
            KeyKind::Ipv4 => self.empty::<FlowKey>(),
            KeyKind::Dual => self.empty::<WideKey>(),
        }
    }

    fn side(&self, finished: FinishedSide<'_>) -> Option<(Side, Notes)> {
        let FinishedSide { epoch, side, record, .. } = finished;
        let counts = counts::<FlowKey>(record).or_else(|| counts::<WideKey>(record))?;
        let notes = vec![("flows", Some(counts.flows.len() as u64))];
        let (packets, stall_ns) = (record.packets(), record.stall_ns());
        let (system, counters, body) = (OFFER.system, Vec::new(), counts.encode());
        Some((Side { system, epoch, side, stall_ns, packets, counters, body }, notes))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let Setup { flows, window } = self.setup;
        vec![("table_flows", flows.into()), ("window_epochs", window.into())]
    }
}

/// What a record counted, if it is one of such keys.
fn counts<K: Key>(record: &dyn AnyRecord) -> Option<Counts> {
    let table = &record.get::<Table<K>>()?.group;
    let wide = |(key, packets): (&K, &Packets)| {
        let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
        Some((WideKey::new(src, dst, sport, dport, key.protocol())?, *packets))
    };
    let mut flows: Vec<_> = table.flows.iter().filter_map(wide).collect();
    flows.sort_unstable();
    Some(Counts { flows, others: table.others })
}
