//! A modelled switch between others that runs a system's program by its description: what its
//! tables hold, and what is said of what its registers have.

use std::sync::Arc;

use calumma_epoch::{EpochClock, Guards};
use calumma_switch_host::Session;
use calumma_switchd::notices::{self, Inbox};
use calumma_switchd::system::{Closed, Setup};
use calumma_switchd::tables::TableEntry;
use calumma_tna::{Entry, Program, Switch};
use calumma_wire::{Domain, Secret, Side, SideKind, SystemId, SystemSetup};

use super::{FABRIC, HOST, add, modelled};

/// A session in which one system runs, by `setup`.
pub(crate) fn session(system: SystemId, setup: Vec<u8>, first_epoch: u64) -> Session {
    Session {
        node_id: Some(3),
        hash_key: Secret::new([7; 32]),
        clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
        domain: Domain::default(),
        carrier: "tos".to_owned(),
        first_epoch,
        systems: vec![SystemSetup { system, version: 1, setup, plan: Vec::new() }],
    }
}

/// A transit of two ports.
pub(crate) struct Transit {
    pub(crate) switch: Switch,
    pub(crate) setup: Arc<dyn Setup>,
    /// By group, the plan of its window, and what tables hold for that.
    windows: [(Vec<u8>, Vec<TableEntry>); 2],
    /// By group, the numbers of the next notices as its window began, where a register has them.
    begun: [Vec<u32>; 2],
}

impl Transit {
    /// One with a program, and with what its tables hold for the whole session.
    pub(crate) fn new(program: &Program, setup: Arc<dyn Setup>) -> Self {
        let mut switch = Switch::new(program);
        for entry in setup.fixed() {
            add(&mut switch, &entry);
        }
        for (port, peer) in [(HOST, FABRIC), (FABRIC, HOST)] {
            let send = Entry::new("send").exact("ingress_port", port).arg("port", peer);
            switch.add_entry("port_pair", &send).unwrap();
        }
        let (windows, begun) = Default::default();
        Self { switch, setup, windows, begun }
    }

    /// Lets a plan hold for the window that an epoch is in, and none that its group had before.
    pub(crate) fn plan(&mut self, epoch: u64, plan: &[u8]) {
        let entries = self.setup.of_window(epoch, plan).unwrap();
        let window = (plan.to_vec(), entries.clone());
        let group = self.group(epoch);
        let (_, before) = std::mem::replace(&mut self.windows[group], window);
        for entry in before {
            self.switch.delete_entry(&entry.table, &modelled(&entry)).unwrap();
        }
        for entry in entries {
            self.switch.add_entry(&entry.table, &modelled(&entry)).unwrap();
        }
    }

    fn group(&self, epoch: u64) -> usize {
        ((epoch / self.setup.window()) & 1) as usize
    }

    /// Lets packets of the epoch's timestamp bit be recorded from now on, or no longer.
    pub(crate) fn open(&mut self, epoch: u64, open: bool) {
        self.open_by(&[], epoch, open);
    }

    /// The same in an epoch under a plan.
    pub(crate) fn open_by(&mut self, plan: &[u8], epoch: u64, open: bool) {
        if open && epoch.is_multiple_of(self.setup.window()) {
            self.begun[self.group(epoch)] = self.numbers();
        }
        for entry in self.setup.epoch(epoch, plan).unwrap().gate {
            let modelled = modelled(&entry);
            if open {
                self.switch.add_entry(&entry.table, &modelled).unwrap();
            } else {
                self.switch.delete_entry(&entry.table, &modelled).unwrap();
            }
        }
    }

    /// The numbers of the next notices, by stream, where a register has them.
    fn numbers(&self) -> Vec<u32> {
        let streams = self.setup.needs().notices.filter(|streams| streams.has_register);
        let numbers = streams.map(|of| self.switch.read_register_lanes(&of.numbers()).unwrap());
        numbers.map_or_else(Vec::new, |lanes| lanes[0].to_vec())
    }

    /// What it says of the window that begins with an epoch.
    pub(crate) fn side(&self, epoch: u64) -> Result<Side, String> {
        self.side_of(SideKind::Transit, epoch)
    }

    /// The same of one side of it, where it is an edge; of no notices.
    pub(crate) fn side_of(&self, side: SideKind, epoch: u64) -> Result<Side, String> {
        self.side_with(side, epoch, &Inbox::default())
    }

    /// The same with the notices that came.
    pub(crate) fn side_with(
        &self,
        side: SideKind,
        epoch: u64,
        inbox: &Inbox,
    ) -> Result<Side, String> {
        let parity = self.group(epoch);
        let words = self.setup.sources(side).iter().map(|source| {
            let lanes = source.registers.iter();
            let lanes = lanes.flat_map(|name| self.switch.read_register_lanes(name).unwrap());
            let lanes: Vec<&[u32]> = lanes.collect();
            let elements = source.elements as usize;
            (parity * elements..(parity + 1) * elements)
                .flat_map(|at| lanes.iter().map(move |lane| lane[at]))
                .collect::<Vec<u32>>()
        });
        let words: Vec<_> = words.collect();
        let plan = self.windows[parity].0.clone().into();
        let mut closed = Closed::in_time(epoch, side, plan);
        let counted = self.begun[parity].iter().zip(self.numbers());
        let counted = counted.map(|(&begun, next)| begun..next).collect();
        let events = notices::of_side(&*self.setup, &closed, &words, counted);
        closed.notices = inbox.all(&events.numbers);
        self.setup.side(&closed, &words)
    }
}
