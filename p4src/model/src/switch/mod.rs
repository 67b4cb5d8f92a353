//! A switch that runs a program: ports, the traffic manager between ingress and egress, mirroring,
//! recirculation, and the control plane ([`control`]).
//!
//! All ports belong to one pipe. Queues never fill and time stands still unless
//! [`Switch::set_time`] moves it, so a run depends on its inputs alone.

mod control;
mod egress;

pub use control::{DigestRecord, Entry, EntryInfo};

use std::collections::{HashMap, VecDeque};

use crate::exec::{Machine, bits};
use crate::ir::{Gress, IntrinsicHeader, LayoutField};
use crate::program::Program;

/// Ports of a Tofino pipe that lead back to its ingress.
const RECIRCULATION_PORTS: [u16; 8] = [68, 69, 70, 71, 196, 197, 198, 199];

/// Bytes of port metadata in front of a packet.
const PORT_METADATA: usize = 8;

/// A port number that means none.
const NO_PORT: u128 = 0x1ff;

/// Where mirrored copies go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorSession {
    /// Port they leave by, after the egress pipe.
    pub port: u16,
    /// Bytes of the packet that are kept; the mirror header comes on top.
    pub max_length: usize,
}

/// What happened to packets besides being forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came in.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Dropped because the ingress parser failed.
    pub parser_drops: u64,
    /// Dropped by the program (drop_ctl) or for want of an egress port.
    pub drops: u64,
    /// Passes through the ingress after the first (recirculated or resubmitted).
    pub recirculations: u64,
    /// Mirror copies to sessions that are not configured.
    pub mirror_drops: u64,
    /// Packets dropped because they passed the switch too often; see [`Switch::set_max_passes`].
    pub endless: u64,
    /// Accesses to register or counter elements that don't exist.
    pub out_of_range: u64,
}

/// A packet on its way.
#[derive(Debug)]
enum Work {
    Ingress {
        port: u16,
        packet: Vec<u8>,
        /// Not for the first time.
        again: bool,
        resubmitted: Option<Vec<u8>>,
    },
    Egress {
        port: u16,
        packet: Vec<u8>,
        copy: u16,
        qid: u8,
    },
}

/// A switch with its state.
#[derive(Debug)]
pub struct Switch {
    program: Program,
    machine: Machine,
    mirrors: HashMap<u16, MirrorSession>,
    multicast: HashMap<u16, Vec<(u16, u16)>>,
    port_metadata: HashMap<u16, [u8; PORT_METADATA]>,
    cpu_port: Option<u16>,
    now: u64,
    max_passes: u64,
    statistics: Statistics,
    queue: VecDeque<Work>,
    /// Buffers that wait for the next packet.
    spare: Vec<Vec<u8>>,
}

impl Switch {
    /// A switch with the entries and initial values of the program, and nothing else configured.
    pub fn new(program: &Program) -> Switch {
        Switch {
            program: program.clone(),
            machine: Machine::new(&program.code),
            mirrors: HashMap::new(),
            multicast: HashMap::new(),
            port_metadata: HashMap::new(),
            cpu_port: None,
            now: 0,
            max_passes: 1 << 20,
            statistics: Statistics::default(),
            queue: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// The program it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Time in nanoseconds, as the time stamps of the next packets say it (their low 48 bits).
    pub fn set_time(&mut self, nanoseconds: u64) {
        self.now = nanoseconds;
    }

    /// Where `copy_to_cpu` sends its copies. Without it they are dropped.
    pub fn set_cpu_port(&mut self, port: Option<u16>) {
        self.cpu_port = port;
    }

    /// How many passes one packet and all its copies may take together (2^20 at first).
    pub fn set_max_passes(&mut self, passes: u64) {
        self.max_passes = passes;
    }

    /// Configures a mirror session.
    pub fn set_mirror(&mut self, session: u16, target: Option<MirrorSession>) {
        match target {
            Some(target) => self.mirrors.insert(session, target),
            None => self.mirrors.remove(&session),
        };
    }

    /// Configures a multicast group: (replication id, port) of each copy.
    pub fn set_multicast_group(&mut self, group: u16, copies: &[(u16, u16)]) {
        self.multicast.insert(group, copies.to_vec());
    }

    /// Sets the 64 bits of port metadata that the ingress parser sees for packets of a port.
    pub fn set_port_metadata(&mut self, port: u16, metadata: u64) {
        self.port_metadata.insert(port, metadata.to_be_bytes());
    }

    /// What happened so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { out_of_range: self.machine.out_of_range, ..self.statistics }
    }

    /// Sends a packet into a port and gives what leaves the switch: port and bytes, in order.
    pub fn inject(&mut self, port: u16, packet: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut out = Vec::new();
        self.inject_with(port, packet, |port, bytes| out.push((port, bytes.to_vec())));
        out
    }

    /// As [`Switch::inject`], without collecting: `output` gets each packet that leaves.
    ///
    /// Takes a few microseconds for a program like an edge switch; buffers are reused.
    pub fn inject_with(&mut self, port: u16, packet: &[u8], mut output: impl FnMut(u16, &[u8])) {
        self.offer(port, packet);
        let mut passes = 0;
        while let Some(work) = self.queue.pop_front() {
            if let Work::Ingress { .. } = work {
                passes += 1;
                if passes > self.max_passes {
                    self.statistics.endless += 1;
                    self.discard(work);
                    continue;
                }
            }
            self.work(work, &mut output);
        }
    }

    /// Puts a packet into a port without working on it yet; [`Switch::run`] does. Packets that pass
    /// the switch many times then let others through in between, as on hardware.
    pub fn offer(&mut self, port: u16, packet: &[u8]) {
        self.statistics.received += 1;
        let mut first = self.buffer();
        first.extend_from_slice(packet);
        self.queue.push_back(Work::Ingress {
            port,
            packet: first,
            again: false,
            resubmitted: None,
        });
    }

    /// Works on offered packets in turn, for at most `passes` passes through an ingress or egress,
    /// and gives the number of passes that wait now. No packet is endless here.
    pub fn run(&mut self, passes: usize, mut output: impl FnMut(u16, &[u8])) -> usize {
        for _ in 0..passes {
            let Some(work) = self.queue.pop_front() else { break };
            self.work(work, &mut output);
        }
        self.queue.len()
    }

    /// Works on offered packets until none waits for an ingress, and leaves those that wait for an
    /// egress in the queues between.
    pub fn run_ingress(&mut self) {
        let mut queued = VecDeque::new();
        while let Some(work) = self.queue.pop_front() {
            match work {
                Work::Ingress { .. } => self.work(work, &mut |_, _| {}),
                Work::Egress { .. } => queued.push_back(work),
            }
        }
        self.queue = queued;
    }

    /// Loses the packets that wait, as full queues do.
    pub fn discard_waiting(&mut self) {
        while let Some(work) = self.queue.pop_front() {
            self.statistics.drops += 1;
            self.discard(work);
        }
    }

    fn work(&mut self, work: Work, output: &mut impl FnMut(u16, &[u8])) {
        match work {
            Work::Ingress { port, packet, again, resubmitted } => {
                self.statistics.recirculations += u64::from(again);
                self.ingress(port, packet, resubmitted.as_deref(), output);
            }
            Work::Egress { port, packet, copy, qid } => {
                self.egress(port, packet, copy, qid, output);
            }
        }
    }

    fn discard(&mut self, work: Work) {
        match work {
            Work::Ingress { packet, .. } | Work::Egress { packet, .. } => self.give_back(packet),
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn give_back(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < 64 {
            self.spare.push(buffer);
        }
    }

    fn ingress(
        &mut self,
        port: u16,
        packet: Vec<u8>,
        resubmitted: Option<&[u8]>,
        output: &mut impl FnMut(u16, &[u8]),
    ) {
        let program = self.program.clone();
        let code = &*program.code;
        let gress = &code.ingress;
        let mut metadata = self.port_metadata.get(&port).copied().unwrap_or_default();
        if let Some(bits) = resubmitted {
            metadata = [0; PORT_METADATA];
            metadata[..bits.len()].copy_from_slice(bits);
        }
        let header = &gress.header;
        let input = &mut self.machine.input;
        intrinsic_header(
            header,
            &[
                (header.resubmit_flag, u64::from(resubmitted.is_some())),
                (header.port, u64::from(port)),
                (header.mac_tstamp, self.now),
            ],
            input,
        );
        input.extend_from_slice(&metadata);
        input.extend_from_slice(&packet);
        self.machine.packet_bytes = packet.len() as u64;
        if !self.machine.parse(code, gress, true, self.now) {
            self.statistics.parser_drops += 1;
            self.give_back(packet);
            return;
        }
        let to_tm = &gress.to_tm;
        self.machine.frame[to_tm.ucast_egress_port as usize] = NO_PORT;
        self.machine.process(code, gress);
        let drop = self.machine.frame[gress.drop_ctl as usize];
        if drop & 1 == 0
            && let Some(bits) = self.machine.resubmit.take()
        {
            let resubmitted = Some(bits);
            self.queue.push_back(Work::Ingress { port, packet, again: true, resubmitted });
            return;
        }
        if drop & 4 == 0
            && let Some((session, header)) = self.machine.mirror.take()
        {
            self.mirror(session, &header, &packet);
        }
        self.give_back(packet);
        self.forward(gress, drop, output);
    }

    /// The traffic manager: where the packet and its copies go.
    fn forward(&mut self, gress: &Gress, drop: u128, output: &mut impl FnMut(u16, &[u8])) {
        let to_tm = &gress.to_tm;
        let frame = &self.machine.frame;
        let read = |slot: u32| frame[slot as usize];
        let qid = read(to_tm.qid) as u8;
        let unicast = read(to_tm.ucast_egress_port);
        let group = read(to_tm.mcast_grp_a) as u16;
        let bypass = read(to_tm.bypass_egress) != 0;
        let mut targets: Vec<(u16, u16)> = Vec::new();
        if drop & 1 == 0 {
            if unicast != NO_PORT {
                targets.push((0, unicast as u16));
            }
            if group != 0
                && let Some(copies) = self.multicast.get(&group)
            {
                targets.extend_from_slice(copies);
            }
        }
        if drop & 2 == 0
            && read(to_tm.copy_to_cpu) != 0
            && let Some(port) = self.cpu_port
        {
            targets.push((0, port));
        }
        if targets.is_empty() {
            self.statistics.drops += 1;
        }
        for (copy, port) in targets {
            let mut packet = self.buffer();
            packet.extend_from_slice(&self.machine.output);
            packet.extend_from_slice(self.machine.payload());
            if bypass {
                self.leave(port, packet, output);
            } else {
                self.queue.push_back(Work::Egress { port, packet, copy, qid });
            }
        }
    }

    /// A copy of `packet` with `header` in front, on its way to the session's port.
    fn mirror(&mut self, session: u16, header: &[u8], packet: &[u8]) {
        let Some(target) = self.mirrors.get(&session).copied() else {
            self.statistics.mirror_drops += 1;
            return;
        };
        let mut copy = self.buffer();
        copy.extend_from_slice(header);
        copy.extend_from_slice(&packet[..packet.len().min(target.max_length)]);
        self.queue.push_back(Work::Egress { port: target.port, packet: copy, copy: 0, qid: 0 });
    }

    /// Out of a port, or back to the ingress.
    fn leave(&mut self, port: u16, packet: Vec<u8>, output: &mut impl FnMut(u16, &[u8])) {
        if RECIRCULATION_PORTS.contains(&port) {
            self.queue.push_back(Work::Ingress { port, packet, again: true, resubmitted: None });
            return;
        }
        self.statistics.sent += 1;
        output(port, &packet);
        self.give_back(packet);
    }
}

/// Writes an intrinsic header with these values (their low bits, where a field is narrower).
fn intrinsic_header(header: &IntrinsicHeader, values: &[(LayoutField, u64)], out: &mut Vec<u8>) {
    out.clear();
    out.resize(header.bits as usize / 8, 0);
    for (field, value) in values {
        bits::write(out, field.bit as usize, field.width, u128::from(*value));
    }
}
