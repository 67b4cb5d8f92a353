//! A capture through an ingress edge and an egress edge, in virtual time.
//!
//! The edges are the live switch's own workers and collectors, the analysis is the controller's
//! own; only ports, clocks and the connection are missing. Epochs follow the capture's timestamps,
//! packets travel from edge to edge in no time, and whoever replays decides which of them are lost.
//!
//! [`Replay`] is ChameleMon alone. Any systems, and switches between the edges, are a [`Line`], in
//! which nodes and controller are connected as in a simulation.

mod edge;
mod file;
mod line;
mod lose;

use anyhow::Result;
use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::analyse::{Analyser, EpochInput, Tasks};
use calumma_controller::report::EpochReport;
use calumma_edge::packet::Frame;
use calumma_epoch::EpochClock;
use calumma_sketch::{HashKey, WideKey};

use self::edge::Edge;
pub use self::file::{run, run_line};
pub use self::line::{Held, Line, MOST_HOPS, Outcome, Passage};
pub use self::lose::Lose;

/// Epochs without a packet after which the replay begins anew instead of living through them.
const LONGEST_SILENCE: u64 = 200;

/// What a replay measures by.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory of the sketches.
    pub layout: Layout,
    /// Secret from which the hash tables are drawn.
    pub hash_key: HashKey,
    /// Epoch length and guards.
    pub clock: EpochClock,
    /// Thresholds and division of memory, for the whole replay.
    pub attention: Attention,
    /// What to report.
    pub tasks: Tasks,
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Packets that entered.
    pub packets: u64,
    /// Packets that were recorded; the others are malformed or not measured.
    pub measured: u64,
    /// Packets that were lost between the edges.
    pub lost: u64,
    /// Packets whose timestamps lay before that of the packet in front of them; they count as sent
    /// at the same time as that one.
    pub out_of_order: u64,
    /// Reports given.
    pub epochs: u64,
}

/// A replay under way. Each call gives the reports of the epochs that are over by then.
#[derive(Debug)]
pub struct Replay {
    setup: Setup,
    lose: Lose,
    ingress: Edge,
    egress: Edge,
    analyser: Analyser,
    /// First epoch of the session and the time of the last packet; none before the first one.
    running: Option<(u64, u64)>,
    next_epoch: u64,
    summary: Summary,
}

impl Replay {
    /// A replay whose packets are lost as `lose` says.
    pub fn new(setup: Setup, lose: Lose) -> Self {
        let analyser =
            Analyser::new(setup.layout.clone(), &setup.hash_key, setup.clock, setup.tasks);
        Self {
            setup,
            lose,
            ingress: Edge::new("e1"),
            egress: Edge::new("e2"),
            analyser,
            running: None,
            next_epoch: 0,
            summary: Summary::default(),
        }
    }

    /// Sends a packet of which `bytes` are at hand and which was `wire_len` bytes long, at
    /// `timestamp_ns` since the Unix epoch.
    ///
    /// # Errors
    /// When the layout or the attention is invalid.
    pub fn packet(
        &mut self,
        timestamp_ns: u64,
        wire_len: usize,
        bytes: &[u8],
    ) -> Result<Vec<EpochReport>> {
        let mut reports = Vec::new();
        let now_ns = match self.running {
            None => timestamp_ns,
            Some((_, last_ns)) => {
                self.summary.out_of_order += u64::from(timestamp_ns < last_ns);
                timestamp_ns.max(last_ns)
            }
        };
        let epoch = self.setup.clock.epoch_at(now_ns);
        match self.running {
            Some((_, last_ns)) if epoch <= self.setup.clock.epoch_at(last_ns) + LONGEST_SILENCE => {
            }
            _ => {
                reports.extend(self.finish()?);
                self.begin(epoch)?;
            }
        }
        self.running = Some((self.running.map_or(epoch, |(first, _)| first), now_ns));
        reports.extend(self.advance_to(now_ns));

        self.summary.packets += 1;
        let mut frame = Frame::new(bytes.to_vec()).cut_from(wire_len);
        self.summary.measured += u64::from(self.ingress.enter(&mut frame));
        if self.lose.loses(&frame, self.setup.layout.keys) {
            self.summary.lost += 1;
        } else {
            self.egress.leave(&mut frame);
        }
        Ok(reports)
    }

    /// Lets the last epoch end, and gives the reports that were still to come.
    ///
    /// # Errors
    /// None but those of [`packet`](Self::packet).
    pub fn finish(&mut self) -> Result<Vec<EpochReport>> {
        let Some((_, last_ns)) = self.running.take() else { return Ok(Vec::new()) };
        let last = self.setup.clock.epoch_at(last_ns);
        // The last epoch is sealed when its timestamp bit is armed anew.
        Ok(self
            .advance_to(self.setup.clock.start_of(last + 2))
            .into_iter()
            .filter(|report| report.epoch <= last)
            .collect())
    }

    /// The size of a flow in the last epoch that was reported, where the ingress edge knows it.
    pub fn size_of(&self, flow: &WideKey) -> Option<u64> {
        let sizes = self.analyser.sizes().get("e1")?;
        Some(sizes.size_of(&flow.into())?.size)
    }

    /// What has become of the packets so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    fn begin(&mut self, first_epoch: u64) -> Result<()> {
        let plan = SessionPlan {
            layout: self.setup.layout.clone(),
            hash_key: self.setup.hash_key,
            clock: self.setup.clock,
            first_epoch,
            attention: self.setup.attention,
        };
        self.ingress.begin(&plan)?;
        self.egress.begin(&plan)?;
        self.next_epoch = first_epoch;
        Ok(())
    }

    fn advance_to(&mut self, now_ns: u64) -> Vec<EpochReport> {
        self.ingress.advance_to(now_ns);
        self.egress.advance_to(now_ns);
        let mut reports = Vec::new();
        while self.ingress.is_whole(self.next_epoch) && self.egress.is_whole(self.next_epoch) {
            let epoch = self.next_epoch;
            let input = EpochInput {
                epoch,
                planned: self.setup.attention,
                edges: vec![self.ingress.take(epoch), self.egress.take(epoch)],
            };
            reports.push(self.analyser.analyse(input));
            self.next_epoch += 1;
        }
        self.summary.epochs += reports.len() as u64;
        reports
    }
}
