//! Notices of a modelled switch: numbered by its program, and kept until an epoch is over.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::Result;
use calumma_switchd::notices::{Events, FRONT, Inbox, Readings, Received, Streams};
use calumma_tna::{MirrorSession, Switch};

use super::entries::add;
use super::{Finished, Session};

/// The CPU's port, and the mirror session that notices reach it by.
const CPU: u16 = 64;
const SESSION: u16 = 2;

/// Where a program numbers notices, if it sends any, and those that have come.
pub(super) struct Noticing {
    streams: Option<Streams>,
    readings: Readings,
    inbox: Inbox,
}

impl Noticing {
    /// None has come yet.
    pub(super) fn new(switch: &mut Switch, streams: Option<Streams>) -> Self {
        switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
        Self { streams, readings: Readings::default(), inbox: Inbox::default() }
    }

    /// Lets packets that wait leave the switch: `sent` gets all but notices.
    pub(super) fn run(&mut self, switch: &mut Switch, mut sent: impl FnMut(&[u8])) {
        let mut waiting = 1;
        while waiting > 0 {
            waiting = switch.run(1, |port, packet| match port {
                CPU => _ = self.inbox.take(packet),
                _ => sent(packet),
            });
        }
    }

    /// What notices said that came since this was asked last, each with its stream.
    pub(super) fn news(&mut self) -> VecDeque<(u8, Vec<u8>)> {
        self.inbox.news()
    }

    /// The numbers of the next notices, by stream.
    pub(super) fn next(&self, switch: &Switch) -> Result<Vec<u32>> {
        let Some(streams) = self.streams else { return Ok(Vec::new()) };
        streams.next(|register, _| {
            let lanes = switch.read_register_lanes(register)?;
            Ok(lanes.first().map_or_else(Vec::new, |numbers| numbers.to_vec()))
        })
    }

    /// Lets notices be sent in the epoch to come.
    pub(super) fn allow(&self, switch: &mut Switch, next: &[u32]) -> Result<()> {
        let Some(streams) = self.streams else { return Ok(()) };
        switch.clear_table(&streams.budgets())?;
        streams.allow(next, SESSION).iter().try_for_each(|entry| add(switch, entry))
    }

    /// An epoch is armed, and a window of that parity begins with it, if any: what came of the
    /// events of its timestamp bit that are of the last one's seal.
    pub(super) fn arm(&mut self, bit: usize, begins: Option<usize>, next: &[u32]) -> Vec<Received> {
        let numbers = self.readings.arm(bit, begins, next);
        self.inbox.all(&numbers)
    }

    /// An epoch is taken: the numbers of the events of its window so far.
    pub(super) fn take(&mut self, bit: usize, parity: usize, next: &[u32]) -> Vec<Range<u32>> {
        self.readings.take(bit, parity, next)
    }

    /// What came of the events of a side, by stream.
    pub(super) fn of(&mut self, events: &Events) -> Vec<Received> {
        let received = self.inbox.all(&events.numbers);
        if events.begin_anew {
            self.inbox.forget(&events.numbers);
        }
        received
    }
}

impl Session {
    /// What the system reports of the notices that have come.
    pub(super) fn notice(&mut self, shown_ns: u64) -> Option<Finished> {
        for (stream, body) in self.noticing.news() {
            self.setup.noticed(shown_ns, stream, &body);
        }
        let (epoch, body) = self.setup.notice(shown_ns)?;
        Some(Finished::Notice { system: self.id, epoch, body })
    }
}
