//! What an lcore's work on a burst costs, from what a port has received to what a port has taken:
//! between port pairs, and by routes. The same code as in a switch, on real mbufs and ports of
//! net_null; only receiving is left out.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use calumma_edge::carrier::Carrier;
use calumma_edge::config::{Config, Role};
use calumma_edge::forward::address::Mac;
use calumma_edge::forward::counters::SlowCounters;
use calumma_edge::forward::lpm;
use calumma_edge::forward::router::Router;
use calumma_edge::forward::thread::SlowThread;
use calumma_edge::lcore::PortQueues;
use calumma_edge::lcore::emptied::Emptied;
use calumma_edge::lcore::forwarder::{Forwarder, Pairs};
use calumma_edge::worker::Worker;
use calumma_plane::arrival::Polls;
use calumma_sketch::{BURST, FlowKey};
use dpdk::{Burst, Eal, Mempool, Port, PortConfig};

use super::stages;
use crate::measure::{self, Case};
use crate::workload;

/// Packets of a reading.
const PACKETS: usize = 2_000_000;

/// Ports of a case: packets come from the first and leave by the second.
const PORTS: usize = 2;

/// Mbufs of a case: what an lcore keeps at hand, and more than a burst.
const MBUFS: u32 = 1023;

/// A router between 10.1.0.0/16, whose packets are sent on to 10.101.0.0/16.
const ROUTED: &str = r#"
name = "e1"
controller = "127.0.0.1:9"
carrier = { kind = "tos" }
port = [{ name = "hosts", role = "host" }, { name = "fabric", role = "fabric" }]
[forwarding]
mode = "routed"
[[forwarding.interface]]
port = "hosts"
addresses = ["10.1.0.1/16"]
[[forwarding.interface]]
port = "fabric"
addresses = ["10.9.0.1/30"]
[[forwarding.route]]
to = "10.101.0.0/16"
via = ["10.9.0.2"]
[[forwarding.neighbour]]
address = "10.9.0.2"
mac = "02:00:00:00:00:09"
"#;

/// Where the packets are sent to.
const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// DPDK with the ports that the cases need.
///
/// # Errors
/// When it can't be started.
pub fn eal() -> Result<Eal> {
    let cpu = workload::first_cpu().context("finding a CPU for DPDK")?;
    let ports: Vec<String> =
        (0..2 * PORTS).map(|port| format!("--vdev=net_null{port},no-rx=1")).collect();
    let fixed = ["--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--no-telemetry", "-l"];
    let ports = ports.iter().map(String::as_str);
    let arguments: Vec<&str> = fixed.into_iter().chain([&*cpu]).chain(ports).collect();
    Eal::init(&arguments).context("starting DPDK")
}

/// Nanoseconds a packet of 64 bytes of 100,000 flows, Zipf 1.1, with everything measured: between
/// port pairs, by routes, and what the second costs more than the first. Bursts take turns, and a
/// reading is that of the middle burst, so that interruptions don't count.
///
/// # Errors
/// When a port can't be opened, or there is no memory for the routes.
pub fn forwarding(eal: &Eal) -> Result<Vec<Case<'static>>> {
    let keys: Arc<[FlowKey]> = workload::zipf(100_000, PACKETS, 1.1, 5).into();
    let pairs = Lcore::new(eal, "pairs", Pairs::default())?;
    let (router, slow_thread) = router(eal)?;
    let routed = Lcore::new(eal, "routed", router)?;
    let both = std::cell::RefCell::new((pairs, routed, slow_thread));
    let both = std::rc::Rc::new(both);
    let case = |name: &str, read: fn(f64, f64) -> f64| {
        let (keys, both) = (keys.clone(), both.clone());
        Case::new(name, "ns/packet", move || {
            let (pairs, routed, _) = &mut *both.borrow_mut();
            let turn = |keys: &[FlowKey]| (pairs.forward(keys), routed.forward(keys));
            let (of_pairs, of_routed) = keys.chunks_exact(BURST).map(turn).unzip();
            read(middle(of_pairs), middle(of_routed))
        })
    };
    Ok(vec![
        case("edge.stage.pairs.ns", |pairs, _| pairs),
        case("edge.stage.routed.ns", |_, routed| routed),
        case("edge.stage.routing.ns", |pairs, routed| routed - pairs),
    ])
}

/// Nanoseconds a packet of the middle one of bursts that took so many cycles of the time stamp
/// counter each.
pub(super) fn middle(mut bursts: Vec<u64>) -> f64 {
    let at = bursts.len() / 2;
    let (_, middle, _) = bursts.select_nth_unstable(at);
    *middle as f64 / measure::tsc_per_nano() / BURST as f64
}

/// A router with routes and neighbours, and the slow path that has published them.
fn router(eal: &Eal) -> Result<(Router, SlowThread)> {
    let config = Config::parse(ROUTED, "a router")?;
    let macs = vec![ROUTER, Mac([2, 0, 0, 0, 0, 2])];
    let plan = config.plan(&macs)?;
    let pool = Mempool::new(eal, "slow path", MBUFS, -1)?;
    let counters = Arc::new(SlowCounters::default());
    let (mut slow_thread, _, mut parts) =
        SlowThread::new(plan, macs, lpm::in_dpdk(eal), pool, 1, counters)?;
    slow_thread.step(calumma_edge::control::unix_ns());
    let parts = parts.pop().context("an lcore's part")?;
    Ok((Router::new(parts.tables, parts.rings, PORTS, 7), slow_thread))
}

/// An lcore between two ports, in the middle of an epoch.
struct Lcore<F> {
    worker: Worker,
    ports: Vec<PortQueues>,
    forwarder: F,
    pool: Mempool,
    burst: Burst,
}

impl<F: Forwarder> Lcore<F> {
    fn new(eal: &Eal, name: &str, forwarder: F) -> Result<Self> {
        let pool = Mempool::new(eal, name, MBUFS, -1)?;
        let free = Port::names(eal).into_iter();
        let mut ports = Vec::new();
        for (at, role) in [Role::Host, Role::Fabric].into_iter().enumerate() {
            // Those that another case has opened are refused.
            let open = |name: String| Port::open(eal, &name, PortConfig::default(), &pool).ok();
            let (_, mut queues) = free.clone().find_map(open).context("a free port")?;
            let (rx, tx) = queues.pop().context("a queue")?;
            ports.push(PortQueues {
                rx,
                tx,
                number: at as u16,
                role,
                host_sink: false,
                peer: 1 - at,
                polls: Polls::default(),
                emptied: Emptied::by("net_null"),
                mtu: 1500,
            });
        }
        let worker = stages::measuring_worker(Carrier::default());
        Ok(Self { worker, ports, forwarder, pool, burst: Burst::new() })
    }

    /// Forwards a burst with a packet of each key; gives the cycles of the time stamp counter that
    /// this took.
    fn forward(&mut self, keys: &[FlowKey]) -> u64 {
        // Written as a whole, as a port does: what is read at once must not lie in pieces.
        let mut frames = [[0; 64]; BURST];
        frames.iter_mut().zip(keys).for_each(|(arriving, key)| *arriving = frame(key));
        for frame in &frames[..keys.len()] {
            if let Some(mbuf) = self.pool.alloc_with(std::hint::black_box(frame)) {
                let _ = self.burst.push(mbuf);
            }
        }
        let received = dpdk::tsc();
        // As an lcore does with what it has received.
        self.burst.prefetch();
        self.forwarder.forward(&mut self.worker, &self.ports, 0, &mut self.burst);
        self.forwarder.flush(&mut self.worker, &mut self.ports, 0, &mut self.burst, 0, || 0);
        dpdk::tsc() - received
    }
}

/// A UDP packet to the router, from one of 4,096 hosts to one of as many.
fn frame(key: &FlowKey) -> [u8; 64] {
    let host = |network: u8, word: u32| {
        Ipv4Addr::from(u32::from_be_bytes([10, network, 0, 2]) + (word & 0xFFF))
    };
    let (from, to) = (host(1, key.src_word()), host(101, key.dst_word()));
    let mut frame = stages::frame(&FlowKey::v4(from, to, key.sport(), key.dport(), 17)).0;
    frame[..6].copy_from_slice(&ROUTER.0);
    let sum = calumma_plane::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_forward_and_record_every_packet() {
        let eal = eal().unwrap();
        let keys = workload::keys(BURST, 1);
        let mut pairs = Lcore::new(&eal, "pairs", Pairs::default()).unwrap();
        let (router, _slow_thread) = router(&eal).unwrap();
        let mut routed = Lcore::new(&eal, "routed", router).unwrap();
        assert!(pairs.forward(&keys) > 0 && routed.forward(&keys) > 0);
        for counters in [pairs.worker.counters, routed.worker.counters] {
            let packets = BURST as u64;
            assert_eq!((counters.ingress_recorded, counters.transmitted), (packets, packets));
        }
    }
}
