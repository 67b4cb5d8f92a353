//! The fabric without Calumma: DPDK's own forwarder in place of each edge, the demo's traffic
//! through it, and what the routers dropped. It shows what the machine carries, and that nothing
//! else drops: what the demo builds on.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::fabric::{FlowLoss, Pair, Passage, Run, Testpmd};
use crate::table::table;
use crate::traffic::{Mix, Report};

/// What the baseline showed.
#[derive(Debug, Serialize)]
pub struct Baseline {
    /// What the applications say.
    pub traffic: Report,
    /// Where the packets went.
    pub passage: Passage,
    /// What the routers dropped of each flow.
    pub losses: Vec<FlowLoss>,
}

/// Builds the fabric, runs the traffic, and reads the counters when it is quiet again. `testbed` is
/// the calumma-testbed program.
pub fn run(mix: &Mix, loss_permille: u16, testbed: &Path) -> Result<Baseline> {
    let run = Run::begin()?;
    let pair = Pair::create(&run, loss_permille)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut forwarders = Vec::new();
    for edge in 0..pair.edges().len() {
        forwarders.push(Testpmd::start(&run, &pair, edge, edge % cpus, run.directory())?);
    }
    for forwarder in &mut forwarders {
        forwarder.wait_ready(&pair)?;
    }
    let traffic = mix.run(&pair, testbed, run.directory());
    for forwarder in &mut forwarders {
        // Without a forwarder no traffic gets through, but it is the forwarder that knows why.
        forwarder.check_running()?;
    }
    let traffic = traffic?;
    pair.wait_quiet()?;
    let baseline = Baseline { traffic, passage: pair.passage()?, losses: pair.losses()? };
    for forwarder in forwarders {
        forwarder.stop()?;
    }
    Ok(baseline)
}

impl Baseline {
    /// The result for a terminal; `mix` is what was sent.
    pub fn to_text(&self, mix: &Mix) -> String {
        let mbit =
            |bytes: u64| format!("{}", bytes * 8 / 1_000_000 / u64::from(mix.seconds.max(1)));
        let Report { tcp, tcp_reverse, udp, short } = &self.traffic;
        let transfers = [("TCP h1 > h2", tcp), ("TCP h2 > h1", tcp_reverse), ("UDP h1 > h2", udp)];
        let mut text = table(
            ["traffic", "sent Mbit/s", "received Mbit/s", "retransmits", "missed datagrams"],
            &transfers.map(|(name, t)| {
                [
                    name.to_owned(),
                    mbit(t.sent_bytes),
                    mbit(t.received_bytes),
                    t.retransmits.to_string(),
                    t.lost_datagrams.to_string(),
                ]
            }),
        );
        text += &format!(
            "{} short TCP connections completed, {} failed{}\n\n",
            short.completed,
            short.failed,
            short.first_failure.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
        );
        let hops: Vec<_> = self
            .passage
            .hops
            .iter()
            .map(|hop| {
                [
                    hop.name.clone(),
                    hop.entered.to_string(),
                    hop.left.to_string(),
                    hop.dropped.to_string(),
                    hop.unexplained().to_string(),
                ]
            })
            .collect();
        text += &table(["hop", "packets in", "packets out", "dropped", "unexplained"], &hops);
        let lost: u64 = self.losses.iter().map(|l| l.lost).sum();
        text += &format!("\nthe routers dropped {lost} packets of {} flows\n", self.losses.len());
        for complaint in self.passage.complaints() {
            text += &format!("{complaint}\n");
        }
        text
    }
}
