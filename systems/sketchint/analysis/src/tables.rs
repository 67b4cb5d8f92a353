//! Tables of the archive.

use calumma_analysis::table::{
    Row, Table, TableOf, complete, dport, dst, epoch, number, proto, sport, src, start, text,
    truth, u8, u16, u32, u64,
};
use calumma_analysis::{SystemReport, of_flow};

use crate::report::{
    FlowReport, Found, HopReport, Inflated, LinkReport, NodeReport, PathChange, PathReport,
    SinkReport,
};

/// All of them.
pub static TABLES: [&dyn Table; 9] =
    [&WINDOWS, &NOT_CARRIED, &NODES, &LINKS, &FLOWS, &HOPS, &PATHS, &PATH_CHANGES, &INFLATED];

of_flow!(FlowReport, Inflated, PathChange);

pub(crate) static WINDOWS: TableOf<SystemReport<Found>, SinkReport> = TableOf {
    name: "sketchint_windows",
    help: "a sink in a window",
    columns: &[
        epoch(),
        start(),
        text("sink", "name of the sink", |row| Some(row.node.into())),
        truth("sound", "whether it recorded all packets for its hosts", |row| Some(row.item.sound)),
        u64("packets", "packets for its hosts", |row| Some(row.item.coverage.packets)),
        u64("int_packets", "those with INT", |row| Some(row.item.coverage.int_packets)),
        u64("partial", "those whose stack may lack switches", |row| {
            Some(row.item.coverage.partial)
        }),
        u64("mtu_exceeded", "those that a switch found too long for its hop", |row| {
            Some(row.item.coverage.mtu_exceeded)
        }),
        u64("hops_exceeded", "those whose stack a switch found full", |row| {
            Some(row.item.coverage.hops_exceeded)
        }),
        u64("unclassified", "IPv6 packets whose flow is not known, in no other number", |row| {
            Some(row.item.coverage.unclassified)
        }),
        number("cardinality", "flows", |row| row.item.cardinality),
        number("cardinality_error", "by how much that may be wrong, 95 times out of 100", |row| {
            row.item.cardinality_error
        }),
        number("entropy", "of the packets over flows, in bits", |row| row.item.entropy),
        number("entropy_min", "no less than this", |row| row.item.entropy_min),
        number("entropy_max", "and no more", |row| row.item.entropy_max),
        u64("flows", "flows with rows", |row| Some(row.item.flows)),
        u64("flows_exact", "those that are exact", |row| Some(row.item.flows_exact)),
        u64("rows_refused", "packets that found no row", |row| Some(row.item.rows_refused)),
        complete(),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head, &report.findings.sinks, |it| &it.edge));
    },
};

static NODES: TableOf<SystemReport<Found>, NodeReport> = TableOf {
    name: "sketchint_nodes",
    help: "a switch in a window",
    columns: &[
        epoch(),
        start(),
        text("node", "name of the switch", |row| Some(row.node.into())),
        u32("id", "its number", |row| Some(row.item.id)),
        text("kind", "`software` or `tofino`, where that is known", |row| {
            row.item.kind.as_deref().map(Into::into)
        }),
        text("stamp", "what said when packets arrived: `device`, `poll` or `both`", |row| {
            row.item.stamp.as_deref().map(Into::into)
        }),
        number("stamp_error_us", "by how much that may be wrong at most", |row| {
            row.item.stamp_error_us
        }),
        u64("packets", "packets with INT that came by, where they are known exactly", |row| {
            row.item.packets
        }),
        u64("at_least", "no fewer than this", |row| Some(row.item.at_least)),
        u64("at_most", "and no more", |row| row.item.at_most),
        text("latency_sinks", "the sinks to which packets went that the latencies are of", |row| {
            Some(row.item.latency_sinks.join(" ").into())
        }),
        number("mean_us", "their mean latency, in microseconds", |row| row.item.latency_us.mean),
        number("min_us", "the least", |row| row.item.latency_us.min),
        number("p50_us", "the median, within 1.6 %", |row| row.item.latency_us.p50),
        number("p90_us", "what 90 of 100 don't exceed, within 1.6 %", |row| {
            row.item.latency_us.p90
        }),
        number("p99_us", "what 99 of 100 don't exceed, within 1.6 %", |row| {
            row.item.latency_us.p99
        }),
        number("max_us", "the longest", |row| row.item.latency_us.max),
        number("queue_mean", "mean length of its queue, in its own unit", |row| {
            row.item.queue.as_ref().map(|queue| queue.mean)
        }),
        u32("queue_max", "the longest", |row| row.item.queue.as_ref().map(|queue| queue.max)),
        text("queue_unit", "that unit: `packets` or `cells`", |row| {
            row.item.queue.as_ref()?.unit.as_deref().map(Into::into)
        }),
        truth("queue_at_least", "whether the queue may have been longer than that", |row| {
            row.item.queue.as_ref().map(|queue| queue.at_least)
        }),
        u64("inflated", "inflated latencies", |row| row.item.inflated),
        u64("inflated_at_least", "no fewer than this", |row| Some(row.item.inflated_at_least)),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head, &report.findings.nodes, |it| &it.node));
    },
};

static NOT_CARRIED: TableOf<SystemReport<Found>, u64> = TableOf {
    name: "sketchint_not_carried",
    help: "a reason why sources sent packets on without INT in a window",
    columns: &[
        epoch(),
        start(),
        text("reason", "the reason", |row| Some(row.node.into())),
        u64("packets", "how many packets", |row| Some(*row.item)),
    ],
    rows: |report, rows| {
        let reasons = report.findings.coverage.not_carried.iter().flatten();
        rows.extend(reasons.map(|(node, item)| Row { head: report.head, node, item }));
    },
};

static LINKS: TableOf<SystemReport<Found>, LinkReport> = TableOf {
    name: "sketchint_links",
    help: "a link from one switch to another in a window",
    columns: &[
        epoch(),
        start(),
        text("source", "the switch that packets came from", |row| Some(row.node.into())),
        text("destination", "the one that they came to", |row| Some((&*row.item.to).into())),
        u64("packets", "packets of known paths, where all paths are known", |row| row.item.packets),
        u64("at_least", "no fewer than this", |row| Some(row.item.at_least)),
        u64("latency_packets", "packets of which both switches say when", |row| {
            Some(row.item.latency_us?.packets)
        }),
        number("mean_us", "the mean time that they were on it", |row| {
            Some(row.item.latency_us?.mean)
        }),
        number("min_us", "the least", |row| Some(row.item.latency_us?.min)),
        number("max_us", "the longest", |row| Some(row.item.latency_us?.max)),
        number("clock_error_us", "by how much clocks make all of them wrong at most", |row| {
            row.item.clock_error_us
        }),
        number(
            "arrival_error_us",
            "by how much stamps of arrivals make each wrong besides",
            |row| row.item.arrival_error_us,
        ),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head, &report.findings.links, |it| &it.from));
    },
};

static FLOWS: TableOf<SystemReport<Found>, FlowReport> = TableOf {
    name: "sketchint_flows",
    help: "a flow that is listed in a window",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("sink", "the sink that it went to", |row| Some(row.node.into())),
        u64("packets", "its packets, where they are known exactly", |row| row.item.packets.packets),
        u64("at_least", "no fewer than this", |row| Some(row.item.packets.at_least)),
        u64("at_most", "and no more", |row| row.item.packets.at_most),
        u64("int_packets", "those with INT, where they are known exactly", |row| {
            row.item.int_packets
        }),
        truth("exact", "whether all that is said of it is exact", |row| Some(row.item.exact)),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head, &report.findings.flows, |it| &it.sink));
    },
};

/// The columns of the flow that a hop or a path is of.
macro_rules! table_of_flows {
    ($name:literal, $help:literal, [$($column:expr),+ $(,)?], $rows:expr) => {
        TableOf {
            name: $name,
            help: $help,
            columns: &[
                epoch(),
                start(),
                text("src", "source address", |row| {
                    row.item.of.map(|flow| flow.src.to_string().into())
                }),
                text("dst", "destination address", |row| {
                    row.item.of.map(|flow| flow.dst.to_string().into())
                }),
                u16("sport", "source port, 0 where there is none", |row| {
                    row.item.of.map(|flow| flow.sport)
                }),
                u16("dport", "destination port, 0 where there is none", |row| {
                    row.item.of.map(|flow| flow.dport)
                }),
                u8("proto", "IP protocol number: 6 is TCP, 17 UDP", |row| {
                    row.item.of.map(|flow| flow.proto)
                }),
                $($column),+
            ],
            rows: $rows,
        }
    };
}

static HOPS: TableOf<SystemReport<Found>, HopReport> = table_of_flows!(
    "sketchint_hops",
    "a flow that is listed, at a switch in a window",
    [
        text("node", "name of the switch", |row| Some(row.node.into())),
        u64("packets", "packets that came by, where they are known exactly", |row| {
            row.item.packets.packets
        }),
        u64("at_least", "no fewer than this", |row| Some(row.item.packets.at_least)),
        u64("at_most", "and no more", |row| row.item.packets.at_most),
        number("estimate", "how many they are likely, where only a share carries INT", |row| {
            Some(row.item.estimate?.packets)
        }),
        number("estimate_error", "its standard error", |row| row.item.estimate?.standard_error),
        u64("estimate_min", "they are no fewer than this, 95 times of 100", |row| {
            Some(row.item.estimate?.at_least)
        }),
        u64("estimate_max", "and no more", |row| Some(row.item.estimate?.at_most)),
        number("mean_us", "their mean latency, exactly, in microseconds", |row| row.item.mean_us),
        number("mean_min_us", "it is no less than this", |row| row.item.mean_min_us),
        number("mean_max_us", "and no more", |row| row.item.mean_max_us),
        number("max_us", "the longest, exactly", |row| row.item.max_us),
        number("p50_us", "what half don't exceed, exactly or about, as bounds say", |row| {
            row.item.p50_us
        }),
        number("p50_min_us", "it is no less than this", |row| row.item.p50_min_us),
        number("p50_max_us", "and no more", |row| row.item.p50_max_us),
        number("p90_us", "what 90 of 100 don't exceed, exactly or about, as bounds say", |row| {
            row.item.p90_us
        }),
        number("p90_min_us", "it is no less than this", |row| row.item.p90_min_us),
        number("p90_max_us", "and no more", |row| row.item.p90_max_us),
        number("p99_us", "what 99 of 100 don't exceed, exactly or about, as bounds say", |row| {
            row.item.p99_us
        }),
        number("p99_min_us", "it is no less than this", |row| row.item.p99_min_us),
        number("p99_max_us", "and no more", |row| row.item.p99_max_us),
        u32("inflated", "inflated latencies", |row| row.item.inflated),
    ],
    |report, rows| {
        let hops = report.findings.flows.iter().flat_map(|flow| &flow.hops);
        rows.extend(hops.map(|item| Row { head: report.head, node: &item.node, item }));
    }
);

static PATHS: TableOf<SystemReport<Found>, PathReport> = table_of_flows!(
    "sketchint_paths",
    "a path of a flow that is listed in a window",
    [
        text("sink", "the sink that it leads to", |row| Some(row.node.into())),
        text("path", "its switches, from the source on", |row| {
            Some(row.item.path.join(" ").into())
        }),
        truth("partial", "whether there may have been more", |row| Some(row.item.partial)),
        u64("packets", "packets that came by it, where they are known exactly", |row| {
            row.item.packets
        }),
        u64("at_least", "no fewer than this", |row| Some(row.item.at_least)),
        truth("once", "whether it is that of one packet, and of others nothing is known", |row| {
            Some(row.item.once)
        }),
    ],
    |report, rows| {
        for flow in &report.findings.flows {
            let paths = flow.paths.iter();
            rows.extend(paths.map(|item| Row { head: report.head, node: &flow.sink, item }));
        }
    }
);

fn joined(paths: &[Vec<String>]) -> String {
    paths.iter().map(|path| path.join(" ")).collect::<Vec<_>>().join(", ")
}

static PATH_CHANGES: TableOf<SystemReport<Found>, PathChange> = TableOf {
    name: "sketchint_path_changes",
    help: "a flow that came by a path that it did not come by before",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("sink", "the sink that it went to", |row| Some(row.node.into())),
        text("before", "its paths in the window before", |row| {
            Some(joined(&row.item.before).into())
        }),
        text("after", "its paths in this one", |row| Some(joined(&row.item.after).into())),
    ],
    rows: |report, rows| {
        let changes = report.findings.path_changes.iter();
        rows.extend(changes.map(|item| Row { head: report.head, node: &item.sink, item }));
    },
};

static INFLATED: TableOf<SystemReport<Found>, Inflated> = TableOf {
    name: "sketchint_inflated",
    help: "a flow with inflated latencies at a switch in a window",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("node", "name of the switch", |row| Some(row.node.into())),
        text(
            "by",
            "whether by the mean of its `rows`, or of `towers` that other flows share",
            |row| Some(row.item.by.name().into()),
        ),
        u32("count", "how many there were, where all are known", |row| row.item.count),
        u32("at_least", "no fewer than this", |row| Some(row.item.at_least)),
        u64("at_most", "and no more", |row| row.item.at_most),
        number("max_us", "the longest of those known, in microseconds", |row| {
            Some(row.item.max_us)
        }),
        u64("last_unix_ns", "when the last one came", |row| row.item.last_unix_ns),
    ],
    rows: |report, rows| {
        let inflated = report.findings.inflated.iter();
        rows.extend(inflated.map(|item| Row { head: report.head, node: &item.node, item }));
    },
};
