//! What happens to packets that are forwarded, and to those that can't be.

use std::collections::BTreeMap;

use calumma_edge::forward::address::Mac;
use calumma_edge::forward::exchange::ROOM_FOR_ERRORS;
use calumma_plane::checksum::checksum;

use crate::edge::{Edge, F0, F1, H0, H1, mac};
use crate::frames::{Udp, body, ether_type, ethernet, link, station};

#[test]
fn packets_take_the_longest_prefix_with_new_addresses_and_a_lower_ttl() {
    let mut edge = Edge::new("forwarded", &[]);
    edge.acquaint();
    for (from, to, port_in, port_out) in [
        ("10.1.0.2", "10.2.3.4", H0, F0),
        ("10.1.0.2", "10.1.1.2", H0, H1),
        ("10.2.3.4", "10.1.1.2", F1, H1),
        ("fd00:1::2", "fd00:2::4", H0, F1),
        ("fd00:2::4", "fd00:1:1::2", F1, H1),
    ] {
        let packet = Udp::new(from, to);
        let sent = edge.receive(port_in, &[packet.frame(port_in)]);
        let [(port, frame)] = &sent[..] else { panic!("{from} to {to}: {sent:?}") };
        assert_eq!((*port, link(frame)), (port_out, (station(port_out as u8), mac(port_out))));
        assert_eq!(frame[12..14] == [0x81, 0], port_out == F1, "tagged on the VLAN's port only");
        let mut wanted = packet.packet();
        let (before, after) = (wanted.clone(), body(frame).to_vec());
        if ether_type(frame) == 0x0800 {
            assert_eq!(checksum(&after[..20]), 0);
            wanted[8] = 63;
            wanted[10..12].copy_from_slice(&after[10..12]);
        } else {
            wanted[7] = 63;
        }
        assert_eq!(after, wanted, "nothing else has changed of {before:?}");
    }
    edge.stop();
}

#[test]
fn flows_are_spread_over_next_hops_and_each_keeps_its_own() {
    let mut edge = Edge::new("spread", &[]);
    edge.acquaint();
    let mut by_port = BTreeMap::new();
    for flow in 0..400 {
        let packet = Udp { ports: (flow, 80), ..Udp::new("10.1.0.2", "10.3.0.1") }.frame(H0);
        let sent = edge.receive(H0, &vec![packet; 3]);
        assert!(sent.len() == 3 && sent.iter().all(|(port, _)| *port == sent[0].0));
        *by_port.entry(sent[0].0).or_insert(0) += 1;
    }
    assert_eq!(by_port.keys().collect::<Vec<_>>(), [&F0, &F1]);
    assert!(by_port.values().all(|flows| (140..260).contains(flows)), "{by_port:?}");
    edge.stop();
}

#[test]
fn flows_leave_a_next_hop_that_has_no_link_and_return_with_it() {
    let mut edge = Edge::new("links", &[]);
    edge.acquaint();
    let ways = |edge: &mut Edge| -> Vec<usize> {
        let packet = |flow| Udp { ports: (flow, 80), ..Udp::new("10.1.0.2", "10.3.0.1") }.frame(H0);
        let sent = |flow| edge.receive(H0, &[packet(flow)]).into_iter().map(|(port, _)| port);
        (0..100).flat_map(sent).collect()
    };
    let before = ways(&mut edge);
    assert!(before.len() == 100 && before.contains(&F0) && before.contains(&F1));
    edge.set_link(F0, false);
    assert_eq!(ways(&mut edge), [F1; 100]);

    // Where nothing else leads, the sender is told at once.
    for (to, unreachable) in [("10.2.0.1", (3, 1)), ("fd00:9::2", (1, 3))] {
        let from = if to.contains(':') { "fd00:1::2" } else { "10.1.0.2" };
        let sent = edge.exchange(H0, &[Udp::new(from, to).frame(H0)]);
        let [(H0, told)] = &sent[..] else { panic!("{sent:?}") };
        let (kind, code, _) = icmp(told);
        assert_eq!((kind, code), unreachable);
    }
    assert_eq!(edge.total("dropped.link_down"), 2);

    // The neighbour is asked whether it is still there, and sent to meanwhile.
    let asked = edge.set_link(F0, true);
    assert!(asked.iter().any(|(port, frame)| *port == F0 && ether_type(frame) == 0x0806));
    assert_eq!(ways(&mut edge), before);
    edge.stop();
}

/// The ICMP type and code in a frame, with the bytes 4 to 8 of the ICMP header as a number.
pub(crate) fn icmp(frame: &[u8]) -> (u8, u8, u32) {
    let at = if ether_type(frame) == 0x0800 { 20 } else { 40 };
    let icmp = &body(frame)[at..];
    (icmp[0], icmp[1], u32::from_be_bytes(icmp[4..8].try_into().unwrap()))
}

#[test]
fn senders_are_told_why_their_packets_go_no_further() {
    let mut edge = Edge::new("told", &[]);
    edge.acquaint();
    let (v4, v6) = ("10.1.0.2", "fd00:1::2");
    for (packet, wanted, counter) in [
        (Udp { ttl: 1, ..Udp::new(v4, "10.2.0.1") }, (11, 0, 0), "ttl_expired"),
        (Udp { ttl: 1, ..Udp::new(v6, "fd00:2::1") }, (3, 0, 0), "ttl_expired"),
        (Udp::new(v4, "192.0.2.1"), (3, 0, 0), "no_route"),
        (Udp::new(v6, "2001:db8::1"), (1, 0, 0), "no_route"),
        (Udp { payload: 1400, ..Udp::new(v4, "10.2.0.1") }, (3, 4, 1400), "too_big"),
        (Udp { payload: 1500, ..Udp::new(v6, "fd00:2::1") }, (2, 0, 1500), "too_big"),
        (Udp::new(v4, "10.1.0.1"), (3, 3, 0), "ttl_expired"),
        (Udp::new(v6, "fd00:9::1"), (1, 4, 0), "ttl_expired"),
    ] {
        let dropped = edge.total(&format!("dropped.{counter}"));
        let sent = edge.exchange(H0, &[packet.frame(H0)]);
        let [(port, frame)] = &sent[..] else { panic!("{wanted:?}: {sent:?}") };
        assert_eq!((*port, icmp(frame), link(frame).0), (H0, wanted, station(0)));
        let ours = wanted == (3, 3, 0) || wanted == (1, 4, 0);
        assert_eq!(edge.total(&format!("dropped.{counter}")) - dropped, u64::from(!ours));
        let error = body(frame);
        if ether_type(frame) == 0x0800 {
            assert_eq!(error[12..20], [10, 1, 0, 1, 10, 1, 0, 2]);
            assert_eq!((checksum(&error[..20]), checksum(&error[20..])), (0, 0));
            assert!(packet.packet().starts_with(&error[28..]) && error.len() <= 576);
        } else {
            assert!(packet.packet().starts_with(&error[48..]) && error.len() <= 1280);
        }
    }

    // Errors are told to nobody about errors, and not without end.
    let mut error = Udp { ttl: 1, ..Udp::new(v4, "10.2.0.1") }.frame(H0);
    error[14 + 9] = 1;
    error[14 + 20] = 11;
    let sum = checksum(&[&error[14..24], &[0, 0], &error[26..34]].concat());
    error[24..26].copy_from_slice(&sum.to_be_bytes());
    assert!(edge.exchange(H0, &[error]).is_empty());
    let flood = vec![Udp { ttl: 1, ..Udp::new(v4, "10.2.0.1") }.frame(H0); 400];
    let errors = edge.exchange(H0, &flood).len();
    assert!(errors <= 100, "{errors} of 400 at once, at 1000 a second");
    assert_eq!(edge.total("icmp_errors.withheld"), (ROOM_FOR_ERRORS - errors) as u64);
    edge.stop();
}

/// RFC 4443, section 2.4 (e.1): however many headers are before it.
#[test]
fn no_error_is_sent_about_an_icmpv6_error_behind_other_headers() {
    const OPTIONS: [u8; 8] = [58, 0, 1, 4, 0, 0, 0, 0];
    const FIRST_FRAGMENT: [u8; 8] = [58, 0, 0, 1, 0, 0, 0, 7];
    let mut edge = Edge::new("behind", &[]);
    edge.acquaint();
    let (error, ping) = ([1, 4, 0, 0, 0, 0, 0, 0], [128, 0, 0, 0, 0, 7, 0, 1]);
    for (number, header, icmp_type, is_answered) in [
        (60, OPTIONS, error, false),
        (60, OPTIONS, ping, true),
        (44, FIRST_FRAGMENT, error, false),
        (44, FIRST_FRAGMENT, ping, true),
    ] {
        let mut packet = Udp { ttl: 1, payload: 8, ..Udp::new("fd00:1::2", "fd00:2::1") }.packet();
        packet[6] = number;
        packet[40..48].copy_from_slice(&header);
        packet[48..56].copy_from_slice(&icmp_type);
        let frame = ethernet(mac(H0), station(0), None, 0x86DD, &packet);
        let sent = edge.exchange(H0, &[frame]);
        let what = format!("{header:?} before {icmp_type:?}: {sent:?}");
        assert_eq!(sent.len(), usize::from(is_answered), "{what}");
        assert!(sent.iter().all(|(port, frame)| (*port, icmp(frame)) == (H0, (3, 0, 0))), "{what}");
    }
    edge.stop();
}

#[test]
fn pings_to_any_of_its_addresses_are_answered() {
    let mut edge = Edge::new("pinged", &[]);
    edge.acquaint();
    for (from, to, port) in [
        ("10.1.0.2", "10.1.0.1", H0),
        ("10.1.0.2", "10.9.1.1", H0),
        ("10.2.0.2", "10.1.0.1", F0),
        ("fd00:1::2", "fd00:1::1", H0),
        ("fd00:2::2", "fd00:1::1", F1),
        ("fe80::57", "fe80::ed:ff:fe00:0", H0),
    ] {
        let mut packet = Vec::new();
        let addresses = (from.parse().unwrap(), to.parse().unwrap());
        let (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) = addresses else {
            let (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) = addresses else { panic!() };
            etherparse::PacketBuilder::ipv4(a.octets(), b.octets(), 64)
                .icmpv4_echo_request(7, 1)
                .write_to_vec(&mut packet, b"ping")
                .unwrap();
            answered(&mut edge, port, 0x0800, &packet, (0, 0));
            continue;
        };
        etherparse::PacketBuilder::ipv6(a.octets(), b.octets(), 64)
            .icmpv6_echo_request(7, 1)
            .write_to_vec(&mut packet, b"ping")
            .unwrap();
        answered(&mut edge, port, 0x86DD, &packet, (129, 0));
    }
    edge.stop();
}

fn answered(edge: &mut Edge, port: usize, ether_type: u16, packet: &[u8], wanted: (u8, u8)) {
    let vlan = (port == F1).then_some(100);
    let frame = ethernet(mac(port), station(port as u8), vlan, ether_type, packet);
    let sent = edge.exchange(port, &[frame]);
    let [(out, reply)] = &sent[..] else { panic!("{packet:?}: {sent:?}") };
    let (kind, code, id) = icmp(reply);
    assert_eq!((*out, (kind, code), id), (port, wanted, 7 << 16 | 1));
    assert!(reply.ends_with(b"ping"));
}

#[test]
fn what_is_not_to_be_routed_is_dropped_and_counted_by_its_reason() {
    let mut edge = Edge::new("dropped", &[]);
    edge.acquaint();
    let good = Udp::new("10.1.0.2", "10.2.0.1").frame(H0);
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let v4 = |from: &str, to: &str| Udp::new(from, to).frame(H0);
    let to = |to: &str, mut frame: Vec<u8>| {
        frame[..6].copy_from_slice(&to.parse::<Mac>().unwrap().0);
        frame
    };
    let tagged = ethernet(mac(H0), station(0), Some(7), 0x0800, body(&good));
    for (counter, frame) in [
        ("no_interface", tagged),
        ("other_station", with(5, 0x77)),
        ("unknown", with(12, 0x88)),
        ("multicast", to("01:00:5e:00:00:05", v4("10.1.0.2", "224.0.0.5"))),
        ("multicast", to("ff:ff:ff:ff:ff:ff", v4("10.1.0.2", "255.255.255.255"))),
        ("multicast", to("ff:ff:ff:ff:ff:ff", good.clone())),
        ("multicast", v4("10.1.0.2", "10.1.1.255")),
        ("multicast", to("33:33:00:00:00:fb", v4("fd00:1::2", "fd00:2::4"))),
        ("martian", v4("169.254.1.2", "10.2.3.4")),
        ("martian", v4("10.1.0.2", "169.254.1.2")),
        ("multicast", to("33:33:00:00:00:fb", v4("fd00:1::2", "ff02::fb"))),
        ("header", with(14, 0x55)),
        ("header", with(14 + 10, 0x77)),
        ("header", good[..30].to_vec()),
        ("header", good[..10].to_vec()),
        ("martian", v4("127.0.0.1", "10.2.0.1")),
        ("martian", v4("10.1.0.2", "127.0.0.1")),
        ("martian", v4("fe80::57", "fd00:2::1")),
        ("martian", v4("fd00:1::2", "fe80::1234")),
        ("discard", v4("10.1.0.2", "10.66.0.1")),
    ] {
        let name = format!("dropped.{counter}");
        let before = edge.total(&name);
        assert!(edge.exchange(H0, std::slice::from_ref(&frame)).is_empty(), "{counter} {frame:?}");
        assert_eq!(edge.total(&name), before + 1, "{counter} {frame:?}");
    }
    edge.stop();

    // Where the configuration says so, what is not routed goes to a port as it is.
    let changes =
        [("mode = \"routed\"", "mode = \"routed\"\nunknown = \"f0\"\nmulticast = \"h1\"")];
    let mut edge = Edge::new("passed", &changes);
    edge.acquaint();
    let lldp = with(12, 0x88);
    assert_eq!(edge.receive(H0, std::slice::from_ref(&lldp)), [(F0, lldp)]);
    let hello = to("01:00:5e:00:00:05", v4("10.1.0.2", "224.0.0.5"));
    assert_eq!(edge.receive(H0, std::slice::from_ref(&hello)), [(H1, hello)]);
    assert_eq!(edge.total("routed.passed"), 2);
    // What it makes itself has no Ethernet addresses yet, and goes to one station or to none.
    let forged = v4("10.1.0.255", "10.1.0.1");
    assert!(edge.exchange(H0, &[forged]).is_empty());
    assert_eq!((edge.total("icmp_errors.sent"), edge.total("dropped.multicast")), (1, 1));
    assert_eq!(edge.total("routed.passed"), 2);
    edge.stop();
}
