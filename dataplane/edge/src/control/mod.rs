//! The thread beside the lcores: keeps the connection to the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it, and at once when the controller
//! says something, so that clocks are compared well. While the controller is away the lcores go on
//! measuring; what they finish in that time is held for it, the newest as far as memory goes.

pub mod collect;
mod link;
mod queue;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use calumma_epoch::EpochClock;
use calumma_sketch::{Attention, FlowKey, HashFamily, IngressGroup};
use calumma_wire::{
    Defects, Holding, Message, Outcome, SideHead, SwitchKind, encode_egress, encode_ingress,
};
use tracing::{error, info, warn};

use self::collect::{Collector, Part, SessionPlan};
use self::link::Link;
use crate::config::Config;

/// How often the thread looks after everything.
const TICK: Duration = Duration::from_millis(1);

/// How long before an epoch is armed its attention must have arrived, so that every lcore finds it
/// in time.
const LEAD_NS: u64 = 2_000_000;

/// Nanoseconds since the Unix epoch by the system's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Totals of ports that only DPDK knows, by name; read once an epoch.
pub type PortTotals = dyn Fn() -> Vec<(String, u64)> + Send;

/// The control thread's state.
pub struct Control {
    name: String,
    collector: Collector,
    link: Link,
    port_totals: Box<PortTotals>,
    session: Option<Session>,
    /// The totals that this controller was told last.
    told: HashMap<String, u64>,
}

/// What is measured by at present.
struct Session {
    plan: SessionPlan,
    family: HashFamily,
    /// The attention accepted last.
    holding: Holding,
}

impl Control {
    /// Control over the lcores behind `collector`, for the switch that `config` describes.
    pub fn new(config: &Config, collector: Collector, port_totals: Box<PortTotals>) -> Self {
        Self {
            name: config.name.clone(),
            collector,
            link: Link::new(config.controller.clone()),
            port_totals,
            session: None,
            told: HashMap::new(),
        }
    }

    /// Runs until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.step(unix_ns());
            self.link.wait(TICK);
        }
        self.link.finish();
    }

    fn step(&mut self, now_ns: u64) {
        if self.link.connect_if_due() {
            info!(controller = self.link.address(), "connected");
            self.told.clear();
            self.link.send(&Message::Hello {
                edge: self.name.clone(),
                kind: SwitchKind::Software,
                program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
                holding: self.session.as_ref().map(|session| session.holding),
            });
        }
        match self.link.receive() {
            Ok(messages) => messages.into_iter().for_each(|message| self.hear(message, now_ns)),
            Err(problem) => {
                warn!(
                    controller = self.link.address(),
                    "{problem}; measuring goes on, trying again"
                );
            }
        }
        // The answers, before there is work to do that the controller's clock would see.
        self.link.flush();
        for part in self.collector.poll() {
            self.deliver(part);
        }
        self.link.flush();
    }

    fn hear(&mut self, message: Message, now_ns: u64) {
        match message {
            Message::Welcome {
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => {
                let clock = match EpochClock::new(epoch_length_ns, guards) {
                    Ok(clock) => clock,
                    Err(problem) => {
                        return error!("the controller's epochs can't be kept: {problem}");
                    }
                };
                let same = self.session.as_ref().is_some_and(|Session { plan, .. }| {
                    plan.layout == layout && plan.hash_key == hash_key && plan.clock == clock
                });
                self.link.queue.open();
                if same {
                    info!("the controller is back; measuring goes on");
                    self.reconfigure(effective_epoch, attention, now_ns);
                    return;
                }
                self.link.queue.give_up();
                let first_epoch = effective_epoch.max(clock.epoch_at(now_ns) + 2);
                let family = HashFamily::new(&hash_key);
                let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
                match self.collector.begin(&plan) {
                    Ok(()) => {
                        info!(first_epoch, epoch_ms = epoch_length_ns / 1_000_000, "measuring");
                        let holding = Holding { attention, effective_epoch: first_epoch };
                        self.session = Some(Session { plan, family, holding });
                    }
                    Err(problem) => error!("the controller's layout can't be built: {problem}"),
                }
            }
            Message::Probe { sent_ns } => {
                let answered_ns = unix_ns();
                self.link.send(&Message::Echo { sent_ns, received_ns: now_ns, answered_ns });
            }
            Message::Reported { epoch } => self.link.queue.reported(epoch),
            Message::Reconfigure { effective_epoch, attention } => {
                self.reconfigure(effective_epoch, attention, now_ns);
            }
            Message::Refused { reason } => {
                error!(controller = self.link.address(), "refused by the controller: {reason}");
                self.link.back_off();
            }
            other => warn!("the controller sent a {} frame, which no edge expects", other.name()),
        }
    }

    fn reconfigure(&mut self, effective_epoch: u64, attention: Attention, now_ns: u64) {
        let Some(Session { plan, holding, .. }) = &mut self.session else { return };
        if attention == holding.attention {
            return;
        }
        let earliest = plan.clock.epoch_at(now_ns + plan.clock.guards().clock_ns + LEAD_NS) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if effective_epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            self.collector.attend(effective_epoch, attention);
            *holding = Holding { attention, effective_epoch };
            Outcome::Accepted
        };
        self.link.send(&Message::Applied { effective_epoch, outcome });
    }

    fn deliver(&mut self, part: Part) {
        let Some(Session { family, .. }) = &self.session else { return };
        let mut frame = Vec::new();
        let epoch = match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                let mut totals = counters.named();
                totals.extend((self.port_totals)());
                totals.push(("undelivered.frames".to_owned(), self.link.queue.given_up()));
                // Only those that changed; an idle switch has nothing to tell.
                totals
                    .retain(|(name, total)| self.told.insert(name.clone(), *total) != Some(*total));
                let head = SideHead {
                    epoch,
                    attention: record.group.attention(),
                    defects: &Defects {
                        stall_ns: record.stall_ns,
                        mixed_attention,
                        ..Defects::default()
                    },
                    packets: record.packets,
                    counters: &totals,
                };
                let group = &record.group;
                let flows = if mixed_attention { None } else { hh_flows(group, family) };
                let flows = flows.as_deref();
                encode_ingress(&mut frame, &head, group.classifier(), group.upstream(), flows);
                self.collector.recycle(record);
                epoch
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let head = SideHead {
                    epoch,
                    attention: record.group.attention(),
                    defects: &Defects {
                        stall_ns: record.stall_ns,
                        foreign_packets: record.foreign_packets,
                        mixed_attention,
                    },
                    packets: record.packets,
                    counters: &[],
                };
                encode_egress(&mut frame, &head, record.group.downstream());
                self.collector.recycle(record);
                epoch
            }
            Part::Sealed { epoch, late_packets } => {
                Message::Sealed { epoch, late_packets }.encode(&mut frame);
                epoch
            }
        };
        self.link.queue.hold(epoch, frame);
    }
}

/// All that the HH encoder holds, where it decodes. Flows take half the bytes of its buckets, and
/// every edge that decodes its own saves the controller from decoding all of them.
fn hh_flows(group: &IngressGroup, family: &HashFamily) -> Option<Vec<(FlowKey, i64)>> {
    let decoded = group.upstream().part(&group.attention().partition.hh_part()).decode(family);
    let countable = |&(_, packets): &(_, i64)| (1..=i64::from(i32::MAX)).contains(&packets);
    let complete = decoded.is_complete() && decoded.flows().iter().all(countable);
    complete.then(|| decoded.flows().to_vec())
}
