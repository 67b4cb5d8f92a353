//! Figure 22: how long a switch takes to be reconfigured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use calumma_bfrt::Options;
use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_chamelemon::lcores::{LcoreGroups, Part};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_edge::measure::Measurement;
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_figures::{Axis, Chart, Drawn, Figure, Series};
use calumma_sketch::HashKey;
use calumma_switchd::chamelemon::{ChameleMon, entries};
use calumma_switchd::driver::Driver;
use calumma_tna::Switch;
use calumma_tna_driver::Pipe;
use calumma_wire::Role;
use tokio::net::TcpListener;

use super::Context;
use crate::calumma::p4;
use crate::workload::Draw;

/// Reconfigurations that are timed, as many as in the paper.
const RECONFIGURATIONS: u64 = 10_000;

pub(super) const FIGURE: Figure<Context> = Figure {
    name: "chamelemon-22-reconfiguration",
    title: "ChameleMon, figure 22: time to reconfigure a switch",
    claim: "2 to 7 ms for each of 10,000 random configurations; 60 % of them take less than 5 ms.",
    measure: reconfiguration,
};

fn reconfiguration(_: &Context) -> Result<Drawn> {
    let software = sorted(software()?);
    let (hardware, changed) = hardware()?;
    let [hardware, changed] = [hardware, changed].map(sorted);
    let times = Chart::new("(a) time", Axis::log("ms"), Axis::linear("share of reconfigurations"))
        .with(Series::ours("software edge", distribution(&software)))
        .with(Series::ours("hardware edge, modelled", distribution(&hardware)))
        // All that its text says.
        .with(Series::new("the paper", vec![(2.0, 0.0), (5.0, 0.6), (7.0, 1.0)]));
    let entries = Chart::new(
        "(b) table entries that change",
        Axis::linear("entries"),
        Axis::linear("share of reconfigurations"),
    )
    .with(Series::ours("hardware edge, modelled", distribution(&changed)));
    let in_words = |times: &[f64]| {
        let [half, most, longest] = [0.5, 0.99, 1.0].map(|share| at(times, share));
        format!("median {half:.4} ms, 99th percentile {most:.4} ms, longest {longest:.3} ms")
    };
    Ok(Drawn::new(vec![times, entries])
        .measured(format!("Software edge: {}.", in_words(&software)))
        .measured(format!(
            "Control plane of the hardware edge, by BFRuntime over gRPC on the model's driver: {}; {:.0} to \
             {:.0} entries change, {:.0} in the median.",
            in_words(&hardware),
            at(&changed, 0.0),
            at(&changed, 1.0),
            at(&changed, 0.5)
        ))
        .because(
            "A software edge only has three numbers in place when it arms the epoch. The hardware edge's \
             entries are the real ones, but they go into a model's memory: what PCIe and the switch's own \
             tables take is not in it. What the plan takes to reach the switch is in neither, in the paper's \
             figure neither.",
        ))
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The value that a share of the sorted values lies below.
fn at(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// The cumulative distribution of sorted values.
fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    (0..=50).map(|step| f64::from(step) / 50.0).map(|share| (at(sorted, share), share)).collect()
}

/// What a software edge does for a reconfiguration: reads the frame, checks it, hands it to its
/// lcore, and has it in place when the epoch is armed. In milliseconds.
fn software() -> Result<Vec<f64>> {
    let layout = Layout::default();
    let clock = EpochClock::new(50_000_000, Guards::default())?;
    let (mut collector, mut mailboxes) = LcoreGroups::new(1);
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
            collector.reconfigure(effective_epoch, attention).map_err(anyhow::Error::msg)?;
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
    Ok(times)
}

/// What the control plane of a hardware edge does for a reconfiguration: works out the entries of
/// the epoch, and has the driver change those that differ. In milliseconds; and how many these are.
fn hardware() -> Result<(Vec<f64>, Vec<f64>)> {
    let layout = Layout::default();
    let on = ["chamelemon".to_owned()];
    let controller = p4::configuration(&layout, &on, &BTreeMap::new())?;
    let program = p4::program((&ChameleMon, Role::Edge), &controller)?;
    let (pipe, _) = Pipe::start(Switch::new(&program), Vec::new())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("the runtime of the driver's interface")?;
    let runtime = Arc::new(runtime);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("a free port")?;
    let options = Options {
        address: listener.local_addr().context("a free port")?.to_string(),
        device: 0,
        client: 1,
        program: "edge".to_owned(),
    };
    let service = calumma_tna_driver::Driver::new(pipe, &options.program, &program);
    runtime.spawn(service.serve_on(listener, std::future::pending()));
    let driver = Driver::connect(&runtime, &options)?;

    let (mut present, mut times, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..RECONFIGURATIONS {
        let attention = random_attention(&layout, Draw::new(22).of(number));
        let begun = Instant::now();
        // One timestamp bit's tables.
        let wanted = driver.numbered(&entries::epoch(&layout, &attention, 2 * number))?;
        let changed = driver.change(&present, &wanted)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        changes.push(changed as f64);
        present = wanted;
    }
    // The first one fills empty tables.
    Ok((times.split_off(1), changes.split_off(1)))
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
