//! A port whose transmit queue is its receive queue: what is sent comes back, the same mbufs in the
//! same order.

mod common;

use dpdk::{Burst, Eal, Error, Mempool, MempoolConfig, Port, PortConfig};

/// The EAL can be initialised once in a process, so the cases run one after the other.
#[test]
fn what_is_sent_comes_back_and_every_mbuf_returns_to_its_pool() {
    let eal = common::eal(1, &["--vdev=net_ring0"]);
    let pool = Mempool::new(&eal, "packets", 4095, -1).unwrap();
    assert_eq!((pool.available(), pool.in_use()), (4095, 0));

    packets_go_round_in_order(&eal, &pool);
    a_packet_grows_and_shrinks_at_both_ends(&pool);
    pools_are_made_to_measure(&eal);
    assert_eq!((pool.available(), pool.in_use()), (4095, 0));
}

fn packets_go_round_in_order(eal: &Eal, pool: &Mempool) {
    let config = PortConfig { mtu: Some(1400), ..PortConfig::default() };
    let (port, mut queues) = Port::open(eal, "net_ring0", config, pool).unwrap();
    let again = Port::open(eal, "net_ring0", config, pool).unwrap_err();
    assert!(again.to_string().contains("opened before"), "{again}");
    let (mut rx, mut tx) = queues.pop().unwrap();
    assert!(queues.is_empty());

    let info = port.info().unwrap();
    assert_eq!(info.driver, "net_ring");
    assert_eq!((port.mtu().unwrap(), port.mac().unwrap()), (1400, info.mac));
    assert!(port.link().unwrap().up);

    // Into the ring until it is full: what it refuses stays in the burst, in order.
    let mut burst = Burst::<32>::new();
    let mut sent = 0_u32;
    loop {
        let fresh = burst.len() as u32;
        for number in sent + fresh..sent + 32 {
            let mbuf = pool.alloc_with(&number.to_be_bytes()).unwrap();
            assert_eq!(mbuf.port(), None);
            burst.push(mbuf).unwrap();
        }
        assert!(burst.push(pool.alloc().unwrap()).is_err(), "a full burst gives the mbuf back");
        sent += tx.tx(&mut burst) as u32;
        if !burst.is_empty() {
            break;
        }
    }
    assert_eq!(burst.as_slice()[0].data(), sent.to_be_bytes(), "the first one that stayed");
    burst.clear();
    assert_eq!(tx.tx(&mut burst), 0);
    assert_eq!(pool.in_use(), sent);

    let mut received = 0_u32;
    while rx.rx(&mut burst) > 0 {
        burst.for_each(|mbuf| {
            assert_eq!(mbuf.data(), received.to_be_bytes());
            received += 1;
        });
        burst.retain(|mbuf| mbuf.data()[3] % 3 == 1);
        assert!(burst.as_slice().is_sorted_by_key(|mbuf| mbuf.data().to_vec()));
        burst.truncate(2);
        drop(burst.pop());
        burst.clear();
    }
    assert_eq!(received, sent);
    assert_eq!(pool.in_use(), 0);
    let stats = port.stats().unwrap();
    assert_eq!((stats.rx_packets, stats.tx_packets), (received.into(), sent.into()));
    port.reset_stats().unwrap();
    assert_eq!(port.stats().unwrap().rx_packets, 0);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_eq!(pool.alloc_burst(&mut burst), 32);
        let mut at = 0;
        burst.retain(|_| {
            at += 1;
            assert!(at < 10, "in the middle of a burst");
            at % 2 == 0
        });
    }));
    assert!(panicked.is_err());
    assert_eq!((burst.len(), pool.in_use()), (32, 32), "no mbuf is lost, none is freed twice");
    burst.clear();

    for number in 0..32_u8 {
        burst.push(pool.alloc_with(&[number]).unwrap()).unwrap();
    }
    let taken: Vec<_> = burst.drain().take(20).collect();
    assert!(taken.iter().zip(0..).all(|(mbuf, number)| mbuf.data() == [number]));
    assert_eq!((burst.len(), pool.in_use()), (0, 20), "what is not taken is freed");
}

fn a_packet_grows_and_shrinks_at_both_ends(pool: &Mempool) {
    let mut mbuf = pool.alloc_with(b"payload").unwrap();
    mbuf.prepend(4).unwrap().copy_from_slice(b"head");
    mbuf.append(4).unwrap().copy_from_slice(b"tail");
    assert_eq!(mbuf.data(), b"headpayloadtail");
    assert!(mbuf.adj(2) && mbuf.trim(3));
    assert_eq!((mbuf.data(), mbuf.pkt_len()), (&b"adpayloadt"[..], 10));
    assert_eq!(mbuf.segments().collect::<Vec<_>>(), [b"adpayloadt"]);

    let (head, tail) = (mbuf.headroom(), mbuf.tailroom());
    assert!(mbuf.prepend(head + 1).is_none() && mbuf.append(tail + 1).is_none());
    assert!(mbuf.append(usize::MAX).is_none() && mbuf.prepend(usize::MAX).is_none());
    assert!(!mbuf.adj(11) && !mbuf.trim(11));
    assert_eq!(mbuf.data(), b"adpayloadt", "what is refused changes nothing");
    mbuf.prepend(head).unwrap().fill(1);
    mbuf.append(tail).unwrap().fill(2);
    assert_eq!(mbuf.pkt_len(), head + 10 + tail);
    assert!(mbuf.adj(mbuf.pkt_len()));
    assert!(mbuf.data().is_empty());
}

fn pools_are_made_to_measure(eal: &Eal) {
    let config = MempoolConfig { mbufs: 63, cache: 9999, data_room: 9000, socket: None };
    let small = Mempool::with_config(eal, "small", config).unwrap();
    let mut burst = Burst::<32>::new();
    let mut others = Burst::<32>::new();
    assert_eq!(small.alloc_burst(&mut burst), 32);
    assert_eq!(small.alloc_burst(&mut others), 0, "all or none");
    others.push(small.alloc_with(&[1; 9000]).unwrap()).unwrap();
    assert_eq!(small.alloc_burst(&mut others), 0);
    while let Some(mbuf) = small.alloc() {
        if others.push(mbuf).is_err() {
            break;
        }
    }
    assert_eq!((small.in_use(), small.available()), (63, 0));
    assert!(small.alloc_with(b"one more").is_none());

    let twice = Mempool::with_config(eal, "small", config).unwrap_err();
    assert!(twice.to_string().contains("a name of its own"), "{twice}");
    drop((burst, others, small));
    let small = Mempool::with_config(eal, "small", config).expect("freed, so the name is free");
    drop(small);

    let huge = MempoolConfig { mbufs: (1 << 22) - 1, ..MempoolConfig::default() };
    let error = Mempool::with_config(eal, "huge", huge).unwrap_err();
    assert!(matches!(&error, Error::Call { reason, .. } if reason.contains("memory")), "{error}");
    let wide = MempoolConfig { data_room: u16::MAX, ..MempoolConfig::default() };
    assert!(Mempool::with_config(eal, "wide", wide).is_err());
}
