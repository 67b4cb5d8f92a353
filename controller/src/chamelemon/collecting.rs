//! The task that owns the [`Collector`]: frames and the clock in, what is to be done out.

use std::sync::Arc;
use std::time::Duration;

use calumma_chamelemon::frames::Message;
use tokio::sync::mpsc;

use super::EdgeFrame;
use super::collect::{Collector, Step};
use crate::server::lane::{FRAMES_WAITING, Lane};
use crate::server::{Hub, unix_ns};

/// Runs until the lane ends, or stops; then gives out what is pending and ends.
pub(super) async fn run(
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    mut frames: mpsc::Receiver<EdgeFrame>,
    steps: mpsc::Sender<Step>,
) {
    let grace_ns = hub.config().grace_ms.saturating_mul(1_000_000);
    let mut collector = Collector::new(hub.config().edges.clone(), hub.clock(), grace_ns);
    let mut is_ending = false;
    while !lane.is_stopping() && !collector.has_ended(unix_ns()) {
        if !lane.is_on() && !is_ending {
            is_ending = true;
            collector.end_at(lane.end());
        }
        let wait = collector.next_deadline().map_or(Duration::from_secs(3600), |deadline| {
            Duration::from_nanos(deadline.saturating_sub(unix_ns()))
        });
        tokio::select! {
            // Frames first, so that an epoch is not closed while its last frame waits here.
            biased;
            frame = frames.recv() => match frame {
                Some(received) => take(&hub, &mut collector, received),
                None => break,
            },
            () = lane.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
        // What waits, but no more than can have waited already: a node that never stops sending
        // must not hold reports up.
        for _ in 0..FRAMES_WAITING {
            let Ok(received) = frames.try_recv() else { break };
            take(&hub, &mut collector, received);
        }
        while let Some(mut step) = collector.step(unix_ns(), |epoch| hub.planned(epoch)) {
            if let Step::Report(ends) = &mut step {
                let problems = hub.problems_of_edges(ends.epoch);
                let problems = problems.into_iter().zip(hub.unprobed(ends.epoch));
                for (at, (end, problems)) in ends.nodes.iter_mut().zip(problems).enumerate() {
                    (end.clock, end.unprobed) = problems;
                    end.measured_before = hub.measured_before(at);
                }
            }
            if steps.send(step).await.is_err() {
                return;
            }
        }
        let (begun, open_from) = collector.open_from();
        lane.set_collecting(begun, open_from);
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

fn take(hub: &Hub, collector: &mut Collector, frame: EdgeFrame) {
    let EdgeFrame { edge, message, decoded, received_ns } = frame;
    let epoch = match &message {
        Message::Ingress(side) => side.epoch,
        Message::Egress(side) => side.epoch,
        Message::Sealed { epoch, .. } => *epoch,
        _ => return,
    };
    let receipt = collector.take_with(edge, message, decoded, received_ns);
    hub.note_frame(edge, epoch, receipt);
}
