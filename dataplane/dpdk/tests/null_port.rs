//! A port that makes packets up and swallows them: enough to see bursts, ownership and lcores at
//! work on any machine.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use dpdk::{Burst, Eal, Error, Mempool, Port, PortConfig};

/// The EAL can be initialised once in a process, so the cases run one after the other.
#[test]
fn packets_are_owned_once_and_all_come_back_to_their_pool() {
    let eal = common::eal(2, &["--vdev=net_null0", "--vdev=net_null1"]);
    assert!(matches!(Eal::init(&["--no-huge"]), Err(Error::AlreadyInitialised)));
    let pool = Mempool::new(&eal, "packets", 8191, -1).unwrap();

    let stranger = Port::open(&eal, "net_null7", PortConfig::default(), &pool).unwrap_err();
    assert!(stranger.to_string().contains("it has: net_null0, net_null1"), "{stranger}");
    let many = PortConfig { queues: 4096, ..PortConfig::default() };
    assert!(matches!(Port::open(&eal, "net_null1", many, &pool), Err(Error::Queues { .. })));

    let (port, mut queues) = Port::open(&eal, "net_null0", PortConfig::default(), &pool).unwrap();
    let again = Port::open(&eal, "net_null0", PortConfig::default(), &pool).unwrap_err();
    assert!(again.to_string().contains("opened before"), "{again}");

    let (mut rx, mut tx) = queues.pop().unwrap();
    let mut burst = Burst::<32>::new();
    assert_eq!(rx.rx(&mut burst), 32);
    assert_eq!(rx.rx(&mut burst), 0, "no room is left");
    assert_eq!(pool.in_use(), 32);
    burst.as_mut_slice()[0].data_mut().fill(7);
    assert_eq!(burst.as_slice()[0].data(), [7; 64]);

    let mut at = 0;
    burst.retain(|_| {
        at += 1;
        at % 4 != 0
    });
    assert_eq!((burst.len(), pool.in_use()), (24, 24));
    assert_eq!(tx.tx(&mut burst), 24);
    assert!(burst.is_empty());
    assert_eq!(port.stats().unwrap().tx_packets, 24);

    let mbuf = pool.alloc_with(b"hello").unwrap();
    assert_eq!((mbuf.data(), mbuf.pkt_len(), mbuf.segment_count()), (&b"hello"[..], 5, 1));
    assert!(pool.alloc_with(&[0; 4096]).is_none(), "more than an mbuf holds");
    burst.push(mbuf).unwrap();
    drop(burst);
    assert_eq!(pool.in_use(), 0, "what is dropped is freed");

    // Two lcores on one CPU: one counts packets until the other says stop.
    let stop = AtomicBool::new(false);
    let counted = eal
        .run_on_lcores(vec![None, Some(rx)], |queue| match queue {
            None => {
                std::thread::sleep(std::time::Duration::from_millis(20));
                stop.store(true, Ordering::Relaxed);
                0
            }
            Some(mut rx) => {
                let mut burst = Burst::<32>::new();
                let mut packets = 0;
                while !stop.load(Ordering::Relaxed) {
                    packets += rx.rx(&mut burst);
                    burst.clear();
                    std::thread::yield_now();
                }
                packets
            }
        })
        .unwrap();
    assert!(counted[1] > 0);
    assert_eq!(pool.in_use(), 0);

    drop((port, tx));
    assert_eq!(Port::names(&eal), ["net_null1"], "a port closes with the last of its queues");
    Port::open(&eal, "net_null1", PortConfig::default(), &pool).expect("refused before, and free");
}
