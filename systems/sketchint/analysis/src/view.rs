//! A window as one sink saw it, and what that says of a flow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use calumma_analysis::Flow;
use calumma_sketch::sketchint::{FlowRow, NodeSums, Pair, Path, flow_word};
use calumma_sketch::{FlowKey, HashFamily, Hashes, Key, KeyKind, WideKey};
use calumma_sketchint::frames::Window;

use crate::delays::{LONGEST_NS, in_switches};
use crate::report::{Estimated, FlowReport, HopReport, Packets, PathReport};
use crate::sampling::{Beside, Sample};
use crate::sums::{Quantile, Sum};

/// Names of switches by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(pub(crate) BTreeMap<u32, String>);

impl Names {
    pub(crate) fn of(&self, node: u32) -> String {
        self.0.get(&node).cloned().unwrap_or_else(|| format!("node {node}"))
    }

    /// The switches of a path from the source on: those that its stacks name, and the sink behind
    /// them, where that is a switch.
    pub(crate) fn of_path(&self, path: &Path, sink: &SinkView) -> Vec<String> {
        path.nodes().iter().copied().chain(sink.window.own).map(|node| self.of(node)).collect()
    }
}

/// A sink that delivered.
#[derive(Clone, Debug)]
pub(crate) struct SinkView {
    pub(crate) name: String,
    pub(crate) window: Arc<Window>,
    pub(crate) family: Arc<HashFamily>,
    pub(crate) unit_ns: u32,
    /// Whether it has rows, and not towers alone.
    pub(crate) has_rows: bool,
    /// Whether it recorded all packets for its hosts, in the right window.
    pub(crate) is_sound: bool,
    /// Packets that say nothing by no chance, where only a share carries INT; `None` where all do,
    /// or not all sources and sinks are known.
    pub(crate) beside: Option<Beside>,
    /// Whether a switch may have sent packets on without a word of itself in their stacks: it did
    /// not deliver the window, and may have begun anew within it. What looks whole may lack it.
    pub(crate) has_gaps: bool,
    /// Packets beside its rows that may have come by switches without saying so.
    pub(crate) silent: u64,
    /// Switches that packets may have come by beside those that it names: all of the deployment's
    /// where it does not tell all apart.
    pub(crate) unnamed: Arc<[u32]>,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowView<'a> {
    pub(crate) key: WideKey,
    pub(crate) rows: &'a [FlowRow<WideKey>],
    /// Whether all packets of the flow are in its rows.
    pub(crate) is_exact: bool,
    pub(crate) packets: Packets,
}

/// What is known of a flow at a switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopView {
    pub(crate) node: u32,
    pub(crate) packets: Packets,
    pub(crate) estimate: Option<Estimated>,
    /// Packets whose latency is known, exactly.
    pub(crate) latencies: Option<u64>,
    /// Bounds of the mean in nanoseconds, of which the upper may be infinite.
    pub(crate) mean: Option<(f64, f64)>,
    pub(crate) min_ns: Option<u32>,
    pub(crate) max_ns: Option<u32>,
    /// What 50, 90 and 99 of 100 latencies don't exceed, in nanoseconds.
    pub(crate) quantiles: [Option<Quantile>; 3],
    pub(crate) inflated: Option<u32>,
}

impl FlowView<'_> {
    /// Packets that its rows have.
    fn in_rows(&self) -> u64 {
        self.rows.iter().map(|row| row.packets).sum()
    }

    /// What is reported of it, as `sink` saw it.
    pub(crate) fn report(&self, sink: &SinkView, names: &Names) -> FlowReport {
        let with_int = self.rows.iter().filter(|row| row.path > 0);
        let int_packets = self.is_exact.then(|| with_int.clone().map(|row| row.packets).sum());
        let path = |packets: u64, path: &Path| PathReport {
            of: None,
            path: names.of_path(path, sink),
            partial: sink.may_lack(path),
            packets: self.is_exact.then_some(packets),
            at_least: packets,
            once: false,
        };
        let once = sink.seen(self).map(|seen| PathReport { once: true, ..path(1, seen) });
        let nodes = sink.nodes_of(self);
        FlowReport {
            flow: Flow::from(&self.key),
            sink: sink.name.clone(),
            packets: self.packets,
            int_packets,
            exact: self.is_exact,
            paths: with_int
                .filter_map(|row| Some(path(row.packets, sink.path(row)?)))
                .chain(once)
                .collect(),
            in_switches_us: in_switches(sink, self),
            hops: nodes.iter().map(|&node| sink.hop(self, node).report(names)).collect(),
        }
    }
}

/// Whether packets of a path went from host to host of the sink, where none needs INT.
fn is_local(path: &Path) -> bool {
    path.nodes().is_empty() && !path.is_partial
}

impl SinkView {
    /// Whether packets of a path may have come by other switches than it names.
    pub(crate) fn may_lack(&self, path: &Path) -> bool {
        path.is_partial || self.has_gaps && !is_local(path)
    }

    /// Whether packets of a row may have come by other switches than its path names: they came
    /// without INT, or with a stack that may lack some.
    fn is_silent(&self, row: &FlowRow<WideKey>) -> bool {
        self.path(row).is_none_or(|path| self.may_lack(path))
    }

    /// Packets of a flow that don't say by which switches they came, at most.
    pub(crate) fn silent_of(&self, flow: &FlowView<'_>) -> u64 {
        let rows = flow.rows.iter().filter(|row| self.is_silent(row));
        let in_rows: u64 = rows.map(|row| row.packets).sum();
        in_rows.saturating_add(self.silent_beside_rows(flow))
    }

    /// Those of them that are in no row.
    fn silent_beside_rows(&self, flow: &FlowView<'_>) -> u64 {
        let silent = self.silent.saturating_add(self.unclassified_of(&flow.key));
        let beside = flow.packets.at_most.map(|most| most.saturating_sub(flow.in_rows()));
        beside.map_or(silent, |most| most.min(silent))
    }

    /// Packets that may be of a flow, for all that the sink can tell of them: they are of IPv6.
    fn unclassified_of(&self, key: &WideKey) -> u64 {
        let is_ipv4 = matches!(key.addresses().0, IpAddr::V4(_));
        if is_ipv4 { 0 } else { self.window.unclassified }
    }

    /// Whether every flow has rows, and all its packets in them.
    pub(crate) fn has_all(&self) -> bool {
        let totals = &self.window.totals;
        let has_rows = self.has_rows && self.window.unclassified == 0;
        self.is_sound && has_rows && totals.rows_refused == 0 && totals.rows_evicted == 0
    }

    /// Whether all flows of more packets than either threshold are known by name.
    pub(crate) fn knows_large(&self) -> bool {
        let has_keys = self.window.totals.keys_full == 0 && self.window.unclassified == 0;
        self.has_all() || self.is_sound && has_keys
    }

    /// Whether its paths have all their packets: no lcore lacked room for one that another had.
    pub(crate) fn knows_paths(&self) -> bool {
        self.is_sound && self.window.totals.paths_full == 0
    }

    /// Packets that came to it with a stack of the network's: those from host to host of the
    /// switch, which need none, are not among them, nor are those of paths without room.
    pub(crate) fn with_stacks(&self) -> u64 {
        let paths = self.window.paths.iter().filter(|of| !is_local(&of.path));
        paths.map(|of| of.packets).sum()
    }

    /// All flows that it can name, by their keys: rows and keys of large flows are in that order.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowView<'_>> {
        let mut of_rows = self.rows_by_flow().peekable();
        let mut large = self.window.large.iter().copied().peekable();
        std::iter::from_fn(move || {
            let first = of_rows.peek().map(|rows| rows[0].key);
            let key = first.into_iter().chain(large.peek().copied()).min()?;
            let rows = of_rows.next_if(|rows| rows[0].key == key).unwrap_or_default();
            let is_large = large.next_if_eq(&key).is_some();
            Some(self.flow_of(key, rows, is_large))
        })
    }

    /// The rows of each flow.
    pub(crate) fn rows_by_flow(&self) -> impl Iterator<Item = &[FlowRow<WideKey>]> + Clone {
        self.window.rows.chunk_by(|one, other| one.key == other.key)
    }

    pub(crate) fn path(&self, row: &FlowRow<WideKey>) -> Option<&Path> {
        let at = (row.path as usize).checked_sub(1)?;
        self.window.paths.get(at).map(|of| &of.path)
    }

    /// The path of one packet of a flow whose paths are not kept.
    fn seen(&self, flow: &FlowView<'_>) -> Option<&Path> {
        let seen = &self.window.seen;
        let at = seen.binary_search_by_key(&flow.key, |of| of.key).ok()?;
        flow.rows.is_empty().then_some(&seen[at].path)
    }

    fn hashes(&self, key: &WideKey) -> Option<Hashes> {
        Some(match self.window.keys {
            KeyKind::Dual => self.family.hash(key),
            KeyKind::Ipv4 => {
                let ((src, dst), (sport, dport)) = (key.addresses(), Key::ports(key));
                let narrow = FlowKey::new(src, dst, sport, dport, Key::protocol(key))?;
                self.family.hash(&narrow)
            }
        })
    }

    /// What is known of a flow, be it named anywhere or not.
    pub(crate) fn flow(&self, key: WideKey) -> FlowView<'_> {
        let all = &self.window.rows;
        let from = all.partition_point(|row| row.key < key);
        let rows = &all[from..];
        let rows = &rows[..rows.partition_point(|row| row.key == key)];
        self.flow_of(key, rows, self.window.large.binary_search(&key).is_ok())
    }

    /// The same of a flow that has these rows, and that is among the large ones or not.
    pub(crate) fn flow_of<'a>(
        &self,
        key: WideKey,
        rows: &'a [FlowRow<WideKey>],
        is_large: bool,
    ) -> FlowView<'a> {
        let in_rows = rows.iter().map(|row| row.packets).sum();
        let is_exact = self.is_sound && rows.first().is_some_and(|row| row.is_exact);
        let packets = if is_exact {
            Packets::exactly(in_rows)
        } else if self.has_all() && rows.is_empty() {
            Packets::exactly(0)
        } else {
            let most = self.hashes(&key).map(|hashes| self.window.sizes.query(&hashes));
            let most = most.filter(|&most| most != u32::MAX && self.is_sound);
            let most = most.map(|most| u64::from(most).saturating_add(self.unclassified_of(&key)));
            Packets::between(in_rows.max(is_large.into()), most)
        };
        FlowView { key, rows, is_exact, packets }
    }

    fn node(&self, node: u32) -> Option<&NodeSums> {
        let nodes = &self.window.nodes;
        nodes.binary_search_by_key(&node, |of| of.node).ok().map(|at| &nodes[at])
    }

    /// Whether packets may have been longer at a switch than stacks can say. By a longer mean fewer
    /// are inflated, and more if they were longer themselves.
    pub(crate) fn is_cut_at(&self, node: u32) -> bool {
        self.node(node).is_some_and(|of| of.max_ns >= LONGEST_NS)
    }

    /// The switches that a flow came by: those of its rows' paths, in their order, and the sink
    /// itself. Of a flow without rows all that it may have come by.
    pub(crate) fn nodes_of(&self, flow: &FlowView<'_>) -> Vec<u32> {
        let mut nodes: Vec<u32> = Vec::new();
        let of_rows = flow.rows.iter().filter_map(|row| self.path(row));
        for &node in of_rows.flat_map(Path::nodes) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        if flow.rows.is_empty() {
            return self.may_nodes(flow);
        }
        let own = self.window.own.filter(|own| !nodes.contains(own));
        nodes.extend(own.filter(|&own| self.hop(flow, own).packets.at_most != Some(0)));
        nodes
    }

    /// All switches that packets of a flow may have come by.
    pub(crate) fn may_nodes(&self, flow: &FlowView<'_>) -> Vec<u32> {
        if flow.is_exact && !flow.rows.is_empty() {
            return self.nodes_of(flow);
        }
        let named = self.window.nodes.iter().map(|of| of.node);
        let all: BTreeSet<u32> = named.chain(self.unnamed.iter().copied()).collect();
        let may = |&node: &u32| self.hop(flow, node).packets.at_most != Some(0);
        all.into_iter().filter(may).collect()
    }

    /// How many packets of a flow came by a switch that is not the sink, by those that say so.
    fn estimate(&self, flow: &FlowView<'_>, node: u32) -> Option<Estimated> {
        let beside = self.beside.filter(|_| flow.is_exact && self.window.own != Some(node))?;
        let mut sample = Sample { all: 0, drawn: 0, hits: 0, unsure: 0 };
        for row in flow.rows {
            let path = self.path(row);
            if path.is_some_and(is_local) {
                continue;
            }
            sample.all += row.packets;
            let Some(path) = path else { continue };
            sample.drawn += row.packets;
            if path.nodes().contains(&node) {
                sample.hits += row.packets;
            } else if self.may_lack(path) {
                sample.unsure += row.packets;
            }
        }
        sample.estimate(beside)
    }

    /// What is known of a flow at a switch.
    pub(crate) fn hop(&self, flow: &FlowView<'_>, node: u32) -> HopView {
        // What a sink records has come by it.
        let at_own = self.window.own == Some(node);
        // Packets that came by it, and those that don't say.
        let (mut packets, mut silent, mut cell) = (0_u64, 0_u64, Sum::default());
        for row in flow.rows {
            let nodes = self.path(row).map_or(&[][..], Path::nodes);
            if nodes.contains(&node) {
                packets += row.packets;
            } else if self.is_silent(row) {
                silent += row.packets;
            }
            for (at, (there, of)) in nodes.iter().zip(&row.hops).enumerate() {
                if *there == node {
                    cell.add(of, row.quarters.get(at));
                }
            }
            if at_own {
                cell.add(&row.own, row.quarters.last());
            }
        }
        // Where an lcore had no room for a switch, the others' sums lack what it saw.
        let knows_all = self.window.totals.nodes_full == 0;
        let known = self.node(node).filter(|_| knows_all);
        let inflated = self.inflated(flow, node);
        if flow.is_exact || self.has_all() {
            let mean = (cell.known > 0).then(|| cell.sum as f64 / cell.known as f64);
            // All that were as long as a stack can say may have been longer.
            let is_known = cell.max < LONGEST_NS;
            let longest_mean = |mean| if is_known { mean } else { f64::INFINITY };
            let least = known.map_or(0, |of| of.min_ns);
            return HopView {
                node,
                packets: match at_own {
                    true => flow.packets,
                    false => Packets::between(packets, Some(packets + silent)),
                },
                estimate: self.estimate(flow, node),
                latencies: Some(cell.known),
                mean: mean.map(|mean| (mean, longest_mean(mean))),
                min_ns: cell.min.filter(|&least| cell.known > 0 && least < LONGEST_NS),
                max_ns: (cell.known > 0 && is_known).then_some(cell.max),
                quantiles: [50, 90, 99].map(|percent| cell.quantile(percent, least)),
                inflated: inflated.filter(|_| is_known),
            };
        }
        let pair = self.hashes(&flow.key).map(|hashes| flow_word(&hashes));
        let pair = pair.map(|word| self.window.pairs.query(word, node));
        let Pair { latency, packets: others } =
            pair.unwrap_or(Pair { latency: None, packets: None });
        let others = others.filter(|_| self.is_sound).map(u64::from);
        let at_switch = known.map(|of| of.packets).or(knows_all.then_some(0));
        let at_most = others.map(|others| packets.saturating_add(others));
        // No more packets of the flow said that they met it than all that said so.
        let at_most = match at_switch.filter(|_| self.is_sound) {
            Some(all) => Some(at_most.map_or(all, |most| most.min(all))),
            None => at_most,
        };
        let beside = self.silent_beside_rows(flow);
        let not_said = silent.saturating_add(beside);
        let at_most = at_most.map(|most| most.saturating_add(not_said));
        let latency = latency.map(|units| f64::from(units) * f64::from(self.unit_ns));
        let range = known.filter(|of| of.min_ns <= of.max_ns);
        let mean = range.filter(|_| self.is_sound).map(|of| {
            let range = (f64::from(of.min_ns), f64::from(of.max_ns));
            let (low, high) = cell.mean_with(others, latency, range);
            (low, if of.max_ns < LONGEST_NS { high } else { f64::INFINITY })
        });
        let named = self.seen(flow).is_some_and(|path| path.nodes().contains(&node));
        let packets = match at_own {
            true => flow.packets,
            false => Packets::between(packets.max(named.into()), at_most),
        };
        let mean = mean.filter(|_| packets.at_most != Some(0));
        HopView { packets, mean, inflated, ..HopView::unknown(node) }
    }

    fn inflated(&self, flow: &FlowView<'_>, node: u32) -> Option<u32> {
        if !flow.is_exact || !flow.rows.first()?.has_inflation {
            return None;
        }
        let all = &self.window.inflated;
        match all.binary_search_by_key(&(flow.key, node), |of| (of.key, of.node)) {
            Ok(at) => Some(all[at].count),
            Err(_) => (self.window.totals.inflated_full == 0).then_some(0),
        }
    }
}

impl HopView {
    /// Nothing but where it is.
    fn unknown(node: u32) -> Self {
        Self {
            node,
            packets: Packets::between(0, None),
            estimate: None,
            latencies: None,
            mean: None,
            min_ns: None,
            max_ns: None,
            quantiles: [None; 3],
            inflated: None,
        }
    }

    pub(crate) fn report(&self, names: &Names) -> HopReport {
        let us = |ns: f64| ns / 1000.0;
        let bound = |ns: f64| ns.is_finite().then(|| us(ns));
        let mean = self.mean.filter(|mean| mean.0 == mean.1);
        let [p50, p90, p99] = self.quantiles;
        let number = |of: Option<Quantile>| of?.number.map(us);
        let low = |of: Option<Quantile>| of.map(|of| us(of.low));
        let high = |of: Option<Quantile>| bound(of?.high);
        HopReport {
            of: None,
            node: names.of(self.node),
            packets: self.packets,
            estimate: self.estimate,
            latencies: self.latencies,
            mean_us: mean.map(|mean| us(mean.0)),
            mean_min_us: self.mean.map(|mean| us(mean.0)),
            mean_max_us: self.mean.and_then(|mean| bound(mean.1)),
            min_us: self.min_ns.map(|ns| us(ns.into())),
            max_us: self.max_ns.map(|ns| us(ns.into())),
            p50_us: number(p50),
            p50_min_us: low(p50),
            p50_max_us: high(p50),
            p90_us: number(p90),
            p90_min_us: low(p90),
            p90_max_us: high(p90),
            p99_us: number(p99),
            p99_min_us: low(p99),
            p99_max_us: high(p99),
            inflated: self.inflated,
        }
    }
}
