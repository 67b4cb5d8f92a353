//! Which attention holds from which epoch on, who decided it, and which edges know.

use calumma_chamelemon::frames::{self, Holding};
use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::Timeline;
use calumma_wire::{Message, Outcome, SystemSetup};
use serde::Serialize;
use tracing::{error, info, warn};
use utoipa::ToSchema;

use super::audit::{By, Entry};
use crate::config::{AttentionSection, ShiftingMode};
use crate::report::{EpochConfig, NetworkState, PlanReport};
use crate::server::Hub;

/// The attention of each epoch.
#[derive(Debug)]
pub(crate) struct Plan {
    timeline: Timeline<Attention>,
    /// The last change: its epoch and what holds from then on.
    last: (u64, Attention),
    /// Whether attention was set by hand, and so stays until it is released.
    held: bool,
    /// `[attention]` as the configuration file had it last.
    file: AttentionSection,
    /// Whether an edge has sent what it measures by, or an epoch has been reported: until then,
    /// what the configuration asks for is no more than a guess at it.
    known: bool,
    /// Whether what holds was taken over from the edges, and nobody has asked for it yet.
    adopted: bool,
}

impl Plan {
    /// What a controller starts with: `attention`, after `[attention]` of its configuration file.
    pub(super) fn new(attention: Attention, file: AttentionSection) -> Self {
        Self {
            timeline: Timeline::new(attention),
            last: (0, attention),
            held: false,
            file,
            known: false,
            adopted: false,
        }
    }

    /// What an edge is sent that is to measure from `effective_epoch` on, and to write bodies of
    /// `version`.
    pub(crate) fn setup(&self, layout: &Layout, effective_epoch: u64, version: u8) -> SystemSetup {
        frames::setup(layout, self.timeline.at(effective_epoch), version)
    }

    /// The change that is still to come then.
    pub(crate) fn change_after(&self, effective_epoch: u64) -> Option<Message> {
        let (epoch, attention) = &self.last;
        (*epoch > effective_epoch).then(|| reconfigure(*epoch, attention))
    }
}

/// The message that lets `attention` hold from `effective_epoch` on.
pub(crate) fn reconfigure(effective_epoch: u64, attention: &Attention) -> Message {
    Message::Reconfigure {
        system: frames::ID,
        effective_epoch,
        plan: frames::encode_plan(attention),
    }
}

/// Why attention changes.
struct Decision<'a> {
    by: By,
    observed_epoch: Option<u64>,
    reasons: &'a [String],
}

/// Attention as `GET /api/v1/attention` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct AttentionStatus {
    /// What is done with plans.
    pub mode: ShiftingMode,
    /// Whether it was set by hand and waits to be released.
    pub held: bool,
    /// The first epoch that it holds for; 0 since the start.
    pub since_epoch: u64,
    /// The network state that it is made for.
    pub state: NetworkState,
    /// The attention itself.
    pub config: EpochConfig,
}

impl Hub {
    /// Takes over what the first edge that measures already holds, as a controller that has just
    /// started: what the switches do changes only by decision.
    pub(crate) fn adopt(&self, plan: &mut Plan, holding: &Holding, now_ns: u64) {
        let attention = holding.attention;
        if std::mem::replace(&mut plan.known, true)
            || attention == plan.last.1
            || attention.validate(&self.config().layout).is_err()
        {
            return;
        }
        plan.timeline = Timeline::new(attention);
        plan.last = (holding.effective_epoch, attention);
        plan.adopted = true;
        info!("the edges measure already; their attention is taken over");
        // Edges that came before, and measured nothing yet, follow.
        self.send_attention(self.earliest_epoch(now_ns), &attention);
    }

    /// Sets attention by hand: it holds as soon as every switch can follow, and is not shifted
    /// before it is [released](Self::release). Gives the first epoch in which it holds; `None`
    /// where it does already.
    ///
    /// # Errors
    /// What doesn't fit the switches' memory.
    pub fn change_attention(
        &self,
        wanted: &AttentionSection,
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        let attention = wanted.on(&self.config().layout)?;
        let mut plan = self.chamelemon.plan();
        plan.held = self.config().shifting.plans();
        if plan.last.1 == attention {
            return Ok(None);
        }
        let decision = Decision { by: By::Operator, observed_epoch: None, reasons: &[] };
        self.apply(&mut plan, attention, &decision, now_ns).map(Some)
    }

    /// Takes over `[attention]` of a configuration file that was read again, as set by hand, where
    /// it differs from what the file said before.
    ///
    /// # Errors
    /// What doesn't fit the switches' memory.
    pub(crate) fn reload_attention(
        &self,
        file: &AttentionSection,
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        if self.chamelemon.plan().file == *file {
            return Ok(None);
        }
        let changed = self.change_attention(file, now_ns)?;
        self.chamelemon.plan().file = *file;
        Ok(changed)
    }

    /// Lets attention that was set by hand be shifted again.
    pub fn release(&self) {
        self.chamelemon.plan().held = false;
    }

    /// The attention of the epochs to come, and the first of them that it holds for.
    pub(crate) fn standing(&self) -> (u64, Attention) {
        self.chamelemon.plan().last
    }

    /// What `GET /api/v1/attention` shows.
    pub fn attention(&self) -> AttentionStatus {
        let plan = self.chamelemon.plan();
        let (since_epoch, attention) = plan.last;
        let mode = self.config().shifting.mode;
        let (state, config) = ((&attention).into(), (&attention).into());
        AttentionStatus { mode, held: plan.held, since_epoch, state, config }
    }

    /// Lets the planner's attention hold as soon as every switch can follow, and gives the first
    /// epoch in which it does; `None` where it is not the planner's to change.
    ///
    /// # Errors
    /// When the timeline has no place for it.
    pub(crate) fn shift(
        &self,
        observed_epoch: u64,
        attention: Attention,
        reasons: &[String],
        now_ns: u64,
    ) -> Result<Option<u64>, String> {
        let mut plan = self.chamelemon.plan();
        if plan.held || self.config().shifting.mode != ShiftingMode::Shift {
            return Ok(None);
        }
        let observed_epoch = Some(observed_epoch);
        let decision = Decision { by: By::Planner, observed_epoch, reasons };
        self.apply(&mut plan, attention, &decision, now_ns).map(Some)
    }

    /// Notes in the audit log what the planner would have done.
    pub(crate) fn note_not_applied(&self, observed_epoch: u64, report: &PlanReport, now_ns: u64) {
        let (_, from) = self.standing();
        if let Some(audit) = &self.chamelemon.audit {
            audit.append(&Entry {
                unix_ns: now_ns,
                by: By::PlannerNotApplied,
                observed_epoch: Some(observed_epoch),
                effective_epoch: report.effective_epoch,
                state: report.state,
                from: (&from).into(),
                to: report.config,
                reasons: &report.reasons,
            });
        }
    }

    fn apply(
        &self,
        plan: &mut Plan,
        attention: Attention,
        decision: &Decision<'_>,
        now_ns: u64,
    ) -> Result<u64, String> {
        // Not before a change of the hash key that edges have been sent already: those that measure
        // until then are not sent anything more.
        let mut epoch = self.earliest_epoch(now_ns).max(self.keys().newest().from_epoch);
        if let Err(too_late) = plan.timeline.change(epoch, attention) {
            epoch = too_late.earliest;
            plan.timeline.change(epoch, attention).map_err(|error| error.to_string())?;
        }
        let (_, from) = std::mem::replace(&mut plan.last, (epoch, attention));
        plan.known = true;
        plan.adopted = false;
        self.send_attention(epoch, &attention);
        if let Some(audit) = &self.chamelemon.audit {
            audit.append(&Entry {
                unix_ns: now_ns,
                by: decision.by,
                observed_epoch: decision.observed_epoch,
                effective_epoch: epoch,
                state: (&attention).into(),
                from: (&from).into(),
                to: (&attention).into(),
                reasons: decision.reasons,
            });
        }
        Ok(epoch)
    }

    /// Begins anew at `now_ns`, where the controller's clock was ahead and was set back: epochs are
    /// frozen that are still to come. What was to hold from a later epoch on holds as soon as every
    /// switch can follow. What holds until then is not known where a change came into force in a
    /// frozen epoch: that one is taken for it, though edges may still measure by the one before.
    pub(super) fn plan_anew(&self, now_ns: u64) {
        let mut plan = self.chamelemon.plan();
        let epoch = self.earliest_epoch(now_ns).max(self.keys().newest().from_epoch);
        let (since, attention) = plan.last;
        if since <= epoch {
            plan.timeline = Timeline::new(attention);
            return;
        }
        plan.timeline = Timeline::new(*plan.timeline.at(epoch));
        if let Err(too_late) = plan.timeline.change(epoch, attention) {
            return error!("attention stays as it is: {too_late}");
        }
        plan.last = (epoch, attention);
        self.send_attention(epoch, &attention);
        info!(epoch, "the controller's clock was ahead: attention for a later epoch is sent again");
    }

    /// What was planned for `epoch`, which is now being reported.
    pub(crate) fn planned(&self, epoch: u64) -> Attention {
        self.chamelemon.plan().timeline.freeze(epoch)
    }

    /// Hears what became of a reconfiguration. An edge that was too late gets another chance.
    pub(crate) fn applied(&self, edge: usize, effective_epoch: u64, outcome: Outcome) {
        let attention = self.chamelemon.plan().last.1;
        let name = &self.node(edge).name;
        let mut again = None;
        match &outcome {
            Outcome::Accepted => info!(edge = name, effective_epoch, "attention accepted"),
            Outcome::TooLate { earliest } => {
                // One more epoch, so that the answer is not too late again.
                let effective_epoch = earliest.saturating_add(1);
                warn!(edge = name, effective_epoch, "attention came too late; sent again");
                again = Some(reconfigure(effective_epoch, &attention));
            }
            Outcome::Invalid { reason } => {
                error!(edge = name, effective_epoch, "not accepted: {reason}");
            }
        }
        self.note_outcome(edge, outcome, again);
    }

    /// Once an epoch has been reported, what the edges do is known, and what the configuration asks
    /// for may hold.
    pub(super) fn attention_is_known(&self, now_ns: u64) {
        let adopted = {
            let mut plan = self.chamelemon.plan();
            plan.known = true;
            std::mem::take(&mut plan.adopted)
        };
        // Where attention is shifted, what the configuration asks for is no more than a start.
        if adopted && !self.config().shifting.plans() {
            match self.change_attention(&self.config().attention, now_ns) {
                Ok(Some(epoch)) => info!(epoch, "the configuration's attention sent to the edges"),
                Ok(None) => {}
                Err(problem) => error!("[attention]: {problem}"),
            }
        }
    }
}
