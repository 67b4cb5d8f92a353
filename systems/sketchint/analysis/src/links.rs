//! Links between switches, by the paths that packets came by.

use std::collections::BTreeMap;

use crate::report::LinkReport;
use crate::view::{Names, SinkView};

/// All links of paths that are known whole, those of most packets first.
pub(crate) fn all(sinks: &[SinkView], names: &Names) -> Vec<LinkReport> {
    let mut packets: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for sink in sinks {
        // Of a path that may lack switches, neighbours are no neighbours.
        for of in sink.window.paths.iter().filter(|of| !of.path.is_partial) {
            let mut nodes = of.path.nodes().iter().copied().chain(sink.window.own);
            let Some(mut from) = nodes.next() else { continue };
            for to in nodes {
                *packets.entry((from, to)).or_default() += of.packets;
                from = to;
            }
        }
    }
    let are_known = sinks.iter().all(SinkView::knows_paths);
    let link = |((from, to), packets): ((u32, u32), u64)| LinkReport {
        from: names.of(from),
        to: names.of(to),
        packets: are_known.then_some(packets),
        at_least: packets,
    };
    let mut links: Vec<LinkReport> = packets.into_iter().map(link).collect();
    links.sort_by_key(|link| std::cmp::Reverse(link.at_least));
    links
}
