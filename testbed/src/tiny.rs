//! Tiny networks that do at random whatever networks do to packets: two edges, a dozen flows, a few
//! epochs each, and so many of them that rare meetings of rare things come up.
//!
//! Everything of a network is drawn from its seed and the troubles that are asked for, which play
//! it again: `calumma-testbed tiny --from SEED --networks 1`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_controller::analyse::Tasks;
use calumma_controller::report::{Amendment, EpochReport, Flow};
use calumma_epoch::{EpochClock, Guards};
use calumma_sketch::{HashKey, KeyKind, Level};
use clap::ValueEnum;

use crate::carrier::Carrier;
use crate::simulate::{
    ControlQuality, Detail, EpochTruth, Judgement, Kept, Lcores, Outcome, Setup, Simulation,
    SwitchClock, Systems, Treatment,
};
use crate::topology::{LinkQuality, Topology};
use crate::workload::{Chosen, Draw, Sizes, Traffic};

/// Networks that a thread plays at a time.
const PIECE: u64 = 50;

/// Epochs that are played behind those that are judged: what later ones show of a report may still
/// amend it.
const AFTER: u64 = 8;

/// Links between the two edges.
const LINKS: f64 = 2.0;

/// For how long a link holds packets up at most, in milliseconds: both of them for less than the 40
/// epochs that amendments reach back.
const LONGEST_MS: f64 = 975.0;

/// What a network may do, or its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Trouble {
    /// Links lose packets.
    Loss,
    /// Packets overtake one another.
    Jitter,
    /// Links copy packets.
    Copies,
    /// Links set the DSCP of packets, to 0 or another value.
    Remarks,
    /// A link translates destinations or sources of flows.
    Translation,
    /// Links hold up packets, all on the way together for up to 39 epochs.
    Late,
    /// Routers within the network send packets that no edge saw enter.
    Strangers,
    /// Flows are chosen against public checksums, and may be lost.
    Chosen,
    /// Flows send a packet every 30 to 200 ms.
    Sparse,
    /// A clock is further off than the guards allow.
    Clocks,
    /// Links translate destinations and sources, so that of some flows both ends change.
    BothEnds,
    /// Connections to the controller are slow, stand still and break.
    Control,
    /// The controller keeps an archive on a disk that fails and loses power, and is killed.
    Disk,
    /// Packets carry their marks in the identification, and not in the ToS byte.
    IpId,
    /// All packets are of IPv6 and carry their marks in the flow label.
    FlowLabel,
}

impl Trouble {
    /// All there are.
    pub const ALL: [Self; 15] = [
        Self::Loss,
        Self::Jitter,
        Self::Copies,
        Self::Remarks,
        Self::Translation,
        Self::Late,
        Self::Strangers,
        Self::Chosen,
        Self::Sparse,
        Self::Clocks,
        Self::BothEnds,
        Self::Control,
        Self::Disk,
        Self::IpId,
        Self::FlowLabel,
    ];

    /// Those that no report may be wrong about, in whatever company.
    pub const HOLDS: [Self; 10] = [
        Self::Loss,
        Self::Jitter,
        Self::Copies,
        Self::Strangers,
        Self::Sparse,
        Self::Clocks,
        Self::Translation,
        Self::Control,
        Self::IpId,
        Self::FlowLabel,
    ];

    /// The same with disks, which take more time than all the rest.
    pub const WITH_DISKS: [Self; Self::HOLDS.len() + 1] = {
        let mut all = [Self::Disk; Self::HOLDS.len() + 1];
        let (others, _) = all.split_at_mut(Self::HOLDS.len());
        others.copy_from_slice(&Self::HOLDS);
        all
    };
}

/// A network that is drawn from a seed.
#[derive(Debug)]
pub struct Tiny {
    seed: u64,
    /// What it does.
    pub troubles: Vec<Trouble>,
    links: LinkQuality,
    /// What the first edge's link does besides: `dnat` or `snat`.
    translates: [f64; 2],
    traffic: Vec<Traffic>,
    detail: Detail,
    carrier: Carrier,
    attention: Attention,
    /// Epochs that are judged.
    pub epochs: u64,
    /// By how much the second edge's clock is ahead, in nanoseconds.
    clock_ns: f64,
    /// What connections to the controller do, up to this epoch.
    pub control: ControlQuality,
    /// See [`control`](Self::control).
    pub calm_from: u64,
    /// Whether the controller waits for as long as connections may be away.
    pub is_patient: bool,
}

/// What became of a network, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Networks.
    pub networks: u64,
    /// Epochs reported.
    pub epochs: u64,
    /// Those of them that claim to be whole.
    pub complete: u64,
    /// Those of them whose encoders decoded: they name losses.
    pub exact: u64,
    /// Packets that were lost in epochs that claim to name every loss, and carried an encoding.
    pub lost: u64,
    /// Packets that such reports name as lost.
    pub named: u64,
    /// Those of them that were not lost.
    pub false_lost: u64,
    /// Those that were lost as reports have it, whole epochs of them: without a bound, a cause for
    /// doubt or an amendment.
    pub exactly: u64,
    /// Packets that reports named as lost, and that later ones say were late.
    pub amended: u64,
    /// Packets that were lost and not named, since others of their flow stood in for them.
    pub hidden: u64,
    /// Flows that reports name as victims or as too many, and that no host sent.
    pub ghosts: u64,
    /// Connections to the controller that broke.
    pub broken: u64,
    /// Epochs that archives on faulty disks acknowledged.
    pub archived: u64,
    /// Times that a controller with such an archive was killed, or its power went.
    pub ends: u64,
    /// Operations of disks that failed.
    pub failures: u64,
    /// The last epoch of a network that is incomplete.
    pub last_incomplete: Option<u64>,
    /// What reports claim and is not so: seed, epoch, and words.
    pub wrong: Vec<(u64, u64, String)>,
    /// Epochs that are not complete by cause, which is a reason without names and numbers.
    pub incomplete: BTreeMap<String, u64>,
    /// What was done to packets, and to how many.
    pub treated: BTreeMap<&'static str, u64>,
}

impl Sum {
    /// Adds what became of other networks.
    pub fn add(&mut self, other: Self) {
        self.networks += other.networks;
        self.epochs += other.epochs;
        self.complete += other.complete;
        self.exact += other.exact;
        self.lost += other.lost;
        self.named += other.named;
        self.false_lost += other.false_lost;
        self.exactly += other.exactly;
        self.amended += other.amended;
        self.hidden += other.hidden;
        self.ghosts += other.ghosts;
        self.broken += other.broken;
        self.archived += other.archived;
        self.ends += other.ends;
        self.failures += other.failures;
        self.last_incomplete = self.last_incomplete.max(other.last_incomplete);
        self.wrong.extend(other.wrong);
        for (cause, epochs) in other.incomplete {
            *self.incomplete.entry(cause).or_default() += epochs;
        }
        for (what, packets) in other.treated {
            *self.treated.entry(what).or_default() += packets;
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { networks, epochs, complete, exact, lost, named, .. } = self;
        writeln!(f, "{networks} networks, {epochs} epochs: {complete} complete, {exact} exact")?;
        writeln!(
            f,
            "in exact ones {lost} packets lost, {named} named, {} of them exactly, {} false, {} amended; {} hidden; {} ghosts",
            self.exactly, self.false_lost, self.amended, self.hidden, self.ghosts
        )?;
        let treated = self.treated.iter().map(|(what, packets)| format!("{packets} {what}"));
        writeln!(f, "packets: {}", treated.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "{} connections to controllers broke", self.broken)?;
        let Self { archived, ends, failures, .. } = self;
        writeln!(
            f,
            "{archived} epochs archived; {ends} controllers killed or without power, {failures} \
             failures of disks"
        )?;
        for (cause, epochs) in &self.incomplete {
            writeln!(f, "incomplete in {epochs} epochs: {cause}")?;
        }
        for (seed, epoch, wrong) in self.wrong.iter().take(10) {
            writeln!(f, "WRONG: seed {seed}, epoch {epoch}: {wrong}")?;
        }
        match self.wrong.len() {
            0 => Ok(()),
            wrong => writeln!(f, "{wrong} reports are wrong"),
        }
    }
}

impl Tiny {
    /// The network of a seed, which does some of `troubles`.
    pub fn draw(seed: u64, troubles: &[Trouble]) -> Self {
        let draw = Draw::new(seed);
        let with = |trouble: &Trouble| draw.of(*trouble as u64).share() < 0.4;
        let troubles: Vec<Trouble> = troubles.iter().copied().filter(with).collect();
        let is = |trouble| troubles.contains(&trouble);
        let draw = draw.of(u64::MAX);
        // From one in a hundred to all, small shares as often as large ones.
        let share = |trouble: Trouble, what: u64| {
            let drawn = draw.of(trouble as u64).of(what).share();
            if is(trouble) { 100_f64.powf(-drawn) } else { 0.0 }
        };
        let either = |trouble: Trouble| draw.of(trouble as u64).of(2).below(3);
        let dscps = [0, 0, 0, 10, 46, 48, 56];
        let translated = share(Trouble::Translation, 0);
        let translates = match either(Trouble::Translation) {
            0 => [translated, 0.0],
            _ => [0.0, translated],
        };
        let links = LinkQuality {
            loss: share(Trouble::Loss, 0) / 3.0,
            jitter_us: if is(Trouble::Jitter) { 800.0 } else { 0.0 },
            duplicate: share(Trouble::Copies, 0) / 2.0,
            remark: share(Trouble::Remarks, 0),
            dscp: dscps[draw.of(Trouble::Remarks as u64).of(1).below(7) as usize],
            dnat: share(Trouble::BothEnds, 0),
            snat: share(Trouble::BothEnds, 1),
            late: share(Trouble::Late, 0),
            late_ms: [20.0, if either(Trouble::Late) == 0 { LONGEST_MS } else { 120.0 }],
            ..LinkQuality::default()
        };
        let flows = 2 + draw.of(20).below(10) as u32;
        let packets = 1 + draw.of(21).below(5) as u32;
        let ipv6 = if is(Trouble::FlowLabel) { 1.0 } else { 0.0 };
        let sizes = Sizes::Constant(packets);
        let ordinary = Traffic { flows, sizes, ipv6, ..Traffic::default() };
        let mut traffic = vec![Traffic {
            gap_ms: is(Trouble::Sparse).then_some([30.0, 200.0]),
            ..ordinary.clone()
        }];
        if is(Trouble::Strangers) {
            let tos = [0xC0, 0x00, 0x48][either(Trouble::Strangers) as usize];
            let gap_ms = Some([10.0, 200.0]);
            let inside = Some(tos);
            traffic.push(Traffic { flows: 2, gap_ms, inside, ipv6, ..Traffic::default() });
        }
        // These are of IPv4.
        if is(Trouble::Chosen) && !is(Trouble::FlowLabel) {
            let chosen = [Chosen::Jam, Chosen::Triples][(either(Trouble::Chosen) % 2) as usize];
            let is_lost = draw.of(22).share() < 0.7;
            let (victims, loss) = (f64::from(u8::from(is_lost)), [1.0, 1.0]);
            let (chosen, sizes) = (Some(chosen), Sizes::Constant(1));
            traffic.push(Traffic { flows: 2, chosen, victims, loss, sizes, ..ordinary });
        }
        let spread = draw.of(23).share();
        let carrier = match (is(Trouble::FlowLabel), is(Trouble::IpId)) {
            (true, _) => Carrier::FlowLabel,
            (false, true) => Carrier::IpId,
            (false, false) => Carrier::Tos,
        };
        let has_runs = carrier == Carrier::Tos && draw.of(24).share() < 0.5;
        let detail = if has_runs { Detail::Runs } else { Detail::Packets { spread } };
        let layout = layout(carrier);
        let ill = Attention {
            t_h: 4,
            t_l: 2,
            sample_rate: SampleRate::new(0.5).unwrap_or(SampleRate::ALL),
            partition: Partition { hh: 24, hl: 24, ll: 16 },
        };
        let is_healthy = draw.of(25).share() < 0.7;
        Self {
            seed,
            links,
            translates,
            traffic,
            detail,
            carrier,
            attention: if is_healthy { Attention::healthy(&layout, 24) } else { ill },
            epochs: 6 + draw.of(26).below(5),
            clock_ns: if is(Trouble::Clocks) { (draw.of(27).share() - 0.5) * 80e6 } else { 0.0 },
            control: match is(Trouble::Control) {
                true => ControlQuality {
                    delay_ms: share(Trouble::Control, 0) * 30.0,
                    stalls: share(Trouble::Control, 1) / 5.0,
                    stall_ms: 300.0,
                    breaks: share(Trouble::Control, 3) / 5.0,
                },
                false => ControlQuality::default(),
            },
            calm_from: u64::MAX,
            is_patient: is(Trouble::Control) && either(Trouble::Control) == 0,
            troubles,
        }
    }

    /// Plays it, and holds every report against what happened.
    ///
    /// # Errors
    /// When it can't be played, which never happens.
    pub fn play(&self) -> Result<Sum> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&Draw::new(self.seed).of(28).bits().to_le_bytes());
        let setup = Setup {
            layout: layout(self.carrier),
            hash_key: HashKey::from_bytes(key),
            clock: EpochClock::new(50_000_000, Guards::default())?,
            attention: self.attention,
            planner: None,
            tasks: Tasks::default(),
            losses_only: true,
            grace_ns: if self.is_patient { 5_000_000_000 } else { 200_000_000 },
            detail: self.detail,
            switches: Vec::new(),
            lcores: Lcores::default(),
            probes: false,
            carrier: self.carrier,
            seed: self.seed,
            systems: Systems::default(),
        };
        let mut topology = Topology::load("pair", Path::new("."), self.links)?;
        let [dnat, snat] = self.translates;
        let first = &mut topology.link_between(&["e1", "core"].map(str::to_owned))?.quality;
        first.dnat = first.dnat.max(dnat);
        first.snat = first.snat.max(snat);
        let mut clocks = SwitchClock::draw(self.seed, 2, 200.0, 0.0);
        clocks[1].offset_ns += self.clock_ns;
        let mut simulation = Simulation::new(setup, topology, clocks)?;
        simulation.set_traffic(self.traffic.clone())?;
        simulation.set_control(self.control, self.seed);
        if self.troubles.contains(&Trouble::Disk) {
            simulation.set_archive(self.seed)?;
        }
        let mut outcomes = Vec::new();
        for epoch in 0..self.epochs + self.epochs_after() {
            if epoch == self.calm_from.min(self.epochs) {
                simulation.heal()?;
            }
            outcomes.extend(simulation.run_epoch()?);
        }
        outcomes.extend(simulation.finish()?);
        let amendments: Vec<Amendment> =
            outcomes.iter().flat_map(|outcome| outcome.report.amendments.clone()).collect();
        outcomes.retain(|outcome| outcome.report.epoch < self.epochs);
        for outcome in &mut outcomes {
            let of = |amendment: &&Amendment| amendment.epoch == outcome.report.epoch;
            outcome.report.amended = amendments.iter().filter(of).cloned().collect();
        }
        let broken = simulation.broken_connections();
        let mut sum = Sum { networks: 1, broken, ..Sum::default() };
        match simulation.end_archive() {
            Ok(kept) => {
                let Kept { acknowledged, ends, failures } = kept.unwrap_or_default();
                (sum.archived, sum.ends, sum.failures) = (acknowledged, ends, failures);
            }
            Err(wrong) => sum.wrong.push((self.seed, self.epochs, format!("{wrong:#}"))),
        }
        let judge =
            |outcome: &Outcome| (outcome.report.epoch, outcome.truth.judge(&outcome.report));
        let mut judged: BTreeMap<u64, Judgement> = outcomes.iter().map(judge).collect();
        for amendment in &amendments {
            if let Some(judged) = judged.get_mut(&amendment.epoch) {
                judged.amend(amendment);
            }
        }
        for outcome in &outcomes {
            sum.count(&outcome.report, &outcome.truth);
        }
        for (epoch, judged) in judged {
            sum.false_lost += judged.false_lost();
            sum.amended += judged.amended;
            sum.hidden += judged.hidden;
            sum.wrong.extend(judged.wrong.into_iter().map(|wrong| (self.seed, epoch, wrong.words)));
        }
        Ok(sum)
    }

    /// Epochs that are played behind those that are judged.
    fn epochs_after(&self) -> u64 {
        if !self.troubles.contains(&Trouble::Late) {
            return AFTER;
        }
        // Until what every link has held up has left.
        AFTER.max((LINKS * self.links.late_ms[1] / 50.0) as u64 + 2)
    }
}

impl Sum {
    /// Counts an epoch in.
    fn count(&mut self, report: &EpochReport, truth: &EpochTruth) {
        self.epochs += 1;
        self.complete += u64::from(report.complete);
        if !report.complete {
            self.last_incomplete = self.last_incomplete.max(Some(report.epoch));
        }
        for cause in causes(report) {
            *self.incomplete.entry(cause).or_default() += 1;
        }
        for flow in &truth.flows {
            let of = |treatment: &Treatment| match treatment {
                Treatment::Remarked(_) => "re-marked",
                Treatment::Translated(_) => "translated",
                Treatment::HeldUp => "held up",
            };
            let treated =
                flow.treated.iter().map(|(_, treatment, packets)| (of(treatment), *packets));
            let all = treated.chain([("lost", flow.lost), ("copied", flow.doubled)]);
            for (what, packets) in all.filter(|(_, packets)| *packets > 0) {
                *self.treated.entry(what).or_default() += u64::from(packets);
            }
        }
        let strangers: u64 = truth.strangers.iter().map(|of| u64::from(of.packets)).sum();
        *self.treated.entry("strange").or_default() += strangers;
        if !report.losses_are_decoded() {
            return;
        }
        self.exact += 1;
        let named: u64 = report.loss.iter().filter(|of| !of.partial).map(|of| of.lost).sum();
        self.named += named;
        self.exactly += if report.losses_are_exact() { named } else { 0 };
        self.lost += truth.flows.iter().map(|flow| u64::from(flow.encoded)).sum::<u64>();
        let sent = |flow| {
            let is = |key| Flow::from(key) == flow;
            truth.flows.iter().any(|of| is(&of.key)) || truth.disturbed.keys().any(is)
        };
        let named = report.loss.iter().map(|loss| loss.flow);
        let named = named.chain(report.surplus.iter().map(|surplus| surplus.flow));
        self.ghosts += named.filter(|&flow| !sent(flow)).count() as u64;
    }
}

/// Why a report is incomplete, without names and numbers, each once.
fn causes(report: &EpochReport) -> Vec<String> {
    let plain = |reason: &String| {
        let words = reason.split_once(": ").map_or(reason.as_str(), |(_, words)| words);
        words.chars().filter(|c| !c.is_ascii_digit()).collect::<String>()
    };
    let mut causes: Vec<String> = report.incomplete_because.iter().map(plain).collect();
    causes.sort();
    causes.dedup();
    causes
}

/// Plays the networks of these seeds that do some of `troubles`, on all CPUs.
///
/// # Errors
/// As [`Tiny::play`]: the seed, and why.
pub fn play(seeds: Range<u64>, troubles: &[Trouble]) -> Result<Sum> {
    let next = AtomicU64::new(seeds.start);
    let player = || {
        let mut sum = Sum::default();
        loop {
            let from = next.fetch_add(PIECE, Ordering::Relaxed);
            if from >= seeds.end {
                return Ok(sum);
            }
            for seed in from..seeds.end.min(from + PIECE) {
                let played = Tiny::draw(seed, troubles).play();
                sum.add(played.with_context(|| format!("seed {seed}"))?);
            }
        }
    };
    let players = thread::available_parallelism().map_or(1, usize::from);
    let sums: Vec<Result<Sum>> = thread::scope(|scope| {
        let players: Vec<_> = (0..players).map(|_| scope.spawn(player)).collect();
        let panicked = |_| Err(anyhow!("a network panicked"));
        players.into_iter().map(|player| player.join().unwrap_or_else(panicked)).collect()
    });
    let mut all = Sum::default();
    for sum in sums {
        all.add(sum?);
    }
    all.wrong.sort();
    Ok(all)
}

/// Memory for a dozen flows.
fn layout(carrier: Carrier) -> Layout {
    let keys = if carrier == Carrier::FlowLabel { KeyKind::Dual } else { KeyKind::Ipv4 };
    Layout {
        keys,
        classifier: vec![Level::new(8, 64)],
        upstream_buckets: 64,
        downstream_buckets: 40,
        ..Layout::default()
    }
}
