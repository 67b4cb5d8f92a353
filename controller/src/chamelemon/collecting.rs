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
                ends.nodes.iter_mut().zip(problems).for_each(|(end, clock)| end.clock = clock);
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
    let EdgeFrame { edge, mut message, decoded, received_ns } = frame;
    let (epoch, counters) = match &mut message {
        Message::Ingress(side) => (side.epoch, std::mem::take(&mut side.counters)),
        Message::Egress(side) => (side.epoch, std::mem::take(&mut side.counters)),
        Message::Sealed { epoch, .. } => (*epoch, Vec::new()),
        _ => return,
    };
    hub.note_counters(edge, counters);
    let receipt = collector.take_with(edge, message, decoded, received_ns);
    hub.note_frame(edge, epoch, receipt);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use calumma_systems::SYSTEMS;
    use tokio::time::timeout;

    use super::*;
    use crate::config::Config;
    use crate::server::hub;
    use crate::server::lane::Inlet;

    /// However fast frames come, so that there is always one that waits, what is due is done.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_queue_that_never_runs_empty_stops_no_reports() {
        let config = Config::parse("edges = ['e1', 'e2']\ngrace_ms = 100", "a test").unwrap();
        let hub = hub(&config, SYSTEMS).unwrap();
        let (queue, frames) = mpsc::channel(FRAMES_WAITING);
        let lane = Lane::new(SYSTEMS[0], Inlet::ChameleMon(queue.clone()), 0, &config);
        let lane = Arc::new(lane);
        let stopped = Arc::new(AtomicBool::new(false));
        let epoch = hub.clock().epoch_at(unix_ns()) - 2;
        let floods = [(); 4].map(|()| {
            let (queue, stopped) = (queue.clone(), stopped.clone());
            std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let Ok(room) = queue.try_reserve() else { continue };
                    let message = Message::Sealed { epoch, late_packets: 0, late: Vec::new() };
                    let received_ns = unix_ns();
                    room.send(EdgeFrame { edge: 0, message, decoded: None, received_ns });
                }
            })
        });
        let (steps, mut done) = mpsc::channel(1000);
        let running = tokio::spawn(run(hub, lane.clone(), frames, steps));
        let reported = timeout(Duration::from_secs(10), async {
            loop {
                if let Some(Step::Report(ends)) = done.recv().await {
                    return ends.epoch;
                }
            }
        });
        let reported = reported.await;
        stopped.store(true, Ordering::Relaxed);
        floods.into_iter().for_each(|flood| flood.join().unwrap());
        lane.stop();
        running.await.unwrap();
        assert_eq!(reported, Ok(epoch));
    }
}
