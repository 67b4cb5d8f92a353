//! Captures in and out: a port that reads one file and writes another.

mod common;

use std::path::Path;

use dpdk::{Burst, Eal, Mbuf, Mempool, Port, PortConfig};

const RECORD_HEADER: usize = 16;

/// A capture of these packets.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let header: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1];
    header.iter().for_each(|word| file.extend(word.to_le_bytes()));
    for (at, packet) in packets.iter().enumerate() {
        let (at, len) = (at as u32, packet.len() as u32);
        [at, 0, len, len].iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(packet);
    }
    file
}

/// The packets of a capture.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let mut left = &bytes[24..];
    let mut packets = Vec::new();
    while !left.is_empty() {
        let len = u32::from_le_bytes(left[8..12].try_into().unwrap()) as usize;
        packets.push(left[RECORD_HEADER..RECORD_HEADER + len].to_vec());
        left = &left[RECORD_HEADER + len..];
    }
    packets
}

#[test]
fn a_capture_goes_through_a_port_byte_by_byte() {
    let folder = std::env::temp_dir().join(format!("dpdk-pcap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, sink) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let sent: Vec<Vec<u8>> = (0..1000_usize)
        .map(|at| (0..60 + at * 7 % 5000).map(|byte| (at + byte) as u8).collect())
        .collect();
    std::fs::write(&source, capture(&sent)).unwrap();

    let eal = common::eal(1, &[]);
    let arguments = format!("rx_pcap={},tx_pcap={}", source.display(), sink.display());
    eal.attach_vdev("net_pcap0", &arguments).unwrap();
    assert_eq!(Port::names(&eal), ["net_pcap0"]);
    assert!(eal.attach_vdev("net_nonsense0", "").is_err());
    let pool = Mempool::new(&eal, "packets", 2047, -1).unwrap();
    let (port, mut queues) = Port::open(&eal, "net_pcap0", PortConfig::default(), &pool).unwrap();
    let (mut rx, mut tx) = queues.pop().unwrap();

    let mut burst = Burst::<32>::new();
    let mut at = 0;
    while rx.rx(&mut burst) > 0 {
        for mbuf in burst.as_slice() {
            assert_eq!(mbuf.port(), Some(port.number()));
            assert_eq!(mbuf.pkt_len(), sent[at].len());
            assert_eq!(mbuf.segment_count(), mbuf.segments().count());
            assert_eq!(mbuf.segments().collect::<Vec<_>>().concat(), sent[at]);
            at += 1;
        }
        while !burst.is_empty() {
            tx.tx(&mut burst);
        }
    }
    assert_eq!(at, sent.len());
    let stats = port.stats().unwrap();
    let bytes: usize = sent.iter().map(Vec::len).sum();
    assert_eq!((stats.rx_packets, stats.tx_packets), (1000, 1000));
    assert_eq!((stats.rx_bytes, stats.tx_bytes), (bytes as u64, bytes as u64));

    // A port that closes writes its file to the end.
    drop((port, rx, tx));
    assert_eq!(pool.in_use(), 0);
    assert!(packets(&sink) == sent, "the same bytes");
    long_packets_are_cut(&eal, &pool, &source, &sent);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Receives these packets from a capture, and cuts off what the first mbuf of each does not hold.
fn long_packets_are_cut(eal: &Eal, pool: &Mempool, source: &Path, sent: &[Vec<u8>]) {
    eal.attach_vdev("net_pcap1", &format!("rx_pcap={}", source.display())).unwrap();
    let (_port, mut queues) = Port::open(eal, "net_pcap1", PortConfig::default(), pool).unwrap();
    let (mut rx, _tx) = queues.pop().unwrap();
    let (mut at, mut freed) = (0, 0);
    let mut burst = Burst::<32>::new();
    while rx.rx(&mut burst) > 0 {
        let in_use = pool.in_use() as usize;
        let segments: usize = burst.as_slice().iter().map(Mbuf::segment_count).sum();
        for mbuf in burst.as_mut_slice() {
            mbuf.cut_to_first_segment();
            assert_eq!((mbuf.segment_count(), mbuf.pkt_len()), (1, mbuf.data().len()));
            assert_eq!(mbuf.data(), &sent[at][..sent[at].len().min(mbuf.data().len())]);
            at += 1;
        }
        let others = segments - burst.len();
        assert_eq!(pool.in_use() as usize, in_use - others);
        freed += others;
        burst.clear();
    }
    assert_eq!(at, sent.len());
    assert!(freed > 0, "none was longer than an mbuf");
}
