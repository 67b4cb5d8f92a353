//! Who has which Ethernet address: the edge answers, asks, lets packets wait, and changes its
//! routes while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use calumma_edge::config::Config;
use calumma_edge::control::unix_ns;
use calumma_edge::forward::address::Mac;
use calumma_edge::forward::counters::SlowCounters;
use calumma_edge::forward::lpm;
use calumma_edge::forward::slow::frames::{read_arp, read_discovery};
use calumma_edge::forward::thread::SlowThread;
use dpdk::Mempool;

use crate::edge::{CONFIG, Edge, F0, F1, H0, eal, mac};
use crate::frames::{
    Udp, arp_reply, arp_request, body, ether_type, link, neighbour_advertisement,
    neighbour_solicitation, station,
};

#[test]
fn hosts_that_ask_for_the_gateway_are_answered_and_known_from_then_on() {
    let mut edge = Edge::new("asked", &[]);
    let host = station(0);
    let answers = edge.exchange(H0, &[arp_request(host, "10.1.0.2", "10.1.0.1")]);
    let (port, answer) = answers.iter().find(|(_, frame)| link(frame).0 == host).unwrap();
    assert_eq!((*port, link(answer)), (H0, (host, mac(H0))));
    let said = read_arp(body(answer)).unwrap();
    assert_eq!(
        (said.about.to_string(), said.mac, said.asks),
        ("10.1.0.1".into(), Some(mac(H0)), false)
    );

    let link_local = mac(H0).link_local().to_string();
    for (asker, about) in
        [("fd00:1::2", "fd00:1::1"), ("fe80::57", link_local.as_str()), ("::", "fd00:1::1")]
    {
        let answers = edge.exchange(H0, &[neighbour_solicitation(host, asker, about)]);
        let [(port, answer)] = &answers[..] else { panic!("{asker}: {answers:?}") };
        let said = read_discovery(body(answer)).unwrap();
        assert_eq!((*port, said.about.to_string().as_str(), said.mac), (H0, about, Some(mac(H0))));
        let to_all = asker == "::";
        assert_eq!(
            link(answer).0,
            if to_all { "33:33:00:00:00:01".parse().unwrap() } else { host }
        );
    }
    assert!(edge.exchange(H0, &[arp_request(host, "10.1.0.2", "10.1.0.77")]).is_empty());

    // Without asking back, packets find the host.
    for (from, to) in [("10.9.0.2", "10.1.0.2"), ("fd00:9::2", "fd00:1::2")] {
        let sent = edge.receive(F0, &[Udp::new(from, to).frame(F0)]);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].0, link(&sent[0].1)), (H0, (host, mac(H0))));
    }
    edge.stop();
}

#[test]
fn packets_wait_for_their_next_hop_in_order_and_then_go_on() {
    let mut edge = Edge::new("waiting", &[]);
    edge.slow_path(0.0);
    for (to, gateway, port) in [("10.2.0.9", "10.9.0.2", F0), ("fd00:2::9", "fd00:9:1::2", F1)] {
        let from = if to.contains(':') { "fd00:1::2" } else { "10.1.0.2" };
        let packets: Vec<_> =
            (1..=6).map(|n| Udp { ports: (n, 9), ..Udp::new(from, to) }.frame(H0)).collect();
        assert!(edge.receive(H0, &packets).is_empty());
        assert!(edge.slow_path(0.0).is_empty(), "next hops are asked for in their own time");
        let asked = edge.slow_path(1.0);
        let question = asked.iter().find(|(out, frame)| {
            let said = match ether_type(frame) {
                0x0806 => read_arp(body(frame)),
                _ => read_discovery(body(frame)),
            };
            *out == port && said.is_some_and(|said| said.asks && said.about.to_string() == gateway)
        });
        let (_, question) = question.unwrap_or_else(|| panic!("{gateway} in {asked:?}"));
        assert!(link(question).0.is_group());
        assert_eq!(edge.total("slow_path.waiting"), 4, "of six, as many as may wait");
        edge.check_conservation();

        let vlan = (port == F1).then_some(100);
        let answer = match gateway.contains(':') {
            false => arp_reply(station(port as u8), gateway, mac(port), vlan),
            true => neighbour_advertisement(station(port as u8), gateway, mac(port), vlan),
        };
        let sent = edge.exchange(port, &[answer]);
        let sources: Vec<u8> = sent
            .iter()
            .map(|(out, frame)| {
                assert_eq!((*out, link(frame)), (port, (station(port as u8), mac(port))));
                let udp = if ether_type(frame) == 0x0800 { 20 } else { 40 };
                body(frame)[udp + 1]
            })
            .collect();
        assert_eq!(sources, [1, 2, 3, 4]);
        assert_eq!(edge.total("slow_path.waiting"), 0);
    }
    assert_eq!(edge.total("dropped.neighbour_queue_full"), 4);
    edge.stop();
}

#[test]
fn who_never_answers_is_given_up_and_the_sender_is_told() {
    let mut edge = Edge::new("silent", &[]);
    edge.acquaint();
    let packet = Udp::new("10.2.0.9", "10.1.0.99").frame(F0);
    let questions = edge.exchange(F0, std::slice::from_ref(&packet));
    assert_eq!(questions.len(), 1, "one question: {questions:?}");
    assert_eq!((questions[0].0, link(&questions[0].1).0), (H0, Mac::BROADCAST));
    let mut said = Vec::new();
    for _ in 0..30 {
        said.extend(edge.slow_path(0.11));
    }
    let unreachable = said.iter().find(|(port, frame)| {
        *port == F0 && ether_type(frame) == 0x0800 && body(frame)[20..22] == [3, 1]
    });
    assert!(unreachable.is_some(), "{said:?}");
    assert_eq!(edge.total("dropped.neighbour_unresolved"), 1);
    edge.stop();
}

#[test]
fn a_clock_that_is_set_back_holds_up_nothing() {
    let mut edge = Edge::new("set back", &[]);
    edge.acquaint();
    let spread = |edge: &mut Edge| -> Vec<usize> {
        let packet = |flow| Udp { ports: (flow, 80), ..Udp::new("10.1.0.2", "10.3.0.1") }.frame(H0);
        (0..100).flat_map(|flow| edge.receive(H0, &[packet(flow)])).map(|(port, _)| port).collect()
    };
    assert!(spread(&mut edge).contains(&F0));
    let packet = Udp::new("10.2.0.9", "10.1.0.99").frame(F0);
    edge.exchange(F0, std::slice::from_ref(&packet));
    // Errors are sent as long as their limit allows it, and then again.
    let expired = Udp { ttl: 1, ..Udp::new("10.1.0.2", "10.2.0.1") }.frame(H0);
    while edge.total("icmp_errors.withheld") == 0 {
        edge.exchange(H0, &vec![expired.clone(); 400]);
    }

    edge.now_ns -= 3_600_000_000_000;
    edge.slow_path(0.0);
    edge.set_link(F0, false);
    assert_eq!(spread(&mut edge), [F1; 100]);
    for _ in 0..40 {
        edge.slow_path(0.11);
    }
    assert_eq!(edge.total("dropped.neighbour_unresolved"), 1);
    assert_eq!(edge.exchange(H0, &[expired]).len(), 1);
    edge.stop();
}

#[test]
fn routes_change_while_packets_run() {
    let mut edge = Edge::new("rerouted", &[]);
    edge.acquaint();
    let frame = Udp::new("10.1.0.2", "10.2.0.9").frame(H0);
    assert_eq!(edge.receive(H0, std::slice::from_ref(&frame))[0].0, F0);

    let text = CONFIG.replace("via = [\"10.9.0.2\"]", "via = [\"10.9.1.2\"]");
    apply(&edge, &text);
    assert_eq!(edge.receive(H0, std::slice::from_ref(&frame))[0].0, F0, "not before it is built");
    edge.slow_path(0.0);
    let sent = edge.receive(H0, std::slice::from_ref(&frame));
    assert_eq!((sent[0].0, link(&sent[0].1)), (F1, (station(F1 as u8), mac(F1))));
    assert_eq!(sent[0].1[12..18], [0x81, 0, 0, 100, 8, 0], "with the VLAN's tag");

    // Port h1 has no interface any more; its neighbours are forgotten, others are not.
    apply(&edge, &without_h1(&text));
    edge.slow_path(0.0);
    assert_eq!(edge.receive(H0, std::slice::from_ref(&frame))[0].0, F1);
    edge.receive(1, &[Udp::new("10.1.1.2", "10.2.0.9").frame(1)]);
    assert_eq!(edge.total("dropped.no_interface"), 1);
    edge.stop();
}

/// Lets the edge forward by this file from now on.
pub(crate) fn apply(edge: &Edge, text: &str) {
    let config = Config::parse(text, "edge.toml").unwrap();
    edge.routes.apply(config.plan(edge.routes.macs()).unwrap()).unwrap();
}

/// The file without the interface of port h1, so that those behind it have other numbers.
fn without_h1(text: &str) -> String {
    let from = text.find("[[forwarding.interface]]\nport = \"h1\"").unwrap();
    let to = text.find("[[forwarding.interface]]\nport = \"f0\"").unwrap();
    format!("{}{}", &text[..from], &text[to..])
}

#[test]
fn what_is_on_its_way_to_the_slow_path_when_interfaces_change_is_for_the_link_that_it_was_for() {
    let mut edge = Edge::new("renumbered", &[]);
    edge.acquaint();
    assert!(edge.receive(H0, &[Udp::new("fd00:1::2", "fd00:9::77").frame(H0)]).is_empty());
    let expired = Udp { ttl: 1, ..Udp::new("10.1.0.2", "10.2.0.1") }.frame(H0);
    edge.receive(H0, &[expired]);
    apply(&edge, &without_h1(CONFIG));
    let sent = edge.slow_path(0.0);
    let asks = |(_, frame): &&(usize, Vec<u8>)| {
        let said = read_discovery(body(frame)).filter(|said| said.asks);
        said.is_some_and(|said| said.about.to_string() == "fd00:9::77")
    };
    let asked: Vec<_> = sent.iter().filter(asks).map(|(port, _)| *port).collect();
    assert_eq!(asked, [F0]);
    assert_eq!(edge.total("icmp_errors.sent"), 0, "by whichever address");
    let answer = neighbour_advertisement(station(F0 as u8), "fd00:9::77", mac(F0), None);
    let sent = edge.exchange(F0, &[answer]);
    let [(port, frame)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((*port, link(frame).0), (F0, station(F0 as u8)));
    edge.stop();
}

/// A window that begins while a table is built has packets that went by the old one.
#[test]
fn routes_have_changed_when_lcores_get_them_and_not_when_the_table_was_begun() {
    let config = Config::parse(CONFIG, "edge.toml").unwrap();
    let macs: Vec<Mac> = (0..config.ports.len()).map(mac).collect();
    let plan = config.plan(&macs).unwrap();
    let pool = Mempool::new(eal(), "watched", 63, -1).unwrap();
    let built_ns = Arc::new(AtomicU64::new(0));
    let (noted, in_dpdk) = (built_ns.clone(), lpm::in_dpdk(eal()));
    let slowly = move |routes: &[_]| {
        let built = in_dpdk(routes);
        std::thread::sleep(Duration::from_millis(30));
        noted.store(unix_ns(), Ordering::Relaxed);
        built
    };
    let counters = Arc::new(SlowCounters::default());
    let (mut slow_thread, routes, _parts) =
        SlowThread::new(plan.clone(), macs, Box::new(slowly), pool, 1, counters).unwrap();
    let watch = routes.watch();
    assert!(!watch.changed_since(0), "there were none before");
    routes.apply(plan).unwrap();
    slow_thread.step(unix_ns());
    assert!(watch.changed_since(built_ns.load(Ordering::Relaxed)));
    assert!(!watch.changed_since(unix_ns() + 1));
}
