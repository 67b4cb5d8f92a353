//! The slow path's thread beside lcores: packets that wait for a neighbour's address, answers that
//! bring it, and the tables in which lcores find it.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use calumma_edge::config::Config;
use calumma_edge::forward::address::Mac;
use calumma_edge::forward::counters::SlowCounters;
use calumma_edge::forward::decide::Task;
use calumma_edge::forward::exchange::{HandOver, Origin, Return};
use calumma_edge::forward::tables::{Hop, Lpm};
use calumma_edge::forward::thread::{RouterParts, SlowThread};
use calumma_edge::packet::Packet;
use calumma_edge::sync::scheduled::{set_now_ns, unix_ns};
use dpdk::{Eal, Mbuf, Mempool};
use ipnet::IpNet;
use shuttle::thread;

use super::{draw, explore};

const CONFIG: &str = r#"
name = "e1"
controller = "127.0.0.1:9"
carrier = { kind = "tos" }
port = [{ name = "h0", role = "host" }, { name = "f0", role = "fabric" }]

[forwarding]
mode = "routed"

[[forwarding.interface]]
port = "h0"
addresses = ["10.1.0.1/24"]

[[forwarding.interface]]
port = "f0"
addresses = ["10.9.0.1/30"]
"#;

/// The interface that hosts are behind, and the switch's Ethernet address there.
const HOSTS: u16 = 0;
const MAC: Mac = Mac([2, 0xED, 0, 0, 0, 0]);

/// Hosts that there are.
const MOST_HOSTS: usize = 4;

/// The pools of packets that are received, and of those that the switch makes.
fn pools() -> &'static (Mempool, Mempool) {
    static POOLS: OnceLock<(Mempool, Mempool)> = OnceLock::new();
    POOLS.get_or_init(|| {
        let quiet = ["--no-huge", "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry"];
        let cpus = core_affinity::get_core_ids().expect("the CPUs that it may run on");
        let lcores = format!("0@{}", cpus[0].id);
        let eal = Eal::init(&[&quiet[..], &["--lcores", &lcores]].concat()).expect("the EAL");
        let pool = |name| Mempool::new(&eal, name, 1023, -1).expect("a pool");
        (pool("received"), pool("made"))
    })
}

/// No routes but those to hosts, which are on a link.
#[derive(Debug)]
struct NoRoutes;

impl Lpm for NoRoutes {
    fn lookup4(&self, _: &[u32], _: &mut [u64]) {}
    fn lookup6(&self, _: &[[u8; 16]], _: &mut [u64]) {}
}

fn no_routes(_: &[(IpNet, Hop)]) -> anyhow::Result<Arc<dyn Lpm>> {
    Ok(Arc::new(NoRoutes))
}

fn host(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 2 + number as u8)
}

/// A packet for a host.
fn packet(to: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; 42];
    bytes[..6].copy_from_slice(&MAC.0);
    bytes[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
    (bytes[22], bytes[23]) = (64, 17);
    bytes[26..30].copy_from_slice(&[10, 1, 0, 200]);
    bytes[30..34].copy_from_slice(&to.octets());
    bytes
}

fn destination(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::from(*bytes[30..].first_chunk().expect("an IPv4 packet"))
}

/// What a host answers to a question for its address, if `question` is one.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let about = question.get(38..42).filter(|_| question[12..14] == [8, 6] && question[21] == 1)?;
    let its = [2, 0, 0, 0, 1, about[3]];
    let addresses = [&its[..], about, &question[22..32]].concat();
    Some([&question[6..12], &its, &question[12..21], &[2], &addresses].concat())
}

/// What has become of packets, counted by lcores.
#[derive(Debug, Default)]
struct Accounts {
    handed_over: u64,
    routed: u64,
    sent: u64,
}

thread_local! {
    static ACCOUNTS: RefCell<Accounts> = RefCell::default();
    /// Answers on their way to the switch.
    static ANSWERS: RefCell<Vec<Vec<u8>>> = RefCell::default();
}

/// An lcore's round: receives a packet for a host or an answer, and takes what comes back.
fn round(parts: &mut RouterParts, knows: &mut [bool; MOST_HOSTS]) {
    let number = draw(MOST_HOSTS);
    let to = IpAddr::from(host(number));
    let knows_it = parts.tables.load().neighbour(HOSTS, to).is_some();
    assert!(knows_it || !knows[number], "{to} was known and is not any more");
    knows[number] = knows_it;
    if !knows_it {
        hand_over(parts, &packet(host(number)), Task::Resolve(HOSTS, to));
    }
    let received = ANSWERS.with_borrow_mut(|all| (draw(2) == 0).then(|| all.pop()).flatten());
    if let Some(answer) = received {
        hand_over(parts, &answer, Task::Link);
    }
    let Some(from_slow) = &parts.rings.from_slow else { return };
    while let Ok(back) = from_slow.try_recv() {
        match back {
            Return::Route { packet, .. } => {
                // It waited for the host's address, which the switch has.
                let to = destination(packet.bytes());
                let known = parts.tables.load().neighbour(HOSTS, to.into()).is_some();
                assert!(known, "a packet for {to} comes back before its address is published");
                ACCOUNTS.with_borrow_mut(|of| of.routed += 1);
            }
            Return::Send { packet, .. } => {
                ACCOUNTS.with_borrow_mut(|of| of.sent += 1);
                let answer = answer(packet.bytes());
                ANSWERS.with_borrow_mut(|all| all.extend(answer));
            }
            Return::Free(_) => {}
        }
    }
}

fn hand_over(parts: &RouterParts, bytes: &[u8], task: Task) {
    let packet: Mbuf = pools().0.alloc_with(bytes).expect("room in the pool");
    let (port, arrived, origin) = (0, HOSTS, Origin::Host);
    if parts.rings.to_slow.hand_over(HandOver {
        packet,
        port,
        arrived,
        origin,
        task,
        generation: 0,
    }) {
        ACCOUNTS.with_borrow_mut(|of| of.handed_over += 1);
    }
}

fn schedule() {
    set_now_ns(1_000_000_000);
    ACCOUNTS.set(Accounts::default());
    ANSWERS.set(Vec::new());
    let config = Config::parse(CONFIG, "edge.toml").expect("a configuration");
    let macs = vec![MAC, Mac([2, 0xED, 0, 0, 0, 1])];
    let plan = config.plan(&macs).expect("a plan");
    let (counters, lcores) = (Arc::new(SlowCounters::default()), 1 + draw(2));
    let made = pools().1.clone();
    let (slow_thread, _routes, parts) =
        SlowThread::new(plan, macs, Box::new(no_routes), made, lcores, counters.clone())
            .expect("a slow path");
    let (stop, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (slow_thread, parts) = thread::scope(|scope| {
        let run_lcore = |mut parts: RouterParts| {
            let mut knows = [false; MOST_HOSTS];
            while !stop.load(Relaxed) {
                round(&mut parts, &mut knows);
                thread::yield_now();
            }
            parts
        };
        let lcores: Vec<_> =
            parts.into_iter().map(|parts| scope.spawn(move || run_lcore(parts))).collect();
        let slow = scope.spawn(move || {
            let mut slow_thread = slow_thread;
            while !over.load(Relaxed) {
                slow_thread.step(unix_ns());
                thread::yield_now();
            }
            slow_thread
        });
        for _ in 0..10 + draw(60) {
            set_now_ns(unix_ns() + draw(8_000_000) as u64);
            thread::yield_now();
        }
        stop.store(true, Relaxed);
        let parts: Vec<RouterParts> =
            lcores.into_iter().map(|of| of.join().expect("an lcore")).collect();
        over.store(true, Relaxed);
        (slow.join().expect("the slow path"), parts)
    });
    let left = parts.iter().filter_map(|of| of.rings.from_slow.as_ref());
    let left: Vec<Return<Mbuf>> = left.flat_map(|ring| ring.try_iter()).collect();
    let returned = left.iter().filter(|back| !matches!(back, Return::Free(_))).count();
    slow_thread.count_left_over(returned as u64);
    let Accounts { handed_over, routed, sent } = ACCOUNTS.take();
    let (taken, made) = (counters.taken.load(Relaxed), counters.made.load(Relaxed));
    let dropped = counters.dropped();
    assert_eq!(handed_over + made, routed + sent + taken + dropped, "{counters:?}");
    drop((slow_thread, parts, left));
    assert_eq!((pools().0.in_use(), pools().1.in_use()), (0, 0), "packets are lost");
}

#[test]
fn packets_that_waited_come_back_once_and_find_their_neighbour() {
    explore(schedule);
}
