//! What the controller does between an epoch and the next one's attention, step by step.

use std::hint::black_box;

use calumma_chamelemon::frames::Message;
use calumma_controller::analyse::{Analyser, EdgeInput, EpochInput, Tasks};
use calumma_controller::attention::{Bounds, Observation, Planner};
use calumma_controller::chamelemon::collect::{Collector, Step};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{FermatSketch, HashKey};

use crate::measure::{Case, Figure, Watch};
use crate::network::{HASH_KEY, Keys, Network};

/// The epoch that is measured in, of 50 ms.
const EPOCH: u64 = 1_000_000;

fn clock() -> EpochClock {
    EpochClock::new(50_000_000, Guards::default()).expect("the paper's epochs")
}

fn analyser(network: &Network) -> Analyser {
    let key = HashKey::from_bytes(HASH_KEY);
    Analyser::new(network.layout.clone(), &key, clock(), Tasks::default())
}

fn micros(run: impl FnOnce()) -> f64 {
    let watch = Watch::start();
    run();
    watch.nanos() / 1e3
}

/// Reads a frame that was written by this program.
fn read(frame: &[u8], network: &Network) -> Message {
    let message = Message::decode(frame, Some(&network.layout)).expect("a sound frame");
    message.expect("a frame of ChameleMon")
}

/// Every step on the way from sketches to attention, and the estimates, which come after it.
pub fn steps(network: &Network) -> Vec<Case<'_>> {
    let hh = network.attention.partition.hh_part();
    let hl = network.attention.partition.hl_part();
    let frames = network.frames(0, EPOCH);
    let side = network.ingress(0, EPOCH);
    let Message::Ingress(sent) = read(&frames[0], network) else { panic!("an ingress frame") };
    let decoder = analyser(network).decoder().clone();
    let with_flows = decoder.clone();
    let uppers: Vec<FermatSketch> =
        (0..network.len()).map(|edge| network.upstream(edge).part(&hl)).collect();
    let lowers: Vec<FermatSketch> =
        (0..network.len()).map(|edge| network.downstream(edge).part(&hl)).collect();
    let empty = FermatSketch::new(uppers[0].shape());
    let mut sum = empty.clone();
    let mut delta = empty.clone();
    let same = "parts of one deployment";
    let reinserted = uppers[0].clone();
    let losses = losses(network);
    let upstream = network.upstream(0).clone();
    vec![
        Case::new("controller.receive.us", "us/edge", move || {
            micros(|| frames.iter().for_each(|frame| drop(black_box(read(frame, network)))))
        }),
        Case::new("controller.hh_decode.us", "us/edge", move || {
            micros(|| drop(black_box(upstream.part(&hh).decode(network.family()))))
        }),
        Case::new("controller.reinsert.us", "us/edge", move || {
            let mut sketch = reinserted.clone();
            let whole = sketch.whole();
            micros(|| {
                for (key, packets) in network.hh_flows(0) {
                    let hashes = network.family().hash(key);
                    sketch.insert_into(&whole, key, &hashes, *packets as i32);
                }
            })
        }),
        Case::new("controller.ingress_side.buckets.us", "us/edge", move || {
            micros(|| drop(black_box(decoder.ingress(&side))))
        }),
        Case::new("controller.ingress_side.flows.us", "us/edge", move || {
            micros(|| drop(black_box(with_flows.ingress(&sent))))
        }),
        Case::new("controller.sum.us", "us", move || {
            sum.clone_from(&empty);
            micros(|| uppers.iter().for_each(|upper| sum.add(upper).expect(same)))
        }),
        Case::new("controller.subtract.us", "us", move || {
            micros(|| lowers.iter().for_each(|lower| delta.subtract(lower).expect(same)))
        }),
        Case::new("controller.hl_decode.us", "us", move || {
            let losses = losses.clone();
            micros(|| drop(black_box(losses.decode(network.family()))))
        }),
        plan(network),
        response(network),
        estimates(network),
    ]
}

/// The delta HL encoder of the epoch.
fn losses(network: &Network) -> FermatSketch {
    let part = network.attention.partition.hl_part();
    let mut delta = FermatSketch::new(network.layout.shape(part.len()));
    let whole = delta.whole();
    for edge in 0..network.len() {
        delta.add(&network.upstream(edge).part(&part)).expect("one layout");
        delta.subtract(&network.downstream(edge).part(&part)).expect("one layout");
        for (key, packets) in network.hh_flows(edge) {
            delta.insert_into(&whole, key, &network.family().hash(key), *packets as i32);
        }
    }
    delta
}

fn planner(network: &Network) -> Planner {
    let bounds = Bounds::of(&network.layout);
    Planner::new(network.layout.clone(), bounds).expect("the paper's bounds fit its layout")
}

/// The network's epoch with all its sides.
fn whole(network: &Network) -> EpochInput {
    let edges = (0..network.len()).map(|edge| EdgeInput {
        edge: format!("e{edge}"),
        ingress: Some(Box::new(network.ingress(edge, EPOCH))),
        egress: Some(Box::new(network.egress(edge, EPOCH))),
        late_packets: Some(0),
        ..EdgeInput::default()
    });
    EpochInput { epoch: EPOCH, planned: network.attention, edges: edges.collect() }
}

/// Planning alone, from an epoch that has been decoded.
fn plan(network: &Network) -> Case<'_> {
    let decoded = analyser(network).decoder().decode(whole(network));
    Case::new("controller.plan.us", "us", move || {
        let mut planner = planner(network);
        micros(|| {
            let observation = Observation::of(&decoded).expect("sides that came");
            black_box(planner.next(&observation, &network.attention));
        })
    })
}

/// From the bytes of the last side of an epoch, all others being in, to the losses, the plan and
/// the messages to all edges.
fn response(network: &Network) -> Case<'_> {
    let decoder = analyser(network).decoder().clone();
    let last = network.len() - 1;
    let frame = network.frames(last, EPOCH)[1].clone();
    let edges: Vec<String> = (0..network.len()).map(|edge| format!("e{edge}")).collect();
    let now_ns = clock().start_of(EPOCH + 1) + 1;
    Case::new("controller.response.ms", "ms", move || {
        let mut collector = Collector::new(edges.clone(), clock(), u64::MAX);
        for edge in 0..network.len() {
            let side = Box::new(network.ingress(edge, EPOCH));
            let decoded = Some(Box::new(decoder.ingress(&side)));
            collector.take_with(edge, Message::Ingress(side), decoded, now_ns);
            if edge != last {
                let side = Box::new(network.egress(edge, EPOCH));
                collector.take(edge, Message::Egress(side), now_ns);
            }
        }
        let mut planner = planner(network);
        let watch = Watch::start();
        collector.take(last, read(&frame, network), now_ns);
        let Some(Step::Decode(input, _)) = collector.step(now_ns, |_| network.attention) else {
            panic!("the epoch is measured")
        };
        let decoded = decoder.decode(input);
        let observation = Observation::of(&decoded).expect("sides that came");
        let attention = planner.next(&observation, &network.attention).attention;
        let mut messages = Vec::new();
        for _ in decoded.edges() {
            Message::Reconfigure { effective_epoch: EPOCH + 2, attention }.encode(&mut messages);
        }
        black_box(&messages);
        let response_ms = watch.nanos() / 1e6;
        assert_eq!(decoded.losses().len(), network.victims, "every victim flow is found");
        response_ms
    })
}

/// The accumulation tasks of all edges, after the plan.
fn estimates(network: &Network) -> Case<'_> {
    let mut analyser = analyser(network);
    Case::new("controller.estimators.ms", "ms", move || {
        let decoded = analyser.decoder().decode(whole(network));
        let watch = Watch::start();
        black_box(analyser.report(decoded));
        watch.nanos() / 1e6
    })
}

/// A figure that is the same however often it is read.
pub fn exact(name: &str, unit: &'static str, value: f64) -> Figure {
    Figure::of(name.to_owned(), unit, vec![value])
}

/// Bytes that go over the wire in an epoch, beside those that the groups take in a switch.
pub fn bytes(network: &Network, random: &Network) -> Vec<Figure> {
    let sent = |network: &Network| {
        let all = (0..network.len()).flat_map(|edge| network.frames(edge, EPOCH));
        all.map(|frame| frame.len()).sum::<usize>() as f64 / network.len() as f64
    };
    let idle = sent(&Network::measure(network.len(), 0, Keys::Hosts));
    let raw = network.raw_bytes() as f64;
    vec![
        exact("controller.frame.raw.kb", "KB/edge", raw / 1e3),
        exact("controller.frame.kb", "KB/edge", sent(network) / 1e3),
        exact("controller.frame.ratio", "of raw", sent(network) / raw),
        exact("controller.frame.random_keys.ratio", "of raw", sent(random) / raw),
        exact("controller.frame.idle.kb", "KB/edge", idle / 1e3),
    ]
}
