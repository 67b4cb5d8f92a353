//! What is other than in the window before.

use std::collections::{BTreeMap, BTreeSet};

use calumma_analysis::Flow;
use calumma_sketch::WideKey;
use calumma_sketch::sketchint::Path;

use crate::report::{Change, Packets, PathChange};
use crate::view::{FlowView, Names, SinkView};

/// The window before.
#[derive(Debug)]
pub(crate) struct Last {
    /// Its first epoch.
    pub(crate) first: u64,
    pub(crate) sinks: Vec<SinkView>,
}

impl Last {
    pub(crate) fn sink(&self, name: &str) -> Option<&SinkView> {
        self.sinks.iter().find(|sink| sink.name == name)
    }
}

/// Flows that a sink can name in either window, as they were in the one before and in this one.
fn in_both<'a>(
    before: &'a SinkView,
    sink: &'a SinkView,
) -> impl Iterator<Item = (FlowView<'a>, FlowView<'a>)> {
    let (mut old, mut new) = (before.flows().peekable(), sink.flows().peekable());
    std::iter::from_fn(move || {
        let keys = [old.peek(), new.peek()].map(|flow| flow.map(|flow| flow.key));
        let key = keys.into_iter().flatten().min()?;
        let old = old.next_if(|flow| flow.key == key);
        let new = new.next_if(|flow| flow.key == key);
        let unnamed = |sink: &SinkView| sink.flow_of(key, &[], false);
        Some((old.unwrap_or_else(|| unnamed(before)), new.unwrap_or_else(|| unnamed(sink))))
    })
}

fn change(
    (key, sink): (WideKey, &SinkView),
    (before, after): (Packets, Packets),
    threshold: u64,
) -> Option<Change> {
    let change = before.distance(&after);
    change.may_exceed(threshold).then(|| Change {
        flow: Flow::from(&key),
        sink: sink.name.clone(),
        change,
        before,
        after,
        certain: change.at_least > threshold,
    })
}

fn largest_first(all: &mut [Change]) {
    all.sort_by_key(|of| std::cmp::Reverse((of.change.at_least, of.change.at_most)));
}

/// Flows of a sink whose packets changed by more than `threshold`, or may have; `None` where it did
/// not record all packets of both windows.
pub(crate) fn of_flows(sink: &SinkView, before: &SinkView, threshold: u64) -> Option<Vec<Change>> {
    if !sink.is_sound || !before.is_sound {
        return None;
    }
    let of = |(old, new): (FlowView<'_>, FlowView<'_>)| {
        change((new.key, sink), (old.packets, new.packets), threshold)
    };
    let mut all: Vec<Change> = in_both(before, sink).filter_map(of).collect();
    largest_first(&mut all);
    Some(all)
}

/// The same by the packets that came by a switch, for every switch.
pub(crate) fn at_switches(
    sinks: &[SinkView],
    last: &Last,
    threshold: u64,
) -> BTreeMap<u32, Vec<Change>> {
    let mut all: BTreeMap<u32, Vec<Change>> = BTreeMap::new();
    for sink in sinks.iter().filter(|sink| sink.is_sound) {
        let Some(before) = last.sink(&sink.name).filter(|before| before.is_sound) else {
            continue;
        };
        for flows in in_both(before, sink) {
            let may_exceed = |flow: &FlowView<'_>| flow.packets.may_exceed(threshold);
            if !may_exceed(&flows.0) && !may_exceed(&flows.1) {
                continue;
            }
            let nodes = before.may_nodes(&flows.0).into_iter().chain(sink.may_nodes(&flows.1));
            for node in nodes.collect::<BTreeSet<u32>>() {
                let (one, two) = (before.hop(&flows.0, node), sink.hop(&flows.1, node));
                let changed = change((flows.1.key, sink), (one.packets, two.packets), threshold);
                all.entry(node).or_default().extend(changed);
            }
        }
    }
    all.values_mut().for_each(|changes| largest_first(changes));
    all
}

/// The whole paths of a flow that it is known to have come by.
fn paths_of<'a>(sink: &'a SinkView, flow: &FlowView<'a>) -> BTreeSet<&'a Path> {
    let paths = flow.rows.iter().filter_map(|row| sink.path(row));
    paths.filter(|path| !sink.may_lack(path)).collect()
}

/// Flows that came by a path that they did not come by before. Of a flow that came by several in
/// one window, that is known without the window before.
pub(crate) fn paths(sinks: &[SinkView], last: Option<&Last>, names: &Names) -> Vec<PathChange> {
    let mut changes = Vec::new();
    for sink in sinks {
        let before = last.and_then(|last| last.sink(&sink.name));
        for rows in sink.rows_by_flow() {
            let key = rows[0].key;
            let after = paths_of(sink, &sink.flow_of(key, rows, false));
            let old = before.map(|sink| (sink, sink.flow(key)));
            // Else packets may have come by paths that are not known.
            let old = old.filter(|(sink, flow)| flow.is_exact && sink.silent_of(flow) == 0);
            let old = old.map_or_else(BTreeSet::new, |(sink, flow)| paths_of(sink, &flow));
            let is_other = !old.is_empty() || after.len() > 1;
            if is_other && !after.is_subset(&old) {
                let of = |paths: BTreeSet<&Path>| {
                    paths.into_iter().map(|path| names.of_path(path, sink)).collect()
                };
                changes.push(PathChange {
                    flow: Flow::from(&key),
                    sink: sink.name.clone(),
                    before: of(old),
                    after: of(after),
                });
            }
        }
    }
    changes
}
