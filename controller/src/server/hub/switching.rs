//! Systems switched on and off, and what has been reported of those that run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use calumma_analysis::NodeSetup;
use calumma_chamelemon::frames::secret;
use calumma_wire::parts::VERSION as PARTS;
use calumma_wire::{Message, Offer, Outcome, Role, SystemId, SystemSetup, Welcome};
use tracing::warn;

use super::nodes::Link;
use super::{Hub, Lanes, lock};
use crate::chamelemon::{attention::Plan, is_chamelemon};
use crate::report::EpochReport;
use crate::server::lane::{Inlet, Lane, Reported};
use crate::server::unix_ns;
use crate::steering::noticed_in;

/// What a node is known to do before it is sent what it is to run.
pub(super) enum Before<'a> {
    /// It has just come, and says that it measures by this.
    Hello(&'a [(SystemId, Vec<u8>)]),
    /// It was sent these before.
    Runs(&'a [(SystemId, u8)]),
}

/// What a node is to run, by its role and what it offers.
pub(super) struct Wanted {
    /// Each system with the version of its bodies.
    pub(super) runs: Vec<(Arc<Lane>, u8)>,
    /// Those that it should run and can't, in words.
    pub(super) lacking: Vec<String>,
    /// The same systems.
    without: Vec<Arc<Lane>>,
    /// Whether it offers messages in parts.
    offers_parts: bool,
}

impl Wanted {
    pub(super) fn new(lanes: &Lanes, role: Role, offers: &[Offer]) -> Self {
        let parts = offers.iter().find(|offer| offer.system == SystemId::PARTS);
        let offers_parts = parts.is_some_and(|it| it.common_version(PARTS, PARTS).is_some());
        let (runs, lacking, without) = (Vec::new(), Vec::new(), Vec::new());
        let mut wanted = Self { runs, lacking, without, offers_parts };
        for lane in lanes.iter().filter(|lane| lane.is_for(role)) {
            match lane.version_of(offers) {
                Some(version) => wanted.runs.push((lane.clone(), version)),
                None => {
                    let (version, name) = (lane.system.offer().highest, lane.system.name());
                    wanted.lacking.push(format!("version {version} of {name}"));
                    wanted.without.push(lane.clone());
                }
            }
        }
        wanted
    }

    /// The systems and their versions.
    pub(super) fn systems(&self) -> Vec<(SystemId, u8)> {
        self.runs.iter().map(|(lane, version)| (lane.id(), *version)).collect()
    }

    /// Notes which systems with plans the node at a position can't run.
    pub(super) fn note_lacking(&self, position: usize) {
        for lane in &self.without {
            if let Some(steering) = &lane.steering {
                let problem = format!("it does not run {}", lane.system.name());
                lock(steering).lacks(position, problem);
            }
        }
    }

    /// What is wrong where the node can't run all that it should.
    pub(super) fn problem(&self) -> Option<String> {
        (!self.lacking.is_empty()).then(|| format!("it does not run {}", self.lacking.join(", ")))
    }
}

impl Hub {
    /// What the node at `position` is sent: all that it measures by from `effective_epoch` on, the
    /// carrier of marks where it can be named, and the changes of attention and hash key that are
    /// still to come.
    pub(super) fn welcome(
        &self,
        plan: &Plan,
        (position, carrier): (usize, Option<&str>),
        (wanted, before): (&Wanted, &Before<'_>),
        effective_epoch: u64,
    ) -> Vec<Message> {
        let mut systems = Vec::new();
        let mut pending = None;
        for (lane, version) in &wanted.runs {
            match &lane.inlet {
                Inlet::ChameleMon(_) => {
                    systems.push(plan.setup(&self.config.layout, effective_epoch, *version));
                    pending = plan.change_after(effective_epoch);
                }
                Inlet::Analysis(_, setups) => {
                    systems.extend(setups.get(&(position, *version)).map(|setup| {
                        let (system, version) = (lane.id(), *version);
                        let node = (position, version);
                        let setup = steered(lane, node, (setup, effective_epoch), before);
                        let NodeSetup { setup, plan } = setup;
                        SystemSetup { system, version, setup, plan }
                    }));
                }
            }
        }
        if wanted.offers_parts {
            let (setup, plan) = (Vec::new(), Vec::new());
            let (system, version) = (SystemId::PARTS, PARTS);
            systems.push(SystemSetup { system, version, setup, plan });
        }
        let welcome = Message::Welcome(Box::new(Welcome {
            node_id: Some(self.nodes[position].node.id),
            hash_key: secret(&self.keys().at(effective_epoch).key),
            epoch_length_ns: self.clock.length_ns(),
            guards: self.clock.guards(),
            effective_epoch,
            systems,
            domain: lock(&self.domain).clone(),
            carrier: carrier.map(str::to_owned),
        }));
        let mut messages: Vec<Message> = [welcome].into_iter().chain(pending).collect();
        let key_from = self.keys().newest().from_epoch;
        if key_from > effective_epoch {
            let runs = wanted.systems();
            let of = (wanted, &Before::Runs(&runs));
            messages.extend(self.welcome(plan, (position, carrier), of, key_from));
        }
        messages
    }

    /// Switches systems: `on` joins those that run, `off` ends at `effective_epoch`. Nodes whose
    /// systems change are sent all that they are to run from then on.
    pub(in crate::server) fn switch(
        &self,
        on: Vec<Arc<Lane>>,
        off: &[Arc<Lane>],
        effective_epoch: u64,
    ) {
        let _alone = lock(&self.admissions);
        self.lanes.send_modify(|lanes| {
            Arc::make_mut(lanes).extend(on);
        });
        off.iter().for_each(|lane| lane.end_at(effective_epoch));
        let lanes = self.lanes();
        let plan = self.chamelemon.plan();
        for (position, entry) in self.nodes.iter().enumerate() {
            let mut state = lock(&entry.state);
            let Some(link) = &mut state.link else { continue };
            let wanted = Wanted::new(&lanes, entry.node.role, &link.offers);
            let (systems, problem) = (wanted.systems(), wanted.problem());
            let changes = systems != link.runs;
            wanted.note_lacking(position);
            if changes {
                let before = std::mem::replace(&mut link.runs, systems);
                let of = (&wanted, &Before::Runs(&before));
                let node = (position, link.named.as_deref());
                let messages = self.welcome(&plan, node, of, effective_epoch);
                messages.into_iter().for_each(|message| link.send(&entry.node.name, message));
            }
            if changes || problem.is_some() {
                state.status.measuring_problem = problem;
            }
        }
    }

    /// Notes that a system is about to report an epoch, and which one it is to report next.
    pub(crate) fn reporting(&self, lane: &Lane, epoch: u64, next: u64) {
        let number = self.reports.fetch_add(1, Ordering::Relaxed);
        lane.reporting(Reported { epoch, next, number });
    }

    /// Notes that all epochs of a system before `epoch` have been reported. Where there is no
    /// archive that they must be in first, nodes need not hold them; what else a node runs may
    /// still be to come.
    pub(crate) fn reported(&self, lane: &Lane, epoch: u64) {
        if !lane.is_archived() {
            self.acknowledge(lane, epoch);
        }
    }

    /// Notes that the archive has the report on an epoch, so that nodes need not hold it.
    pub(crate) fn archived(&self, system: &str, epoch: u64) {
        let lanes = self.unreported_lanes();
        let mut of_system = lanes.iter().filter(|lane| lane.system.name() == system);
        let archived = of_system.find_map(|lane| Some((lane, lane.archived(epoch)?)));
        if let Some((lane, Reported { next, number, .. })) = archived {
            self.acknowledge(lane, next);
            self.let_go(number);
        }
    }

    /// Has nodes hold nothing of a system before `epoch`.
    fn acknowledge(&self, lane: &Lane, epoch: u64) {
        lane.set_unreported(epoch);
        let lanes = self.unreported_lanes();
        for entry in &self.nodes {
            let mut state = lock(&entry.state);
            if let Some(link) = &mut state.link {
                link.tell_reported(&lanes, entry.node.role);
            }
        }
    }

    /// Sends nodes the plans that they are to have now, of a system whose plans change.
    pub(in crate::server) fn steer(&self, lane: &Lane) {
        let Some(steering) = &lane.steering else { return };
        if !lane.is_on() {
            return;
        }
        // No node comes before it is sent what is planned for those that are there.
        let _alone = lock(&self.admissions);
        let now_ns = unix_ns();
        let earliest = self.earliest_epoch(now_ns).max(lane.first_epoch);
        let earliest = earliest.max(self.keys().newest().from_epoch);
        let messages = lock(steering).step(earliest, now_ns);
        for (position, message) in messages {
            let entry = &self.nodes[position];
            if let Some(link) = &lock(&entry.state).link {
                // Sent again where there is no room for it.
                link.send(&entry.node.name, message);
            }
        }
    }

    /// Lets systems know of the flows that ChameleMon reports, where they want to.
    pub(crate) fn notice(&self, report: &EpochReport) {
        let mut noticed = None;
        for lane in self.lanes().iter().filter(|lane| lane.is_on()) {
            let Some(steering) = &lane.steering else { continue };
            let mut steering = lock(steering);
            if steering.wants_noticed() {
                steering.notice(noticed.get_or_insert_with(|| noticed_in(report)));
            }
        }
    }

    /// Notes what became of a plan of a system other than ChameleMon.
    pub(in crate::server) fn plan_answered(
        &self,
        position: usize,
        system: SystemId,
        epoch: u64,
        outcome: &Outcome,
    ) {
        let lanes = self.lanes();
        let lane = lanes.iter().find(|lane| lane.id() == system && lane.is_on());
        let Some((lane, steering)) = lane.and_then(|lane| Some((lane, lane.steering.as_ref()?)))
        else {
            return;
        };
        if let Outcome::Invalid { reason } = outcome {
            let (node, system) = (&self.node(position).name, lane.system.name());
            warn!(node, system, epoch, "not accepted: {reason}");
        }
        let again = lock(steering).answered(position, epoch, outcome, unix_ns());
        self.note_outcome(position, outcome.clone(), again);
    }

    /// Takes a system out whose lane has ended. Nodes go on to hold what it reported last until
    /// that is in the archive.
    pub(crate) fn lane_has_ended(&self, ended: &Arc<Lane>) {
        // One that failed does not run any more either.
        if ended.is_on() {
            ended.end_at(0);
        }
        let before = self.reports.fetch_add(1, Ordering::Relaxed);
        lock(&self.ended).push(Ended { lane: ended.clone(), before });
        self.lanes.send_modify(|lanes| {
            Arc::make_mut(lanes).retain(|lane| !Arc::ptr_eq(lane, ended));
        });
        self.let_go(0);
    }

    /// The systems that run, and those that have ended and whose reports nodes still hold.
    fn unreported_lanes(&self) -> Vec<Arc<Lane>> {
        let lanes = self.lanes();
        let ended = lock(&self.ended);
        lanes.iter().chain(ended.iter().map(|of| &of.lane)).cloned().collect()
    }

    /// Lets go of systems that have ended and are archived. The archive has the report of this
    /// number, so those before are in it as well, or lost to it.
    fn let_go(&self, number: u64) {
        let is_over = |of: &mut Ended| of.before < number || of.lane.has_archived_all();
        let over: Vec<Ended> = lock(&self.ended).extract_if(.., is_over).collect();
        over.iter().for_each(|of| self.acknowledge(&of.lane, u64::MAX));
    }
}

/// A system that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    lane: Arc<Lane>,
    /// A number above those of its reports.
    before: u64,
}

impl Link {
    /// Tells the node which epochs have been reported by all systems that it runs.
    fn tell_reported(&mut self, lanes: &[Arc<Lane>], role: Role) {
        let runs = |lane: &&Arc<Lane>| self.version_of(lane, role).is_some();
        let Some(unreported) = lanes.iter().filter(runs).map(|lane| lane.unreported()).min() else {
            return;
        };
        if unreported != self.unreported && unreported < u64::MAX {
            self.unreported = unreported;
            // A node that takes no messages holds the epoch a while longer.
            let _ = self.messages.try_send(Message::Reported { epoch: unreported - 1 });
        }
    }
}

/// What the node at a position, with this version of a system, is sent of it for an epoch, by the
/// plan that it has or is to begin with.
fn steered(
    lane: &Lane,
    (position, version): (usize, u8),
    (setup, epoch): (&NodeSetup, u64),
    before: &Before<'_>,
) -> NodeSetup {
    let Some(steering) = &lane.steering else { return setup.clone() };
    let mut steering = lock(steering);
    steering.note_version(position, version);
    match before {
        Before::Hello(held) => {
            let held = held.iter().find(|(system, _)| *system == lane.id());
            steering.begin(position, setup, held.map(|(_, holding)| holding.as_slice()))
        }
        Before::Runs(runs) if runs.iter().any(|(system, _)| *system == lane.id()) => {
            steering.repeat(position, setup, epoch)
        }
        Before::Runs(_) => steering.begin(position, setup, None),
    }
}

/// Whether ChameleMon is among the systems of a node.
pub(super) fn runs_chamelemon(link: &Link) -> bool {
    link.runs.iter().any(|(system, _)| is_chamelemon(*system))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::hub::{Entrance, Introduction};
    use crate::server::{Running, start};
    use calumma_wire::{Marking, SwitchKind, VERSION};
    use tokio::sync::mpsc::Receiver;

    /// A controller with an archive, to which an edge is connected that runs both systems.
    async fn running(name: &str) -> (Running, Receiver<Message>, std::path::PathBuf) {
        let folder = format!("calumma-switching-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let config = format!(
            "edges = ['e1']\nlisten = '127.0.0.1:0'\nsystems = ['chamelemon', 'sketchint']\n\
             [archive]\ndir = {folder:?}"
        );
        let running = start(Config::parse(&config, "a test").unwrap(), Vec::new()).await.unwrap();
        let offers = running.hub().lanes().iter().map(|lane| lane.system.offer()).collect();
        let introduction = Introduction {
            version: VERSION,
            role: Role::Edge,
            kind: SwitchKind::Software,
            program: "a test".to_owned(),
            offers,
            holding: None,
            held: Vec::new(),
            marking: Marking::default(),
            address: ([127, 0, 0, 1], 9).into(),
        };
        let entrance = running.hub().admit("e1", introduction, unix_ns()).unwrap();
        let Entrance::Admitted(admission) = entrance else { panic!("{entrance:?}") };
        (running, admission.messages, folder)
    }

    /// The last epoch that the controller has acknowledged to the edge since the last call.
    fn acknowledged(messages: &mut Receiver<Message>) -> Option<u64> {
        let all = std::iter::from_fn(|| messages.try_recv().ok());
        let reported = all.filter_map(|message| match message {
            Message::Reported { epoch } => Some(epoch),
            _ => None,
        });
        reported.last()
    }

    /// The archive's disk is full: what a system reported before it ended waits in memory.
    #[tokio::test]
    async fn what_an_ended_system_reported_is_held_until_it_is_archived() {
        for is_archived in [true, false] {
            let (running, mut messages, folder) = running(&format!("{is_archived}")).await;
            let hub = running.hub();
            let lane = |name| {
                let lanes = hub.lanes();
                lanes.iter().find(|lane| lane.system.name() == name).unwrap().clone()
            };
            let [chamelemon, sketchint] = ["chamelemon", "sketchint"].map(lane);
            hub.reporting(&sketchint, 100, 120);
            hub.archived("sketchint", 100);
            hub.reporting(&sketchint, 120, 140);
            hub.reporting(&chamelemon, 200, 201);
            sketchint.stop();
            let since = std::time::Instant::now();
            while hub.lanes().len() > 1 {
                assert!(since.elapsed() < std::time::Duration::from_secs(30), "it ends");
                tokio::task::yield_now().await;
            }
            hub.archived("chamelemon", 200);
            assert_eq!(
                acknowledged(&mut messages),
                Some(119),
                "its last report is not in the archive"
            );
            if is_archived {
                hub.archived("sketchint", 120);
                assert_eq!(acknowledged(&mut messages), Some(200));
            }
            // The archive takes reports in their order, so it has lost what it has not by then.
            hub.reporting(&chamelemon, 201, 202);
            hub.archived("chamelemon", 201);
            assert_eq!(acknowledged(&mut messages), Some(201));
            running.stop().await.unwrap();
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
