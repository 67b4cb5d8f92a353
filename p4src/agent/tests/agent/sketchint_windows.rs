//! `p4src/sketchint.p4` on the model of a Tofino, filled and read by its description: what an edge
//! says of a window is what a software switch says of the same packets.

use std::num::NonZeroU16;
use std::sync::Arc;

use calumma_epoch::{EpochClock, Guards};
use calumma_plane::int::header::{Seen, look};
use calumma_plane::int::push::NotCarried;
use calumma_plane::int::{
    Domains, Hop, Insertion, Instructions, MARKER, Stack, header, push, strip,
};
use calumma_plane::packet::{Frame, Packet as _};
use calumma_plane::parse::{Parsed, parse};
use calumma_sketch::sketchint::{NodeSums, Pairs, Shape};
use calumma_sketch::{HashFamily, HashKey, WideKey};
use calumma_sketchint::frames::{
    Entered, Layout, OFFER, Plan, Setup as Words, Step, WatchList, WatchRule, Window,
};
use calumma_sketchint::plane::{Leaving, SinkSetup, SinkWindow};
use calumma_switchd::sketchint::SketchInt;
use calumma_switchd::system::{Setup, System, Target};
use calumma_tna::Entry;
use calumma_wire::{Role, SideKind};

use crate::common::transit::{Transit, session};
use crate::common::{FABRIC, HOST, Numbers, checksum, packet};
use crate::rig::built;
use crate::sketchint::{DOMAIN, IP, sent};

const UDP: u8 = 17;
/// An extension header of IPv6.
const DESTINATION: u8 = 60;
/// A second host, whose packets for the first one cross no other switch.
const LOCAL: u16 = 3;
/// Too short for some packets, and for others with a hop.
const MTU: u16 = 80;
/// The switch's own number, as the session has it.
pub(crate) const OWN: u16 = 3;
/// A group that is not empty but for little, and with many flows to a counter.
const SIZES: &str = "[sketchint]\ntower_words = 256\npair_buckets = 512";

pub(crate) fn words() -> Words {
    let shape = Shape { tower_words: 256, pair_buckets: 512, row_sets: 0, ..Shape::default() };
    let layout = Layout { shape, heavy_packets: 30, heavy_change_packets: 20, ..Layout::default() };
    Words { domain: DOMAIN, window_epochs: 4, layout, ..Words::default() }
}

fn setup(words: &Words) -> Result<Arc<dyn Setup>, String> {
    setup_of(OFFER.highest, words)
}

fn setup_of(version: u8, words: &Words) -> Result<Arc<dyn Setup>, String> {
    let mut session = session(OFFER.system, words.encode(), 8);
    session.systems[0].plan = Plan::default().encode();
    session.systems[0].version = version;
    SketchInt.setup((Role::Edge, Target::Tofino), &session, &session.systems[0])
}

/// What a software switch does with the packets of a window.
struct Software {
    family: HashFamily,
    sink: SinkWindow<WideKey, ()>,
    entered: Entered,
    /// Packets that a Tofino can't tell the flow of.
    unclassified: u64,
}

impl Software {
    fn new() -> Self {
        let key = HashKey::from_bytes([7; 32]);
        let family = HashFamily::new(&key);
        let setup = SinkSetup {
            layout: words().layout,
            own: Some(OWN.into()),
            family: family.clone(),
            claims: words().layout.claims(1),
            clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
            has_times: false,
        };
        let sink = SinkWindow::new(Arc::new(setup), (), 1).unwrap();
        Self { family, sink, entered: Entered::default(), unclassified: 0 }
    }

    /// A packet from a host, which gets a stack at this step.
    fn enter(&mut self, bytes: &[u8], step: Step) {
        let Parsed::Flow { ip_offset, .. } = parse(bytes, bytes.len()) else { return };
        if step != Step::Sources {
            self.entered.idle += 1;
            return;
        }
        let mut packet = Frame::with_headroom(64, bytes);
        header::set_marker(&mut packet, ip_offset, false);
        let mtu = usize::from(MTU) + ip_offset - IP;
        let hop = Hop { node: OWN.into(), latency_ns: 7, ..Hop::UNKNOWN };
        match push::source(&mut packet, ip_offset, (&insertion(), &hop), 0, mtu) {
            Ok(_) => self.entered.inserted += 1,
            Err(why) => self.entered.not_carried[why as usize] += 1,
        }
    }

    /// A packet for a host, that was in the switch for so long.
    fn leave(&mut self, port: u16, bytes: &[u8], own_ns: u32) {
        let (key, ip_offset) = match parse(bytes, bytes.len()) {
            Parsed::Flow { key, ip_offset } => (key.into(), ip_offset),
            Parsed::Flow6 { ip_offset, .. } if bytes[ip_offset + 6] != UDP => {
                self.unclassified += 1;
                return;
            }
            Parsed::Flow6 { key, ip_offset } => (WideKey::from_bytes(key), ip_offset),
            _ => return,
        };
        let packet = Frame::with_headroom(0, bytes);
        let (mut stack, mut exceeded) = (Stack::EMPTY, (false, false));
        let mut has_stack = port == LOCAL;
        if let Seen::Stack(found) = look(&packet, ip_offset, Domains::ANY) {
            strip::read(&packet, &found, &mut stack);
            exceeded = (found.header.mtu_exceeded(), found.header.hops_exceeded());
            has_stack = true;
        }
        let leaving = Leaving { keys: &[key], hashes: None, polled_ns: 0 };
        self.sink.record(&leaving, &[has_stack.then_some(&stack)]);
        self.sink.note_exceeded(exceeded);
        self.sink.record_own(&leaving, &[own_ns]);
    }
}

fn insertion() -> Insertion {
    let node = NonZeroU16::new(OWN).unwrap();
    Insertion { domain: DOMAIN, node, instructions: Instructions::DEFAULT, hops: 6, udp_port: None }
}

/// The packet as it comes from the network, over so many switches, with that timestamp bit. One in
/// some links is too short for a hop.
fn from_network(bytes: &[u8], (hops, bit): (u64, u8), numbers: &mut Numbers) -> Vec<u8> {
    let mut packet = Frame::with_headroom(128, bytes);
    let is_ipv6 = bytes[IP] >> 4 == 6;
    for at in 0..hops {
        let node = 10 + at as u32 + numbers.below(2) as u32;
        let latency_ns = match numbers.below(9) {
            0 => u32::MAX,
            _ => numbers.below(90_000) as u32,
        };
        let hop = Hop { node, latency_ns, ..Hop::UNKNOWN };
        let mtu = if numbers.below(12) == 0 { packet.bytes().len() - IP + 20 } else { 1500 };
        match look(&packet, IP, Domains::ANY) {
            Seen::Stack(found) => _ = push::transit(&mut packet, &found, &hop, mtu),
            _ => {
                let insertion = Insertion { hops: 4, ..insertion() };
                let dscp = if is_ipv6 { 1 } else { bytes[IP + 1] >> 2 };
                _ = push::source(&mut packet, IP, (&insertion, &hop), dscp, mtu);
            }
        }
    }
    let mut bytes = packet.bytes().to_vec();
    if is_ipv6 {
        bytes[IP] = bytes[IP] & 0xF1 | bit << 3;
        return bytes;
    }
    bytes[IP + 1] = bytes[IP + 1] & 0x1F | bit << 7;
    bytes[IP + 10..IP + 12].fill(0);
    let sum = checksum(&bytes[IP..IP + 20]);
    bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A packet over UDP and IPv6, directly or behind an extension header.
pub(crate) fn sent6(numbers: &mut Numbers, has_extension: bool) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    let (front, next) = if has_extension { (8, DESTINATION) } else { (0, UDP) };
    bytes.extend_from_slice(&[0x86, 0xDD, 0x60, 0x40, 0, 0, 0, front + 20, next, 64]);
    bytes.extend_from_slice(&[0xFD; 31]);
    bytes.push(numbers.below(200) as u8);
    bytes.extend([UDP, 0, 0, 0, 0, 0, 0, 0].into_iter().take(front.into()));
    bytes.extend_from_slice(&[7, 7, 0, 53, 0, 20, 1, 2]);
    bytes.resize(bytes.len() + 12, 0x55);
    bytes
}

/// An edge of two host ports and a fabric port.
pub(crate) fn edge() -> Transit {
    edge_of(OFFER.highest)
}

/// The same, whose controller speaks this version.
pub(crate) fn edge_of(version: u8) -> Transit {
    let program = built(&SketchInt, Role::Edge, SIZES);
    let mut edge = Transit::new(&program, setup_of(version, &words()).unwrap());
    let send = Entry::new("send").exact("ingress_port", LOCAL).arg("port", HOST);
    edge.switch.add_entry("port_pair", &send).unwrap();
    let limit = Entry::new("limit").exact("port", FABRIC).arg("mtu", MTU);
    edge.switch.add_entry("mtus", &limit).unwrap();
    for port in [HOST, LOCAL] {
        let host = Entry::new("host").exact("ingress_port", port);
        edge.switch.add_entry("Ingress.host_ports", &host).unwrap();
        let host = Entry::new("host").exact("egress_port", port).arg("dscp", 0u8);
        edge.switch.add_entry("Egress.host_ports", &host).unwrap();
        let sink = Entry::new("sink").exact("port", port);
        edge.switch.add_entry("Ingress.sink.ports", &sink).unwrap();
    }
    edge
}

/// A packet passes, and is in the switch for so long; gives what is sent.
fn pass(edge: &mut Transit, port: u16, bytes: &[u8], own_ns: u32) -> Option<Vec<u8>> {
    let mut sent = None;
    edge.switch.set_time(5_000);
    edge.switch.offer(port, bytes);
    edge.switch.run_ingress();
    edge.switch.set_time(5_000 + u64::from(own_ns));
    edge.switch.run(4, |_, bytes| sent = Some(bytes.to_vec()));
    sent
}

/// Sends packets of an epoch, in either direction and from host to host.
fn draw(edge: &mut Transit, software: &mut Software, (epoch, step): (u64, Step), of: &mut Numbers) {
    let bit = (epoch & 1) as u8;
    let value = [("value", u128::from(bit))];
    edge.switch.set_default_action("Ingress.timestamp", "set_timestamp", &value).unwrap();
    // Some flows are larger than others.
    let flow = |at| if at % 4 == 1 { sent6(of, false) } else { sent(of) };
    let flows: Vec<Vec<u8>> = (0..60).map(flow).collect();
    for _ in 0..600 {
        let own_ns = of.below(70_000) as u32;
        let mut bytes = sent(of);
        match of.below(6) {
            0 => bytes = packet(of).bytes,
            // A host's own DSCP may have the marker, and a checksum be none that a sender writes.
            1 => bytes[IP + 1] |= MARKER,
            2 if bytes[IP + 9] == 6 => bytes[IP + 36..IP + 38].fill(0xFF),
            _ => {}
        }
        if let Some(went) = pass(edge, HOST, &bytes, own_ns) {
            software.enter(&bytes, step);
            assert!(step == Step::Sources || went.len() == bytes.len());
        }
        let bytes = &flows[of.below(60).min(of.below(60)) as usize];
        let port = if of.below(5) == 0 { LOCAL } else { FABRIC };
        let hops = if port == LOCAL { 0 } else { of.below(6) };
        let came = from_network(bytes, (hops, bit), of);
        let went = pass(edge, port, &came, own_ns).unwrap();
        assert_eq!(went[IP + 2..IP + 10], bytes[IP + 2..IP + 10], "{came:02x?}");
        software.leave(port, &came, own_ns);
        if of.below(20) == 0 {
            let came = from_network(&sent6(of, true), (0, bit), of);
            assert_eq!(pass(edge, FABRIC, &came, own_ns).unwrap().len(), came.len());
            software.leave(FABRIC, &came, own_ns);
            // A stack would be there that the program does not find.
            let marked = from_network(&sent6(of, true), (1, bit), of);
            assert_eq!(pass(edge, FABRIC, &marked, own_ns), None);
        }
    }
}

#[test]
fn windows_are_those_of_a_software_switch() {
    let (mut edge, mut numbers) = (edge(), Numbers(11));
    for (first, step) in [(8, Step::Transits), (12, Step::Sources)] {
        let (plan, mut software) = (Plan::of(step).encode(), Software::new());
        for epoch in first..first + 4 {
            edge.open_by(&plan, epoch, true);
            draw(&mut edge, &mut software, (epoch, step), &mut numbers);
            edge.open_by(&plan, epoch, false);
        }
        let side = edge.side_of(SideKind::Ingress, first).unwrap();
        let entered = Entered::decode(&side.body).unwrap();
        assert_eq!(entered, software.entered);
        let carried = step == Step::Sources;
        assert_eq!([entered.inserted > 500, entered.idle > 500], [carried, !carried]);
        assert_eq!(entered.unfit() > 50, carried, "{entered:?}");
        let reasons = [NotCarried::Mtu, NotCarried::Checksum, NotCarried::Protocol];
        let counted = reasons.map(|why| entered.not_carried[why as usize] > 0);
        assert_eq!(counted, [carried; 3], "{entered:?}");

        let side = edge.side_of(SideKind::Egress, first).unwrap();
        let window = Window::decode(&side.body, &words().layout).unwrap();
        let wanted = software.sink.frame(HashKey::from_bytes([7; 32]).id(), 1);
        let totals = window.totals;
        assert_eq!(side.packets, totals.packets);
        assert_eq!(totals.packets, wanted.totals.packets);
        assert_eq!(totals.int_packets, wanted.totals.int_packets);
        assert_eq!(totals.partial, wanted.totals.partial);
        assert!(totals.partial > 50 && totals.int_packets > 1000, "{totals:?}");
        let exceeded = |of: &Window| [of.mtu_exceeded, of.hops_exceeded, of.unmarked];
        assert_eq!(exceeded(&window), exceeded(&wanted));
        assert!(window.mtu_exceeded > 50 && window.hops_exceeded > 50);
        assert_eq!(window.hash_key, wanted.hash_key);
        assert_eq!(window.own, Some(OWN.into()));
        assert_eq!(window.unclassified, software.unclassified);
        assert!(window.unclassified > 50);
        for level in 0..Pairs::LEVELS {
            assert_eq!(window.pairs.buckets(level), wanted.pairs.buckets(level));
        }
        for level in 0..5 {
            let counters = window.sizes.counters(level);
            match level {
                // Infinity, of what it does not have.
                0 | 1 => assert!(counters.into_iter().all(|count| count == u32::MAX)),
                _ => assert!(counters.eq(wanted.sizes.counters(level))),
            }
        }
        // Nothing is said of switches and paths, but for packets that crossed no other switch.
        let local =
            wanted.paths.iter().find(|of| of.path.nodes().is_empty() && !of.path.is_partial);
        assert_eq!(window.paths, [*local.unwrap()]);
        assert_eq!(totals.paths_full, totals.int_packets - window.paths[0].packets);
        let is_own = |of: &&NodeSums| of.node == u32::from(OWN);
        let hops = wanted.nodes.iter().filter(|of| !is_own(of)).map(|of| of.packets);
        assert_eq!(totals.nodes_full, hops.sum::<u64>());
        let itself = wanted.nodes.iter().find(is_own).unwrap().packets;
        let itself = NodeSums { packets: itself, ..NodeSums::none(OWN.into()) };
        assert_eq!(window.nodes, [itself]);
        let is_kept = |key: &WideKey| window.large.binary_search(key).is_ok();
        // Those of IPv6 have no room.
        let (of_ipv4, of_ipv6): (Vec<WideKey>, Vec<WideKey>) =
            wanted.large.iter().partition(|key| key.src().to_ipv4_mapped().is_some());
        assert!(of_ipv4.len() > 3 && !of_ipv6.is_empty() && totals.keys_full > 0);
        assert!(of_ipv4.iter().all(is_kept) && !of_ipv6.iter().any(is_kept));
        for key in &window.large {
            assert!(window.sizes.query(&software.family.hash(key)) > 20);
        }
        // The other group is as it was.
        let other = edge.side_of(SideKind::Egress, first ^ 4).unwrap();
        assert_eq!(other.packets > 0, first == 12);
    }
}

#[test]
fn words_that_contradict_each_other_are_no_window() {
    let (mut edge, mut numbers) = (edge(), Numbers(5));
    let plan = Plan::of(Step::Sources).encode();
    edge.open_by(&plan, 8, true);
    draw(&mut edge, &mut Software::new(), (8, Step::Sources), &mut numbers);
    assert!(edge.side_of(SideKind::Egress, 8).is_ok());
    let wrong = [
        ("Egress.sizes.level32.counters", "packets, and"),
        ("Egress.totals.sums", "packets, and"),
        ("Egress.large.table0.owners.owners", "nobody's"),
    ];
    for (register, reason) in wrong {
        let words = edge.switch.read_register_lanes(register).unwrap();
        let (lanes, words) = (words.len(), words[0].to_vec());
        let at = words.iter().position(|word| *word != 0).unwrap();
        // Of whose an entry is, the bit that is always there.
        let write = |edge: &mut Transit, word| {
            edge.switch.write_register(register, at, &[word, 7][..lanes]).unwrap();
        };
        let at_sum = register.ends_with("sums");
        let changed = if at_sum { words[at] } else { words[at] ^ 0x100 };
        if at_sum {
            edge.switch.write_register(register, 8, &[words[8] + 1]).unwrap();
        } else {
            write(&mut edge, changed);
        }
        let problem = edge.side_of(SideKind::Egress, 8).unwrap_err();
        assert!(problem.contains(reason), "{register}: {problem}");
        if at_sum {
            edge.switch.write_register(register, 8, &[words[8]]).unwrap();
        } else {
            write(&mut edge, words[at]);
        }
    }
    edge.switch.write_register("Egress.totals.sums", 1, &[u32::MAX]).unwrap();
    for side in [SideKind::Ingress, SideKind::Egress] {
        assert!(edge.side_of(side, 8).unwrap_err().contains("come to its end"));
    }
}

#[test]
fn setups_that_the_program_is_not_made_for_are_refused_with_the_remedy() {
    let says = |change: &dyn Fn(&mut Words), parts: [&str; 2]| {
        let mut words = words();
        change(&mut words);
        let refused = setup(&words).err().unwrap();
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    };
    assert!(setup(&words()).is_ok());
    says(&|words| words.layout.shape.row_sets = 64, ["towers alone", "layout = \"tower\""]);
    says(&|words| words.share = 7, ["share", "share = 1"]);
    let rule = WatchRule { proto: Some(6), ..WatchRule::default() };
    says(&|words| words.watch = WatchList::new(&[rule]).unwrap(), ["watch", "watch = []"]);
    says(&|words| words.layout.shape.tower_words = 3000, ["tower_words = 3000", "power of two"]);
    says(&|words| words.layout.shape.pair_buckets = 1 << 15, ["pair_buckets = 32768", "to 16384"]);
    says(&|words| words.layout.shape.keys = 100, ["keys = 100", "1024"]);
    says(&|words| words.layout.shape.unit_ns = 100, ["units of 100 ns", "64"]);
}
