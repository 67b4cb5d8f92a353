//! The two threads that epochs are worked on by: one decodes them and is done in time for the next
//! epoch's attention, the other answers all that nobody waits for, and publishes the reports.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, mpsc as channel};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, watch};

use super::hub::Hub;
use super::shifting::Shifting;
use super::unix_ns;
use crate::analyse::{Analyser, DecodedEpoch, Decoder};
use crate::chamelemon::collect::{Received, Step};
use crate::output::Output;
use crate::report::{PlanReport, Timing};

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

/// Starts both threads. The second ends when the first does, which ends with `steps`; `stop` is told
/// when either of them ends, though it were by a panic: without them nothing would be reported.
pub(super) fn start(
    hub: Arc<Hub>,
    analyser: Analyser,
    steps: mpsc::Receiver<Step>,
    outputs: Vec<Box<dyn Output>>,
    stop: watch::Sender<bool>,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let mut shifting = Shifting::new(hub.clone())?;
    let (done, decoded) = channel::sync_channel(REPORTS_WAITING);
    let (decoder, ending) = (analyser.decoder().clone(), Ending(stop.clone()));
    std::thread::Builder::new().name("decoding".to_owned()).spawn(move || {
        let _ending = ending;
        decode(&decoder, steps, shifting.as_mut(), &done);
    })?;
    let ending = Ending(stop);
    let reporting = std::thread::Builder::new().name("reporting".to_owned()).spawn(move || {
        let _ending = ending;
        yield_to_others();
        report(&hub, analyser, decoded, outputs)
    })?;
    Ok(reporting)
}

/// Steps of niceness by which estimates come after everything else.
const NICENESS: i32 = 10;

/// Lowers the priority of this thread: where CPUs are short, edges are received and attention is planned
/// before estimates are made. Linux keeps a niceness for each thread, and 0 names the one that asks.
fn yield_to_others() {
    let lowered = rustix::process::getpriority_process(None)
        .and_then(|nice| rustix::process::setpriority_process(None, nice + NICENESS));
    if let Err(error) = lowered {
        tracing::warn!("estimates run at full priority: {error}");
    }
}

/// Tells the controller to stop when a thread ends.
struct Ending(watch::Sender<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        // Fails only where every task has ended already.
        let _ = self.0.send(true);
    }
}

/// Decodes epochs and plans attention as soon as they are measured, and passes them on when they are over.
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
    mut analyser: Analyser,
    decoded: channel::Receiver<Decoded>,
    mut outputs: Vec<Box<dyn Output>>,
) -> anyhow::Result<()> {
    let mut waiting = VecDeque::new();
    while let Some(Decoded { epoch, received, plan, planned_ns }) =
        waiting.pop_front().or_else(|| decoded.recv().ok())
    {
        waiting.extend(decoded.try_iter().take(REPORTS_WAITING - waiting.len()));
        analyser.set_tasks(hub.tasks());
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
        hub.recent().remember(report.clone(), analyser.sizes());
        let line = serde_json::to_string(&*report)?;
        for output in &mut outputs {
            output.report(&*report, &line);
        }
        hub.reported(report.epoch, unix_ns());
    }
    outputs.iter_mut().try_for_each(|output| output.finish())
}
