//! A network in miniature with the planner in its loop: real groups measure synthetic flows, the
//! real analyser decodes them, and what is planned from epoch e takes effect in e + 2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calumma_chamelemon::{Attention, EgressGroup, IngressGroup, Layout};
use calumma_chamelemon_analysis::attention::{Bounds, Observation, Plan, Planner};
use calumma_chamelemon_analysis::report::{DecodeState, EpochReport, NetworkState};
use calumma_chamelemon_analysis::{Analyser, EdgeInput, EpochInput, Tasks};
use calumma_epoch::{EpochClock, Guards, Timeline};
use calumma_sketch::{FlowKey, HashFamily, HashKey, Key, KeyKind, WideKey};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// Flow sizes: packets and the share of flows that have no more.
pub(crate) type Sizes = &'static [(u32, f64)];

/// Flow sizes shaped like those of the DCTCP paper's web search, in fewer packets so that a test
/// has time for them.
pub(crate) const DCTCP: Sizes = &[
    (7, 0.15),
    (10, 0.20),
    (14, 0.30),
    (18, 0.40),
    (24, 0.53),
    (32, 0.60),
    (50, 0.70),
    (70, 0.80),
    (100, 0.90),
    (160, 1.00),
];

/// Flow sizes of a cache: nearly all flows are mice.
pub(crate) const CACHE: Sizes =
    &[(1, 0.55), (2, 0.80), (3, 0.86), (6, 0.90), (20, 0.95), (60, 0.99), (300, 1.0)];

/// What the network carries in an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) sizes: Sizes,
    /// Flows of all edges.
    pub(crate) flows: u32,
    /// Share of them that lose packets: each 1 to 20 % of its own, and at least one.
    pub(crate) victims: f64,
}

/// A closed loop.
pub(crate) struct Network {
    pub(crate) layout: Layout,
    analyser: Analyser,
    planner: Planner,
    timeline: Timeline<Attention>,
    standing: Attention,
    epoch: u64,
    edges: u32,
    rng: StdRng,
}

/// An epoch of the loop: what was reported of it, and planned from it.
pub(crate) struct Step {
    pub(crate) report: EpochReport,
    pub(crate) plan: Plan,
}

/// Flows whose packets are mixed.
const AT_A_TIME: usize = 2500;

/// What a flow is to the network.
struct Flow<K> {
    key: K,
    from: usize,
    to: usize,
    packets: u32,
    lost: u32,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let layout = Layout::default();
        let attention = Attention::healthy(&layout, 512);
        Self::with(seed, layout.clone(), Bounds::of(&layout), attention)
    }

    pub(crate) fn with(seed: u64, layout: Layout, bounds: Bounds, attention: Attention) -> Self {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        // By these functions hardly any epoch of the stories has flows that share all buckets.
        let hash_key = HashKey::with_public_generators([seed as u8; 32]);
        Self {
            analyser: Analyser::new(layout.clone(), &hash_key, clock, Tasks::default()),
            planner: Planner::new(layout.clone(), bounds).unwrap(),
            layout,
            timeline: Timeline::new(attention),
            standing: attention,
            epoch: 1000,
            edges: 4,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// One epoch with this traffic: new flows, packets in any order.
    pub(crate) fn step(&mut self, traffic: &Traffic) -> Step {
        let epoch = self.epoch;
        self.epoch += 1;
        let attention = self.timeline.freeze(epoch);
        let edges = match self.layout.keys {
            KeyKind::Ipv4 => self.measure::<FlowKey>(traffic, attention, epoch),
            KeyKind::Dual => self.measure::<WideKey>(traffic, attention, epoch),
        };
        let decoder = self.analyser.decoder().clone();
        let decoded = decoder.decode(EpochInput { epoch, planned: attention, edges });
        let plan = {
            let observation = Observation::of(&decoded).unwrap();
            self.planner.next(&observation, &self.standing)
        };
        let report = self.analyser.report(decoded);
        assert!(report.complete, "{:?}", report.incomplete_because);
        assert_eq!(plan.attention.validate(&self.layout), Ok(()), "{plan:?}");
        assert_eq!(plan.reasons.is_empty(), plan.attention == self.standing, "{plan:?}");
        if plan.attention != self.standing {
            self.timeline.change(epoch + 2, plan.attention).unwrap();
            self.standing = plan.attention;
        }
        Step { report, plan }
    }

    /// Several epochs of the same traffic.
    pub(crate) fn run(&mut self, traffic: &Traffic, epochs: usize) -> Vec<Step> {
        (0..epochs).map(|_| self.step(traffic)).collect()
    }

    fn measure<K: Key>(
        &mut self,
        traffic: &Traffic,
        attention: Attention,
        epoch: u64,
    ) -> Vec<EdgeInput> {
        let family: &HashFamily = &self.analyser.decoder().keys().at(epoch).family.clone();
        let flows: Vec<Flow<K>> = self.flows(traffic);
        let edges = self.edges as usize;
        let ingress = IngressGroup::new(&self.layout, attention, epoch).unwrap();
        let egress = EgressGroup::new(&self.layout, attention).unwrap();
        let mut groups = vec![((ingress, 0u64), (egress, 0u64)); edges];
        let hashes: Vec<_> = flows.iter().map(|flow| family.hash(&flow.key)).collect();
        let mut left: Vec<_> = flows.iter().map(|flow| (flow.packets, flow.lost)).collect();
        for at in order(&flows, &mut self.rng) {
            let (flow, hashes) = (&flows[at], &hashes[at]);
            let (ingress, entered) = &mut groups[flow.from].0;
            let hierarchy = ingress.record(&flow.key, hashes);
            *entered += 1;
            let (packets, lost) = &mut left[at];
            if *lost > 0 && self.rng.random_range(0..*packets) < *lost {
                *lost -= 1;
            } else {
                let (egress, passed) = &mut groups[flow.to].1;
                assert!(egress.record(&flow.key, hashes, hierarchy));
                *passed += 1;
            }
            *packets -= 1;
        }
        let input = |(at, ((ingress, entered), (egress, passed))): (usize, &_)| {
            let name = format!("e{at}");
            EdgeInput::from_groups(name, epoch, (ingress, *entered), (egress, *passed))
        };
        groups.iter().enumerate().map(input).collect()
    }

    fn flows<K: Key>(&mut self, traffic: &Traffic) -> Vec<Flow<K>> {
        let rng = &mut self.rng;
        let wanted = (f64::from(traffic.flows) * traffic.victims).round() as u32;
        let edges = self.edges;
        let flow = |number: u32| {
            let packets = draw(traffic.sizes, rng.random());
            // Victims are spread evenly over the epoch.
            let share =
                |number: u32| u64::from(number) * u64::from(wanted) / u64::from(traffic.flows);
            let victim = share(number) < share(number + 1);
            let rate = rng.random_range(0.01..0.20);
            let lost = (f64::from(packets) * rate).round().max(1.0) as u32;
            let from = rng.random_range(0..edges);
            let to = (from + rng.random_range(1..edges)) % edges;
            let host = rng.random_range(2..34);
            let (src, dst) = (0x0A00_0000 | from << 16 | host, 0x0A00_0002 | to << 16);
            let key = key(src, dst, rng.random());
            let lost = if victim { lost } else { 0 };
            Flow { key, from: from as usize, to: to as usize, packets, lost }
        };
        (0..traffic.flows).map(flow).collect()
    }
}

/// A TCP flow between two hosts; where keys hold it, every second one is IPv6.
fn key<K: Key>(src: u32, dst: u32, ports: u32) -> K {
    let (sport, dport) = ((ports >> 16) as u16, ports as u16);
    let address = |host: u32| -> IpAddr {
        match K::KIND == KeyKind::Dual && ports % 2 == 1 {
            true => Ipv6Addr::from_bits(0xFD00 << 112 | u128::from(host)).into(),
            false => Ipv4Addr::from_bits(host).into(),
        }
    };
    K::new(address(src), address(dst), sport, dport, 6).expect("a flow that these keys hold")
}

/// The flows that the packets belong to, as they come: any order among those that flow at a time.
fn order<K>(flows: &[Flow<K>], rng: &mut StdRng) -> Vec<usize> {
    let mut order = Vec::new();
    for (first, flows) in flows.chunks(AT_A_TIME).enumerate() {
        let begin = order.len();
        for (at, flow) in flows.iter().enumerate() {
            order.extend(std::iter::repeat_n(first * AT_A_TIME + at, flow.packets as usize));
        }
        order[begin..].shuffle(rng);
    }
    order
}

/// The size at this share of all flows, evenly between the points given.
fn draw(sizes: Sizes, share: f64) -> u32 {
    let (mut size, mut below) = (0, 0.0);
    for &(to, up_to) in sizes {
        if share <= up_to {
            let between = (share - below) / (up_to - below);
            return size + (between * f64::from(to - size)).ceil().max(1.0) as u32;
        }
        (size, below) = (to, up_to);
    }
    size
}

impl Step {
    /// Whether all that was to be decoded was.
    pub(crate) fn decoded(&self) -> bool {
        let report = &self.report;
        let delta = [report.decode.hl, report.decode.ll];
        report.edges.iter().all(|edge| edge.hh_decode == DecodeState::Complete)
            && delta.iter().all(|s| matches!(s, DecodeState::Complete | DecodeState::Absent))
    }

    /// Flows that were decoded of the upstream encoder of the fullest edge and of the network's
    /// losses: what figures 7 (b) and 8 (b) of the paper add up.
    pub(crate) fn flows_decoded(&self) -> f64 {
        let report = &self.report;
        let config = report.config;
        let flows =
            |load: Option<f64>, buckets: u32| load.unwrap_or(0.0) * 3.0 * f64::from(buckets);
        flows(Some(self.hh_load()), config.hh_buckets)
            + flows(report.decode.hl_load_factor, config.hl_buckets)
            + flows(report.decode.ll_load_factor, config.ll_buckets)
    }

    /// Load factor of the fullest edge's HH encoder.
    pub(crate) fn hh_load(&self) -> f64 {
        self.report.edges.iter().filter_map(|edge| edge.hh_load_factor).fold(0.0, f64::max)
    }

    pub(crate) fn is_ill(&self) -> bool {
        self.report.state == NetworkState::Ill
    }

    /// One line for who reads the test's output.
    pub(crate) fn show(&self) -> String {
        let report = &self.report;
        let c = &report.config;
        format!(
            "{} {:?} hh/hl/ll {}/{}/{} T_h {} T_l {} R {:.3} loads {:.3} {:.3} {:.3} decoded {} {:.0} {}",
            report.epoch,
            report.state,
            c.hh_buckets,
            c.hl_buckets,
            c.ll_buckets,
            c.t_h,
            c.t_l,
            c.sample_rate,
            self.hh_load(),
            report.decode.hl_load_factor.unwrap_or(f64::NAN),
            report.decode.ll_load_factor.unwrap_or(f64::NAN),
            self.decoded(),
            self.flows_decoded(),
            self.plan.reasons.join("; "),
        )
    }
}
