//! Tables of the archive.

use std::borrow::Cow;
use std::sync::Arc;

use calumma_analysis::table::{
    Row, Table, TableOf, complete, dport, dst, epoch, number, proto, sport, src, start, text,
    truth, u8, u32, u64,
};
use calumma_analysis::{SystemReport, of_flow};

use crate::counted::Monitored;
use crate::report::{BlackHole, Counted, Found, Loop, Loss, NodeReport, Spread};

/// All of them.
pub(crate) static TABLES: [&dyn Table; 7] =
    [&FLOWS, &NODES, &WINDOWS, &SUPERSPREADERS, &LOOPS, &LOSSES, &BLACK_HOLES];

impl Found {
    /// Lets a report that was read and has no others have those flows in the archive that it lists.
    pub(crate) fn fill_counted(&mut self) {
        if !self.counted().is_empty() {
            return;
        }
        let at = |name: &str| self.nodes.iter().position(|node| node.node == name);
        let counted = self.flows.iter().filter_map(|it| {
            Some(Counted {
                flow: it.flow,
                packets: it.packets,
                bytes: it.bytes,
                exact: it.exact,
                at: at(&it.at)?,
                hops: it.hops.len() as u32,
                ttls: None,
            })
        });
        self.counted = Arc::new(Monitored::listed(counted.collect()));
    }
}

of_flow!(Counted, Loop, Loss);

static FLOWS: TableOf<SystemReport<Found>, Counted> = TableOf {
    name: "cfs_flows",
    help: "a monitored flow in a window",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("packets", "its packets, by the node `at`", |row| Some(row.item.packets)),
        u64("bytes", "their bytes, as IP counts them", |row| Some(row.item.bytes)),
        truth("exact", "whether these are all; else it had at least so many", |row| {
            Some(row.item.exact)
        }),
        text("at", "the node that counted them", |row| Some(row.node.into())),
        u32("hops", "nodes that have an entry of it", |row| Some(row.item.hops)),
        u8("ttl_min", "the smallest time to live of these packets; NULL: not known", |row| {
            row.item.ttls.map(|[least, _]| least)
        }),
        u8("ttl_max", "the largest; NULL: not known", |row| row.item.ttls.map(|[_, most]| most)),
    ],
    rows: |report, rows| {
        let found = &report.findings;
        rows.extend(found.counted().iter().map(|item| Row {
            head: report.head,
            node: found.nodes.get(item.at).map_or("", |node| &node.node),
            item,
        }));
    },
};

static NODES: TableOf<SystemReport<Found>, NodeReport> = TableOf {
    name: "cfs_nodes",
    help: "a node in a window",
    columns: &[
        epoch(),
        start(),
        text("node", "its name", |row| Some(row.node.into())),
        text("role", "edge or transit", |row| Some((&*row.item.role).into())),
        u64("entries", "flows that its table holds", |row| Some(row.item.entries)),
        u64("used", "those that it had at the end", |row| Some(row.item.used)),
        u64("packets", "packets that it recorded", |row| Some(row.item.packets)),
        u64("counted", "those of them that entries have", |row| Some(row.item.counted)),
        u64("unmarked", "packets without a mark", |row| Some(row.item.unmarked)),
        u64("admitted", "flows that got an entry", |row| Some(row.item.admitted)),
        u64("evicted", "those of them that lost it", |row| Some(row.item.evicted)),
        u64("refused", "flows that got none", |row| Some(row.item.refused)),
        number("threshold", "the worst grade still admitted, 0 to 1", |row| {
            Some(row.item.threshold)
        }),
        number("theta", "the grade from which on it claimed no flow, 0 to 1", |row| {
            Some(row.item.theta)
        }),
        number("flows", "flows that it saw", |row| Some(row.item.flows)),
        number("flows_error", "by how much that is wrong at most, 95 times out of 100", |row| {
            Some(row.item.flows_error)
        }),
        truth("sound", "whether it recorded every packet", |row| Some(row.item.sound)),
        u64("bytes", "bytes of its memory", |row| Some(row.item.bytes)),
        u64("pinned", "flows with an entry since they were pinned", |row| Some(row.item.pinned)),
        u64("suspects", "flows without an entry that may be in loops; NULL: not watched", |row| {
            row.item.guard.map(|of| of.suspects)
        }),
        number("alpha", "the table's share of the memory of both; NULL: no residual", |row| {
            row.item.alpha
        }),
        number(
            "optimum_with_more",
            "the optimum with a tenth more entries; NULL: unknown",
            |row| row.item.optimum_with_more,
        ),
        number("optimum_with_more_low", "what that is at least, 95 times out of 100", |row| {
            row.item.optimum_with_more_low
        }),
        number("optimum_with_more_high", "and at most", |row| row.item.optimum_with_more_high),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head, &report.findings.nodes, |node| &node.node));
    },
};

pub(crate) static WINDOWS: TableOf<SystemReport<Found>, Found> = TableOf {
    name: "cfs_windows",
    help: "a window",
    columns: &[
        epoch(),
        start(),
        number("flows_total", "flows that there were; NULL: unknown", |row| row.item.flows_total),
        number("flows_total_error", "by how much that is wrong, 95 times out of 100", |row| {
            row.item.flows_total_error
        }),
        u64("monitored", "those that any node counted", |row| Some(row.item.monitored)),
        u64("monitored_exactly", "those of them with an exact count", |row| {
            Some(row.item.monitored_exactly)
        }),
        number("coverage", "share that is monitored; NULL: unknown", |row| row.item.coverage),
        number("coverage_low", "what it is at least, 95 times out of 100", |row| {
            row.item.coverage_low
        }),
        number("coverage_high", "and at most", |row| row.item.coverage_high),
        number("optimum", "share that tables have room for; NULL: unknown", |row| row.item.optimum),
        number("optimum_low", "what it is at least, 95 times out of 100", |row| {
            row.item.optimum_low
        }),
        number("optimum_high", "and at most", |row| row.item.optimum_high),
        complete(),
    ],
    rows: |report, rows| {
        rows.push(Row { head: report.head, node: "", item: &report.findings });
    },
};

static SUPERSPREADERS: TableOf<SystemReport<Found>, Spread> = TableOf {
    name: "cfs_superspreaders",
    help: "a source of flows to many destinations in a window",
    columns: &[
        epoch(),
        start(),
        text("src", "source address", |row| Some(row.item.address.to_string().into())),
        u64("seen", "destinations in monitored flows", |row| Some(row.item.seen)),
        number("estimate", "destinations in all; NULL where unknown", |row| row.item.estimate),
        number("low", "how many at least, 95 times out of 100", |row| Some(row.item.low)),
        number("high", "and at most; NULL where unknown", |row| row.item.high),
        truth("certain", "whether it is beyond the threshold at the low end", |row| {
            Some(row.item.certain)
        }),
    ],
    rows: |report, rows| {
        let items = report.findings.superspreaders.iter();
        rows.extend(items.map(|item| Row { head: report.head, node: "", item }));
    },
};

static LOOPS: TableOf<SystemReport<Found>, Loop> = TableOf {
    name: "cfs_loops",
    help: "a flow whose packets went round in a window",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("nodes", "nodes that saw so, in the order of the loop", |row| {
            Some(row.item.nodes.join(" ").into())
        }),
        u8("length", "hops of a turn", |row| Some(row.item.length)),
        text("ttls", "times to live at the first of the nodes", |row| Some(ttls(row.item))),
        u64("packets", "packets that it received, each once; NULL: not known", |row| {
            row.item.packets
        }),
        truth("certain", "whether they went round until they died", |row| Some(row.item.certain)),
    ],
    rows: |report, rows| {
        let items = report.findings.loops.iter();
        rows.extend(items.map(|item| Row { head: report.head, node: "", item }));
    },
};

fn ttls(item: &Loop) -> Cow<'_, str> {
    item.ttls.iter().map(u8::to_string).collect::<Vec<_>>().join(" ").into()
}

static LOSSES: TableOf<SystemReport<Found>, Loss> = TableOf {
    name: "cfs_losses",
    help: "packets of a flow that were lost between two nodes that counted it exactly",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("place_from", "where the one received it", |row| Some((&*row.item.place.from).into())),
        text("place_to", "where the other received it; `destination`: nowhere", |row| {
            Some((&*row.item.place.to).into())
        }),
        u64("lost", "packets that were lost, less copies made", |row| Some(row.item.lost)),
    ],
    rows: |report, rows| {
        let items = report.findings.losses.iter();
        rows.extend(items.map(|item| Row { head: report.head, node: "", item }));
    },
};

static BLACK_HOLES: TableOf<SystemReport<Found>, BlackHole> = TableOf {
    name: "cfs_black_holes",
    help: "where nothing went on in a window",
    columns: &[
        epoch(),
        start(),
        text("place_from", "the node that received all of it", |row| {
            Some((&*row.item.place.from).into())
        }),
        text(
            "place_to",
            "the edge where nothing came; `destination`: none, wherever it is",
            |row| Some((&*row.item.place.to).into()),
        ),
        u64("flows", "flows of which nothing came on", |row| Some(row.item.flows)),
        u64("packets", "their packets, all of them lost", |row| Some(row.item.packets)),
    ],
    rows: |report, rows| {
        let items = report.findings.black_holes.iter();
        rows.extend(items.map(|item| Row { head: report.head, node: "", item }));
    },
};
