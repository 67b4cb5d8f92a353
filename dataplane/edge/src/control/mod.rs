//! The thread beside the lcores: keeps the conversation with the controller, begins and ends
//! measurement, hands attention to the lcores and finished groups to the controller.
//!
//! It wakes once a millisecond, so that no lcore ever has to wake it, and at once when the controller
//! says something, so that clocks are compared well. While the controller is away the lcores go on
//! measuring; what they finish in that time is held for it, the newest as far as memory goes.

pub mod collect;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calumma_link::{Conversation, EgressSide, Identity, IngressSide, Measurer};
use calumma_sketch::Attention;
use calumma_wire::{Defects, SwitchKind};

pub use calumma_link::unix_ns;

use self::collect::{Collector, Part, SessionPlan};
use crate::config::Config;

/// How often the thread looks after everything.
const TICK: Duration = Duration::from_millis(1);

/// How long before an epoch is armed its attention must have arrived, so that every lcore finds it
/// in time.
const LEAD_NS: u64 = 2_000_000;

/// Totals of ports that only DPDK knows, by name; read once an epoch.
pub type PortTotals = dyn Fn() -> Vec<(String, u64)> + Send;

/// The control thread's state.
pub struct Control {
    collector: Collector,
    conversation: Conversation,
    port_totals: Box<PortTotals>,
}

impl Control {
    /// Control over the lcores behind `collector`, for the switch that `config` describes.
    pub fn new(config: &Config, collector: Collector, port_totals: Box<PortTotals>) -> Self {
        let identity = Identity {
            edge: config.name.clone(),
            kind: SwitchKind::Software,
            program: concat!("calumma-edge ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let conversation = Conversation::new(identity, config.controller.clone());
        Self { collector, conversation, port_totals }
    }

    /// Runs until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.conversation.step(unix_ns(), &mut self.collector);
            for part in self.collector.poll() {
                self.deliver(part);
            }
            self.conversation.flush();
            self.conversation.wait(TICK);
        }
        self.conversation.finish();
    }

    fn deliver(&mut self, part: Part) {
        match part {
            Part::Ingress { epoch, record, mixed_attention, counters } => {
                let mut totals = counters.named();
                totals.extend((self.port_totals)());
                let group = &record.group;
                let side = IngressSide {
                    epoch,
                    attention: group.attention(),
                    defects: Defects {
                        stall_ns: record.stall_ns,
                        mixed_attention,
                        ..Defects::default()
                    },
                    packets: record.packets,
                    classifier: group.classifier(),
                    upstream: group.upstream(),
                };
                self.conversation.ingress(&side, totals);
                self.collector.recycle(record);
            }
            Part::Egress { epoch, record, mixed_attention } => {
                let side = EgressSide {
                    epoch,
                    attention: record.group.attention(),
                    defects: Defects {
                        stall_ns: record.stall_ns,
                        foreign_packets: record.foreign_packets,
                        mixed_attention,
                    },
                    packets: record.packets,
                    downstream: record.group.downstream(),
                };
                self.conversation.egress(&side);
                self.collector.recycle(record);
            }
            Part::Sealed { epoch, late_packets } => self.conversation.sealed(epoch, late_packets),
        }
    }
}

impl Measurer for Collector {
    type Error = anyhow::Error;

    fn begin(&mut self, plan: &SessionPlan) -> anyhow::Result<()> {
        Collector::begin(self, plan)
    }

    fn attend(&mut self, epoch: u64, attention: Attention) {
        Collector::attend(self, epoch, attention);
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn setup_ns(&self) -> u64 {
        0
    }
}
