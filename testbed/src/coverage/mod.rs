//! How many of a network's flows its switches count exactly, each choosing by itself, beside how
//! many they could count: figures 3 to 5 of the paper on cooperative flow selection (CFS).
//!
//! Tables, grades, claims, residuals and their decoder are those that switches and controller use.
//! A flow's packets pass the switches of its way; in every window all flows are new, unless a
//! trial says otherwise.

mod algorithm;
mod full;
mod network;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use calumma_cfs_analysis::alpha::Alpha;
use calumma_sketch::grade;
use calumma_sketch::residual::Counts;
use calumma_sketch::{FlowKey, HashFamily, HashKey};
use calumma_topology::optimum::{most_by_links, most_counted};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Serialize, Serializer};

use self::network::Way;
use self::switches::{Packets, Switches, Truth};

pub use self::algorithm::{Algorithm, Kind};
pub use self::network::Network;

/// Flows that switches have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Each so many.
    Even(u32),
    /// So many on average: half of the switches 1.6 times as many, half 0.4 times.
    Uneven(u32),
}

impl Entries {
    /// On average.
    pub fn mean(self) -> u32 {
        match self {
            Self::Even(mean) | Self::Uneven(mean) => mean,
        }
    }

    /// The same with another average.
    #[must_use]
    pub fn with_mean(self, mean: u32) -> Self {
        match self {
            Self::Even(_) => Self::Even(mean),
            Self::Uneven(_) => Self::Uneven(mean),
        }
    }

    /// Those of so many switches.
    fn of(self, switches: usize, rng: &mut StdRng) -> Vec<u32> {
        match self {
            Self::Even(entries) => vec![entries; switches],
            Self::Uneven(mean) => {
                let times = |tenths: u64| (u64::from(mean) * tenths / 10) as u32;
                let each = |at: usize| if at.is_multiple_of(2) { times(16) } else { times(4) };
                let mut all: Vec<u32> = (0..switches).map(each).collect();
                all.shuffle(rng);
                all
            }
        }
    }
}

/// `10000`, or `uneven:10000`.
impl FromStr for Entries {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (is_uneven, number) = match text.strip_prefix("uneven:") {
            Some(number) => (true, number),
            None => (false, text),
        };
        let expected = || format!("{text:?}: 256 to 4194304, or `uneven:` and such a number");
        let entries: u32 = number.parse().with_context(expected)?;
        ensure!((256..=1 << 22).contains(&entries), expected());
        Ok(if is_uneven { Self::Uneven(entries) } else { Self::Even(entries) })
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Even(entries) => serializer.serialize_u32(*entries),
            Self::Uneven(mean) => serializer.collect_str(&format_args!("uneven:{mean}")),
        }
    }
}

/// What the table has of a switch's entries, where the others are a residual's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// This share, above 0 and below 1; cells of the residual are entries.
    Fixed(f64),
    /// A share that moves from window to window as [`Alpha`] says, the same at all switches. It is
    /// one of bytes: as many as the table would have alone. The residual is FermatSketch.
    Auto,
}

impl Share {
    /// Windows to be played, the last of which counts: these, or as many as one that moves takes
    /// in steady load to come to rest.
    pub fn windows(self, of_fixed: u32) -> u32 {
        match self {
            Self::Fixed(_) => of_fixed,
            Self::Auto => Alpha::SETTLES,
        }
    }
}

/// `0.9`, or `auto`.
impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let expected = || format!("{text:?}: above 0 and below 1, or `auto`");
        let share: f64 = text.parse().with_context(expected)?;
        ensure!(share > 0.0 && share < 1.0, expected());
        Ok(Self::Fixed(share))
    }
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Flows of a window.
    pub flows: u32,
    /// Flows that switches have room for. Cells of a residual are entries as well.
    pub entries: Entries,
    /// Flows of a row where tables are of rows; none where they are of whole ones. Claims are for
    /// whole tables.
    pub columns: Option<u8>,
    /// How switches choose.
    pub algorithm: Algorithm,
    /// What of the entries is the table's where there is a residual.
    pub alpha: Share,
    /// The residual, where another than the algorithm's own is wanted.
    pub residual: Option<Kind>,
    /// Whether residuals are given flows that a switch before has claimed.
    pub residual_claimed: bool,
    /// Packets of each flow by its number; one where there are none.
    pub sizes: Vec<u32>,
    /// Flows that all switches count, whatever their hashes: as many as this of the largest that
    /// were counted in the window before. Flows of one number are then one flow in all windows.
    pub pins: u32,
    /// Packets that such a flow has at least.
    pub pinned_from: u32,
    /// Windows, of which the last one counts.
    pub windows: u32,
    /// Share of the flows of a window that are new; the others were there in the window before,
    /// and went the same way.
    pub churn: f64,
    /// Whether flows are graded anew in each window.
    pub reseed: bool,
    /// Routers that take one off the time to live before a flow's first switch: of each flow any
    /// number up to this.
    pub routers_before: u8,
    /// What flows, their ways and the hash key are drawn from.
    pub seed: u64,
}

impl Trial {
    /// Flows of one packet, and as many windows as the algorithm needs to learn.
    pub fn new(algorithm: Algorithm, flows: u32, entries: Entries, seed: u64) -> Self {
        Self {
            flows,
            entries,
            columns: None,
            algorithm,
            alpha: Share::Fixed(0.9),
            residual: None,
            residual_claimed: false,
            sizes: Vec::new(),
            pins: 0,
            pinned_from: 0,
            windows: algorithm.windows(),
            churn: 1.0,
            reseed: true,
            routers_before: 0,
            seed,
        }
    }

    fn packets(&self, flow: u32) -> u32 {
        let size = self.sizes.get(flow as usize % self.sizes.len().max(1));
        size.copied().unwrap_or(1).max(1)
    }

    /// By which a window's flows are graded.
    fn grades_of(&self, window: u32) -> u32 {
        if self.reseed { grade::window_seed(window.into()) } else { 0 }
    }
}

/// What flows are drawn from, window by window.
struct Drawing {
    rng: StdRng,
    churn: f64,
    /// By number, flows of the window before that may go on: when each began, and its way. Empty
    /// where all flows are new.
    going: Vec<(u32, Way)>,
}

impl Drawing {
    /// The flow of this number in a window: the window in which it began, and its way.
    fn flow(&mut self, network: &Network, number: usize, window: u32) -> (u32, Way) {
        if let Some((began, way)) = self.going.get(number)
            && self.rng.random::<f64>() >= self.churn
        {
            return (*began, way.clone());
        }
        let way = network.way(&mut self.rng);
        if self.churn < 1.0 {
            let begun = (window, way.clone());
            match self.going.get_mut(number) {
                Some(before) => *before = begun,
                None => self.going.push(begun),
            }
        }
        (window, way)
    }
}

/// What came of a trial, in its last window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The network.
    pub topology: String,
    /// Its switches.
    pub nodes: usize,
    /// Flows of a window.
    pub flows: u32,
    /// Flows that switches have room for.
    pub entries: Entries,
    /// Flows of a row; none where tables are no rows.
    pub columns: Option<u8>,
    /// How switches chose.
    pub algorithm: Algorithm,
    /// Share of the entries, or where it moves of the bytes, that was the table's in the last
    /// window; none where there was no residual.
    pub alpha: Option<f64>,
    /// Whether that share moves from window to window.
    pub alpha_moves: bool,
    /// What all was drawn from.
    pub seed: u64,
    /// Share of the flows that were counted.
    pub coverage: f64,
    /// Share of the flows that entries could have counted.
    pub optimum: f64,
    /// The same as section III-I of the paper has it.
    pub optimum_paper: f64,
    /// Coverage through optimum. Residuals count more flows than they have entries.
    pub coverage_over_optimum: f64,
    /// Entries of flows that another switch counted as well, for each flow.
    pub duplicates: f64,
    /// Share of the flows that came out of residuals only.
    pub decoded: f64,
    /// Residuals that came out complete; none where there was no residual.
    pub complete: Option<usize>,
    /// Share of the flows that would be seen to go round, by a switch that has them in its table,
    /// if they did so between two neighbouring switches of their ways.
    pub loops: f64,
    /// Flows counted with another number of packets or bytes than they had, over all windows in
    /// which counts were looked at.
    pub wrong: u64,
    /// Flows in all: those that were counted, and those beyond them that the switches' merged
    /// HyperLogLog sketches show.
    pub flows_estimated: f64,
    /// How many they are at least, and at most, 95 times out of 100.
    pub flows_between: [f64; 2],
    /// Bytes of a switch on average: table, filters, registers, residual.
    pub bytes_per_node: usize,
}

impl Network {
    /// Plays a trial.
    pub fn play(&self, trial: &Trial) -> Outcome {
        self.play_flows(trial).0
    }

    /// Plays a trial, and says of each flow by its number whether it was counted.
    pub fn play_flows(&self, trial: &Trial) -> (Outcome, Vec<bool>) {
        let mut rng = StdRng::seed_from_u64(trial.seed);
        let family = HashFamily::new(&HashKey::from_bytes(rng.random()));
        let entries = trial.entries.of(self.switches(), &mut rng);
        let passing = self.passing(trial.flows, &mut StdRng::seed_from_u64(!trial.seed));
        let mut switches = Switches::new(trial, &family, &entries, &passing);
        let may_pass = self.places();
        let places = |key: &FlowKey, nodes: &mut Vec<usize>| {
            let ends = ((key.dst_word() >> 16) as usize, (key.dst_word() & 0xFFFF) as usize);
            nodes.extend(may_pass.get(&ends).into_iter().flatten());
        };
        let mut ways = BTreeMap::new();
        let windows = trial.windows.max(1);
        let mut drawing = Drawing { rng, churn: trial.churn, going: Vec::new() };
        let mut counted = switches::Counted::default();
        let (mut bytes, mut looped, mut wrong) = (0, 0, 0);
        for window in 0..windows {
            ways.clear();
            let truth =
                self.window(trial, &family, window, &mut (&mut switches, &mut ways), &mut drawing);
            let is_last = window + 1 == windows;
            if is_last {
                bytes = switches.bytes() / self.switches();
            }
            counted = switches.finish(&truth, &ways, places, is_last);
            wrong += counted.wrong;
            looped = truth.iter().filter(|truth| truth.looped.is_some()).count();
        }
        let share = |flows: f64| flows / f64::from(trial.flows.max(1));
        let (in_tables, decoded) = (counted.in_tables(), counted.decoded_only());
        let entries_used: u64 = counted.tables.iter().map(|&entries| u64::from(entries)).sum();
        let room: Vec<u64> = entries.iter().map(|&entries| entries.into()).collect();
        let coverage = share((in_tables + decoded) as f64);
        let optimum = share(most_counted(&ways, &room) as f64);
        let has_residual = trial.algorithm.has_residual();
        let flows = counted.estimate(&switches.merged());
        let loops_seen = counted.loops.iter().filter(|&&is_seen| is_seen).count();
        let outcome = Outcome {
            topology: self.name.clone(),
            nodes: self.switches(),
            flows: trial.flows,
            entries: trial.entries,
            columns: trial.columns,
            algorithm: trial.algorithm,
            alpha: has_residual.then_some(switches.alpha()),
            alpha_moves: has_residual && trial.alpha == Share::Auto,
            seed: trial.seed,
            coverage,
            optimum,
            optimum_paper: share(most_by_links(&ways, &room) as f64),
            coverage_over_optimum: coverage / optimum,
            duplicates: share(entries_used as f64 - in_tables as f64),
            decoded: share(decoded as f64),
            complete: has_residual.then_some(counted.complete),
            loops: loops_seen as f64 / looped.max(1) as f64,
            wrong,
            flows_estimated: flows.value,
            flows_between: [flows.low, flows.high],
            bytes_per_node: bytes,
        };
        let both = counted.tables.iter().zip(&counted.decoded);
        let flows = both.map(|(&entries, &decoded)| entries > 0 || decoded).collect();
        (outcome, flows)
    }

    /// How many of so many flows pass each switch.
    fn passing(&self, flows: u32, rng: &mut StdRng) -> Vec<usize> {
        let mut passing = vec![0; self.switches()];
        for _ in 0..flows {
            self.way(rng).switches.into_iter().for_each(|switch| passing[switch] += 1);
        }
        passing
    }

    /// The flows of a window pass. Gives what each of them had. Those of several packets come
    /// twice: first each with about half of its packets, then each with the others.
    fn window(
        &self,
        trial: &Trial,
        family: &HashFamily,
        window: u32,
        (switches, ways): &mut (&mut Switches<'_>, &mut BTreeMap<Vec<usize>, u64>),
        drawing: &mut Drawing,
    ) -> Vec<Truth> {
        let seed = trial.grades_of(window);
        let mut truth = Vec::with_capacity(trial.flows as usize);
        let mut later = Vec::new();
        for flow in 0..trial.flows {
            let (began, way) = drawing.flow(self, flow as usize, window);
            let ends = (way.ends.0 << 16 | way.ends.1) as u32;
            let key = FlowKey::from_words(flow, ends, began, 17);
            let hashes = family.hash(&key);
            let word = grade::word(&hashes, seed);
            let (packets, length) = (u64::from(trial.packets(flow)), 64 + u64::from(flow) % 1400);
            let counts = |packets| Counts { packets, bytes: packets * length };
            let first = packets.div_ceil(2);
            let now = Packets { key: &key, hashes: &hashes, word, counts: counts(first) };
            switches.pass(&now, &way.switches);
            truth.push(Truth { counts: counts(packets), looped: looped(&way.switches, flow) });
            if first < packets {
                later.push((key, counts(packets - first), way.switches.clone()));
            }
            *ways.entry(way.switches).or_insert(0) += 1;
        }
        for (key, counts, way) in later {
            let hashes = family.hash(&key);
            let word = grade::word(&hashes, seed);
            switches.pass(&Packets { key: &key, hashes: &hashes, word, counts }, &way);
        }
        truth
    }
}

/// Two neighbouring switches of a way, which follow from the flow's number; none where the way has
/// one switch.
fn looped(way: &[usize], flow: u32) -> Option<[usize; 2]> {
    let at = (flow.wrapping_mul(0x9E37_79B9) >> 16) as usize % way.len().checked_sub(1)?.max(1);
    way.get(at..at + 2)?.try_into().ok()
}
