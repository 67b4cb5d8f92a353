//! Puts forwarding by routes together when the switch starts, and takes it apart when it stops.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use calumma_cpus::Cpus;
use dpdk::{Eal, Mempool, Port};

use super::address::Mac;
use super::advice::Advice;
use super::config::Mode;
use super::counters::SlowCounters;
use super::router::Router;
use super::thread::{RouterParts, Routes, SlowThread};
use super::{links, lpm};
use crate::config::{Config, Pmtu};
use crate::lcore::exits::Exits;
use crate::pools;

/// Forwarding by routes, under way; or nothing, between port pairs.
#[derive(Default)]
pub struct Forwarding {
    running: Option<Running>,
}

struct Running {
    routes: Routes,
    counters: Arc<SlowCounters>,
    pools: Vec<Mempool>,
    thread: JoinHandle<SlowThread>,
}

impl Forwarding {
    /// Begins to forward as `config` says, on these ports, of which INT stacks say this; gives each
    /// lcore's router as well; none between port pairs. The slow path has a thread on `cpus`, which
    /// runs until `over` is set.
    ///
    /// # Errors
    /// When there is no memory for the routes, a port has no Ethernet address, or the system has no
    /// thread left.
    pub fn start(
        eal: &Eal,
        config: &Config,
        (ports, exits): (&[Port], &Exits),
        lcores: usize,
        cpus: &Cpus,
        over: &Arc<AtomicBool>,
    ) -> anyhow::Result<(Self, Option<Vec<Router>>)> {
        if config.forwarding.mode == Mode::Pairs {
            return Ok((Self::default(), None));
        }
        let macs = ports.iter().map(|port| port.mac().map(Mac)).collect::<Result<Vec<_>, _>>()?;
        let plan = config.plan(&macs)?;
        let pool = Mempool::new(eal, "slow path", pools::to_make(config), -1)?;
        let for_advice = match config.sketchint.pmtu {
            Pmtu::Advertise => Some(pools::advice(eal, "advice", lcores)?),
            Pmtu::Off => None,
        };
        let counters = Arc::new(SlowCounters::default());
        let build = lpm::in_dpdk(eal);
        let (slow_thread, routes, parts) =
            SlowThread::new(plan, macs, build, pool.clone(), lcores, counters.clone())?;
        let seed = seed(&config.name);
        let sinks: Vec<bool> = config.ports.iter().map(|port| port.host_sink).collect();
        let router = |RouterParts { tables, rings }| {
            let router = Router::new(tables, rings, ports.len(), seed);
            let router = router.with_host_sinks(sinks.clone()).with_exits(exits.clone());
            match &for_advice {
                Some(pool) => router.with_advice(Advice::new(pool.clone())),
                None => router,
            }
        };
        let routers: Vec<Router> = parts.into_iter().map(router).collect();
        let pools = std::iter::once(pool).chain(for_advice).collect();
        let slow_thread = slow_thread.watching(links::of_ports(ports));
        let over = over.clone();
        let thread = cpus.spawn("slow-path", move || slow_thread.run(&over))?;
        let running = Running { routes, counters, pools, thread };
        Ok((Self { running: Some(running) }, Some(routers)))
    }

    /// Where routes can be changed.
    pub fn routes(&self) -> Option<Routes> {
        self.running.as_ref().map(|running| running.routes.clone())
    }

    /// What the slow path counts.
    pub fn counters(&self) -> Option<Arc<SlowCounters>> {
        self.running.as_ref().map(|running| running.counters.clone())
    }

    /// Waits for the slow path to end, counts what is still between it and the lcores' `routers`,
    /// and gives its totals and the pools beside that to receive into.
    pub fn finish(self, routers: &[Router]) -> (Vec<(String, u64)>, Vec<Mempool>) {
        let Some(Running { counters, pools, thread, .. }) = self.running else {
            return (Vec::new(), Vec::new());
        };
        if let Ok(slow_thread) = thread.join() {
            slow_thread.count_left_over(routers.iter().map(Router::left_over).sum());
        }
        (counters.named(), pools)
    }
}

/// A number that differs from switch to switch, and is the same each time a switch starts.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
