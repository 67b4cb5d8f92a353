//! An edge with two host ports and two fabric ports, taken apart: what goes in and comes out of its
//! router, and a slow path that works when it is told to.

use std::sync::{Arc, Mutex, OnceLock};

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_edge::config::{Config, Pmtu, Role};
use calumma_edge::forward::address::Mac;
use calumma_edge::forward::advice::Advice;
use calumma_edge::forward::config::Plan;
use calumma_edge::forward::counters::SlowCounters;
use calumma_edge::forward::lpm;
use calumma_edge::forward::router::Router;
use calumma_edge::forward::thread::{Routes, SlowThread};
use calumma_edge::lcore::exits::Exits;
use calumma_edge::measure::Measurement;
use calumma_edge::pools;
use calumma_edge::worker::Worker;
use dpdk::{Burst, Eal, Mbuf, Mempool};

/// Host ports 0 and 1, fabric ports 2 (untagged) and 3 (VLAN 100).
pub(crate) const CONFIG: &str = r#"
name = "e1"
controller = "127.0.0.1:9"
carrier = { kind = "tos" }
port = [
    { name = "h0", role = "host" },
    { name = "h1", role = "host" },
    { name = "f0", role = "fabric" },
    { name = "f1", role = "fabric" },
]

[forwarding]
mode = "routed"

[[forwarding.interface]]
port = "h0"
addresses = ["10.1.0.1/24", "fd00:1::1/64"]

[[forwarding.interface]]
port = "h1"
addresses = ["10.1.1.1/24", "fd00:1:1::1/64"]

[[forwarding.interface]]
port = "f0"
addresses = ["10.9.0.1/30", "fd00:9::1/64"]
mtu = 1400

[[forwarding.interface]]
port = "f1"
vlan = 100
addresses = ["10.9.1.1/30", "fd00:9:1::1/64"]

[[forwarding.route]]
to = "10.2.0.0/16"
via = ["10.9.0.2"]

[[forwarding.route]]
to = "10.3.0.0/16"
via = ["10.9.0.2", "10.9.1.2"]

[[forwarding.route]]
to = "fd00:2::/32"
via = ["fd00:9:1::2"]

[[forwarding.route]]
to = "10.66.0.0/16"
discard = true
"#;

/// Ports of the edge.
pub(crate) const H0: usize = 0;
pub(crate) const H1: usize = 1;
pub(crate) const F0: usize = 2;
pub(crate) const F1: usize = 3;

/// The address of one of the edge's ports.
pub(crate) fn mac(port: usize) -> Mac {
    Mac([2, 0xED, 0, 0, 0, port as u8])
}

/// DPDK, with ports whose transmit queue is their receive queue, and others that take packets away.
pub(crate) fn eal() -> &'static Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    EAL.get_or_init(|| {
        let lcores = format!("0@{}", core_affinity::get_core_ids().unwrap()[0].id);
        let quiet = ["--no-huge", "-m", "768", "--no-pci", "--no-shconf", "--no-telemetry"];
        let rings = ["--vdev=net_ring0", "--vdev=net_ring1"];
        let nulls =
            ["net_null0", "net_null1", "net_null2"].map(|of| format!("--vdev={of},no-rx=1"));
        let ports = rings.into_iter().chain(nulls.iter().map(String::as_str));
        let arguments = quiet.into_iter().chain(ports).chain(["--lcores", &lcores]);
        Eal::init(&arguments.collect::<Vec<_>>()).unwrap()
    })
}

/// A frame that was sent, and the port it left by.
pub(crate) type Sent = (usize, Vec<u8>);

pub(crate) struct Edge {
    pub(crate) worker: Worker,
    pub(crate) counters: Arc<SlowCounters>,
    pub(crate) routes: Routes,
    pub(crate) now_ns: u64,
    /// Packets that each port takes at a time.
    pub(crate) room: usize,
    /// What stacks say of its ports.
    pub(crate) exits: Exits,
    collector: LcoreGroups,
    config: Config,
    router: Router,
    slow_thread: SlowThread,
    links: Arc<Mutex<Vec<bool>>>,
    /// What ports receive into.
    pub(crate) pool: Mempool,
    slow_pool: Mempool,
    advice_pool: Mempool,
}

impl Edge {
    /// An edge; `name` is its mbuf pools', `changes` are made to [`CONFIG`].
    pub(crate) fn new(name: &str, changes: &[(&str, &str)]) -> Self {
        Self::with_mbufs(name, changes, |_| 4095)
    }

    /// The same with so many mbufs to receive into.
    pub(crate) fn with_mbufs(
        name: &str,
        changes: &[(&str, &str)],
        mbufs: impl Fn(&Config) -> u32,
    ) -> Self {
        let text = changes.iter().fold(CONFIG.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let config = Config::parse(&text, "edge.toml").unwrap();
        let macs: Vec<Mac> = (0..config.ports.len()).map(mac).collect();
        let plan = config.plan(&macs).unwrap();
        let pool = Mempool::new(eal(), name, mbufs(&config), -1).unwrap();
        let slow_pool = Mempool::new(eal(), &format!("{name} slow"), 1023, -1).unwrap();
        let advice_pool = pools::advice(eal(), &format!("{name} advice"), 1).unwrap();
        let counters = Arc::new(SlowCounters::default());
        let (slow_thread, routes, mut parts) = SlowThread::new(
            plan,
            macs,
            lpm::in_dpdk(eal()),
            slow_pool.clone(),
            1,
            counters.clone(),
        )
        .unwrap();
        let links = Arc::new(Mutex::new(vec![true; config.ports.len()]));
        let shown = links.clone();
        let slow_thread = slow_thread.watching(Box::new(move || shown.lock().unwrap().clone()));
        let parts = parts.remove(0);
        let exits = Exits::new(20..20 + config.ports.len() as u16);
        let router = Router::new(parts.tables, parts.rings, config.ports.len(), 7);
        let router = router.with_exits(exits.clone());
        let sinks = config.ports.iter().map(|port| port.host_sink).collect();
        let router = router.with_host_sinks(sinks);
        let router = match config.sketchint.pmtu {
            Pmtu::Advertise => router.with_advice(Advice::new(advice_pool.clone())),
            Pmtu::Off => router,
        };
        let (collector, mut mailboxes) = LcoreGroups::new(1);
        let worker = Worker::new(config.policy(), Measurement::new(mailboxes.remove(0)));
        let now_ns = calumma_edge::control::unix_ns();
        Self {
            worker,
            counters,
            routes,
            now_ns,
            room: usize::MAX,
            exits,
            collector,
            config,
            router,
            slow_thread,
            links,
            pool,
            slow_pool,
            advice_pool,
        }
    }

    /// Lets a port's link come or go, and the slow path notice.
    pub(crate) fn set_link(&mut self, port: usize, up: bool) -> Vec<Sent> {
        self.links.lock().unwrap()[port] = up;
        self.slow_path(0.05)
    }

    /// Measures from now on.
    pub(crate) fn begin(&mut self, plan: &SessionPlan) {
        self.collector.begin(plan).unwrap();
    }

    /// Lets time pass in the measurement up to `now_ns`; gives what is finished.
    pub(crate) fn advance_to(&mut self, now_ns: u64) -> Vec<Part> {
        self.worker.advance_to(now_ns);
        self.collector.poll()
    }

    /// Receives frames from a port; gives what is sent at once.
    pub(crate) fn receive(&mut self, port: usize, frames: &[Vec<u8>]) -> Vec<Sent> {
        let (sent, no_mbuf) = self.receive_what_has_room(port, frames);
        assert_eq!(no_mbuf, 0);
        sent
    }

    /// Receives frames from a port as far as there are mbufs; gives what is sent at once, and how
    /// many had none.
    pub(crate) fn receive_what_has_room(
        &mut self,
        port: usize,
        frames: &[Vec<u8>],
    ) -> (Vec<Sent>, usize) {
        let (mut sent, mut no_mbuf) = (Vec::new(), 0);
        for frames in frames.chunks(dpdk::BURST) {
            let mut burst = Burst::new();
            for frame in frames {
                match self.pool.alloc_with(frame) {
                    Some(mbuf) => burst.push(mbuf).unwrap(),
                    None => no_mbuf += 1,
                }
            }
            sent.extend(self.receive_burst(port, &mut burst));
        }
        (sent, no_mbuf)
    }

    /// Receives packets from a port; gives what is sent at once.
    pub(crate) fn receive_burst(&mut self, port: usize, burst: &mut Burst) -> Vec<Sent> {
        let role = self.config.ports[port].role;
        self.worker.received_by(port as u16);
        self.router.receive(&mut self.worker, port, role, burst);
        assert!(burst.is_empty());
        self.send()
    }

    /// What it forwards by, as its file says.
    pub(crate) fn plan(&self) -> Plan {
        self.config.plan(self.routes.macs()).unwrap()
    }

    /// Takes so many mbufs to receive into, as descriptors do.
    pub(crate) fn hold(&self, mbufs: usize) -> Vec<Mbuf> {
        (0..mbufs).map(|_| self.pool.alloc_with(&[]).unwrap()).collect()
    }

    /// Takes all mbufs that the slow path has for what it makes.
    pub(crate) fn hold_made(&self) -> Vec<Mbuf> {
        std::iter::from_fn(|| self.slow_pool.alloc()).collect()
    }

    /// Mbufs to receive into that are not free.
    pub(crate) fn in_use(&self) -> usize {
        self.pool.in_use() as usize
    }

    /// Lets the slow path look into its rings once, half a millisecond later, while the router
    /// takes nothing back.
    pub(crate) fn slow_path_alone(&mut self) {
        self.now_ns += 500_000;
        self.slow_thread.step(self.now_ns);
    }

    /// Lets the router take all that the slow path has given back; gives what is sent.
    pub(crate) fn take_back(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while self.router.take_return(&mut self.worker) {
            sent.extend(self.send());
        }
        sent
    }

    /// Lets the slow path work after `seconds`, and the router take what it gives back; gives what
    /// is sent.
    pub(crate) fn slow_path(&mut self, seconds: f64) -> Vec<Sent> {
        self.now_ns += (seconds * 1e9) as u64;
        let mut sent = Vec::new();
        // What comes back may need the slow path again, to find its next hop.
        for _ in 0..4 {
            // Neighbours are shown to lcores once in 10 ms.
            self.now_ns += 10_000_000;
            self.slow_thread.step(self.now_ns);
            sent.extend(self.take_back());
        }
        sent
    }

    /// Receives frames, lets the slow path work, and gives all that is sent.
    pub(crate) fn exchange(&mut self, port: usize, frames: &[Vec<u8>]) -> Vec<Sent> {
        let mut sent = self.receive(port, frames);
        sent.extend(self.slow_path(0.0));
        sent
    }

    fn send(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let now_ns = self.now_ns;
        self.router.send(
            &mut self.worker,
            || now_ns,
            |port, packets| {
                let mut all = packets.drain().collect::<Vec<_>>().into_iter();
                let accepted = all.by_ref().take(self.room);
                sent.extend(accepted.map(|mbuf| (port, mbuf.data().to_vec())));
                all.for_each(|refused| packets.push(refused).unwrap());
            },
        );
        sent
    }

    /// Whether the port faces hosts.
    pub(crate) fn is_host(&self, port: usize) -> bool {
        self.config.ports[port].role == Role::Host
    }

    /// A total by its name, or what there is at present.
    pub(crate) fn total(&self, name: &str) -> u64 {
        let present = self.counters.gauges().map(|(name, value)| (name.to_owned(), value));
        let named = self.worker.counters.named().into_iter().chain(self.counters.named());
        named.chain(present).find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}")).1
    }

    /// Checks that every packet is accounted for, on the lcore and in the slow path.
    pub(crate) fn check_conservation(&self) {
        let counters = &self.worker.counters;
        assert_eq!(
            counters.received() + counters.routed.returned,
            counters.transmitted + counters.dropped() + counters.routed.handed_over,
            "{counters:?}"
        );
        let slow: u64 = [
            "slow_path.returned",
            "slow_path.taken",
            "slow_path.waiting",
            "dropped.neighbour_unresolved",
            "dropped.link_down",
            "dropped.neighbour_queue_full",
            "dropped.returns_full",
            "dropped.stopped",
        ]
        .iter()
        .map(|name| self.total(name))
        .sum();
        let given = self.total("slow_path.handed_over") + self.total("slow_path.made");
        assert_eq!(given, slow, "{:?}", self.counters.named());
    }

    /// Stops, and checks that every mbuf is back.
    pub(crate) fn stop(self) {
        self.check_conservation();
        let Self { router, slow_thread, pool, slow_pool, advice_pool, .. } = self;
        slow_thread.count_left_over(router.left_over());
        drop((router, slow_thread));
        let in_use = [pool, slow_pool, advice_pool].map(|pool| pool.in_use());
        assert_eq!(in_use, [0; 3], "no mbuf is lost");
    }

    /// Lets the neighbours of both fabric ports and a host on each host port say where they are.
    pub(crate) fn acquaint(&mut self) {
        use crate::frames::{arp_reply, neighbour_advertisement, station};
        self.slow_path(0.2);
        for (port, v4, v6, vlan) in
            [(F0, "10.9.0.2", "fd00:9::2", None), (F1, "10.9.1.2", "fd00:9:1::2", Some(100))]
        {
            let mac_of = station(port as u8);
            self.exchange(port, &[arp_reply(mac_of, v4, mac(port), vlan)]);
            self.exchange(port, &[neighbour_advertisement(mac_of, v6, mac(port), vlan)]);
        }
        for (port, v4, v6) in [(H0, "10.1.0.2", "fd00:1::2"), (H1, "10.1.1.2", "fd00:1:1::2")] {
            let host = station(port as u8);
            self.exchange(port, &[crate::frames::arp_request(host, v4, &gateway4(port))]);
            self.exchange(
                port,
                &[crate::frames::neighbour_solicitation(host, v6, &gateway6(port))],
            );
        }
        // What was asked for unasked-for neighbours is of no interest here.
        self.slow_path(0.0);
    }
}

fn gateway4(port: usize) -> String {
    format!("10.1.{port}.1")
}

fn gateway6(port: usize) -> String {
    if port == H0 { "fd00:1::1".to_owned() } else { "fd00:1:1::1".to_owned() }
}
