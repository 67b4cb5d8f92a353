//! One epoch of a network of edges, as the groups that measured it.

use calumma_chamelemon::frames::{Defects, Egress, EgressSide, Ingress, IngressSide, Message};
use calumma_chamelemon::{Attention, EgressGroup, IngressGroup, Layout, Partition, SampleRate};
use calumma_sketch::{FermatSketch, FlowKey, HashFamily, HashKey};
use calumma_wire as wire;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::workload;

/// Packets of the smallest flow that is a heavy-hitter candidate where not all flows are.
const LARGE: u32 = 8;

/// The paper's load factor at its upper end.
pub const LOAD: f64 = 0.7;

/// What the hashes are drawn from.
pub const HASH_KEY: [u8; 32] = [7; 32];

/// Keys of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Of a data centre: 250 hosts behind each edge, sixteen services, ephemeral ports.
    Hosts,
    /// Without any structure: the least that can be packed.
    Random,
}

/// A network's edges at the paper's sizes, after an epoch in which a flow in a hundred lost a
/// packet, but no more than fill the delta HL encoder to [`LOAD`].
#[derive(Debug)]
pub struct Network {
    /// Memory of the switches.
    pub layout: Layout,
    /// What they measured under.
    pub attention: Attention,
    /// Victim flows.
    pub victims: usize,
    edges: Vec<Edge>,
    family: HashFamily,
}

#[derive(Debug)]
struct Edge {
    ingress: IngressGroup,
    packets_in: u64,
    egress: EgressGroup,
    packets_out: u64,
    hh_flows: Vec<(FlowKey, i64)>,
}

impl Network {
    /// `flows` flows enter at each of `edges` edges. Where they are more than fill the HH encoder,
    /// just as many of them are large, and T_h is set between the two.
    pub fn measure(edges: usize, flows: usize, keys: Keys) -> Self {
        let layout = Layout::default();
        let partition = Partition { hh: layout.upstream_buckets - 512, hl: 512, ll: 0 };
        let room = (LOAD * 3.0 * f64::from(partition.hh)) as usize;
        let (t_h, large) =
            if flows <= room { (1, flows) } else { (LARGE, large(flows, room, &layout)) };
        let attention = Attention { t_h, t_l: 1, sample_rate: SampleRate::ALL, partition };
        let family = HashFamily::new(&HashKey::from_bytes(HASH_KEY));
        let mut network: Vec<Edge> = (0..edges)
            .map(|_| Edge {
                ingress: IngressGroup::new(&layout, attention, 0).expect("a valid layout"),
                packets_in: 0,
                egress: EgressGroup::new(&layout, attention).expect("a valid layout"),
                packets_out: 0,
                hh_flows: Vec::new(),
            })
            .collect();
        let victims = (edges * flows / 100).min((LOAD * 3.0 * 512.0) as usize);
        let every = edges * flows / victims.max(1);
        let mut rng = StdRng::seed_from_u64(5);
        let random = workload::keys(edges * flows, 6);
        let mut seen = std::collections::HashSet::new();
        for flow in 0..edges * flows {
            let from = flow % edges;
            let to = (from + 1 + rng.random_range(0..(edges - 1).max(1))) % edges;
            let key = match keys {
                Keys::Random => random[flow],
                Keys::Hosts => std::iter::repeat_with(|| hosts_key(from, to, &mut rng))
                    .find(|&key| seen.insert(key))
                    .expect("there are more keys than flows"),
            };
            // Pareto above the threshold: most are small, some have thousands of packets.
            let packets = if flow / edges < large {
                (f64::from(LARGE) / rng.random_range(0.002..1.0)) as u32
            } else {
                rng.random_range(1..=3)
            };
            let lost = u32::from(flow % every == 0 && flow / every < victims);
            let hashes = family.hash(&key);
            for packet in 0..packets {
                let hierarchy = network[from].ingress.record(&key, &hashes);
                network[from].packets_in += 1;
                if packet >= lost {
                    network[to].egress.record(&key, &hashes, hierarchy);
                    network[to].packets_out += 1;
                }
            }
        }
        for edge in &mut network {
            let hh = edge.ingress.upstream().part(&partition.hh_part()).decode(&family);
            assert!(hh.is_complete(), "the HH encoder is filled to {LOAD} at most");
            edge.hh_flows = hh.flows().to_vec();
        }
        Self { layout, attention, victims, edges: network, family }
    }

    /// The deployment's hash functions.
    pub fn family(&self) -> &HashFamily {
        &self.family
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// An edge's HH flowset.
    pub fn hh_flows(&self, edge: usize) -> &[(FlowKey, i64)] {
        &self.edges[edge].hh_flows
    }

    /// An edge's upstream encoder.
    pub fn upstream(&self, edge: usize) -> &FermatSketch {
        self.edges[edge].ingress.upstream()
    }

    /// An edge's downstream encoder.
    pub fn downstream(&self, edge: usize) -> &FermatSketch {
        self.edges[edge].egress.downstream()
    }

    fn ingress_side(&self, edge: usize, epoch: u64) -> IngressSide<'_, FlowKey> {
        let Edge { ingress, packets_in, .. } = &self.edges[edge];
        let side = IngressSide::of_group(epoch, ingress, *packets_in, Defects::default());
        IngressSide { attention: &self.attention, ..side }
    }

    fn egress_side(&self, edge: usize, epoch: u64) -> EgressSide<'_, FlowKey> {
        let Edge { egress, packets_out, .. } = &self.edges[edge];
        let side = EgressSide::of_group(epoch, egress, *packets_out, Defects::default());
        EgressSide { attention: &self.attention, ..side }
    }

    /// An edge's ingress side as a controller has it that decodes it itself.
    pub fn ingress(&self, edge: usize, epoch: u64) -> Ingress {
        self.ingress_side(edge, epoch).to_ingress()
    }

    /// An edge's egress side.
    pub fn egress(&self, edge: usize, epoch: u64) -> Egress {
        self.egress_side(edge, epoch).to_egress()
    }

    /// The frames of an edge's ingress side, egress side and seal, as the edge switch sends them.
    pub fn frames(&self, edge: usize, epoch: u64) -> [Vec<u8>; 3] {
        let ingress = self.ingress_side(edge, epoch).to_wire(Some(&self.edges[edge].hh_flows));
        let egress = self.egress_side(edge, epoch).to_wire();
        let sealed = Message::Sealed { epoch, late_packets: 0, late: Vec::new() }.to_wire();
        let sides = [ingress, egress].map(|side| wire::Message::Side(Box::new(side)));
        let [ingress, egress] = sides;
        [ingress, egress, sealed].map(|message| {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            frame
        })
    }

    /// Bytes of an edge's groups as they lie in a switch: counters and buckets, none left out.
    pub fn raw_bytes(&self) -> usize {
        let classifier: usize = self.layout.classifier.iter().map(|level| level.bytes()).sum();
        let buckets = self.layout.upstream_shape().total_buckets()
            + self.layout.downstream_shape().total_buckets();
        classifier + buckets * self.layout.bucket_words() * 4
    }
}

/// How many of `flows` flows may be large so that `room` of them are heavy-hitter candidates: a
/// small flow is one as well where it shares its counter with a large one in every array.
fn large(flows: usize, room: usize, layout: &Layout) -> usize {
    let shared = |large: usize| -> f64 {
        let arrays = layout.classifier.iter();
        arrays.map(|level| 1.0 - (-(large as f64) / f64::from(level.counters)).exp()).product()
    };
    let candidates = |large: usize| large as f64 + shared(large) * (flows - large) as f64;
    (0..room).rev().find(|&large| candidates(large) <= room as f64).unwrap_or(0)
}

fn hosts_key(from: usize, to: usize, rng: &mut StdRng) -> FlowKey {
    let mut host = |edge: usize| 0x0A00_0000 | (edge as u32) << 8 | rng.random_range(2..252_u32);
    let (src, dst) = (host(from), host(to));
    let client: u32 = rng.random_range(32_768..61_000);
    let service: u32 = 5000 + 37 * rng.random_range(0..16);
    let other: u32 = if rng.random_bool(0.5) { service } else { rng.random_range(32_768..61_000) };
    let ports = if rng.random_bool(0.5) { client << 16 | other } else { other << 16 | client };
    FlowKey::from_words(src, dst, ports, if rng.random_bool(0.9) { 6 } else { 17 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_network_is_measured_exactly_and_a_large_one_by_its_large_flows() {
        let small = Network::measure(2, 500, Keys::Hosts);
        assert_eq!((small.attention.t_h, small.hh_flows(0).len()), (1, 500));
        let large = Network::measure(2, 9000, Keys::Random);
        let load = large.hh_flows(1).len() as f64 / (3.0 * 3584.0);
        assert!(large.attention.t_h == LARGE && (load - LOAD).abs() < 0.02, "{load}");
        assert!(large.hh_flows(0).len() > 7000);
    }
}
