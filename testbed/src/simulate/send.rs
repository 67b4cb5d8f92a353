//! What hosts send, and what routers within the network send to them.

use std::collections::HashMap;

use anyhow::Result;
use calumma_chamelemon::Run;
use calumma_edge::carrier::Mark;
use calumma_edge::packet::Packet;
use calumma_plane::MarkedRun;
use calumma_sketch::Key;

use super::Detail;
use super::network::{Bytes, Simulation, bytes};
use super::node::Node;
use super::numbers::Numbers;
use super::stay::{Had, OnWay, Stay};
use super::truth::{Account, FlowTruth, Stranger, Touched};
use super::way::Load;
use crate::topology::{Point, Segment};
use crate::workload::pcap::packets_of;
use crate::workload::{Draw, frame, identify, is_host, set_dscp};

/// Protocol number of TCP, whose senders let no packet be fragmented.
const TCP: u8 = 6;

/// What a flow has sent.
struct Sent {
    /// The flow, by position.
    at: usize,
    epoch: u64,
    /// When it goes on, and now.
    now_ns: (u64, u64),
    /// Number of the first of the packets.
    first: u32,
    run: MarkedRun,
    /// A packet, and what it met where it entered.
    bytes: Option<(Bytes, OnWay)>,
    /// Of one that goes from host to host, and has been recorded as such: what the edge knows of
    /// it.
    crosses: Option<Had>,
    account: Account,
}

impl Simulation {
    /// Whether hosts of an edge have sinks of their own.
    fn has_sinks(&self, edge: usize) -> bool {
        self.topology.has_host_sinks(edge)
    }

    /// The position among the nodes of the sink that the host has itself which packets are for.
    pub(super) fn sink_of(&self, load: &Load) -> Option<usize> {
        let is_this = |(edge, host, _): (usize, u32, String)| {
            edge == load.egress() && is_host(load.key.addresses().1, (edge, host))
        };
        let sink = self.topology.host_sinks().position(is_this)?;
        Some(self.topology.edges().len() + self.topology.transits().count() + sink)
    }

    /// Sends all that flows send in an epoch, and lets time pass up to the last of it.
    ///
    /// # Errors
    /// As [`run_epoch`](Self::run_epoch).
    pub(super) fn send_epoch(&mut self, epoch: u64) -> Result<()> {
        match self.setup.detail {
            Detail::Runs => self.send_runs(epoch),
            Detail::Packets { spread } => self.send_packets(epoch, spread),
        }
    }

    fn send_runs(&mut self, epoch: u64) -> Result<()> {
        let (begin, length_ns) = (self.now_ns(), self.setup.clock.length_ns());
        for at in 0..self.flows.flows().len() {
            let flow = &self.flows.flows()[at];
            let packets = flow.packets_in(epoch, length_ns);
            let now_ns = begin + (flow.start * length_ns as f64) as u64;
            self.advance_to(now_ns)?;

            let flow = &self.flows.flows()[at];
            if flow.inside.is_some() {
                self.arrive_from_inside(at, packets, now_ns);
                continue;
            }
            let from = flow.edges[0];
            let run = self.nodes[from].enter_run(&flow.key, packets);
            let measured_in = self.epoch_shown(from, now_ns);
            let truth = FlowTruth::new(flow.key, from).on_way(flow.way.clone(), true);
            let account = self.truth.open(measured_in, truth);
            self.send(Sent {
                at,
                epoch,
                now_ns: (now_ns, now_ns),
                first: 0,
                run,
                bytes: None,
                crosses: None,
                account,
            })?;
        }
        Ok(())
    }

    fn send_packets(&mut self, epoch: u64, spread: f64) -> Result<()> {
        let (begin, length_ns) = (self.now_ns(), self.setup.clock.length_ns());
        let packets = packets_of(self.flows.flows(), epoch, length_ns, spread);
        // A flow may send in two epochs by its edge's clock.
        let mut accounts: HashMap<(u32, u64), Account> = HashMap::new();
        for (at_ns, at, number) in packets {
            let now_ns = begin + at_ns;
            self.advance_to(now_ns)?;

            let flow = &self.flows.flows()[at as usize];
            if flow.inside.is_some() {
                self.arrive_from_inside(at as usize, 1, now_ns);
                continue;
            }
            let from = flow.edges[0];
            let mut packet = bytes(&flow.frame_of(number, 60));
            if self.setup.carrier.is_signed() {
                identify(packet.bytes_mut(), 0, flow.key.protocol() == TCP);
            }
            let before = packet.bytes().len();
            // What goes from host to host never comes from the fabric: it crosses the edge, or is
            // lost between its two sides.
            let is_local = flow.edges[0] == flow.edges[1];
            let crosses = is_local && !flow.fate(epoch).is_lost(number);
            let goes_on = self.has_sinks(from);
            let node = &mut self.nodes[from];
            let enter = match (crosses, goes_on) {
                (false, _) => Node::ingress,
                (true, false) => Node::cross,
                (true, true) => Node::cross_on,
            };
            let (departed_ns, had) = enter(node, &mut packet, now_ns);
            let mut met = OnWay::default();
            if crosses && !goes_on {
                met.has_stack = true;
            } else {
                let stayed = Stay { arrived_ns: now_ns, departed_ns };
                met.pass(from, (before, packet.bytes().len()), (had, stayed));
            }
            // Its header is whole.
            let run = match self.setup.carrier.read_frame(packet.bytes()) {
                Some(mark) => MarkedRun { bit: mark.bit(), run: Run::single(mark.hierarchy) },
                None => MarkedRun { bit: 0, run: Run::unencoded(1) },
            };
            let measured_in = self.epoch_shown(from, now_ns);
            let account = *accounts.entry((at, measured_in)).or_insert_with(|| {
                let truth = FlowTruth::new(flow.key, from).on_way(flow.way.clone(), number == 0);
                self.truth.open(measured_in, truth)
            });
            let crosses = crosses.then_some(had);
            let (at, now_ns) = (at as usize, (departed_ns, now_ns));
            let bytes = Some((packet, met));
            self.send(Sent { at, epoch, now_ns, first: number, run, bytes, crosses, account })?;
        }
        Ok(())
    }

    /// Sends what has entered on its way.
    fn send(&mut self, sent: Sent) -> Result<()> {
        let Sent { at, epoch, now_ns, first, run, bytes, crosses, account } = sent;
        let flow = &self.flows.flows()[at];
        let from = flow.edges[0];
        let packets = run.run.packets();
        self.truth.passed(account, Point::In(from), packets);
        if let Some(truth) = self.truth.flow(account) {
            truth.packets += packets;
            if flow.way.is_none() {
                let all = Numbers::within(first..first + packets);
                let all = Touched { numbers: all, first, entered: run.run };
                truth.lose_on(Segment::inside(from), &run.run, all);
            }
        }
        let Some(way) = &flow.way else { return Ok(()) };
        let mut load = Load::new(flow, way, flow.fate(epoch), (first, run), account);
        load.has_crossed = crosses.is_some();
        if let Some((packet, met)) = bytes {
            (load.bytes, load.met) = (Some(packet), met);
        }
        if let Some(had) = crosses.filter(|_| !self.has_sinks(from)) {
            load.arrive(&mut self.truth, (now_ns.1, had));
        }
        self.pass(load, now_ns)
    }

    /// Packets that a router within the network makes arrive at the edge of the host that they are
    /// for.
    fn arrive_from_inside(&mut self, at: usize, packets: u32, now_ns: u64) {
        let flow = &self.flows.flows()[at];
        let (key, [_, edge], tos) = (flow.key, flow.edges, flow.inside.unwrap_or(0));
        let epoch = self.setup.clock.epoch_at(now_ns);
        self.truth.strange(epoch, Stranger { key, edge: edge as u32, packets });
        match self.setup.detail {
            Detail::Runs => {
                let Mark { bit, hierarchy, .. } = Mark::from_bits(tos >> 5);
                let run = (0..packets).map(|_| hierarchy).collect();
                self.nodes[edge].leave_run(&key, MarkedRun { bit, run });
            }
            Detail::Packets { .. } => {
                for number in 0..u64::from(packets) {
                    let mut packet = bytes(&frame(&key, 60));
                    set_dscp(packet.bytes_mut(), tos >> 2);
                    if self.setup.carrier.is_signed() {
                        let drawn = Draw::new(self.setup.seed).of(u64::MAX - 3).of(now_ns);
                        let drawn = drawn.of(at as u64).of(number).bits();
                        identify(packet.bytes_mut(), drawn, false);
                    }
                    self.nodes[edge].egress(&mut packet, now_ns);
                }
            }
        }
    }
}
