//! Switches in virtual time, and packets for them.

#![allow(dead_code, reason = "every test crate uses a part of it")]

use std::collections::BTreeMap;

use calumma_cfs::Cfs;
use calumma_cfs::frames::{Notice, OFFER, Pins, Plan, Setup, Window};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::measure::Side;
use calumma_plane::outlet::Outlets;
use calumma_plane::packet::Frame;
use calumma_plane::parse::PlainFlows;
use calumma_plane::secret::hash_key;
use calumma_plane::system::{FinishedSide, RouteWatch, SessionContext, SwitchSystem, System};
use calumma_plane::worker::{Path, Policy, first};
use calumma_plane::{Carrier, Counters, LcoreMerger, Measurement, Part, Worker};
use calumma_sketch::{FlowKey, Key, KeyKind, WideKey};
use calumma_wire::{Role, Secret, SideKind, SystemSetup};

pub(crate) const FIRST_EPOCH: u64 = 100;
pub(crate) const EPOCH_NS: u64 = 50_000_000;

pub(crate) fn clock() -> EpochClock {
    EpochClock::new(EPOCH_NS, Guards::default()).unwrap()
}

pub(crate) fn secret() -> Secret {
    Secret::new([1; 32])
}

/// The session of a node.
pub(crate) fn session(node: u16, lcores: usize) -> SessionContext {
    SessionContext {
        role: Role::Edge,
        node_id: Some(node),
        hash_key: secret(),
        clock: clock(),
        first_epoch: FIRST_EPOCH,
        lcores,
        ports: None,
        routes: RouteWatch::default(),
        outlets: Outlets::default(),
        carries_claims: true,
        carries_hops: false,
        carries_stacks: true,
    }
}

/// CFS in a session.
pub(crate) fn begin(
    session: &SessionContext,
    setup: Setup,
) -> Result<Box<dyn SwitchSystem>, String> {
    let (system, version) = (OFFER.system, OFFER.highest);
    let plan = Vec::new();
    Cfs.begin(session, &SystemSetup { system, version, setup: setup.encode(), plan })
}

/// What all switches of a network have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net {
    pub(crate) carrier: Carrier,
    pub(crate) keys: KeyKind,
    pub(crate) setup: Setup,
}

/// A switch of several lcores that runs CFS and nothing else.
pub(crate) struct Switch {
    workers: Vec<Worker>,
    merger: LcoreMerger,
    setup: Setup,
    /// By first epoch.
    pub(crate) windows: BTreeMap<u64, Window>,
    /// Its routes.
    pub(crate) routes: RouteWatch,
    pub(crate) late: u64,
}

impl Switch {
    /// An edge.
    pub(crate) fn new(net: &Net, node: u16, lcores: usize) -> Self {
        Self::with_role(net, node, lcores, Role::Edge)
    }

    pub(crate) fn with_role(net: &Net, node: u16, lcores: usize, role: Role) -> Self {
        let Net { carrier, keys, setup } = *net;
        // As controllers have it.
        let setup = Setup { ends: setup.ends && role == Role::Edge, ..setup };
        let (mut merger, mailboxes) = LcoreMerger::new(lcores);
        let carries_hops = carrier.carries_hops();
        let session = SessionContext { role, carries_hops, ..session(node, lcores) };
        let systems = vec![begin(&session, setup).unwrap()];
        merger.begin(clock(), FIRST_EPOCH, secret(), keys, systems);
        let policy = Policy { carrier, ..Policy::default() };
        let worker = |mailbox| Worker::new(policy, Measurement::new(mailbox));
        let workers = mailboxes.into_iter().map(worker).collect();
        let (windows, routes) = (BTreeMap::new(), session.routes);
        Self { workers, merger, setup, windows, routes, late: 0 }
    }

    /// Lets time run, event by event, so that records come back in time.
    pub(crate) fn advance_to(&mut self, now_ns: u64) {
        loop {
            let is_due = self.advance_lcores(now_ns);
            self.receive();
            if !is_due {
                return;
            }
        }
    }

    /// Lets time run on the lcores, up to the next event; whether there was one.
    pub(crate) fn advance_lcores(&mut self, now_ns: u64) -> bool {
        let due_ns = self.workers.iter().map(Worker::next_due_ns).min().unwrap();
        let until_ns = due_ns.min(now_ns);
        self.workers.iter_mut().for_each(|worker| worker.advance_to(until_ns));
        due_ns <= now_ns
    }

    /// Takes what the lcores have finished.
    pub(crate) fn receive(&mut self) {
        for part in self.merger.poll() {
            match part {
                Part::Side { system, epoch, side, record, mixed_plan, .. } => {
                    let kind = match side {
                        Side::Ingress => SideKind::Ingress,
                        Side::ByBit => SideKind::Egress,
                    };
                    let half = self.merger.system(system).unwrap();
                    let finished = FinishedSide { epoch, side: kind, record: &*record, mixed_plan };
                    let (frame, _) = half.side(finished).unwrap();
                    if side == Side::Ingress {
                        assert!(frame.body.is_empty() && frame.packets == 0);
                    } else {
                        let window = Window::decode(&frame.body, &self.setup).unwrap();
                        assert_eq!(window.totals.packets, frame.packets);
                        assert_eq!(window.hash_key, hash_key(&secret()).id());
                        assert!(self.windows.insert(epoch, window).is_none());
                    }
                    self.merger.recycle(system, side, record);
                }
                Part::Sealed { late_packets, .. } => self.late += late_packets,
            }
        }
    }

    /// Flows that it reports at this time before their window is over, and the window.
    #[allow(dead_code, reason = "not every test crate has loops")]
    pub(crate) fn notice(&self, now_ns: u64) -> Option<(u64, Vec<WideKey>)> {
        let (epoch, body) = self.merger.system(0).unwrap().notice(now_ns)?;
        let flows = Notice::decode(&body).unwrap().flows;
        Some((epoch, flows.into_iter().map(|of| of.key).collect()))
    }

    /// Pins these flows from an epoch on.
    pub(crate) fn pin(&mut self, epoch: u64, flows: impl IntoIterator<Item = WideKey>) {
        let flows: std::collections::BTreeSet<WideKey> = flows.into_iter().collect();
        let pins = Pins { flows: flows.into_iter().collect() };
        self.plan(epoch, &Plan { pins, ..Plan::default() });
    }

    /// Lets a plan hold from an epoch on.
    pub(crate) fn plan(&mut self, epoch: u64, plan: &Plan) {
        self.merger.reconfigure(0, epoch, &plan.encode(&self.setup)).unwrap();
    }

    /// The system's totals.
    pub(crate) fn totals(&self) -> BTreeMap<&'static str, u64> {
        self.merger.system(0).unwrap().counters().into_iter().collect()
    }

    /// The lcores' totals as of the last window.
    pub(crate) fn counters(&self) -> Counters {
        self.merger.counters()
    }

    /// Says by which port an lcore receives packets from here on.
    pub(crate) fn received_by(&mut self, lcore: usize, port: usize) {
        self.workers[lcore].received_by(port as u16);
    }

    /// Packets on one lcore.
    pub(crate) fn pass_all(&mut self, lcore: usize, path: Path, frames: &mut [Frame]) {
        self.pass_known(lcore, path, frames, &PlainFlows::NONE);
    }

    /// The same of packets of which this is known.
    pub(crate) fn pass_known(
        &mut self,
        lcore: usize,
        path: Path,
        frames: &mut [Frame],
        known: &PlainFlows,
    ) {
        let worker = &mut self.workers[lcore];
        worker.begin();
        let of = first(frames.len());
        assert!(worker.pass(path, frames, of, known).is_empty());
    }
}

/// The bytes of a UDP packet of this flow, with this TTL and so many bytes of payload.
pub(crate) fn frame(key: &WideKey, ttl: u8, payload: usize) -> Frame {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    let mut bytes = vec![2; 12];
    let udp_len = (8 + payload) as u16;
    match narrow(key) {
        Some(key) => {
            let [high, low] = (20 + udp_len).to_be_bytes();
            bytes.extend_from_slice(&[8, 0, 0x45, 3, high, low, 0, 0, 0x40, 0, ttl, 17, 0, 0]);
            bytes.extend_from_slice(&key.src_word().to_be_bytes());
            bytes.extend_from_slice(&key.dst_word().to_be_bytes());
        }
        None => {
            let [high, low] = udp_len.to_be_bytes();
            bytes.extend_from_slice(&[0x86, 0xDD, 0x60, 0, 0, 0, high, low, 17, ttl]);
            for address in [src, dst] {
                let std::net::IpAddr::V6(address) = address else { panic!("{address}") };
                bytes.extend_from_slice(&address.octets());
            }
        }
    }
    bytes.extend_from_slice(&sport.to_be_bytes());
    bytes.extend_from_slice(&dport.to_be_bytes());
    bytes.extend_from_slice(&udp_len.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.resize(bytes.len() + payload, 0xAB);
    Frame::with_headroom(16, &bytes)
}

pub(crate) fn narrow(key: &WideKey) -> Option<FlowKey> {
    let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
    FlowKey::new(src, dst, sport, dport, key.protocol())
}

/// Flow number `n`, of IPv6 if it is odd and such flows are measured.
pub(crate) fn flow(n: u32, keys: KeyKind) -> WideKey {
    if n % 2 == 1 && keys == KeyKind::Dual {
        let address = |net: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, 2).into();
        return WideKey::new(address(1), address(2), n as u16, 9, 17).unwrap();
    }
    FlowKey::from_words(0x0A01_0002, 0x0A02_0002, n << 16 | 9, 17).into()
}
