//! Another system than ChameleMon, with a program of its own, run by the very same daemon.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use calumma_chamelemon::{Attention, frames};
use calumma_epoch::{EpochClock, Guards};
use calumma_hops::frames::{Counts, ID, Setup};
use calumma_hops_tofino::Hops;
use calumma_interface::Plug;
use calumma_sketch::{Arithmetic, FlowKey, WideKey};
use calumma_switch_host::unix_ns;
use calumma_switchd::chamelemon::ChameleMon;
use calumma_switchd::config::Config;
use calumma_switchd::system::System;
use calumma_tna::Program;
use calumma_wire::{
    Domain, FrameReader, Hello, Message, Outcome, Role, Secret, Side, SideKind, SystemId,
    SystemSetup, Welcome,
};

use crate::common::{Numbers, marked, packet};
use crate::daemon::{by_epoch, pass, wait_for_epoch};
use crate::rig::{Daemon, EPOCH_MS, KEY, LIMIT, Model, attention, layout, packets};

/// The systems of a release that has both.
pub(crate) static BOTH: [&dyn System; 2] = [&ChameleMon, &Hops::EVERYWHERE];

pub(crate) fn program() -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hops.p4");
    Program::load(path, &[]).unwrap()
}

/// A configuration of a switch that runs it.
pub(crate) fn text(driver: SocketAddr, controller: SocketAddr) -> String {
    crate::rig::text(driver, controller).replace("[driver]\n", "[driver]\nprogram = \"hops\"\n")
}

pub(crate) fn hops() -> SystemSetup {
    let setup = Setup { flows: 1, window: 1 }.encode();
    SystemSetup { system: ID, version: 1, setup, plan: Vec::new() }
}

pub(crate) fn chamelemon() -> SystemSetup {
    SystemSetup {
        system: frames::ID,
        version: frames::OLDEST_VERSION,
        setup: frames::encode_setup(&layout(Arithmetic::Prime)),
        plan: frames::encode_plan(&attention()),
    }
}

/// What the switch reported of one epoch.
#[derive(Default)]
pub(crate) struct Epoch {
    pub(crate) sides: Vec<Side>,
    pub(crate) late_packets: Option<u64>,
}

/// A controller for any systems, of which one reports.
pub(crate) struct Controller {
    listener: TcpListener,
    link: Option<(TcpStream, FrameReader)>,
    pub(crate) clock: EpochClock,
    reports: SystemId,
    pub(crate) epochs: BTreeMap<u64, Epoch>,
    /// What was accepted: from which epochs on.
    pub(crate) accepted: Vec<u64>,
    /// What was not: system and reason.
    pub(crate) declined: Vec<(SystemId, String)>,
    /// What came too late: for which epochs.
    pub(crate) late: Vec<u64>,
    /// What was reported before its window was over, and the window's first epoch.
    pub(crate) notices: Vec<(u64, Vec<u8>)>,
}

impl Controller {
    fn new() -> Controller {
        Self::of(ID, EPOCH_MS)
    }

    /// One of epochs of that length, whose switch reports that system's.
    pub(crate) fn of(reports: SystemId, epoch_ms: u64) -> Controller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let flight_ns = 150_000_000.min(epoch_ms * 400_000);
        let guards = Guards { clock_ns: 5_000_000, flight_ns };
        let clock = EpochClock::new(epoch_ms * 1_000_000, guards).unwrap();
        let (link, epochs, accepted, declined, late, notices) = Default::default();
        Controller { listener, link, clock, reports, epochs, accepted, declined, late, notices }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes the connection; gives the hello.
    pub(crate) fn accept(&mut self) -> Hello {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        self.link = Some((stream, FrameReader::new()));
        let end = Instant::now() + LIMIT;
        loop {
            match self.next() {
                Some(Message::Hello(hello)) => return *hello,
                Some(other) => panic!("{other:?} comes first"),
                None => assert!(Instant::now() < end, "the switch says who it is"),
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn hang_up(&mut self) {
        self.link = None;
    }

    /// Wants these systems to run from the next epoch on.
    pub(crate) fn welcome(&mut self, systems: Vec<SystemSetup>) {
        self.welcome_within(Domain::default(), systems);
    }

    /// The same for packets within a domain.
    fn welcome_within(&mut self, domain: Domain, systems: Vec<SystemSetup>) {
        self.send(&Message::Welcome(Box::new(Welcome {
            node_id: Some(2),
            hash_key: Secret::new(KEY),
            epoch_length_ns: self.clock.length_ns(),
            guards: self.clock.guards(),
            effective_epoch: self.clock.epoch_at(unix_ns()) + 1,
            systems,
            domain,
            carrier: None,
        })));
    }

    pub(crate) fn send(&mut self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.link.as_mut().unwrap().0.write_all(&frame).unwrap();
    }

    fn next(&mut self) -> Option<Message> {
        let (stream, reader) = self.link.as_mut().unwrap();
        if let Some(message) = reader.next_message().unwrap() {
            return Some(message);
        }
        let mut bytes = vec![0; 1 << 16];
        // A time-out says that there is nothing yet.
        if let Ok(length) = stream.read(&mut bytes) {
            reader.push(&bytes[..length]);
        }
        reader.next_message().unwrap()
    }

    /// Takes in all that has come.
    pub(crate) fn listen(&mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Side(side) => {
                    assert_eq!(side.system, self.reports);
                    self.epochs.entry(side.epoch).or_default().sides.push(*side);
                }
                Message::Sealed { system, epoch, late_packets, .. } => {
                    assert_eq!(system, self.reports);
                    self.epochs.entry(epoch).or_default().late_packets = Some(late_packets);
                }
                Message::Notice { system, epoch, body } => {
                    assert_eq!(system, self.reports);
                    self.notices.push((epoch, body));
                }
                Message::Applied { system, outcome: Outcome::Invalid { reason }, .. } => {
                    self.declined.push((system, reason));
                }
                Message::Applied { effective_epoch, outcome: Outcome::Accepted, .. } => {
                    self.accepted.push(effective_epoch);
                }
                Message::Applied { effective_epoch, outcome: Outcome::TooLate { .. }, .. } => {
                    self.late.push(effective_epoch);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Listens until that is so.
    pub(crate) fn listen_until(&mut self, what: &str, holds: impl Fn(&Controller) -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(Instant::now() < end, "{what}");
            self.listen();
        }
    }

    pub(crate) fn is_sealed(&self, epoch: u64) -> bool {
        self.epochs.get(&epoch).is_some_and(|epoch| epoch.late_packets.is_some())
    }

    /// The epochs that are sealed, in order.
    fn sealed(&self) -> Vec<u64> {
        self.epochs.keys().copied().filter(|epoch| self.is_sealed(*epoch)).collect()
    }

    /// Listens until an epoch is measured.
    fn listen_until_measured(&mut self) {
        self.listen_until("an epoch is measured", |it| !it.epochs.is_empty());
    }
}

/// A side has counted packets of `flows`: each flow that found a cell, which most do, exactly, and
/// the others together.
fn assert_counts(side: &Side, flows: &[FlowKey]) {
    let mut passed: BTreeMap<WideKey, u64> = BTreeMap::new();
    for &flow in flows {
        *passed.entry(flow.into()).or_default() += 1;
    }
    let all = passed.len();
    let Counts { flows, others } = Counts::decode(&side.body).unwrap();
    for (key, packets) in flows {
        assert_eq!(passed.remove(&key), Some(packets.received), "{key}");
        assert_eq!(packets.refused, 0, "{key}");
    }
    let packets: u64 = passed.values().sum();
    assert_eq!((others.received, others.refused), (packets, 0));
    assert!(passed.len() <= all / 10, "{} flows of {all} have no cell", passed.len());
}

/// What is reported of an epoch is what passed in it, on each of these sides, and nothing was late.
fn assert_counted(epoch: u64, reported: &Epoch, sides: &[SideKind], flows: &[FlowKey]) {
    let kinds: Vec<SideKind> = reported.sides.iter().map(|side| side.side).collect();
    assert_eq!(kinds, sides, "epoch {epoch}");
    for side in &reported.sides {
        assert_eq!(side.packets, flows.len() as u64, "{:?} of epoch {epoch}", side.side);
        assert_counts(side, flows);
        assert_eq!(side.stall_ns, 0, "epoch {epoch}");
    }
    assert_eq!(reported.late_packets, Some(0), "epoch {epoch}");
}

#[test]
fn of_two_systems_the_one_whose_program_is_loaded_is_run_and_counts_exactly() {
    let mut model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address());
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start_with(&BOTH, config, way);
    let hello = controller.accept();
    let offered: Vec<SystemId> = hello.systems.iter().map(|offer| offer.system).collect();
    assert_eq!((hello.role, offered), (Role::Edge, vec![frames::ID, ID]));

    controller.welcome(vec![chamelemon(), hops()]);
    controller.listen_until("chamelemon is declined", |it| !it.declined.is_empty());
    let [(system, reason)] = &controller.declined[..] else { panic!("{:?}", controller.declined) };
    assert_eq!(*system, frames::ID);
    assert!(reason.contains("hops.p4 is loaded") && reason.contains("load edge.p4"), "{reason}");
    controller.declined.clear();
    let plan = frames::encode_plan(&Attention { t_h: 12, ..attention() });
    controller.send(&Message::Reconfigure { system: frames::ID, effective_epoch: 1 << 60, plan });

    controller.listen_until_measured();
    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns()) + 1;
    wait_for_epoch(&clock, first);
    let (mut numbers, mut passed) = (Numbers(1), Vec::new());
    let mut switched = false;
    while clock.epoch_at(unix_ns()) < first + 3 {
        pass(&mut model, &mut numbers, 50, &mut passed);
        controller.listen();
        // Without ChameleMon, hops goes on as before.
        if !switched && clock.epoch_at(unix_ns()) > first {
            controller.welcome(vec![hops()]);
            switched = true;
        }
    }
    let epochs = by_epoch(&passed, first);
    assert!(epochs.len() >= 3, "{} epochs", epochs.len());
    let last = *epochs.last_key_value().unwrap().0;
    controller.listen_until("the last epoch is sealed", |it| it.is_sealed(last));
    for (epoch, passed) in epochs {
        let flows: Vec<FlowKey> = passed.iter().map(|packet| packet.key).collect();
        let sides = [SideKind::Ingress, SideKind::Egress];
        assert_counted(epoch, &controller.epochs[&epoch], &sides, &flows);
    }
    let [(system, reason)] = &controller.declined[..] else { panic!("{:?}", controller.declined) };
    assert!(*system == frames::ID && reason.contains("hops.p4 is loaded"), "{reason}");
}

/// A pause between taking a group's gate away and reading what was late would swallow packets.
#[test]
fn every_packet_that_leaves_as_an_epoch_closes_is_recorded_or_late() {
    let mut model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address());
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start_with(&BOTH, config, way);
    controller.accept();
    controller.welcome(vec![hops()]);
    controller.listen_until_measured();

    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns());
    let packet = packet(&mut Numbers(3));
    let mut sent = Vec::new();
    for epoch in first..first + 4 {
        let frame = marked(&packet, (epoch as u8 & 1) << 2);
        wait_for_epoch(&clock, epoch + 1);
        // From long before the epoch closes until long after; always some are under way.
        let until = clock.start_of(epoch + 1) + EPOCH_MS * 500_000;
        (0..64).for_each(|_| model.fabric.send(&frame));
        let mut packets = 64;
        while unix_ns() < until {
            Model::next(&mut model.host);
            model.fabric.send(&frame);
            packets += 1;
        }
        (0..64).for_each(|_| drop(Model::next(&mut model.host)));
        sent.push((epoch, packets));
        controller.listen();
    }
    controller.listen_until("all is sealed", |it| it.is_sealed(first + 3));
    for (epoch, packets) in sent {
        let Epoch { sides, late_packets } = &controller.epochs[&epoch];
        let leaving = sides.iter().find(|side| side.side == SideKind::Egress).unwrap();
        let late = late_packets.unwrap();
        assert!(leaving.packets > 0 && late > 0, "{} and {late} late", leaving.packets);
        assert_eq!(leaving.packets + late, packets, "epoch {epoch}: {late} of them late");
    }
}

#[test]
fn a_transit_switch_counts_what_passes_by_the_timestamp_bits_that_packets_carry() {
    let mut model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address()).replace("\"host\"", "\"fabric\"");
    let config = config.replace("name =", "role = \"transit\"\nname =");
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start_with(&BOTH, config, way);
    let hello = controller.accept();
    let offered: Vec<SystemId> = hello.systems.iter().map(|offer| offer.system).collect();
    assert_eq!((hello.role, offered), (Role::Transit, vec![ID]), "ChameleMon runs on edges");
    controller.welcome(vec![hops()]);
    controller.listen_until_measured();

    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns()) + 1;
    let (mut numbers, mut passed) = (Numbers(5), Vec::new());
    const LATE: u64 = 7;
    for epoch in first..first + 3 {
        wait_for_epoch(&clock, epoch);
        // The last packets of the epoch before are long due, those of the next epoch not yet.
        std::thread::sleep(Duration::from_millis(EPOCH_MS / 2 - 60));
        let mut flows = Vec::new();
        for number in 0..40 + LATE {
            let packet = packet(&mut numbers);
            let of = if number < LATE { epoch - 1 } else { epoch };
            // Whatever hierarchy ChameleMon's edges have given it.
            let sent = marked(&packet, (of as u8 & 1) << 2 | numbers.below(4) as u8);
            model.host.send(&sent);
            assert_eq!(Model::next(&mut model.fabric), sent, "it passes as it is");
            if of == epoch {
                flows.push(packet.key);
            }
        }
        passed.push((epoch, flows));
        controller.listen();
    }
    controller.listen_until("all is sealed", |it| it.is_sealed(first + 2));
    for (epoch, flows) in passed {
        let reported = controller.epochs.get_mut(&epoch).unwrap();
        let late = if epoch < first + 2 { LATE } else { 0 };
        assert_eq!(reported.late_packets.replace(0), Some(late), "epoch {epoch}");
        assert_counted(epoch, reported, &[SideKind::Transit], &flows);
        // The switch's totals come along.
        let totals = &reported.sides[0].counters;
        assert!(totals.iter().any(|(name, _)| name == "received.fabric"), "{totals:?}");
    }
}

/// Systems that join and leave end nothing of those that stay, and one that leaves is reported up
/// to an epoch and no further.
#[test]
fn another_list_of_systems_loses_no_epoch_of_those_that_stay() {
    let mut model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address());
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let way = packets(model.cpu.take().unwrap());
    let _daemon = Daemon::start_with(&BOTH, config, way);
    controller.accept();
    controller.welcome(vec![chamelemon(), hops()]);
    controller.listen_until("two epochs are sealed", |it| it.sealed().len() >= 2);
    let held = controller.sealed();
    // Nothing was reported yet, so the next controller is owed all of it.
    controller.welcome(vec![hops()]);
    controller.listen_until("the next epoch is sealed", |it| it.sealed().len() > held.len());
    let held = controller.sealed();
    (controller.link, controller.epochs) = (None, BTreeMap::new());
    controller.accept();
    controller.welcome(vec![hops()]);
    controller.listen_until("held epochs come again", |it| it.sealed().len() >= held.len());
    assert!(held.iter().all(|epoch| controller.epochs[epoch].sides.len() == 2), "{held:?}");
    assert_eq!(controller.sealed()[..held.len()], held, "from the oldest on");

    // It leaves amid traffic.
    controller.epochs.clear();
    let clock = controller.clock;
    let first = clock.epoch_at(unix_ns()) + 1;
    wait_for_epoch(&clock, first);
    let (mut numbers, mut passed, mut end) = (Numbers(1), Vec::new(), None);
    while clock.epoch_at(unix_ns()) < first + 5 {
        pass(&mut model, &mut numbers, 20, &mut passed);
        if end.is_none() && clock.epoch_at(unix_ns()) > first {
            controller.welcome(Vec::new());
            // Its tables may be filled already for the epoch after this one.
            end = Some(clock.epoch_at(unix_ns()) + 1..=clock.epoch_at(unix_ns()) + 2);
        }
        controller.listen();
    }
    let end = end.unwrap();
    let flips = by_epoch(&passed, first);
    assert!(flips.len() >= 5, "the timestamp bit flips on: {} epochs", flips.len());
    let last = *controller.sealed().last().unwrap();
    assert!(end.contains(&(last + 1)), "epochs up to {last} instead of {end:?}");
    assert_eq!(*controller.epochs.last_key_value().unwrap().0, last, "nothing of later epochs");
    for epoch in first..=last {
        let flows: Vec<FlowKey> = flips[&epoch].iter().map(|packet| packet.key).collect();
        let sides = [SideKind::Ingress, SideKind::Egress];
        assert_counted(epoch, &controller.epochs[&epoch], &sides, &flows);
    }

    // Off and on again while its last epoch is still being finished; then on for good.
    controller.epochs.clear();
    controller.welcome(vec![hops()]);
    controller.listen_until_measured();
    let (off, before) = (clock.epoch_at(unix_ns()), controller.epochs.len());
    controller.welcome(Vec::new());
    controller.welcome(vec![hops()]);
    controller.listen_until("it runs again", |it| {
        it.epochs.keys().any(|epoch| *epoch > off + 2) && it.sealed().len() > before + 1
    });
    assert!(controller.is_sealed(off - 1), "what was measured before it left");
    assert!(controller.epochs.values().all(|epoch| epoch.sides.len() <= 2), "each side once");
    assert!(controller.declined.iter().all(|(id, _)| *id == frames::ID), "as before");
}

/// It would record packets where they leave that software edges do not record where they enter.
#[test]
fn a_session_with_a_domain_is_declined() {
    let model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address());
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let _daemon = Daemon::start_with(&BOTH, config, calumma_switchd::collector::Way::Registers);
    controller.accept();
    // It measures already, by a session without one.
    controller.welcome(vec![hops()]);
    controller.listen_until("an epoch is sealed", |it| !it.sealed().is_empty());
    let domain = Domain::new(vec!["10.0.0.0/8".parse().unwrap()]).unwrap();
    controller.welcome_within(domain, vec![hops()]);
    controller.listen_until("hops is declined", |it| !it.declined.is_empty());
    let (system, reason) = &controller.declined[0];
    assert_eq!(*system, ID);
    assert!(reason.contains("[domain] prefixes are set"), "{reason}");
    // Nothing more comes of that one, and measuring begins anew without a domain.
    controller.epochs.clear();
    let declined = controller.clock.epoch_at(unix_ns());
    let until = controller.clock.start_of(declined + 4);
    while unix_ns() < until {
        controller.listen();
    }
    assert!(controller.epochs.is_empty(), "{:?}", controller.epochs.keys());
    controller.welcome(vec![hops()]);
    controller.listen_until_measured();
    assert!(*controller.epochs.keys().next().unwrap() > declined + 4);
}

#[test]
fn a_system_whose_program_is_not_loaded_says_so() {
    let model = Model::named("hops", &program(), None);
    let mut controller = Controller::new();
    let config = text(model.address, controller.address());
    let config = Config::parse(&config, "the test's configuration").unwrap();
    let _daemon = Daemon::start_with(&BOTH, config, calumma_switchd::collector::Way::Registers);
    controller.accept();
    controller.welcome(vec![chamelemon()]);
    controller.listen_until("chamelemon is declined", |it| !it.declined.is_empty());
    let (system, reason) = &controller.declined[0];
    assert_eq!(*system, frames::ID);
    assert!(reason.contains("not this release's edge.p4"), "{reason}");
}
