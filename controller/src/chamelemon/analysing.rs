//! The two threads that epochs are worked on by: one decodes them and is done in time for the next
//! epoch's attention, the other answers all that nobody waits for, and publishes the reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, mpsc as channel};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, watch};

use super::collect::{Received, Step};
use super::shifting::Shifting;
use crate::analyse::{Analyser, DecodedEpoch, Decoder, Suspicion};
use crate::api::KeyChangeBy;
use crate::report::{PlanReport, Timing};
use crate::server::lane::{Ending, Lane};
use crate::server::{Hub, Publisher, unix_ns, yield_to_others};

/// Epochs that may wait for their reports.
const REPORTS_WAITING: usize = 64;

/// Epochs that may wait for their reports without one of them being cut short.
const ESTIMATES_WAITING: usize = 4;

/// An epoch that has been decoded, and when.
struct Decoded {
    epoch: DecodedEpoch,
    received: Received,
    plan: Option<PlanReport>,
    planned_ns: u64,
}

/// Starts both threads. The second ends when the first does, which ends with `steps`; `stop` is
/// stopped when either of them fails: without them nothing would be reported.
pub(super) fn start(
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    analyser: Analyser,
    steps: mpsc::Receiver<Step>,
    publisher: Arc<Publisher>,
    stop: watch::Sender<bool>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let mut shifting = Shifting::new(hub.clone())?;
    let (done, decoded) = channel::sync_channel(REPORTS_WAITING);
    let (decoder, ending) = (analyser.decoder().clone(), Ending(stop.clone()));
    let own = hub.clone();
    std::thread::Builder::new().name("decoding".to_owned()).spawn(move || {
        let _ending = ending;
        own.pin();
        decode(&decoder, steps, shifting.as_mut(), &done);
    })?;
    let ending = Ending(stop.clone());
    let reporting = std::thread::Builder::new().name("reporting".to_owned()).spawn(move || {
        let _ending = ending;
        hub.pin();
        yield_to_others();
        let reported = report(&hub, &lane, analyser, decoded, &publisher);
        if reported.is_err() {
            // Fails only where every task has ended already.
            let _ = stop.send(true);
        }
        hub.lane_has_ended(&lane);
        reported
    })?;
    Ok(reporting)
}

/// Decodes epochs and plans attention as soon as they are measured, and passes them on when they
/// are over.
fn decode(
    decoder: &Decoder,
    mut steps: mpsc::Receiver<Step>,
    mut shifting: Option<&mut Shifting>,
    done: &channel::SyncSender<Decoded>,
) {
    let mut open = BTreeMap::new();
    while let Some(step) = steps.blocking_recv() {
        match step {
            Step::Decode(input, received) => {
                let epoch = decoder.decode(input);
                let plan = shifting.as_mut().and_then(|shifting| shifting.next(&epoch));
                let planned_ns = unix_ns();
                open.insert(epoch.epoch(), Decoded { epoch, received, plan, planned_ns });
            }
            Step::Report(ends) => {
                let Some(mut decoded) = open.remove(&ends.epoch) else { continue };
                decoded.epoch.end(ends.nodes);
                if done.send(decoded).is_err() {
                    return;
                }
            }
        }
    }
}

/// Answers what was asked about each epoch, and publishes its report.
fn report(
    hub: &Hub,
    lane: &Lane,
    mut analyser: Analyser,
    decoded: channel::Receiver<Decoded>,
    publisher: &Publisher,
) -> anyhow::Result<()> {
    let (mut waiting, mut suspicion) = (VecDeque::new(), Suspicion::default());
    while let Some(Decoded { epoch, received, plan, planned_ns }) =
        waiting.pop_front().or_else(|| decoded.recv().ok())
    {
        waiting.extend(decoded.try_iter().take(REPORTS_WAITING - waiting.len()));
        analyser.set_tasks(hub.chamelemon.tasks());
        // Late estimates are of less use than timely losses.
        let mut report = if waiting.len() < ESTIMATES_WAITING {
            analyser.report(epoch)
        } else {
            analyser.report_losses_only(epoch)
        };
        report.plan = plan;
        let end_ns = hub.clock().start_of(report.epoch + 1);
        if received.ingress_ns > 0 && received.egress_ns > 0 {
            let after = |at_ns: u64| at_ns.saturating_sub(end_ns) as f64 / 1e6;
            report.timing = Some(Timing {
                ingress_ms: after(received.ingress_ns),
                egress_ms: after(received.egress_ns),
                planned_ms: after(planned_ns),
                published_ms: after(unix_ns()),
            });
        }
        let report = Arc::new(report);
        hub.chamelemon.recent.remember(report.clone(), analyser.sizes());
        let line = serde_json::to_string(&*report)?;
        hub.reporting(lane, report.epoch, report.epoch + 1);
        publisher.publish(&*report, &line);
        hub.notice(&report);
        hub.reported(lane, report.epoch + 1);
        hub.attention_is_known(unix_ns());
        if let Some(sign) = suspicion.of(&report) {
            hub.rotate_key_unasked(KeyChangeBy::Suspicion, &sign);
        }
    }
    Ok(())
}
