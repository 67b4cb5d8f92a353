//! What nodes are sent, how what they deliver is read and checked, and the report on a window.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::iter::from_fn;
use std::sync::Arc;

use calumma_analysis::{
    Analysis, Collected, Deployment, EpochHead, Findings, Flow, HashKeys, Node, NodeSetup, Notice,
    Published, Steer, SystemReport,
};
use calumma_cfs::frames;
use calumma_cfs::frames::{
    Entry, Hop, NOTICE_SINCE, ROWS, ROWS_GUARD, Setup, Suspects, WORDS_SINCE, Window, knows, salt,
};
use calumma_sketch::estimate::Estimate;
use calumma_sketch::{HashFamily, KeyKind};
use calumma_wire::{Role, Side, SideKind};

use crate::coverage::{self, Coverage, Homes, Local, Total, Z95};
use crate::ends::Hosts;
use crate::flows::Judged;
use crate::hashed::hashes;
use crate::heavy::{self, Changes, Counts};
use crate::losses::Losses;
use crate::optimum::Optimum;
use crate::parameters::Parameters;
use crate::pinning::Pinning;
use crate::report::{Found, Guarded, KeptIn, Listed, LoopsNoticed, NodeReport, Residue, SizeBin};
use crate::residual::Decoded;
use crate::seen::PINNED;
use crate::settings::Settings;
use crate::spread::Spreads;
use crate::view::{Delivered, NodeView, Sums, View};
use crate::{dividing, loops, residual, sizes, spread};

/// Names of the classes of ranks.
const CLASSES: [&str; 4] = ["pinned", "single", "unclaimed", "claimed"];

/// Flows that are published at once in two windows.
const MOST_NOTICED: usize = 1 << 16;

/// 2^32, of which grades are parts.
const GRADES: f64 = 4_294_967_296.0;

/// The analysis.
#[derive(Debug)]
pub(crate) struct Cooperating {
    /// What switches were set up by.
    parameters: Parameters,
    hash_keys: HashKeys,
    pinning: Pinning,
    last: Option<Counts>,
    hosts: Hosts,
    /// Flows that went round, by their window, as far as they were published at once.
    noticed: BTreeSet<(u64, Flow)>,
}

impl Cooperating {
    pub(crate) fn new(settings: Settings, deployment: &Deployment<'_>) -> Self {
        let Deployment { clock, nodes, hash_keys, .. } = *deployment;
        Self {
            parameters: settings.first().clone(),
            hash_keys: hash_keys.clone(),
            pinning: Pinning::new(settings, clock, nodes),
            last: None,
            hosts: Hosts::default(),
            noticed: BTreeSet::new(),
        }
    }

    /// What a node with this version measures by.
    fn setup_at(&self, node: &Node, version: u8) -> Setup {
        let setup = self.parameters.setup;
        let of_node = self.parameters.hops.get(&node.name);
        let hop = of_node.map_or(setup.hop, |hops| Hop::Port(*hops));
        let ends = setup.ends && node.role == Role::Edge;
        Setup { hop, ends, ..setup }.known_to(version)
    }

    fn window_of(&self, epoch: u64) -> u64 {
        epoch / Analysis::window(self)
    }
}

impl Analysis for Cooperating {
    type Side = Delivered;
    type Report = SystemReport<Found>;

    fn window(&self) -> u64 {
        self.parameters.setup.window_epochs.into()
    }

    fn steer(&self) -> Option<Box<dyn Steer>> {
        Some(Box::new(self.pinning.clone()))
    }

    fn setup(&self, node: &Node, version: u8) -> NodeSetup {
        NodeSetup { setup: self.setup_at(node, version).encode(), plan: Vec::new() }
    }

    fn decode(&self, node: &Node, version: u8, side: Side) -> Result<Delivered, String> {
        if side.side == SideKind::Ingress {
            return match side.body.len() {
                0 => Ok(Delivered { window: None, words: KeyKind::Dual, has_rows: false }),
                bytes => Err(format!("an ingress side of {bytes} bytes, where none are expected")),
            };
        }
        let setup = &self.setup_at(node, version);
        let window = Window::decode(&side.body, setup).map_err(|error| error.to_string())?;
        if window.totals.packets != side.packets {
            let (of_body, of_side) = (window.totals.packets, side.packets);
            return Err(format!("a window of {of_body} packets on a side of {of_side}"));
        }
        let keyed = self.hash_keys.at(side.epoch);
        if window.hash_key != keyed.id {
            return Err(format!("the window of epoch {} is hashed by another key", side.epoch));
        }
        let seed = setup.seed(self.window_of(side.epoch));
        let words = if knows(version, WORDS_SINCE) { KeyKind::Dual } else { window.keys };
        let measured = &setup.with(window.overrides.unwrap_or_default());
        check_grades(measured, &keyed.family, (seed, salt(node.id)), words, &window)?;
        // Those of the first version knew no other.
        let has_rows = matches!(version, 1 | ROWS | ROWS_GUARD);
        Ok(Delivered { window: Some(Box::new(window)), words, has_rows })
    }

    fn notice(
        &mut self,
        node: &Node,
        head: EpochHead,
        of: Notice<'_>,
    ) -> Result<Option<Published>, String> {
        if !knows(of.version, NOTICE_SINCE) {
            return Err(format!("a notice in version {}, which has none", of.version));
        }
        let read = frames::Notice::decode(of.body).map_err(|error| error.to_string())?;
        let (window, now) = (self.window_of(of.epoch), self.window_of(head.epoch));
        if !(now.saturating_sub(1)..=now + 1).contains(&window) {
            // It waited for longer than its window's report does.
            return Ok(None);
        }
        self.noticed.retain(|(of, _)| *of + 2 > now);
        let mut loops = loops::noticed(&node.name, &read);
        loops.retain(|it| {
            self.noticed.len() < MOST_NOTICED && self.noticed.insert((window, it.flow))
        });
        if loops.is_empty() {
            return Ok(None);
        }
        let noticed = LoopsNoticed { head, system: Found::SYSTEM.to_owned(), window, loops };
        let json = serde_json::to_string(&noticed).map_err(|error| error.to_string())?;
        Ok(Some(Published::new(noticed, json)))
    }

    fn analyse(&mut self, collected: Collected<Delivered>) -> SystemReport<Found> {
        let Parameters { setup, paths, hosts, .. } = self.parameters;
        let (flows_listed, thresholds) = self.pinning.listed();
        let keyed = self.hash_keys.at(collected.head.epoch);
        let decoded = residual::decode(&keyed.family, &collected);
        let window = self.window_of(collected.head.epoch);
        let mut view = View::new(&setup, paths, keyed.family.clone(), &collected, &decoded);
        let homes = coverage::homes(&view);
        let several = self.hosts.learn(&view, &homes, window);
        view.doubt(hosts, several);
        view.number_by_ports(&self.parameters.hops, setup.seed(window), keyed.family.clone());
        let ends = self.hosts.ends(&view);
        let mut flows = Vec::with_capacity(view.flows_seen());
        let (mut losses, mut loops, mut path_changes) = (Losses::default(), Vec::new(), Vec::new());
        let (mut only_decoded, mut monitored_exactly) = (0, 0);
        let suspects = loops::suspects(&view);
        let mut suspects = suspects.iter().peekable();
        let mut without_counts = Vec::new();
        for (flow, seen) in view.flows() {
            let judged = Judged::of(&view, seen);
            monitored_exactly += u64::from(judged.exact);
            only_decoded += u64::from(seen.iter().all(|of| of.from == KeptIn::Residual));
            flows.push(judged);
            losses.add(&view, &ends, flow, seen);
            let suspected = if suspects.peek().is_none() {
                &[][..]
            } else {
                let key = view.key(flow);
                without_counts.extend(from_fn(|| suspects.next_if(|(other, _)| **other < &key)));
                let suspected = suspects.next_if(|(other, _)| **other == &key);
                suspected.map_or(&[][..], |(_, suspected)| suspected)
            };
            if !suspected.is_empty() || seen.iter().any(|of| of.differs) {
                let key = view.key(flow);
                loops::find(&view, &key, (seen, suspected), (&mut loops, &mut path_changes));
            }
        }
        for (key, suspected) in without_counts.into_iter().chain(suspects) {
            loops::find(&view, key, (&[], suspected), (&mut loops, &mut path_changes));
        }
        let monitored = flows.len() as u64;
        let are_all_counted = coverage::are_all_counted(&view, &keyed.family);
        let uncounted = coverage::uncounted(&view, are_all_counted);
        let total = coverage::total(&view, monitored, are_all_counted);
        let share = coverage::of_all(monitored, total);
        let rooms: Vec<u64> = view.nodes.iter().map(|node| room(&setup, node)).collect();
        let in_tables = monitored - only_decoded;
        let has_all_nodes = view.nodes.len() == collected.nodes.len();
        let optimum = || Optimum::of(&view, total, (monitored, in_tables), &rooms);
        let optimum = has_all_nodes.then(optimum).flatten();
        let hundredths = dividing::common(&setup, &view.nodes);
        let alpha = dividing::share(&setup, &view.nodes);
        if has_all_nodes
            && let Some(alpha) = hundredths
            && let Some(fared) = dividing::fared(&view.nodes, total, (monitored, only_decoded))
        {
            self.pinning.learn(alpha, fared);
        }
        // Tables choose flows by their hashes. Residuals that decoded at some nodes and not at
        // others have flows by where they went: no sample of all.
        let threshold = thresholds.superspreader;
        let estimated = if only_decoded == 0 || view.has_all_flows() {
            Estimated::of(&view, &homes, (&flows, uncounted), total, threshold)
        } else {
            let mut tables = View::new(&setup, paths, keyed.family.clone(), &collected, &[]);
            tables.doubt_as(&view);
            let judged = tables.flows().map(|(_, seen)| Judged::of(&tables, seen));
            let judged: Vec<_> = judged.collect();
            let uncounted = coverage::uncounted(&tables, false);
            Estimated::of(&tables, &homes, (&judged, uncounted), total, threshold)
        };
        let Estimated { spreads: [sources, destinations], size_distribution, entropy } = estimated;
        let (heavy_hitters, heavy_hitters_complete) =
            heavy::hitters(&view, &flows, uncounted, thresholds.heavy_packets);
        let (heavy_prefixes, heavy_prefixes_complete) =
            heavy::prefixes(&view, &flows, uncounted, thresholds.heavy_packets);
        let found = Found {
            window,
            flows_total: total.map(|total| total.flows),
            flows_total_error: total.map(|total| total.error()),
            monitored,
            decoded: only_decoded,
            monitored_exactly,
            coverage: share.map(|share| share.value),
            coverage_low: share.map(|share| share.low),
            coverage_high: share.map(|share| share.high),
            optimum: optimum.as_ref().map(|of| of.share.value),
            optimum_low: optimum.as_ref().map(|of| of.share.low),
            optimum_high: optimum.as_ref().map(|of| of.share.high),
            alpha,
            thresholds: Listed {
                heavy_packets: thresholds.heavy_packets,
                heavy_change_packets: thresholds.heavy_change_packets,
                superspreader: thresholds.superspreader,
                coverage_wanted: thresholds.coverage_wanted,
            },
            nodes: node_reports(&view, optimum.as_ref()),
            flows: listed(&view, &flows, flows_listed),
            heavy_hitters,
            heavy_hitters_complete,
            heavy_prefixes,
            heavy_prefixes_complete,
            heavy_changes_since: None,
            heavy_changes: Vec::new(),
            heavy_changes_complete: false,
            superspreaders: sources.found,
            superspreaders_complete: sources.are_all,
            superspreaders_likely_complete: sources.are_likely_all,
            flooded: destinations.found,
            flooded_complete: destinations.are_all,
            flooded_likely_complete: destinations.are_likely_all,
            size_distribution,
            entropy,
            black_holes: losses.black_holes(&view),
            black_holes_known: has_all_nodes && ends.show_all(&view),
            losses: losses.losses,
            loops,
            loops_watched: has_all_nodes && loops::are_watched(&view),
            path_changes,
            counted: Arc::default(),
        };
        self.pinning.note_counted(found.heavy_hitters.iter().map(|of| of.flow));
        let mut report = SystemReport::new(&collected, found);
        let problems = std::mem::take(&mut view.problems);
        problems.into_iter().for_each(|problem| report.add_problem(problem));
        let counts = Counts::of(window, view, flows, uncounted);
        let last = self.last.as_ref();
        let changes =
            last.and_then(|last| counts.changes_since(last, thresholds.heavy_change_packets));
        if let Some(Changes { since, changes, are_all }) = changes {
            report.findings.heavy_changes_since = Some(since * Analysis::window(self));
            report.findings.heavy_changes = changes;
            report.findings.heavy_changes_complete = are_all;
        }
        report.findings.counted = counts.flows();
        self.last = Some(counts);
        report
    }
}

/// What is estimated from flows that are a sample of all, or all.
struct Estimated {
    /// Superspreaders, and flooded destinations.
    spreads: [Spreads; 2],
    size_distribution: Option<Vec<SizeBin>>,
    entropy: Option<f64>,
}

impl Estimated {
    /// `uncounted` packets that entered are in no count, and may be of any flow.
    fn of(
        view: &View<'_>,
        homes: &Homes,
        (flows, uncounted): (&[Judged], Option<u64>),
        total: Option<Total>,
        threshold: u64,
    ) -> Self {
        let local = total.map(|total| Local::new(view, homes, flows, total));
        let spreads = spread::find(view, flows, local.as_ref(), threshold);
        let share = local.as_ref().and_then(Local::everywhere);
        let sizes = share.and_then(|share| sizes::estimate(flows, share));
        let bounds = (uncounted, local.as_ref().map_or(0.0, Local::others));
        let size_distribution = sizes.map(|sizes| sizes::within(sizes, flows, bounds));
        let total = total.filter(|_| view.hidden() == 0);
        let entropy = total.and_then(|total| sizes::entropy(flows, total));
        Self { spreads, size_distribution, entropy }
    }
}

/// The largest flows, the largest first.
fn listed(view: &View<'_>, flows: &[Judged], most: usize) -> Vec<crate::report::FlowCount> {
    let mut largest: Vec<(Reverse<u64>, usize)> = Vec::new();
    // Of the largest so far the last one.
    let mut last = None;
    for of in flows.iter().enumerate().map(|(at, flow)| (Reverse(flow.packets), at)) {
        if last.is_some_and(|last| of > last) {
            continue;
        }
        largest.push(of);
        if most > 0 && largest.len() == 2 * most {
            last = Some(*largest.select_nth_unstable(most - 1).1);
            largest.truncate(most);
        }
    }
    largest.sort_unstable();
    largest.truncate(most);
    largest.into_iter().map(|(_, at)| flows[at].listed(view, view.seen_of(at))).collect()
}

/// How many flows a node's table holds.
fn room(setup: &Setup, node: &NodeView<'_>) -> u64 {
    let Window { alpha, overrides, .. } = node.window;
    setup.with(overrides.unwrap_or_default()).sizes(alpha.unwrap_or(0)).entries.into()
}

fn node_reports(view: &View<'_>, optimum: Option<&Optimum>) -> Vec<NodeReport> {
    let with_more = |at: usize| optimum.and_then(|of| of.with_more.get(at)).copied();
    let of = view.nodes.iter().enumerate();
    of.map(|(at, node)| node_report(view.setup, node, with_more(at))).collect()
}

fn node_report(setup: &Setup, node: &NodeView<'_>, with_more: Option<Coverage>) -> NodeReport {
    let Window { totals, limit, theta, flows, entries, routes_changed, suspects, .. } = node.window;
    let share = |grade: u32| f64::from(grade) / GRADES;
    let class = limit.and_then(|limit| CLASSES.get(usize::from(limit.class())).copied());
    let Estimate { value, standard_error } = flows.estimate();
    let Sums { exact, counted, pinned, .. } = node.sums;
    NodeReport {
        node: node.name.to_owned(),
        role: node.role.name().to_owned(),
        entries: room(setup, node),
        used: entries.len() as u64,
        packets: totals.packets,
        counted,
        unmarked: totals.unmarked,
        admitted: totals.admitted,
        evicted: totals.evicted,
        refused: totals.refused,
        filtered: totals.filtered,
        crowded: totals.crowded,
        claimed_in: totals.claimed_in,
        claimed_out: totals.claimed_out,
        threshold_class: class.unwrap_or("all").to_owned(),
        threshold: limit.map_or(1.0, |limit| share(limit.grade())),
        theta: theta.map_or(1.0, share),
        flows: value,
        flows_error: Z95 * standard_error.unwrap_or(value),
        routes_changed: *routes_changed,
        sound: node.is_sound && node.unrecorded == 0,
        bytes: totals.memory,
        exact,
        alpha: node.residual.and_then(|_| dividing::share_of(setup, node)),
        residual: node.residual.map(residue),
        pinned,
        guard: suspects.as_ref().map(guarded),
        optimum_with_more: with_more.map(|of| of.value),
        optimum_with_more_low: with_more.map(|of| of.low),
        optimum_with_more_high: with_more.map(|of| of.high),
    }
}

fn residue(of: &Decoded) -> Residue {
    let is_complete = of.counts.is_some();
    Residue {
        decode: if is_complete { "complete" } else { "partial" }.to_owned(),
        buckets: of.buckets,
        load_factor: is_complete.then(|| of.flows as f64 / of.buckets.max(1) as f64),
        flows: is_complete.then_some(of.flows),
    }
}

fn guarded(of: &Suspects) -> Guarded {
    Guarded { suspects: of.flows.len() as u64, missed: of.missed }
}

/// Refuses entries that the node can't have graded so, by words that follow from such keys.
fn check_grades(
    setup: &Setup,
    family: &HashFamily,
    (seed, salt): (u32, u32),
    words: KeyKind,
    window: &Window,
) -> Result<(), String> {
    for (at, entry) in window.entries.iter().enumerate() {
        let Entry { key, rank, ttl, .. } = entry;
        let grade = if rank.class() == PINNED {
            0
        } else {
            let hashes = hashes(family, words, key)
                .ok_or_else(|| format!("entry {at}, {key}, is no flow of its kind of keys"))?;
            if setup.hop.is_said() {
                if !setup.is_graded_at_a_hop(family, &hashes, (seed, salt), rank.grade()) {
                    let said = rank.grade();
                    return Err(format!("entry {at}, {key}: a grade of {said:#x} at no hop"));
                }
                continue;
            }
            setup.grade_of(family, &hashes, (seed, salt), *ttl)
        };
        if rank.grade() != grade {
            let said = rank.grade();
            return Err(format!(
                "entry {at}, {key}: a grade of {said:#x}, where {grade:#x} is its"
            ));
        }
    }
    Ok(())
}
