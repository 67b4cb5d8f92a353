//! Figures 20-22: what monitoring costs in time and bandwidth.

use std::time::Instant;

use anyhow::Result;
use calumma_edge::control::collect::{Collector, Part, SessionPlan};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::{Attention, HashKey, Layout, Partition, SampleRate};
use calumma_wire::{FrameReader, Message};

use super::Context;
use super::attention::{phases, played};
use crate::scenario::{Scenario, play};
use crate::workload::Draw;

/// Reconfigurations that are timed, as many as in the paper.
const RECONFIGURATIONS: u64 = 10_000;

pub(super) fn figures() -> Vec<Figure<Context>> {
    vec![
        Figure {
            name: "chamelemon-20-response",
            title: "ChameleMon, figure 20: time to respond to a network's state",
            claim: "From the last sketch collected to the reconfiguration sent, always within 30 ms, on \
                    two CPU cores.",
            measure: response,
        },
        Figure {
            name: "chamelemon-21-bandwidth",
            title: "ChameleMon, figure 21: bandwidth of collection",
            claim: "320 Mbit/s from four edges at epochs of 50 ms, and in proportion at other lengths.",
            measure: bandwidth,
        },
        Figure {
            name: "chamelemon-22-reconfiguration",
            title: "ChameleMon, figure 22: time to reconfigure a switch",
            claim: "2 to 7 ms for each of 10,000 random configurations; 60 % of them take less than 5 ms.",
            measure: reconfiguration,
        },
    ]
}

fn response(context: &Context) -> Result<Drawn> {
    let mut charts = Vec::new();
    let mut all = Vec::new();
    for (title, x, step, name) in [
        ("(a) over flows", "thousand flows", 10.0, "figure-07-flows-dctcp"),
        ("(b) over victims", "victims in percent", 2.5, "figure-08-victims-dctcp"),
    ] {
        let (scenario, played) = played(context, name)?;
        all.extend(played.epochs.iter().map(|epoch| epoch.response_ms));
        let points = phases(&scenario, &played)
            .into_iter()
            .enumerate()
            .map(|(at, epoch)| ((at + 1) as f64 * step, epoch.response_ms))
            .collect();
        charts.push(
            Chart::new(title, Axis::linear(x), Axis::linear("response in ms"))
                .with(Series::ours("decode and plan", points)),
        );
    }
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize];
    Ok(Drawn::new(charts).measured(format!(
        "Over {} epochs: median {:.1} ms, 99th percentile {:.1} ms, longest {:.1} ms, on one core.",
        all.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    )))
}

fn bandwidth(context: &Context) -> Result<Drawn> {
    let base = Scenario::load(&context.scenarios.join("figure-07-flows-dctcp.toml"))?;
    let mut points = Vec::new();
    for length_ms in [10, 20, 50, 100, 200, 500] {
        let mut scenario = base.clone();
        scenario.epochs = 30;
        // The flows that are there at 50 ms, or as many more or fewer as fit into the time.
        let flows = 1000 * length_ms as i64;
        let all = toml::Table::from_iter([("flows".to_owned(), toml::Value::from(flows))]);
        scenario.traffic.values_mut().for_each(|kind| kind.extend(all.clone()));
        scenario.change.clear();
        scenario.expect.clear();
        scenario.epoch.length_ms = length_ms;
        let played = play(&scenario, |_, _| Ok(()))?;
        let last = played.epochs.last().and_then(|epoch| epoch.frame_bytes).unwrap_or(0);
        points.push((length_ms as f64, last as f64 * 8.0 / (length_ms as f64 * 1e3)));
    }
    let at_50 = points.iter().find(|(length, _)| *length == 50.0).map_or(0.0, |point| point.1);
    let chart = Chart::new("", Axis::log("epoch in ms"), Axis::log("Mbit/s from four edges"))
        .with(Series::ours("frames", points));
    Ok(Drawn::new(vec![chart]).measured(format!(
        "{at_50:.0} Mbit/s at epochs of 50 ms and 50,000 flows in each (1,000 a millisecond)."
    )))
}

/// Times what an edge does for a reconfiguration: reads the frame, checks it, hands it to its lcore,
/// and has it in place when the epoch is armed.
fn reconfiguration(_: &Context) -> Result<Drawn> {
    let layout = Layout::default();
    let clock = EpochClock::new(50_000_000, Guards::default())?;
    let (mut collector, mut mailboxes) = Collector::new(1);
    let mailbox = mailboxes.remove(0);
    let mut worker = Worker::new(Policy::default(), Measurement::new(mailbox));
    let first_epoch = 1000;
    let attention = Attention::healthy(&layout, 512);
    let hash_key = HashKey::from_bytes([1; 32]);
    collector.begin(&SessionPlan {
        layout: layout.clone(),
        hash_key,
        clock,
        first_epoch,
        attention,
    })?;
    worker.advance_to(worker.next_due_ns());

    let mut times = Vec::new();
    for number in 0..RECONFIGURATIONS {
        let epoch = first_epoch + number;
        let attention = random_attention(&layout, Draw::new(22).of(number));
        let mut frame = Vec::new();
        Message::Reconfigure { effective_epoch: epoch, attention }.encode(&mut frame);

        let begun = Instant::now();
        let mut reader = FrameReader::new();
        reader.push(&frame);
        if let Some(Message::Reconfigure { effective_epoch, attention }) = reader.next(None)? {
            attention.validate(&layout)?;
            collector.attend(effective_epoch, attention);
        }
        // Armed, but not yet flipped to.
        while worker.next_due_ns() <= clock.arm_time(epoch) {
            worker.advance_to(worker.next_due_ns());
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        while worker.next_due_ns() < clock.arm_time(epoch + 1) {
            worker.advance_to(worker.next_due_ns());
        }
        for part in collector.poll() {
            match part {
                Part::Ingress { record, .. } => collector.recycle(record),
                Part::Egress { record, .. } => collector.recycle(record),
                Part::Sealed { .. } => {}
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let count = times.len();
    let points =
        times.iter().enumerate().step_by(20).map(|(at, ms)| (*ms, at as f64 / count as f64));
    let chart = Chart::new("", Axis::log("ms"), Axis::linear("share of reconfigurations"))
        .with(Series::ours("software edge", points.collect()));
    let at = |share: f64| times[((count - 1) as f64 * share) as usize];
    Ok(Drawn::new(vec![chart])
        .measured(format!(
            "Median {:.4} ms, 99th percentile {:.4} ms, longest {:.3} ms.",
            at(0.5),
            at(0.99),
            at(1.0)
        ))
        .because(
            "A Tofino's control plane writes entries of match-action tables over PCIe; a software edge \
             only has three numbers in place when it arms the epoch. What the plan takes to reach the \
             switch is not in it, in the paper's figure neither.",
        ))
}

/// Any attention that is valid on `layout`.
fn random_attention(layout: &Layout, draw: Draw) -> Attention {
    let below = |what, n: u32| draw.of(what).below(u64::from(n)) as u32;
    let hl = 1 + below(0, layout.downstream_buckets / 2);
    let ll = 1 + below(1, layout.downstream_buckets / 2 - 1);
    let t_l = 1 + below(2, 1000);
    Attention {
        t_h: t_l + below(3, 10_000),
        t_l,
        sample_rate: SampleRate::from_threshold(1 + below(4, 65_536)).unwrap_or(SampleRate::ALL),
        partition: Partition { hh: layout.upstream_buckets - hl - ll, hl, ll },
    }
}
