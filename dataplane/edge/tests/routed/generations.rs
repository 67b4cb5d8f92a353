//! A burst is decided, recorded and handed over by one set of tables, whatever is published
//! meanwhile; and tables that could not be built are known to be missing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use calumma_edge::config::{Config, Role};
use calumma_edge::forward::config::Plan;
use calumma_edge::forward::counters::SlowCounters;
use calumma_edge::forward::decide::Task;
use calumma_edge::forward::exchange::{self, Origin};
use calumma_edge::forward::router::{Rings, Router};
use calumma_edge::forward::tables::{Hop, Lpm, NO_ROUTE, Publisher, Tables};
use calumma_edge::forward::thread::SlowThread;
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_plane::LcoreMerger;
use dpdk::{Burst, Mempool};
use ipnet::IpNet;

use crate::edge::{CONFIG, F0, eal, mac};
use crate::frames::Udp;

/// Where tables are published, and what is to be published as soon as somebody asks for a route.
type Due = Arc<Mutex<(Option<Publisher>, Option<Tables>)>>;

/// Finds the route of one network of IPv4 addresses.
struct Routes {
    routes: Vec<(IpNet, Hop)>,
    due: Due,
}

impl fmt::Debug for Routes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Routes")
    }
}

impl Lpm for Routes {
    fn lookup4(&self, addresses: &[u32], hops: &mut [u64]) {
        for (address, hop) in addresses.iter().zip(hops) {
            let address = IpAddr::from(Ipv4Addr::from(*address));
            let matching = self.routes.iter().filter(|(net, _)| net.contains(&address));
            let longest = matching.max_by_key(|(net, _)| net.prefix_len());
            *hop = longest.map_or(NO_ROUTE, |&(_, hop)| hop).into();
        }
        let (publisher, due) = &mut *self.due.lock().unwrap();
        if let Some((publisher, tables)) = publisher.as_mut().zip(due.take()) {
            publisher.publish(tables);
        }
    }

    fn lookup6(&self, _: &[[u8; 16]], _: &mut [u64]) {}
}

fn tables(plan: &Plan, due: &Due) -> Tables {
    let due = due.clone();
    let build = move |routes: &[(IpNet, Hop)]| -> anyhow::Result<Arc<dyn Lpm>> {
        Ok(Arc::new(Routes { routes: routes.to_vec(), due: due.clone() }))
    };
    Tables::new(plan, &build).unwrap()
}

/// What was a host's interface is one to the fabric by the new tables: by those, a packet that
/// waits there passes, and does not leave.
#[test]
fn what_waits_is_handed_over_with_the_number_of_the_tables_that_have_decided() {
    let config = Config::parse(CONFIG, "edge.toml").unwrap();
    let macs: Vec<_> = (0..config.ports.len()).map(mac).collect();
    let plan = config.plan(&macs).unwrap();
    let mut turned = plan.clone();
    turned.interfaces.rotate_left(2);
    let due = Due::default();
    let publisher = Publisher::new(tables(&plan, &due));
    let reader = publisher.reader();
    let mut new = tables(&turned, &due);
    new.generation = 1;
    *due.lock().unwrap() = (Some(publisher), Some(new));

    let (to_slow, from_lcore) = exchange::to_slow(config.ports.len());
    let rings = Rings { to_slow, from_slow: None };
    let mut router = Router::new(reader, rings, config.ports.len(), 7);
    let (_merger, mut mailboxes) = LcoreMerger::new(1);
    let mut worker = Worker::new(Policy::default(), Measurement::new(mailboxes.remove(0)));
    let pool = Mempool::new(eal(), "generations", 63, -1).unwrap();
    let frame = Udp::new("10.2.0.9", "10.1.0.77").frame(F0);
    for by in [(0, Origin::Left), (1, Origin::Passing(0))] {
        let mut burst = Burst::new();
        burst.push(pool.alloc_with(&frame).unwrap()).unwrap();
        router.receive(&mut worker, F0, Role::Fabric, &mut burst);
        let handed: Vec<_> = from_lcore.waiting().collect();
        let [handed] = &handed[..] else { panic!("{} are handed over", handed.len()) };
        assert_eq!(handed.task, Task::Resolve(0, "10.1.0.77".parse().unwrap()));
        assert_eq!((handed.generation, handed.origin), by);
    }
    // The tables know who publishes them.
    let published = std::mem::take(&mut *due.lock().unwrap());
    drop((published, router));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn routes_are_behind_until_tables_of_them_are_built() {
    let config = Config::parse(CONFIG, "edge.toml").unwrap();
    let macs: Vec<_> = (0..config.ports.len()).map(mac).collect();
    let plan = config.plan(&macs).unwrap();
    let has_memory = Arc::new(AtomicBool::new(true));
    let (there, due) = (has_memory.clone(), Due::default());
    let build = move |routes: &[(IpNet, Hop)]| -> anyhow::Result<Arc<dyn Lpm>> {
        anyhow::ensure!(there.load(Ordering::Relaxed), "no memory");
        Ok(Arc::new(Routes { routes: routes.to_vec(), due: due.clone() }))
    };
    let pool = Mempool::new(eal(), "behind", 63, -1).unwrap();
    let (build, counters) = (Box::new(build), Arc::<SlowCounters>::default());
    let made = SlowThread::new(plan.clone(), macs, build, pool, 1, counters);
    let (mut slow_thread, routes, mut parts) = made.unwrap();
    let tables = &mut parts[0].tables;
    let now_ns = calumma_edge::control::unix_ns();
    assert!(!routes.are_behind());
    for (number, is_there) in [(1, false), (2, false), (3, true), (4, false), (5, true)] {
        has_memory.store(is_there, Ordering::Relaxed);
        let before = tables.load().generation;
        routes.apply(plan.clone()).unwrap();
        assert!(routes.are_behind(), "nobody has built them yet");
        slow_thread.step(now_ns + number * 500_000);
        assert_eq!(routes.are_behind(), !is_there, "{number}");
        assert_eq!(tables.load().generation, before + u32::from(is_there), "{number}");
    }
}
