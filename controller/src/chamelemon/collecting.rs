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
        // Before epochs are frozen by what was planned when the clock was ahead.
        note_open(&hub, &lane, &collector);
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
        note_open(&hub, &lane, &collector);
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

/// Notes which epochs are open, and plans anew where the collector has begun anew.
fn note_open(hub: &Hub, lane: &Lane, collector: &Collector) {
    let (begun, open_from) = collector.open_from();
    if begun != lane.collecting().0 {
        hub.plan_anew(unix_ns());
    }
    lane.set_collecting(begun, open_from);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AttentionSection, Config};
    use crate::server::start;
    use calumma_chamelemon::{EgressGroup, IngressGroup};
    use calumma_sketch::FlowKey;

    const HOUR_NS: u64 = 3_600_000_000_000;

    /// The clock is set ahead by an hour for a moment, in which an epoch of then is collected.
    #[tokio::test]
    async fn attention_can_change_again_once_the_clock_was_set_back() {
        let config = "edges = ['e1']\nlisten = '127.0.0.1:0'\ngrace_ms = 1";
        let running = start(Config::parse(config, "a test").unwrap(), Vec::new()).await.unwrap();
        let hub = running.hub().clone();
        let lane = hub.lanes()[0].clone();
        let (queue, frames) = mpsc::channel(FRAMES_WAITING);
        let (steps, mut taken) = mpsc::channel(16);
        let collecting = tokio::spawn(run(hub.clone(), lane, frames, steps));
        let send = async |message, received_ns| {
            let frame = EdgeFrame { edge: 0, message, decoded: None, received_ns };
            queue.send(frame).await.unwrap();
        };
        let sealed = |epoch| Message::Sealed { epoch, late_packets: 0, late: Vec::new() };
        let change = |hl_buckets| {
            let wanted = AttentionSection { hl_buckets, ..Default::default() };
            hub.change_attention(&wanted, unix_ns()).unwrap().unwrap()
        };

        let ahead_ns = unix_ns() + HOUR_NS;
        let ahead = hub.clock().epoch_at(ahead_ns);
        let attention = hub.standing().1;
        let layout = &hub.config().layout;
        let ingress = IngressGroup::<FlowKey>::new(layout, attention, ahead).unwrap();
        let egress = EgressGroup::<FlowKey>::new(layout, attention).unwrap();
        let of = crate::EdgeInput::from_groups("e1", ahead, (&ingress, 0), (&egress, 0));
        for message in [
            Message::Ingress(of.ingress.unwrap()),
            Message::Egress(of.egress.unwrap()),
            sealed(ahead),
        ] {
            send(message, ahead_ns + 2 * hub.clock().length_ns()).await;
        }
        assert!(matches!(taken.recv().await, Some(Step::Decode(..))));
        assert!(matches!(taken.recv().await, Some(Step::Report(_))));
        assert_eq!(change(1024), ahead + 1, "that epoch is frozen");

        // The clock is right again. A frame wakes the collector, and another one after the grace.
        let since = std::time::Instant::now();
        while hub.standing().0 > ahead {
            assert!(since.elapsed() < Duration::from_secs(30), "it begins anew");
            let now_ns = unix_ns();
            send(sealed(hub.clock().epoch_at(now_ns) - 1), now_ns).await;
            while taken.try_recv().is_ok() {}
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let soon = || hub.earliest_epoch(unix_ns());
        assert!(hub.standing().0 <= soon(), "what was sent for later is sent again");
        let now = hub.clock().epoch_at(unix_ns());
        let set = change(768);
        assert!((now..=soon()).contains(&set));
        drop((queue, taken));
        collecting.await.unwrap();
        running.stop().await.unwrap();
    }
}
