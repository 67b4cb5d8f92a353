//! Packets from the fabric that wait for their next hop's Ethernet address go on as they would
//! have at once: in the network with the marks that they came with, to hosts without or, where
//! those have sinks of their own, with them.

use calumma_chamelemon::frames::SessionPlan;
use calumma_plane::Hierarchy;
use calumma_plane::probe::{Headers, LcoreProbes, Probe, ProbeKey};
use calumma_wire::Secret;

use crate::edge::{CONFIG, Edge, F0, F1, H0, H1, Sent, mac};
use crate::frames::{Udp, arp_reply, body, ether_type, ethernet, station};
use crate::measured::{LENGTH_NS, Recorded, TOS, flow, plan};
use crate::neighbours::apply;

const SHIM: &str = "carrier = { kind = \"shim\" }";
const CARRIERS: [&str; 4] = [
    TOS,
    SHIM,
    "carrier = { kind = \"shim\", hops = true }",
    "carrier = { kind = \"tos\", signature = true }",
];

const FROM: &str = "10.1.0.2";
const TO: &str = "10.2.0.9";

/// What the far edge's file has in place of the near one's: networks of its own, and a route back.
const PASSES: [(&str, &str); 4] = [
    ("10.1.0.1/24", "10.4.0.1/24"),
    ("10.1.1.1/24", "10.4.1.1/24"),
    ("to = \"10.3.0.0/16\"", "to = \"10.1.0.0/16\""),
    ("via = [\"10.9.0.2\", \"10.9.1.2\"]", "via = [\"10.9.1.2\"]"),
];

/// The same where the hosts of the packets' network are behind it, with sinks of their own.
const LEAVES: [(&str, &str); 4] = [
    ("\"h0\", role = \"host\"", "\"h0\", role = \"host\", host_sink = true"),
    ("10.1.0.1/24", "10.2.0.1/24"),
    ("10.1.1.1/24", "10.2.1.1/24"),
    ("to = \"10.2.0.0/16\"", "to = \"10.1.0.0/16\""),
];

/// An edge's file with changes.
fn file(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(CONFIG.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// A far edge at which one packet waits that a near one has marked.
struct Waiting {
    far: Edge,
    plan: SessionPlan,
    /// What came, from the EtherType on that is behind the tag.
    came: Vec<u8>,
}

impl Waiting {
    /// One that comes by F1, whose neighbour is known; an epoch begins while it waits.
    fn new(name: &str, carrier: &str, changes: &[(&str, &str)]) -> Self {
        let mut near = Edge::new(&format!("{name} near"), &[(TOS, carrier)]);
        near.acquaint();
        let changes = [&[(TOS, carrier)], changes].concat();
        let mut far = Edge::new(&format!("{name} far"), &changes);
        far.slow_path(0.2);
        far.exchange(F1, &[arp_reply(station(F1 as u8), "10.9.1.2", mac(F1), Some(100))]);
        let plan = plan(near.now_ns);
        let start = plan.clock.start_of(plan.first_epoch);
        for edge in [&mut near, &mut far] {
            edge.begin(&plan);
            edge.advance_to(start + 1);
        }
        let sent = near.receive(H0, &[Udp::new(FROM, TO).frame(H0)]);
        near.slow_path(0.0);
        near.stop();
        let [(F0, frame)] = &sent[..] else { panic!("{carrier}: {} frames", sent.len()) };
        let came = frame[12..].to_vec();
        let kind = u16::from_be_bytes([came[0], came[1]]);
        let wired = ethernet(mac(F1), station(F1 as u8), Some(100), kind, &came[2..]);
        assert!(far.receive(F1, &[wired]).is_empty());
        far.slow_path(0.0);
        assert_eq!(far.total("slow_path.waiting"), 1, "{carrier}");
        far.worker.advance_to(start + LENGTH_NS + 1);
        Self { far, plan, came }
    }

    /// A neighbour of the far edge says where it is; gives what is sent.
    fn answer(&mut self, port: usize, address: &str) -> Vec<Sent> {
        self.far.exchange(port, &[arp_reply(station(port as u8), address, mac(port), None)])
    }

    /// The far edge forwards by this file from now on; gives what is sent of hosts' packets.
    fn apply(&mut self, text: &str) -> Vec<Sent> {
        apply(&self.far, text);
        let mut sent = self.far.slow_path(0.0);
        let payload = plain(0).split_off(28);
        sent.retain(|(_, frame)| frame.ends_with(&payload));
        sent
    }

    /// Once H1 has answered, too, it gets the packet, which has left the network there, unmarked.
    fn ends_at_a_host(mut self, mut sent: Vec<Sent>, name: &str) {
        sent.extend(self.answer(H1, TO));
        let [(H1, frame)] = &sent[..] else { panic!("{name}: {} frames", sent.len()) };
        assert_eq!((ether_type(frame), body(frame)), (0x0800, &plain(2)[..]), "{name}");
        let recorded = self.finish();
        assert!(recorded.entered.is_empty());
        assert_eq!(recorded.left, [(flow(FROM, TO), 1)].into_iter().collect(), "{name}");
    }

    /// What the far edge recorded.
    fn finish(self) -> Recorded {
        let Self { mut far, plan, .. } = self;
        let mut recorded = Recorded::default();
        let end = plan.clock.start_of(plan.first_epoch + 4);
        recorded.add(&plan, far.advance_to(end));
        far.slow_path(0.0);
        far.stop();
        recorded
    }
}

/// Bytes from an EtherType on, without what a router changes in the IP header, which stands so far
/// before the end as the packet is long.
fn lasting(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let ip = bytes.len() - Udp::new(FROM, TO).packet().len();
    bytes[ip + 8] = 0;
    bytes[ip + 10..ip + 12].fill(0);
    bytes
}

/// A packet that has passed so many routers and has no mark, and was sent with DSCP 0.
fn plain(routers: u8) -> Vec<u8> {
    Udp { ttl: 64 - routers, ..Udp::new(FROM, TO) }.packet()
}

#[test]
fn what_waits_for_a_next_hop_in_the_network_keeps_its_mark_and_is_recorded_by_nobody() {
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        let mut waiting = Waiting::new(&format!("passes{number}"), carrier, &PASSES);
        let sent = waiting.answer(F0, "10.9.0.2");
        let [(F0, frame)] = &sent[..] else { panic!("{carrier}: {} frames", sent.len()) };
        assert_eq!(lasting(&frame[12..]), lasting(&waiting.came), "{carrier}");
        let recorded = waiting.finish();
        assert!(recorded.entered.is_empty() && recorded.left.is_empty(), "{carrier}");
    }
}

/// One bit tells its epoch from the next one, and shims have two more of its number. Where routes
/// have changed meanwhile, it goes to a host in place of a next hop.
#[test]
fn what_waits_until_its_mark_means_another_epoch_is_dropped() {
    let shim_with_hops = "carrier = { kind = \"shim\", hops = true }";
    for (number, (carrier, epochs)) in
        [(TOS, 2), (SHIM, 8), (shim_with_hops, 8)].into_iter().enumerate()
    {
        for (to_host, waited) in
            [(false, epochs - 1), (false, epochs), (true, epochs - 1), (true, epochs)]
        {
            let name = format!("old{number}{}{waited}", u8::from(to_host));
            let mut waiting = Waiting::new(&name, carrier, &PASSES);
            let (clock, first) = (waiting.plan.clock, waiting.plan.first_epoch);
            let mut recorded = Recorded::default();
            for epoch in first + 1..=first + waited {
                let parts = waiting.far.advance_to(clock.start_of(epoch) + 1);
                recorded.add(&waiting.plan, parts);
            }
            if to_host {
                let text = file(&[&[(TOS, carrier)], &PASSES[..]].concat());
                let text = text.replace("10.4.1.1/24", "10.2.0.1/24") + KNOWN;
                assert!(waiting.apply(&text).is_empty(), "{name}");
            }
            let mut sent = waiting.answer(F0, "10.9.0.2");
            sent.retain(|(_, frame)| ether_type(frame) != 0x0806);
            let goes_on = waited < epochs;
            assert_eq!(sent.len(), usize::from(goes_on), "{carrier}, {waited} epochs");
            let dropped = waiting.far.total("dropped.mark_outdated");
            assert_eq!(dropped, u64::from(!goes_on), "{carrier}");
            let end = clock.start_of(first + waited + 4);
            recorded.add(&waiting.plan, waiting.far.advance_to(end));
            // What is known to be late is in no epoch.
            let left = recorded.left.values().sum::<i64>();
            assert_eq!(left, i64::from(to_host && waited == 1), "{carrier}, {waited} epochs");
            assert!(recorded.entered.is_empty(), "{carrier}");
            waiting.far.slow_path(0.0);
            waiting.far.stop();
        }
    }
}

#[test]
fn what_waits_in_vain_is_dropped_and_has_not_left() {
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        let mut waiting = Waiting::new(&format!("dies{number}"), carrier, &PASSES);
        let mut said = Vec::new();
        for _ in 0..30 {
            said.extend(waiting.far.slow_path(0.11));
        }
        said.retain(|(_, frame)| ![0x0806, 0x86DD].contains(&ether_type(frame)));
        // With a mark of its own, as it enters here.
        let [(F1, error)] = &said[..] else { panic!("{carrier}: {} frames", said.len()) };
        let packet = plain(1);
        let quote = &error[error.len() - packet.len()..];
        assert_eq!(error[error.len() - packet.len() - 8..][..2], [3, 1], "{carrier}");
        // Of marks, only those in the IP header are quoted.
        let rest = |packet: &[u8]| [&packet[..1], &packet[2..10], &packet[12..]].concat();
        assert_eq!(rest(quote), rest(&packet), "{carrier}");
        assert_eq!(waiting.far.total("dropped.neighbour_unresolved"), 1);
        assert!(waiting.finish().left.is_empty(), "{carrier}");
    }
}

#[test]
fn what_waits_for_a_host_with_a_sink_of_its_own_keeps_its_mark() {
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        let mut waiting = Waiting::new(&format!("kept{number}"), carrier, &LEAVES);
        let sent = waiting.answer(H0, TO);
        let [(H0, frame)] = &sent[..] else { panic!("{carrier}: {} frames", sent.len()) };
        assert_eq!(lasting(&frame[12..]), lasting(&waiting.came), "{carrier}");
        let recorded = waiting.finish();
        assert!(recorded.entered.is_empty());
        assert_eq!(recorded.left, [(flow(FROM, TO), 1)].into_iter().collect(), "{carrier}");
    }
}

/// Where the host is, for who need not ask.
const KNOWN: &str = "
[[forwarding.neighbour]]
address = \"10.2.0.9\"
mac = \"02:57:00:00:00:09\"
";

#[test]
fn where_routes_change_no_host_without_a_sink_gets_the_mark_that_a_packet_waited_with() {
    // Networks of the ports with and without a sink are swapped.
    let swapped = |changes: &[(&str, &str)]| {
        let text = file(changes).replace("10.2.0.1/24", "10.2.9.1/24");
        text.replace("10.2.1.1/24", "10.2.0.1/24").replace("10.2.9.1/24", "10.2.1.1/24")
    };
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        for known in [true, false] {
            // To a host, though it had left for one behind another port.
            let name = format!("swap{number}{known}");
            let mut waiting = Waiting::new(&name, carrier, &LEAVES);
            let text = swapped(&[&[(TOS, carrier)], &LEAVES[..]].concat());
            let sent = waiting.apply(&if known { text + KNOWN } else { text });
            assert_eq!(sent.is_empty(), !known, "{name}");
            waiting.ends_at_a_host(sent, &name);

            // To a host, though it waited for a next hop in the network.
            let name = format!("host{number}{known}");
            let mut waiting = Waiting::new(&name, carrier, &PASSES);
            let text = file(&[&[(TOS, carrier)], &PASSES[..]].concat());
            let text = text.replace("10.4.1.1/24", "10.2.0.1/24");
            assert!(waiting.apply(&if known { text + KNOWN } else { text }).is_empty());
            let mut sent = waiting.answer(F0, "10.9.0.2");
            sent.retain(|(_, frame)| ether_type(frame) != 0x0806);
            assert_eq!(sent.is_empty(), !known, "{name}");
            waiting.ends_at_a_host(sent, &name);
        }
    }
}

#[test]
fn what_has_left_for_a_host_with_a_sink_and_goes_on_in_the_network_enters_with_another_mark() {
    for (number, carrier) in CARRIERS.into_iter().enumerate() {
        for known in [true, false] {
            let name = format!("enters{number}{known}");
            let mut waiting = Waiting::new(&name, carrier, &LEAVES);
            let route = "[[forwarding.route]]\nto = \"10.2.0.0/16\"\nvia = [\"10.9.0.2\"]\n";
            let text = file(&[&[(TOS, carrier)], &LEAVES[..]].concat());
            let text = text.replace("10.2.0.1/24", "10.4.0.1/24") + route;
            if known {
                waiting.answer(F0, "10.9.0.2");
            }
            let mut sent = waiting.apply(&text);
            assert_eq!(sent.is_empty(), !known, "{carrier}");
            sent.extend(waiting.answer(F0, "10.9.0.2"));
            let [(F0, frame)] = &sent[..] else { panic!("{name}: {} frames", sent.len()) };
            // One, and of the next epoch.
            assert_eq!(frame.len() - 12, waiting.came.len(), "{name}");
            assert_ne!(lasting(&frame[12..]), lasting(&waiting.came), "{name}");
            let recorded = waiting.finish();
            let once = [(flow(FROM, TO), 1)].into_iter().collect();
            assert_eq!((&recorded.entered, &recorded.left), (&once, &once), "{name}");
        }
    }
}

#[test]
fn a_probe_that_waits_for_a_next_hop_in_the_network_has_not_arrived() {
    let mut edge = Edge::new("probe waits", &[]);
    edge.slow_path(0.2);
    let key = ProbeKey::new(Secret::new([7; 32]));
    let (probes, line) = LcoreProbes::new();
    edge.worker.probes = probes;
    edge.worker.probes.set_key(Some(key.clone()));
    let hierarchy = Hierarchy::NonSampledLl;
    let probe = Probe { sender: 3, number: 1, epoch: 7, hierarchy, sent_ns: 1000 };
    let headers = Headers::of(&Udp::new("10.3.0.9", TO).frame(F1)).unwrap();
    let (bytes, len, _) = headers.with(&probe, &key);
    assert!(edge.receive(F1, &[bytes[..len].to_vec()]).is_empty());
    edge.slow_path(0.0);
    let sent = edge.exchange(F0, &[arp_reply(station(F0 as u8), "10.9.0.2", mac(F0), None)]);
    let [(F0, frame)] = &sent[..] else { panic!("{} frames", sent.len()) };
    assert_eq!(Probe::read(&body(frame)[20..], &key), Some(probe));
    assert_eq!((line.found().count(), edge.total("probe.received")), (0, 0));
    edge.stop();
}
