//! How long switches keep packets, and what packets meet on their way.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Deserialize;

/// What a simulated switch does to packets besides measuring them. They pass its links' queues as
/// well.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchQuality {
    /// How long it has each packet at least, in microseconds.
    pub latency_us: f64,
    /// Packets that it takes from its receive queue in a second, one after the other; 0 for as many
    /// as come. None waits longer than 2 ms: beyond that, it takes several at a time.
    pub rate_pps: f64,
    /// Longest IP packet that its links carry with a stack, in bytes.
    pub mtu: u16,
}

impl Default for SwitchQuality {
    /// It has packets for no time at all.
    fn default() -> Self {
        Self { latency_us: 0.0, rate_pps: 0.0, mtu: 1500 }
    }
}

impl SwitchQuality {
    /// The name that stands for all switches that no other entry is of.
    pub const ALL: &'static str = "all";

    /// Checks that a switch can be so.
    ///
    /// # Errors
    /// The field that is out of its range.
    pub fn check(&self) -> Result<()> {
        let Self { latency_us, rate_pps, .. } = *self;
        ensure!((0.0..=1e4).contains(&latency_us), "latency_us = {latency_us}: 0 to 10000");
        ensure!((0.0..=1e9).contains(&rate_pps), "rate_pps = {rate_pps}: 0 to 1000000000");
        Ok(())
    }
}

/// The longest that a packet waits in a receive queue: it must leave the network before its epoch
/// is reported.
const MOST_WAIT_NS: u64 = 2_000_000;

/// When a packet arrives at a switch and when it is handed to a transmit queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) arrived_ns: u64,
    pub(super) departed_ns: u64,
}

/// What a switch knows of a packet that it had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had {
    /// For how long, by its own clock.
    pub(super) latency_ns: u32,
    /// How many packets waited in its receive queue, where stacks ask for that.
    pub(super) queued: Option<u32>,
}

/// A switch's receive queue, and who takes packets out of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    quality: SwitchQuality,
    /// When it is through with all that it has received.
    free_ns: u64,
}

impl Service {
    pub(super) fn set(&mut self, quality: SwitchQuality) {
        self.quality = quality;
    }

    pub(super) fn quality(&self) -> SwitchQuality {
        self.quality
    }

    /// How long it takes for a packet.
    fn takes_ns(&self) -> u64 {
        let rate_pps = self.quality.rate_pps;
        if rate_pps > 0.0 { (1e9 / rate_pps) as u64 } else { 0 }
    }

    /// How many packets there are in the queue with one that arrives at true time `now_ns`, that
    /// included.
    pub(super) fn waiting(&self, now_ns: u64) -> u32 {
        let others_ns = self.free_ns.saturating_sub(now_ns);
        let others = others_ns.checked_div(self.takes_ns()).unwrap_or(0);
        u32::try_from(others + 1).unwrap_or(u32::MAX - 1)
    }

    /// A packet arrives at true time `now_ns`.
    pub(super) fn serve(&mut self, now_ns: u64) -> Stay {
        let (latency_us, takes_ns) = (self.quality.latency_us, self.takes_ns());
        self.free_ns = (self.free_ns.max(now_ns) + takes_ns).min(now_ns + MOST_WAIT_NS);
        Stay { arrived_ns: now_ns, departed_ns: self.free_ns + (latency_us * 1e3) as u64 }
    }
}

/// How long a switch's receive queue was when packets came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queues {
    /// Packets that it is known of.
    pub packets: u64,
    /// The sum of the lengths.
    pub sum: u64,
    /// The longest.
    pub max: u32,
}

impl Queues {
    /// Adds those of other packets.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// What a flow's packets met that reached their sink, in the order in which they did.
#[derive(Clone, Debug, Default)]
pub struct Met {
    /// Packets.
    pub packets: u64,
    /// Those that came with a stack.
    pub with_int: u64,
    /// Those of them of which a switch did not push.
    pub partial: u64,
    /// How many came by which switches: those that pushed onto their stacks, and the sink.
    pub paths: BTreeMap<Vec<usize>, u64>,
    /// By switch, how long it had each of those that say so, in nanoseconds.
    pub latencies: BTreeMap<usize, Vec<u32>>,
    /// By switch, its queue, as those met it that say so.
    pub queues: BTreeMap<usize, Queues>,
    /// By the switches at both ends, how long each of those whose stack is whole was really on the
    /// link, in nanoseconds.
    pub links: BTreeMap<(usize, usize), Vec<u64>>,
}

impl Met {
    /// Adds those of other packets, which came later.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.with_int += other.with_int;
        self.partial += other.partial;
        for (path, packets) in &other.paths {
            *self.paths.entry(path.clone()).or_default() += packets;
        }
        for (switch, latencies) in &other.latencies {
            self.latencies.entry(*switch).or_default().extend(latencies);
        }
        for (switch, queues) in &other.queues {
            self.queues.entry(*switch).or_default().add(queues);
        }
        for (link, on_it_ns) in &other.links {
            self.links.entry(*link).or_default().extend(on_it_ns);
        }
    }

    /// Adds what a switch says of a packet.
    fn had(&mut self, switch: usize, had: Had) {
        self.latencies.entry(switch).or_default().push(had.latency_ns);
        if let Some(queued) = had.queued {
            let one = Queues { packets: 1, sum: queued.into(), max: queued };
            self.queues.entry(switch).or_default().add(&one);
        }
    }
}

/// What one packet has met so far. Whether it has a stack, and who pushed, is seen by its length.
#[derive(Clone, Debug, Default)]
pub(super) struct OnWay {
    pub(super) has_stack: bool,
    is_partial: bool,
    hops: Vec<Hop>,
}

/// What it met at one switch.
#[derive(Clone, Copy, Debug)]
struct Hop {
    switch: usize,
    had: Had,
    /// When it came and went, by true time.
    stayed: Stay,
}

/// Bytes of a stack's shim and header.
const HEADER: usize = 16;

impl OnWay {
    /// A packet that was `before` bytes long when it came to a switch of Calumma's leaves it with
    /// `after` bytes, having stayed from and until when `stayed` says. `had` is what the switch
    /// knows of that.
    pub(super) fn pass(
        &mut self,
        switch: usize,
        (before, after): (usize, usize),
        (had, stayed): (Had, Stay),
    ) {
        let pushed = match self.has_stack {
            false => {
                self.has_stack = after > before && self.hops.is_empty();
                after > before + HEADER
            }
            true => after > before,
        };
        self.is_partial |= self.has_stack && !pushed;
        if self.has_stack && pushed {
            self.hops.push(Hop { switch, had, stayed });
        }
    }

    /// It has come to a sink that is an edge at `now_ns`, which knows `had` of it.
    pub(super) fn arrive(&self, sink: usize, (now_ns, had): (u64, Had), met: &mut Met) {
        met.had(sink, had);
        self.end_at(Some((sink, now_ns)), met);
    }

    /// It has come to a sink that is no hop.
    pub(super) fn end(&self, met: &mut Met) {
        self.end_at(None, met);
    }

    fn end_at(&self, sink: Option<(usize, u64)>, met: &mut Met) {
        met.packets += 1;
        if !self.has_stack {
            return;
        }
        met.with_int += 1;
        met.partial += u64::from(self.is_partial);
        let switches = self.hops.iter().map(|hop| hop.switch);
        let path = switches.chain(sink.map(|(sink, _)| sink)).collect();
        *met.paths.entry(path).or_default() += 1;
        self.hops.iter().for_each(|&Hop { switch, had, .. }| met.had(switch, had));
        let arrivals = self.hops.iter().map(|hop| (hop.switch, hop.stayed.arrived_ns));
        let arrivals = arrivals.skip(1).chain(sink);
        for (from, (to, arrived_ns)) in self.hops.iter().zip(arrivals).filter(|_| !self.is_partial)
        {
            let on_it_ns = arrived_ns - from.stayed.departed_ns;
            met.links.entry((from.switch, to)).or_default().push(on_it_ns);
        }
    }
}
