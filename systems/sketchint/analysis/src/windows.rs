//! How windows of sinks are read and checked, and what is made of them together.

use std::collections::BTreeMap;
use std::sync::Arc;

use calumma_analysis::{Collected, Delivery, Flow, HashKeys, Node, Remembered, SystemReport};
use calumma_plane::int::means::Means;
use calumma_sketchint::frames::{Entered, Layout, NO_TIME, Passed, Window};
use calumma_wire::{Role, Side, SideKind};

use crate::changes::{self, Last};
use crate::delays::LONGEST_NS;
use crate::links;
use crate::local;
use crate::memory::Memory;
use crate::nodes;
use crate::report::{
    By, Config, Coverage, Covered, FlowReport, Found, Inflated, Loop, PathReport, SinkReport,
};
use crate::sampling::Beside;
use crate::sources;
use crate::view::{FlowView, Names, SinkView};

/// Flows that a loop names.
const FLOWS_OF_A_LOOP: usize = 10;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The largest flows that a report lists.
    pub flows: usize,
    /// Of the packets that are to carry INT, the share that should come with it.
    pub coverage_wanted: f64,
    /// The share of packets that carry INT.
    pub share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 1000, coverage_wanted: 0.5, share: 1.0 }
    }
}

/// A side that a node delivered.
#[derive(Debug)]
pub struct Delivered {
    /// What its sink kept; none on sides that have no record.
    pub window: Option<Arc<Window>>,
    /// What a source did with packets from hosts; none on other sides.
    pub entered: Option<Entered>,
    /// By how much the arrival of a packet at the node may be wrong, in nanoseconds, where stacks
    /// say when packets arrive and the side says how well.
    pub arrival_error_ns: Option<u64>,
    /// By what means the node knows what it has put into stacks, where it says so.
    pub means: Option<Means>,
}

/// Reads windows, and makes reports of them in their order.
#[derive(Debug)]
pub struct Windows {
    layout: Layout,
    limits: Limits,
    hash_keys: HashKeys,
    names: Names,
    last: Option<Last>,
    memory: Memory,
}

impl Windows {
    /// Of sinks of this layout. `names` are those of switches by their numbers.
    pub fn new(
        layout: Layout,
        limits: Limits,
        hash_keys: HashKeys,
        names: BTreeMap<u32, String>,
    ) -> Self {
        let names = Names(names);
        let memory = Memory::new(names.clone());
        Self { layout, limits, hash_keys, names, last: None, memory }
    }

    /// The latest windows that it was to [remember](Self::remember), for questions about any flow.
    pub fn remembered(&self) -> Arc<dyn Remembered> {
        Arc::new(self.memory.clone())
    }

    /// Remembers the window that has been [analysed](Self::analyse) last, of which this is the
    /// report.
    pub fn remember(&self, report: &SystemReport<Found>) {
        let sinks = self.last.iter().flat_map(|last| last.sinks.iter().cloned());
        self.memory.remember(report, sinks.collect());
    }

    /// Reads a side. What comes in here is not to be trusted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(&self, node: &Node, side: &Side) -> Result<Delivered, String> {
        if side.side == SideKind::Ingress && node.role == Role::Edge {
            let entered = Entered::decode(&side.body).map_err(|error| error.to_string())?;
            let entered = Some(entered);
            return Ok(Delivered { window: None, entered, arrival_error_ns: None, means: None });
        }
        if !matches!(side.side, SideKind::Egress | SideKind::Host) {
            let passed = match (side.side, side.body.len()) {
                (_, 0) => None,
                (SideKind::Transit, _) => {
                    Some(Passed::decode(&side.body).map_err(|error| error.to_string())?)
                }
                (_, bytes) => {
                    return Err(format!("a side of {bytes} bytes, where none are expected"));
                }
            };
            let arrival_error_ns = passed.map(|passed| passed.arrival_error_ns);
            let means = passed.and_then(|passed| passed.means);
            return Ok(Delivered { window: None, entered: None, arrival_error_ns, means });
        }
        let window = Window::decode(&side.body, &self.layout).map_err(|error| error.to_string())?;
        if window.totals.packets != side.packets {
            let (of_body, of_side) = (window.totals.packets, side.packets);
            return Err(format!("a window of {of_body} packets on a side of {of_side}"));
        }
        if window.hash_key != self.hash_keys.at(side.epoch).id {
            return Err(format!("the window of epoch {} is hashed by another key", side.epoch));
        }
        let own = (node.role != Role::Host).then_some(u32::from(node.id));
        if window.own != own {
            let says = window.own.unwrap_or(0);
            return Err(format!("a window of node {says} from node {}", node.id));
        }
        let (arrival_error_ns, means) = (Some(window.arrival_error_ns), window.means);
        let window = Some(Arc::new(window));
        Ok(Delivered { window, entered: None, arrival_error_ns, means })
    }

    /// What a window of so many epochs showed, while the deployment was in `state`, and why it is
    /// incomplete although everything came.
    pub fn analyse(
        &mut self,
        collected: &Collected<Delivered>,
        epochs: u64,
        state: &str,
    ) -> (Found, Vec<String>) {
        let first = collected.head.epoch;
        let mut problems = Vec::new();
        let entered = sources::sum(collected);
        let mut hops = collected.nodes.iter().filter(|of| of.node.role != Role::Host);
        let has_gaps = hops.any(|of| !of.is_whole());
        let sink = |delivery| self.sink((first, has_gaps), delivery, &mut problems);
        let mut sinks: Vec<SinkView> = collected.nodes.iter().filter_map(sink).collect();
        let of_sinks = collected.nodes.iter().filter(|of| of.node.role != Role::Transit);
        let is_sound = |sink: &&SinkView| sink.is_sound;
        let are_all = sinks.iter().filter(is_sound).count() == of_sinks.count();
        if let Some(entered) = entered.filter(|_| self.limits.share < 1.0 && are_all) {
            let beside = Some(Beside::of(&entered, &sinks));
            sinks.iter_mut().for_each(|sink| sink.beside = beside);
        }
        let last = self.last.take().filter(|last| last.first + epochs == first);
        let names = &self.names;
        let own = |of: &Delivery<Delivered>| {
            let means = of.came().find_map(|(_, side)| side.means);
            (u32::from(of.node.id), nodes::Own { kind: of.end.kind, means })
        };
        let owns = collected.nodes.iter().map(own).collect();
        let mut found = Found {
            window: [first, first + epochs.saturating_sub(1)],
            state: state.to_owned(),
            config: self.config(),
            coverage: covered(&sinks, entered),
            nodes: nodes::all((&sinks, are_all), last.as_ref(), (names, &owns), &self.layout),
            links: links::all((&sinks, are_all), &links::times(collected), names),
            flows: self.flows(&sinks),
            path_changes: changes::paths(&sinks, last.as_ref(), names),
            loops: loops(&sinks, names),
            inflated: inflated(&sinks, collected.head.start_unix_ns, names),
            sinks: sinks.iter().map(|sink| self.sink_report(sink, last.as_ref())).collect(),
            sources: sources::all(collected),
        };
        found.fill();
        self.last = Some(Last { first, sinks });
        (found, problems)
    }

    fn config(&self) -> Config {
        let Layout { shape, heavy_packets, heavy_change_packets, inflation_percent } = self.layout;
        Config {
            insertion: shape.rule.name().to_owned(),
            rows: 8 * u64::from(shape.row_sets),
            unit_ns: shape.unit_ns,
            heavy_packets,
            heavy_change_packets,
            inflation_percent,
            coverage_wanted: self.limits.coverage_wanted,
            share: self.limits.share,
        }
    }

    fn sink(
        &self,
        (epoch, has_gaps): (u64, bool),
        delivery: &Delivery<Delivered>,
        problems: &mut Vec<String>,
    ) -> Option<SinkView> {
        let name = delivery.node.name.clone();
        let window = delivery.came().find_map(|(_, side)| side.window.clone())?;
        if window.unmarked > 0 {
            let unmarked = window.unmarked;
            problems.push(format!("{name}: {unmarked} packets had no mark that says their window"));
        }
        let end = &delivery.end;
        let has_all_packets = end.late_packets == Some(0) && window.unmarked == 0;
        let is_in_time = end.clock.is_none() && delivery.doubts.is_empty();
        Some(SinkView {
            name,
            family: self.hash_keys.at(epoch).family.clone(),
            unit_ns: self.layout.shape.unit_ns,
            has_rows: self.layout.shape.row_sets > 0,
            beside: None,
            has_gaps,
            silent: silent_beside_rows(&window, has_gaps),
            unnamed: match window.totals.nodes_full {
                0 => Arc::default(),
                _ => self.names.0.keys().copied().collect(),
            },
            is_sound: delivery.is_whole() && has_all_packets && is_in_time,
            window,
        })
    }

    /// The largest flows of all sinks.
    fn flows(&self, sinks: &[SinkView]) -> Vec<FlowReport> {
        let of_sink = |sink| SinkView::flows(sink).map(move |flow| (sink, flow));
        let mut all: Vec<(&SinkView, FlowView<'_>)> = sinks.iter().flat_map(of_sink).collect();
        let size = |flow: &FlowView<'_>| flow.packets.at_most.unwrap_or(flow.packets.at_least);
        let by_size = |one: &(&SinkView, FlowView<'_>), other: &(&SinkView, FlowView<'_>)| {
            let ((here, one), (there, other)) = (one, other);
            let keys = || one.key.cmp(&other.key).then_with(|| here.name.cmp(&there.name));
            size(other).cmp(&size(one)).then_with(keys)
        };
        let listed = self.limits.flows;
        if listed < all.len() {
            all.select_nth_unstable_by(listed, by_size);
            all.truncate(listed);
        }
        all.sort_by(by_size);
        let names = &self.names;
        all.into_iter().map(|(sink, flow)| flow.report(sink, names)).collect()
    }

    fn sink_report(&self, sink: &SinkView, last: Option<&Last>) -> SinkReport {
        let window = &sink.window;
        let Layout { heavy_packets, heavy_change_packets, .. } = self.layout;
        let flows = sink.rows_by_flow();
        let (cardinality, cardinality_error) = local::cardinality(sink).unzip();
        let distribution = local::Distribution::of(sink);
        let entropy = distribution.as_ref().and_then(|of| of.entropy());
        let mut paths: Vec<PathReport> = window
            .paths
            .iter()
            .map(|of| PathReport {
                of: None,
                path: self.names.of_path(&of.path, sink),
                partial: sink.may_lack(&of.path),
                packets: sink.knows_paths().then_some(of.packets),
                at_least: of.packets,
                once: false,
            })
            .collect();
        paths.sort_by_key(|path| std::cmp::Reverse(path.at_least));
        paths.truncate(self.limits.flows);
        SinkReport {
            edge: sink.name.clone(),
            sound: sink.is_sound,
            coverage: coverage(sink),
            cardinality,
            cardinality_error,
            entropy: entropy.and_then(|entropy| entropy.0),
            entropy_min: entropy.map(|entropy| entropy.1),
            entropy_max: entropy.map(|entropy| entropy.2),
            heavy_hitters: local::heavy_hitters(sink, heavy_packets.into()),
            heavy_hitters_complete: sink.knows_large(),
            heavy_changes: last.and_then(|last| {
                changes::of_flows(sink, last.sink(&sink.name)?, heavy_change_packets.into())
            }),
            size_distribution: distribution.map(|of| of.bins()),
            flows: flows.clone().count() as u64,
            flows_exact: flows.filter(|rows| sink.is_sound && rows[0].is_exact).count() as u64,
            rows_refused: window.totals.rows_refused,
            rows_evicted: window.totals.rows_evicted,
            paths_full: window.totals.paths_full,
            links_full: window.links_full,
            bytes: window.memory,
            paths,
        }
    }
}

/// Packets that no row has and that came without INT, or with a stack that lacks switches; all that
/// no row has where any stack may lack some.
fn silent_beside_rows(window: &Window, has_gaps: bool) -> u64 {
    let totals = &window.totals;
    if has_gaps {
        return totals.packets.saturating_sub(window.rows.iter().map(|row| row.packets).sum());
    }
    let all = totals.packets.saturating_sub(totals.int_packets).saturating_add(totals.partial);
    let is_silent = |path: u32| {
        let path = (path as usize).checked_sub(1).and_then(|at| window.paths.get(at));
        path.is_none_or(|of| of.path.is_partial)
    };
    let rows = window.rows.iter().filter(|row| is_silent(row.path));
    all.saturating_sub(rows.map(|row| row.packets).sum())
}

fn coverage(sink: &SinkView) -> Coverage {
    let totals = &sink.window.totals;
    Coverage {
        packets: totals.packets,
        int_packets: totals.int_packets,
        partial: totals.partial,
        mtu_exceeded: sink.window.mtu_exceeded,
        hops_exceeded: sink.window.hops_exceeded,
        unmarked: sink.window.unmarked,
        unclassified: sink.window.unclassified,
    }
}

/// The packets of all sinks, and those of all sources.
fn covered(sinks: &[SinkView], entered: Option<Entered>) -> Covered {
    let sinks = sinks.iter().map(coverage).fold(Coverage::default(), |sum, more| Coverage {
        packets: sum.packets.saturating_add(more.packets),
        int_packets: sum.int_packets.saturating_add(more.int_packets),
        partial: sum.partial.saturating_add(more.partial),
        mtu_exceeded: sum.mtu_exceeded.saturating_add(more.mtu_exceeded),
        hops_exceeded: sum.hops_exceeded.saturating_add(more.hops_exceeded),
        unmarked: sum.unmarked.saturating_add(more.unmarked),
        unclassified: sum.unclassified.saturating_add(more.unclassified),
    });
    let Some(entered) = entered else {
        return Covered { sinks, inserted: None, not_carried: None };
    };
    Covered {
        sinks,
        inserted: Some(entered.inserted),
        not_carried: Some(sources::by_reason(&entered)),
    }
}

/// Paths that come by a switch twice, be it the sink behind them.
fn loops(sinks: &[SinkView], names: &Names) -> Vec<Loop> {
    let mut loops = Vec::new();
    for sink in sinks {
        for (at, of) in sink.window.paths.iter().enumerate() {
            let named = of.path.nodes().iter().copied();
            let nodes: Vec<u32> = named.chain(sink.window.own).collect();
            let mut again: Vec<u32> = Vec::new();
            for (place, node) in nodes.iter().enumerate() {
                if nodes[..place].contains(node) && !again.contains(node) {
                    again.push(*node);
                }
            }
            if again.is_empty() {
                continue;
            }
            let rows = sink.window.rows.iter().filter(|row| row.path as usize == at + 1);
            loops.push(Loop {
                nodes: again.into_iter().map(|node| names.of(node)).collect(),
                path: names.of_path(&of.path, sink),
                sink: sink.name.clone(),
                packets: sink.knows_paths().then_some(of.packets),
                at_least: of.packets,
                flows: rows.take(FLOWS_OF_A_LOOP).map(|row| Flow::from(&row.key)).collect(),
            });
        }
    }
    loops
}

/// Flows with inflated latencies, those with the longest first.
fn inflated(sinks: &[SinkView], start_ns: u64, names: &Names) -> Vec<Inflated> {
    let mut all: Vec<Inflated> = Vec::new();
    for sink in sinks.iter().filter(|sink| sink.is_sound) {
        all.extend(sink.window.inflated.iter().map(|of| {
            // Of a flow with rows alone, those beyond are of other flows or switches.
            let (by, beyond) = match sink.window.has_inflation(&of.key) {
                true => (By::Rows, 0),
                false => (By::Towers, sink.window.totals.inflated_full),
            };
            let is_known = !sink.is_cut_at(of.node) && of.max_ns < LONGEST_NS;
            let time = (of.last_us != NO_TIME).then(|| start_ns + 1000 * u64::from(of.last_us));
            Inflated {
                flow: Flow::from(&of.key),
                sink: sink.name.clone(),
                node: names.of(of.node),
                by,
                count: (beyond == 0 && is_known).then_some(of.count),
                at_least: if is_known { of.count } else { 0 },
                at_most: is_known.then(|| u64::from(of.count).saturating_add(beyond)),
                max_us: f64::from(of.max_ns) / 1000.0,
                last_unix_ns: time,
            }
        }));
    }
    all.sort_by(|one, other| other.max_us.total_cmp(&one.max_us));
    all
}
