//! The task that owns the [`Collector`]: frames and the clock in, finished epochs out.

use std::sync::Arc;
use std::time::Duration;

use calumma_wire::Message;
use tokio::sync::{mpsc, watch};

use super::hub::Hub;
use super::unix_ns;
use crate::analyse::EpochInput;
use crate::collect::Collector;

/// A frame about an epoch, from the edge at a position among the expected ones.
pub(super) type Heard = (usize, Message);

/// Runs until told to stop; then gives out what is pending and ends.
pub(super) async fn run(
    hub: Arc<Hub>,
    grace_ms: u64,
    mut heard: mpsc::Receiver<Heard>,
    epochs: mpsc::Sender<EpochInput>,
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
            frame = heard.recv() => match frame {
                Some((edge, message)) => take(&hub, &mut collector, edge, message),
                None => break,
            },
            _ = stopped.wait_for(|&stopped| stopped) => break,
            () = tokio::time::sleep(wait) => {}
        }
        if !heard.is_empty() {
            continue;
        }
        while let Some(input) = collector.poll(unix_ns(), |epoch| hub.planned(epoch)) {
            if epochs.send(input).await.is_err() {
                return;
            }
        }
    }
    heard.close();
    while let Some((edge, message)) = heard.recv().await {
        take(&hub, &mut collector, edge, message);
    }
    while let Some(input) = collector.finish(|epoch| hub.planned(epoch)) {
        if epochs.send(input).await.is_err() {
            return;
        }
    }
}

fn take(hub: &Hub, collector: &mut Collector, edge: usize, mut message: Message) {
    hub.heard(edge, &mut message);
    let taken = collector.take(edge, message, unix_ns());
    hub.taken(edge, taken);
}
