//! Loops, as a modelled switch says them that runs `p4src/cfs.p4`: of flows with an entry and
//! without one, before a window is over and as it is; and nothing of what hosts do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use calumma_cfs::Turns;
use calumma_cfs::frames::{Notice, OFFER, ROWS_GUARD, Setup as Words, Suspect, Suspects, Window};
use calumma_interface::Plug;
use calumma_sketch::WideKey;
use calumma_switch_host::unix_ns;
use calumma_switchd::cfs::Cfs;
use calumma_switchd::notices::{FRONT, Inbox, Streams};
use calumma_switchd::system::{System, Target};
use calumma_tna::{MirrorSession, Program};
use calumma_wire::{Role, SystemSetup};

use crate::cfs::{EPOCH_MS, WINDOW, asked, model, setup, started};
use crate::common::{HOST, Numbers, Packet, add, marked, packet, transit};
use crate::daemon::wait_for_epoch;
use crate::hops::Controller;
use crate::rig::{Model, packets};

const CPU: u16 = 64;
const SESSION: u16 = 2;
const STREAMS: Streams =
    Streams { control: "Egress.guard.notices", count: 2, has_register: true, most: 8192 };

/// A transit, and the notices that came to its CPU.
struct Watching {
    on: transit::Transit,
    inbox: Inbox,
    words: Words,
}

impl Watching {
    /// One with a table of so many entries.
    fn new(entries: u32) -> Self {
        let words = Words { entries, window_epochs: 4, guard: true, ..Words::default() };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cfs.p4");
        let (role, target) = (Role::Transit, Target::Tofino);
        let controller = format!("[cfs]\nentries = {entries}");
        let built = Cfs.build((role, target), &controller.parse().unwrap()).unwrap();
        assert_eq!(built.needs.notices, Some(STREAMS));
        let program = Program::load(path, &built.defines).unwrap();
        let mut session = transit::session(OFFER.system, words.encode(), 8);
        session.systems[0].version = ROWS_GUARD;
        let setup = Cfs.setup((role, target), &session, &session.systems[0]).unwrap();
        assert_eq!(setup.needs().notices, Some(STREAMS));
        let mut on = transit::Transit::new(&program, setup);
        on.switch.set_mirror(SESSION, Some(MirrorSession { port: CPU, max_length: FRONT }));
        Self { on, inbox: Inbox::default(), words }
    }

    /// Begins an epoch, as the daemon does.
    fn begin(&mut self, epoch: u64) {
        if epoch > 8 {
            self.on.open(epoch - 1, false);
        }
        self.on.open(epoch, true);
        self.allow();
    }

    /// Lets further notices be sent.
    fn allow(&mut self) {
        let next = self.on.switch.read_register_lanes(&STREAMS.numbers()).unwrap()[0].to_vec();
        self.on.switch.clear_table(&STREAMS.budgets()).unwrap();
        for entry in STREAMS.allow(&next, SESSION) {
            add(&mut self.on.switch, &entry);
        }
    }

    /// A packet of an epoch passes with that time to live.
    fn pass(&mut self, packet: &Packet, epoch: u64, ttl: u8) {
        let bytes = dressed(packet, epoch, ttl);
        let mut passed = 0;
        for (port, bytes) in self.on.switch.inject(HOST, &bytes) {
            if port == CPU {
                assert!(self.inbox.take(&bytes));
            } else {
                passed += 1;
            }
        }
        assert_eq!(passed, 1, "it goes its way");
        for (stream, body) in self.inbox.news() {
            self.on.setup.noticed(epoch * 50_000_000 + 1, stream, &body);
        }
    }

    /// What it says of loops in the window that begins with an epoch; and the flows that it has
    /// entries of.
    fn said(&self, epoch: u64) -> (Suspects, BTreeSet<WideKey>) {
        let side = self.on.side_with(calumma_wire::SideKind::Transit, epoch, &self.inbox).unwrap();
        let window = Window::decode(&side.body, &self.words).unwrap();
        let kept = window.entries.iter().map(|entry| entry.key).collect();
        (window.suspects.expect("it watches"), kept)
    }

    /// Empties the group of the window that begins with an epoch, as the daemon does.
    fn clear(&mut self, epoch: u64) {
        let group = ((epoch / 4) & 1) as usize;
        for source in self.on.setup.needs().sources {
            let elements = source.elements as usize;
            for register in &source.registers {
                let lanes = self.on.switch.read_register_lanes(register).unwrap().len();
                for at in group * elements..(group + 1) * elements {
                    self.on.switch.write_register(register, at, &[0, 0][..lanes]).unwrap();
                }
            }
        }
    }

    /// What it says before the window is over.
    fn said_at_once(&self, now_ns: u64) -> Option<(u64, Vec<Suspect>)> {
        let (epoch, body) = self.on.setup.notice(now_ns)?;
        Some((epoch, Notice::decode(&body).unwrap().flows))
    }
}

/// The packet with an epoch's mark and that time to live.
fn dressed(packet: &Packet, epoch: u64, ttl: u8) -> Vec<u8> {
    let (mut bytes, key, ip) = (packet.bytes.clone(), packet.key, packet.ip);
    bytes[ip + 8] = ttl;
    marked(&Packet { bytes, key, ip }, (epoch as u8 & 1) << 2)
}

/// Packets of so many flows.
fn flows(number: usize, numbers: &mut Numbers) -> Vec<Packet> {
    let mut all: BTreeMap<WideKey, Packet> = BTreeMap::new();
    while all.len() < number {
        let packet = packet(numbers);
        all.insert(packet.key.into(), packet);
    }
    all.into_values().collect()
}

/// A packet that goes round in so many hops.
fn round(first: u8, length: u8) -> impl Iterator<Item = u8> {
    (1..=first).rev().step_by(length.into())
}

/// With how many hops a flow goes round and where its packets begin, if it does, and all its times
/// to live in their order.
fn drawn(flow: usize, numbers: &mut Numbers) -> (Option<(u8, u8)>, Vec<u8>) {
    let sweep = |of: &mut dyn Iterator<Item = u8>| (None, of.flat_map(|ttl| [ttl; 3]).collect());
    match flow % 8 {
        0 => {
            let length = 2 + (flow / 8 % 4) as u8;
            let first = [62, 61, 126, 253][flow / 32 % 4];
            let twice = round(first, length).chain(round(first, length));
            (Some((length, first)), twice.collect())
        }
        // Traceroute, up and down.
        1 => sweep(&mut (1..=30)),
        2 => sweep(&mut (1..=30).rev()),
        // Flowlets over ways of two lengths, and a change of route.
        3 => (None, [61, 63, 63, 61].repeat(8)),
        4 => (None, [[62; 10], [58; 10], [57; 10]].concat()),
        // A host that draws its times to live.
        5 => (None, (0..40).map(|_| 1 + numbers.below(64) as u8).collect()),
        // Hosts of several systems behind one address.
        6 => (None, [63, 127, 254].repeat(8)),
        _ => (None, vec![60; 20]),
    }
}

#[test]
fn flows_that_go_round_are_said_and_no_others_whether_they_have_entries_or_not() {
    let mut numbers = Numbers(23);
    let (mut named_with_entry, mut all, mut named) = (0, 0, 0);
    let mut watching = Watching::new(256);
    for first in [8, 12] {
        let flows = flows(600, &mut numbers);
        let drawn: Vec<_> = (0..flows.len()).map(|flow| drawn(flow, &mut numbers)).collect();
        let mut at_once: BTreeMap<WideKey, Suspect> = BTreeMap::new();
        // A window of four epochs, in each a quarter of the packets.
        let longest = drawn.iter().map(|(_, ttls)| ttls.len()).max().unwrap();
        for epoch in first..first + 4 {
            watching.begin(epoch);
            let quarter = longest.div_ceil(4);
            let from = (epoch - first) as usize * quarter;
            for at in from..from + quarter {
                watching.allow();
                for (packet, (_, ttls)) in flows.iter().zip(&drawn) {
                    if let Some(&ttl) = ttls.get(at) {
                        watching.pass(packet, epoch, ttl);
                    }
                }
            }
            let said = watching.said_at_once((epoch + 1) * 50_000_000);
            if let Some((window, flows)) = said {
                assert_eq!(window, first);
                at_once.extend(flows.into_iter().map(|of| (of.key, of)));
            }
        }
        let (suspects, kept) = watching.said(first);
        let certain =
            |of: &&Suspect| Turns::of(of.ttl, of.differences).is_some_and(|it| it.are_certain());
        let certain: BTreeMap<_, _> =
            suspects.flows.iter().filter(certain).map(|of| (of.key, *of)).collect();
        for (packet, (goes_round, _)) in flows.iter().zip(&drawn) {
            let key = packet.key.into();
            let Some((length, from)) = goes_round else {
                assert!(!certain.contains_key(&key), "{key}: {:?}", certain[&key]);
                assert!(!at_once.contains_key(&key), "{key}: {:?}", at_once[&key]);
                continue;
            };
            all += 1;
            let Some(of) = certain.get(&key) else { continue };
            let turns = Turns::of(of.ttl, of.differences).unwrap();
            assert_eq!(turns.length, *length, "{key}");
            // What came before it was suspected is missing, and the first of a flow with an entry.
            let above = from - turns.ttl;
            assert!(above.is_multiple_of(*length) && above / length <= 3, "{key}: {above}");
            assert!(at_once.contains_key(&key), "{key} is said at once");
            named += 1;
            named_with_entry += u64::from(kept.contains(&key));
        }
        assert_eq!(suspects.missed, 0);
    }
    assert!(named * 100 >= all * 99, "{named} of {all}");
    assert!(named_with_entry > 10, "{named_with_entry} with an entry");
}

/// In the window between, the cell of its flow sees no packet.
#[test]
fn a_flow_that_goes_round_again_two_windows_later_is_said_again() {
    let mut watching = Watching::new(256);
    let packet = packet(&mut Numbers(1));
    for first in [8, 12, 16] {
        for epoch in first..first + 4 {
            watching.begin(epoch);
        }
        if first != 12 {
            round(62, 2).chain(round(62, 2)).for_each(|ttl| watching.pass(&packet, first + 3, ttl));
        }
        let (suspects, _) = watching.said(first);
        let said: Vec<WideKey> = suspects.flows.iter().map(|of| of.key).collect();
        let wanted = if first == 12 { vec![] } else { vec![packet.key.into()] };
        assert_eq!((said, suspects.missed), (wanted, 0), "the window of epoch {first}");
        watching.clear(first);
    }
}

/// Of what notices were not sent for, or lost, is said how much it was.
#[test]
fn what_no_notice_came_of_is_missed_and_nothing_is_said_of_it() {
    let mut watching = Watching::new(256);
    watching.begin(8);
    watching.on.switch.clear_table(&STREAMS.budgets()).unwrap();
    let packet = packet(&mut Numbers(1));
    round(62, 2).chain(round(62, 2)).for_each(|ttl| watching.pass(&packet, 8, ttl));
    let (suspects, _) = watching.said(8);
    // The entry has the first one; with the third of the others it begins, and the second of them
    // comes again.
    assert_eq!(suspects, Suspects { flows: Vec::new(), missed: 29 });
    assert_eq!(watching.said_at_once(1 << 40), None);
}

/// Two flows of one cell, one fingerprint and one group are taken for each other by the program:
/// what each says stays its own.
#[test]
fn flows_that_are_taken_for_each_other_are_no_loop() {
    let mut watching = Watching::new(256);
    watching.begin(8);
    // Half of a loop's times to live each.
    let packets = flows(2, &mut Numbers(7));
    let body = |packet: &Packet, ttl: u8| {
        let key = packet.key;
        let words = [key.src_word(), key.dst_word(), key.ports_word()];
        let mut body: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        body.extend([key.protocol(), ttl]);
        body
    };
    for (ttl, packet) in round(62, 2).zip(packets.iter().cycle()) {
        watching.on.setup.noticed(8 * 50_000_000 + 1, 0, &body(packet, ttl));
    }
    // Each alone comes with every fourth.
    let (_, said) = watching.said_at_once(1 << 40).unwrap();
    let lengths: Vec<_> =
        said.iter().map(|of| Turns::of(of.ttl, of.differences).unwrap().length).collect();
    assert_eq!(lengths, [4, 4]);
}

/// The daemon lets notices be sent, and sends at once what follows from them.
#[test]
fn a_daemon_reports_a_loop_before_its_window_is_over() {
    let mut model = model(Role::Transit);
    let mut controller = Controller::of(OFFER.system, EPOCH_MS);
    let way = packets(model.cpu.take().unwrap());
    let _daemon = started(&model, &controller, way);
    controller.accept();
    let words = Words { guard: true, ..setup() };
    controller.welcome(vec![SystemSetup { version: ROWS_GUARD, ..asked(&words) }]);
    let clock = controller.clock;
    let first = (clock.epoch_at(unix_ns()) + 4).next_multiple_of(WINDOW);
    while clock.epoch_at(unix_ns()) + 1 < first {
        controller.listen();
    }
    wait_for_epoch(&clock, first);
    std::thread::sleep(Duration::from_millis(EPOCH_MS / 2 - 200));
    let packet = packet(&mut Numbers(3));
    for ttl in round(62, 2).chain(round(62, 2)) {
        model.host.send(&dressed(&packet, first, ttl));
        Model::next(&mut model.fabric);
    }
    controller.listen_until("it is reported", |it| !it.notices.is_empty());
    assert!(clock.epoch_at(unix_ns()) < first + WINDOW, "the window is not over");
    let (epoch, body) = &controller.notices[0];
    assert_eq!(*epoch, first);
    let [of] = Notice::decode(body).unwrap().flows[..] else { panic!() };
    let turns = Turns::of(of.ttl, of.differences).unwrap();
    assert_eq!((of.key, turns.length, turns.to_the_end), (packet.key.into(), 2, true));
    controller.listen_until("the window is sealed", |it| it.is_sealed(first));
    let [side] = &controller.epochs[&first].sides[..] else { panic!() };
    let window = Window::decode(&side.body, &words).unwrap();
    let suspects = window.suspects.unwrap();
    assert_eq!((suspects.flows.len(), suspects.missed), (1, 0));
    assert_eq!(suspects.flows[0].key, packet.key.into());
}
