//! Packets on their way from edge to edge: over every link, and through every switch in between.
//!
//! Packets of one flow pass together as long as nothing parts them. What is lost is counted here, where
//! it is lost, and no switch of Calumma has a part in it.

use std::sync::Arc;

use calumma_plane::{MarkedRun, Run};
use calumma_sketch::WideKey;

use super::network::Bytes;
use super::numbers::Numbers;
use super::truth::{Account, Truths};
use crate::topology::{LinkQuality, Topology, Way};
use crate::workload::{Chance, Fate, Flow};

/// Packets of one flow that are under way together.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) key: WideKey,
    /// What entered together: timestamp bit, and hierarchies from the packet `first` on.
    entered: MarkedRun,
    first: u32,
    /// Those of these packets that are in this load.
    left: Numbers,
    /// The packet itself, where packets are simulated one by one.
    pub(super) bytes: Option<Bytes>,
    way: Arc<Way>,
    /// The segment of the way that they are about to pass.
    at: usize,
    fate: Fate,
    /// The segment on which a victim flow's packets are lost.
    victims_at: usize,
    account: Account,
}

impl Load {
    /// What has entered of a flow, its packets from `first` on, and goes `way`.
    pub(super) fn new(
        flow: &Flow,
        way: &Arc<Way>,
        fate: Fate,
        (first, entered): (u32, MarkedRun),
        account: Account,
    ) -> Self {
        Self {
            key: flow.key,
            entered,
            first,
            left: Numbers::within(first..first + entered.run.packets()),
            bytes: None,
            way: way.clone(),
            at: 0,
            fate,
            victims_at: flow.victim_segment(),
            account,
        }
    }

    /// The packets with the marks they carry.
    pub(super) fn marked(&self) -> MarkedRun {
        MarkedRun { bit: self.entered.bit, run: self.run(&self.left) }
    }

    /// The edge where they leave the network.
    pub(super) fn egress(&self) -> usize {
        self.way.switch(self.way.hops().len())
    }

    /// Some of the packets by hierarchy.
    fn run(&self, numbers: &Numbers) -> Run {
        numbers.of_run(&self.entered.run, self.first)
    }

    /// The packets `lost` are lost on the segment that they are about to pass.
    fn lose(&mut self, truths: &mut Truths, lost: impl FnMut(u32) -> bool) {
        let [lost, left] = self.left.split(lost);
        self.left = left;
        if lost.is_empty() {
            return;
        }
        let run = self.run(&lost);
        if let Some(flow) = truths.flow(self.account) {
            flow.lose_on(self.way.segment(self.at), &run, &lost);
        }
    }

    /// Copies of the packets for which `doubled` holds, made by the link that they are about to pass.
    fn copies(
        &self,
        truths: &mut Truths,
        link: usize,
        doubled: impl FnMut(u32) -> bool,
    ) -> Option<Self> {
        let [doubled, _] = self.left.split(doubled);
        if doubled.is_empty() {
            return None;
        }
        let run = self.run(&doubled);
        if let Some(flow) = truths.flow(self.account) {
            flow.double_on(self.way.segment(self.at), &run);
        }
        Some(Self { left: doubled, fate: self.fate.of_copies(link), ..self.clone() })
    }

    /// They have passed a segment.
    fn pass(&mut self, truths: &mut Truths) {
        truths.passed(self.account, self.way.segment(self.at).to, self.left.count());
        self.at += 1;
    }

    /// They leave the network.
    pub(super) fn deliver(&self, truths: &mut Truths) {
        let packets = self.left.count();
        truths.passed(self.account, self.way.segment(self.at).to, packets);
        if let Some(flow) = truths.flow(self.account) {
            flow.delivered += packets;
        }
    }
}

/// What lies between the edges.
#[derive(Debug)]
pub(super) struct Fabric {
    /// By number of the link.
    qualities: Vec<LinkQuality>,
}

impl Fabric {
    pub(super) fn new(topology: &Topology) -> Self {
        Self { qualities: topology.links().iter().map(|link| link.quality).collect() }
    }

    /// Lets a load pass the network that is at `at_ns` where it is. Adds what arrives at the egress edge
    /// to `arrived`, and when it does.
    pub(super) fn pass(
        &self,
        load: Load,
        at_ns: u64,
        truths: &mut Truths,
        arrived: &mut Vec<(u64, Load)>,
    ) {
        let mut under_way = vec![(at_ns, load)];
        while let Some((mut at_ns, mut load)) = under_way.pop() {
            let last = load.way.segments() - 1;
            loop {
                let fate = load.fate;
                let link = (load.at % 2 == 1).then(|| load.way.hops()[load.at / 2].link);
                let quality = link.map(|link| (link, &self.qualities[link]));
                if let Some((link, quality)) = quality
                    && quality.loss > 0.0
                {
                    load.lose(truths, |number| {
                        fate.draw(Chance::Loss, link, number).share() < quality.loss
                    });
                }
                if load.victims_at == load.at && fate.is_victim() {
                    load.lose(truths, |number| fate.is_lost(number));
                }
                if load.left.is_empty() {
                    break;
                }
                if load.at == last {
                    arrived.push((at_ns, load));
                    break;
                }
                if let Some((link, quality)) = quality {
                    if quality.duplicate > 0.0
                        && let Some(mut copies) = load.copies(truths, link, |number| {
                            fate.draw(Chance::Copy, link, number).share() < quality.duplicate
                        })
                    {
                        let at_ns = at_ns + delay_ns(quality, &copies, link);
                        copies.pass(truths);
                        under_way.push((at_ns, copies));
                    }
                    at_ns += delay_ns(quality, &load, link);
                }
                load.pass(truths);
            }
        }
    }
}

/// How long a link takes to carry a load.
fn delay_ns(quality: &LinkQuality, load: &Load, link: usize) -> u64 {
    let [delay_ns, jitter_ns] = [quality.delay_us, quality.jitter_us].map(|us| (us * 1e3) as u64);
    let late = load.fate.draw(Chance::Delay, link, load.left.first());
    delay_ns + late.below(jitter_ns + 1)
}
