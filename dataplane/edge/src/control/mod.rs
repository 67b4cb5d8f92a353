//! The thread beside the lcores: keeps the connection to the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it. While the controller is away
//! the lcores go on measuring; what they finish in that time has nobody to go to and is counted.

pub mod collect;
mod link;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use calumma_epoch::EpochClock;
use calumma_wire::{Defects, Message, Outcome, SwitchKind};
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
    plan: Option<SessionPlan>,
    welcome: bool,
    undelivered: u64,
}

impl Control {
    /// Control over the lcores behind `collector`, for the switch that `config` describes.
    pub fn new(config: &Config, collector: Collector, port_totals: Box<PortTotals>) -> Self {
        Self {
            name: config.name.clone(),
            collector,
            link: Link::new(config.controller.clone()),
            port_totals,
            plan: None,
            welcome: false,
            undelivered: 0,
        }
    }

    /// Runs until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.step(unix_ns());
            std::thread::sleep(TICK);
        }
        self.link.finish();
    }

    fn step(&mut self, now_ns: u64) {
        if self.link.connect_if_due() {
            info!(controller = self.link.address(), "connected");
            self.welcome = false;
            self.link.send(&Message::Hello {
                edge: self.name.clone(),
                kind: SwitchKind::Software,
                program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
            });
        }
        match self.link.receive() {
            Ok(messages) => messages.into_iter().for_each(|message| self.hear(message, now_ns)),
            Err(problem) => {
                warn!(
                    controller = self.link.address(),
                    "{problem}; measuring goes on, trying again"
                );
                self.welcome = false;
            }
        }
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
                self.welcome = true;
                let same = self.plan.as_ref().is_some_and(|plan| {
                    plan.layout == layout && plan.hash_key == hash_key && plan.clock == clock
                });
                if same {
                    info!("the controller is back; measuring goes on");
                    self.reconfigure(effective_epoch, attention, now_ns);
                    return;
                }
                let first_epoch = effective_epoch.max(clock.epoch_at(now_ns) + 2);
                let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
                match self.collector.begin(&plan) {
                    Ok(()) => {
                        info!(first_epoch, epoch_ms = epoch_length_ns / 1_000_000, "measuring");
                        self.plan = Some(plan);
                    }
                    Err(problem) => error!("the controller's layout can't be built: {problem}"),
                }
            }
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

    fn reconfigure(
        &mut self,
        effective_epoch: u64,
        attention: calumma_sketch::Attention,
        now_ns: u64,
    ) {
        let Some(plan) = &self.plan else { return };
        let earliest = plan.clock.epoch_at(now_ns + plan.clock.guards().clock_ns + LEAD_NS) + 1;
        let outcome = if let Err(problem) = attention.validate(&plan.layout) {
            Outcome::Invalid { reason: problem.to_string() }
        } else if effective_epoch < earliest {
            Outcome::TooLate { earliest }
        } else {
            self.collector.attend(effective_epoch, attention);
            Outcome::Accepted
        };
        self.link.send(&Message::Applied { effective_epoch, outcome });
    }

    fn deliver(&mut self, part: Part) {
        if !self.welcome {
            self.undelivered += 1;
        }
        match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                if self.welcome {
                    let defects = Defects {
                        stall_ns: record.stall_ns,
                        mixed_attention,
                        ..Defects::default()
                    };
                    let mut totals = counters.named();
                    totals.extend((self.port_totals)());
                    totals.push(("undelivered.frames".to_owned(), self.undelivered));
                    let attention = *record.group.attention();
                    self.link.send_frame(|out| {
                        calumma_wire::encode_ingress(
                            out,
                            epoch,
                            &attention,
                            &defects,
                            record.packets,
                            &totals,
                            record.group.classifier(),
                            record.group.upstream(),
                        );
                    });
                }
                self.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                if self.welcome {
                    let defects = Defects {
                        stall_ns: record.stall_ns,
                        foreign_packets: record.foreign_packets,
                        mixed_attention,
                        ..Defects::default()
                    };
                    let attention = *record.group.attention();
                    self.link.send_frame(|out| {
                        calumma_wire::encode_egress(
                            out,
                            epoch,
                            &attention,
                            &defects,
                            record.packets,
                            &[],
                            record.group.downstream(),
                        );
                    });
                }
                self.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets } => {
                if self.welcome {
                    self.link.send(&Message::Sealed { epoch, late_packets });
                }
            }
        }
    }
}
