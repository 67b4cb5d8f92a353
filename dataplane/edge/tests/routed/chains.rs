//! Packets that are longer than an mbuf hold no more than one with the slow path.

use dpdk::{Burst, Port, PortConfig};

use crate::edge::{Edge, H0, H1, eal, mac};
use crate::frames::{Udp, arp_reply, body, station};

/// A capture of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let header: [u32; 6] = [0xA1B2_C3D4, 4 << 16 | 2, 0, 0, 65_535, 1];
    header.iter().for_each(|word| file.extend(word.to_le_bytes()));
    for frame in frames {
        let len = frame.len() as u32;
        [0, 0, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

#[test]
fn what_waits_or_gets_an_error_holds_one_mbuf_however_long_it_is() {
    let jumbo = "\"fd00:1:1::1/64\"]";
    let mut edge = Edge::new("chains", &[(jumbo, &format!("{jumbo}\nmtu = 9000"))]);
    edge.acquaint();
    let long = |ports, to, ttl| Udp { ports, ttl, payload: 5000, ..Udp::new("10.1.0.2", to) };
    // A short packet in a long frame is whole as well without what is behind it.
    let mut padded = Udp::new("10.1.0.2", "10.1.1.77").frame(H0);
    padded.resize(5000, 0);
    let frames = [
        long((1, 9), "10.1.1.77", 64).frame(H0),
        padded,
        long((2, 9), "10.1.1.2", 1).frame(H0),
        long((3, 9), "10.1.0.1", 64).frame(H0),
        long((4, 9), "10.1.1.2", 64).frame(H0),
    ];
    let file = std::env::temp_dir().join(format!("calumma-chains-{}.pcap", std::process::id()));
    std::fs::write(&file, capture(&frames)).unwrap();
    eal().attach_vdev("net_pcap0", &format!("rx_pcap={}", file.display())).unwrap();
    let (port, mut queues) =
        Port::open(eal(), "net_pcap0", PortConfig::default(), &edge.pool).unwrap();
    let (mut rx, tx) = queues.pop().unwrap();
    let mut burst = Burst::new();
    assert_eq!(rx.rx(&mut burst), frames.len());
    assert!(burst.as_slice().iter().all(|packet| packet.segment_count() == 3));

    let sent = edge.receive_burst(H0, &mut burst);
    let ports: Vec<usize> = sent.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [H1], "whose neighbour is known");
    assert_eq!(edge.in_use(), 4, "an mbuf each");
    edge.slow_path(0.0);
    assert_eq!((edge.total("slow_path.waiting"), edge.in_use()), (2, 2));
    assert_eq!(edge.total("icmp_errors.sent"), 2, "for TTL and port");
    let answer = arp_reply(station(H1 as u8), "10.1.1.77", mac(H1), None);
    let sent = edge.exchange(H1, &[answer]);
    let [(H1, frame)] = &sent[..] else { panic!("{} frames", sent.len()) };
    let packet = Udp { ttl: 63, ..Udp::new("10.1.0.2", "10.1.1.77") }.packet();
    assert!(body(frame).starts_with(&packet[..8]) && body(frame)[12..].starts_with(&packet[12..]));
    assert_eq!(edge.total("dropped.header"), 1, "of which only the first mbuf is left");
    assert_eq!(edge.in_use(), 0);
    drop((rx, tx, port));
    std::fs::remove_file(&file).unwrap();
    edge.stop();
}
