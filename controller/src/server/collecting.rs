//! The task that owns the [`Collector`]: frames and the clock in, what is to be done out.

use std::sync::Arc;
use std::time::Duration;

use calumma_chamelemon::frames::Message;
use tokio::sync::{mpsc, watch};

use super::hub::Hub;
use super::unix_ns;
use crate::analyse::DecodedIngress;
use crate::chamelemon::collect::{Collector, Step};

/// A frame about an epoch.
#[derive(Debug)]
pub(super) struct Received {
    /// Position of its edge among the expected ones.
    pub(super) edge: usize,
    /// What it says.
    pub(super) message: Message,
    /// Of an ingress side, what is decoded of it.
    pub(super) decoded: Option<Box<DecodedIngress>>,
    /// When its last byte was received.
    pub(super) received_ns: u64,
}

/// Runs until told to stop; then gives out what is pending and ends.
pub(super) async fn run(
    hub: Arc<Hub>,
    grace_ms: u64,
    mut frames: mpsc::Receiver<Received>,
    steps: mpsc::Sender<Step>,
    mut stopped: watch::Receiver<bool>,
) {
    let edges = hub.config().edges.clone();
    let mut collector = Collector::new(edges, hub.clock(), grace_ms.saturating_mul(1_000_000));
    loop {
        let wait = collector.next_deadline().map_or(Duration::from_secs(3600), |deadline| {
            Duration::from_nanos(deadline.saturating_sub(unix_ns()))
        });
        tokio::select! {
            // Frames first, so that an epoch is not given up while its last frame waits here.
            biased;
            frame = frames.recv() => match frame {
                Some(received) => take(&hub, &mut collector, received),
                None => break,
            },
            _ = stopped.wait_for(|&stopped| stopped) => break,
            () = tokio::time::sleep(wait) => {}
        }
        if !frames.is_empty() {
            continue;
        }
        while let Some(mut step) = collector.step(unix_ns(), |epoch| hub.planned(epoch)) {
            if let Step::Report(ends) = &mut step {
                let problems = hub.clock_problems(unix_ns());
                ends.nodes.iter_mut().zip(problems).for_each(|(end, clock)| end.clock = clock);
            }
            if steps.send(step).await.is_err() {
                return;
            }
        }
    }
    frames.close();
    while let Some(received) = frames.recv().await {
        take(&hub, &mut collector, received);
    }
    while let Some(step) = collector.finish(|epoch| hub.planned(epoch)) {
        if steps.send(step).await.is_err() {
            return;
        }
    }
}

fn take(hub: &Hub, collector: &mut Collector, received: Received) {
    let Received { edge, mut message, decoded, received_ns } = received;
    hub.received(edge, &mut message);
    let taken = collector.take_with(edge, message, decoded, received_ns);
    hub.taken(edge, taken);
}
