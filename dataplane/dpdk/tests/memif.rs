//! Two processes that share memory: one sends packets over `net_memif`, the other sends them back.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dpdk::{Burst, Eal, Mempool, Port, PortConfig, RxQueue, TxQueue};

/// Set for the peer process: the name of the socket at which both meet.
const SOCKET: &str = "DPDK_TEST_MEMIF_SOCKET";
const PACKETS: u32 = 20_000;
/// Not an expectation, but an end to a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(eal: &Eal, role: &str, socket: &str, pool: &Mempool) -> (Port, RxQueue, TxQueue) {
    // An abstract socket: no file that could be left over.
    let arguments = format!("role={role},id=0,socket-abstract=yes,socket={socket}");
    eal.attach_vdev("net_memif0", &arguments).unwrap();
    let (port, mut queues) = Port::open(eal, "net_memif0", PortConfig::default(), pool).unwrap();
    let (rx, tx) = queues.pop().unwrap();
    (port, rx, tx)
}

fn wait_for_the_other_side(port: &Port) {
    let deadline = Instant::now() + PATIENCE;
    while !port.link().unwrap().up {
        assert!(Instant::now() < deadline, "{} meets nobody", port.name());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Not a test by itself: what the other process runs.
#[test]
fn the_peer_that_sends_everything_back() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let eal = common::eal(1, &[]);
    let pool = Mempool::new(&eal, "packets", 4095, -1).unwrap();
    let (port, mut rx, mut tx) = open(&eal, "client", &socket, &pool);
    wait_for_the_other_side(&port);
    let mut burst = Burst::<32>::new();
    let mut left = PACKETS as usize;
    let deadline = Instant::now() + PATIENCE;
    while left > 0 {
        assert!(Instant::now() < deadline, "{left} packets are missing");
        left -= rx.rx(&mut burst);
        burst.for_each(|mbuf| mbuf.data_mut()[4..].reverse());
        while !burst.is_empty() {
            if tx.tx(&mut burst) == 0 {
                std::thread::yield_now();
            }
        }
        std::thread::yield_now();
    }
    // The link goes down when the other side has everything.
    while port.link().unwrap().up && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((port, rx, tx));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn packets_cross_to_another_process_and_come_back() {
    if std::env::var(SOCKET).is_ok() {
        return;
    }
    let socket = format!("dpdk-test-{}", std::process::id());
    let eal = common::eal(1, &[]);
    let pool = Mempool::new(&eal, "packets", 4095, -1).unwrap();
    eal.attach_vdev("net_memif1", &format!("role=client,socket-abstract=yes,socket={socket}"))
        .unwrap();
    let early = Port::open(&eal, "net_memif1", PortConfig::default(), &pool).unwrap_err();
    assert!(early.to_string().contains("only while its server listens"), "{early}");
    let (port, mut rx, mut tx) = open(&eal, "server", &socket, &pool);

    // A client can't start before its server listens.
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_peer_that_sends_everything_back", "--nocapture"])
        .env(SOCKET, &socket)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_the_other_side(&port);

    let mut out = Burst::<32>::new();
    let mut back = Burst::<32>::new();
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + PATIENCE;
    while received < PACKETS {
        assert!(Instant::now() < deadline, "{sent} packets sent, {received} came back");
        while sent < PACKETS && out.len() < out.capacity() {
            let mut bytes = vec![0; 64 + sent as usize % 1400];
            bytes[..4].copy_from_slice(&sent.to_be_bytes());
            bytes[4] = 1;
            let Some(mbuf) = pool.alloc_with(&bytes) else { break };
            out.push(mbuf).unwrap();
            sent += 1;
        }
        // Few on their way at a time, so that no ring overflows: memif drops nothing, but waits.
        if sent - received < 256 + 32 {
            tx.tx(&mut out);
        }
        rx.rx(&mut back);
        back.for_each(|mbuf| {
            assert_eq!(mbuf.pkt_len(), 64 + received as usize % 1400);
            assert_eq!(mbuf.data()[..4], received.to_be_bytes(), "in order");
            assert_eq!(mbuf.data().last(), Some(&1), "as the peer turned it");
            received += 1;
        });
        back.clear();
        std::thread::yield_now();
    }
    let stats = port.stats().unwrap();
    assert_eq!((stats.tx_packets, stats.rx_packets), (PACKETS.into(), PACKETS.into()));
    drop((port, rx, tx));
    assert_eq!(pool.in_use(), 0);

    assert!(peer.wait().unwrap().success(), "the peer says above what is wrong");
}
