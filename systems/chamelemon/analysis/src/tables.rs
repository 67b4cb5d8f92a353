//! ChameleMon's tables in the archive. `docs/query.md` shows them with examples.

use std::borrow::Cow;

use calumma_analysis::table::{
    OfFlow, Row, Table, TableOf, dport, dst, edge, epoch, number, proto, sport, src, start, text,
    truth, u8, u16, u32, u64,
};
use calumma_analysis::{Flow, Report, of_flow};

use crate::report::{
    Amendment, EdgeReport, EpochConfig, EpochReport, HeavyChange, HeavyHitter, Loss, PlanReport,
    Rewritten, Surplus,
};

/// All of them.
pub static TABLES: [&dyn Table; 10] = [
    &EPOCHS,
    &LOSSES,
    &SURPLUS,
    &REWRITTEN,
    &AMENDMENTS,
    &EDGES,
    &HEAVY_HITTERS,
    &HEAVY_CHANGES,
    &SIZE_DISTRIBUTION,
    &PLANS,
];

pub(crate) static EPOCHS: TableOf<EpochReport, EpochReport> = TableOf {
    name: "epochs",
    help: "an epoch",
    columns: &[
        epoch(),
        start(),
        u64("length_ms", "length of the epoch in milliseconds", |row| Some(row.item.length_ms)),
        truth("complete", "whether every edge delivered a sound measurement", |row| {
            Some(row.item.complete)
        }),
        text("missing_edges", "expected edges of which something did not come; else NULL", |row| {
            joined(&row.item.missing_edges)
        }),
        text("incomplete_because", "why it is incomplete; else NULL", |row| {
            joined(&row.item.incomplete_because)
        }),
        text("state", "healthy or ill", |row| Some(row.item.state.name().into())),
        u32("t_h", "packets that make a flow a heavy-hitter candidate", |row| {
            Some(row.item.config.t_h)
        }),
        u32("t_l", "packets below which a flow is a light-loss candidate", |row| {
            Some(row.item.config.t_l)
        }),
        number("sample_rate", "share of the light-loss candidates that were monitored", |row| {
            Some(row.item.config.sample_rate)
        }),
        u32("hh_buckets", "buckets an array of the HH encoder", |row| {
            Some(row.item.config.hh_buckets)
        }),
        u32("hl_buckets", "buckets an array of the HL encoder", |row| {
            Some(row.item.config.hl_buckets)
        }),
        u32("ll_buckets", "buckets an array of the LL encoder", |row| {
            Some(row.item.config.ll_buckets)
        }),
        text("hl_decode", "complete, partial, blocked, skipped or absent", |row| {
            Some(row.item.decode.hl.name().into())
        }),
        text("ll_decode", "the same of the LL encoder", |row| {
            Some(row.item.decode.ll.name().into())
        }),
        number("hl_load_factor", "flows over buckets of the delta HL encoder", |row| {
            row.item.decode.hl_load_factor
        }),
        number("ll_load_factor", "flows over buckets of the delta LL encoder", |row| {
            row.item.decode.ll_load_factor
        }),
        u64("packets_in", "packets that entered the network; NULL where an edge is missing", |r| {
            r.item.edges.iter().map(|edge| edge.packets_in).sum()
        }),
        u64("packets_out", "packets that left it; NULL where an edge is missing", |row| {
            row.item.edges.iter().map(|edge| edge.packets_out).sum()
        }),
        u64(
            "victim_flows",
            "flows that lost packets; NULL where losses are not known exactly",
            |row| row.item.losses_are_exact().then_some(row.item.loss.len() as u64),
        ),
        u64("lost_packets", "packets they lost; NULL where losses are not known exactly", |row| {
            row.item.losses_are_exact().then(|| row.item.lost_packets())
        }),
        u64("lost_at_least", "packets lost at least; NULL where losses are not decoded", |row| {
            row.item.losses_are_decoded().then(|| row.item.lost_packets())
        }),
        truth("losses_only", "whether the accumulation tasks were left out to keep up", |row| {
            Some(row.item.losses_only)
        }),
        number("ingress_ms", "last ingress side received, milliseconds after the end", |row| {
            row.item.timing.map(|timing| timing.ingress_ms)
        }),
        number("egress_ms", "last egress side received", |row| {
            row.item.timing.map(|timing| timing.egress_ms)
        }),
        number("planned_ms", "plan sent to the switches", |row| {
            row.item.timing.map(|timing| timing.planned_ms)
        }),
        number("published_ms", "report published", |row| {
            row.item.timing.map(|timing| timing.published_ms)
        }),
    ],
    rows: |report, rows| rows.push(Row { head: report.head(), node: "", item: report }),
};

static LOSSES: TableOf<EpochReport, Loss> = TableOf {
    name: "losses",
    help: "a victim flow in an epoch",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("lost", "packets lost", |row| Some(row.item.lost)),
        text("class", "HL: in the HL encoder; LL: in the LL encoder only", |row| {
            Some(row.item.class.name().into())
        }),
        truth("partial", "whether the number, or even the flow, is uncertain", |row| {
            Some(row.item.partial)
        }),
        truth("at_least", "whether more may have been lost", |row| Some(row.item.at_least)),
    ],
    rows: |report, rows| rows.extend(whole(report, &report.loss)),
};

static SURPLUS: TableOf<EpochReport, Surplus> = TableOf {
    name: "surplus",
    help: "a flow that left the network with more packets than it entered it with, in an epoch",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("packets", "packets too many", |row| Some(row.item.packets)),
        truth("partial", "whether this is uncertain", |row| Some(row.item.partial)),
        truth("stranger", "whether the flow is known not to have entered in this epoch", |row| {
            Some(row.item.stranger)
        }),
    ],
    rows: |report, rows| rows.extend(whole(report, &report.surplus)),
};

static REWRITTEN: TableOf<EpochReport, Rewritten> = TableOf {
    name: "rewritten",
    help: "a flow of which packets may have left the network as another's, in an epoch",
    columns: &[
        epoch(),
        start(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        text("to_src", "source address of the other; NULL where several may be it", |row| {
            Some(row.item.to?.src.to_string().into())
        }),
        text("to_dst", "its destination address", |row| Some(row.item.to?.dst.to_string().into())),
        u16("to_sport", "its source port", |row| Some(row.item.to?.sport)),
        u16("to_dport", "its destination port", |row| Some(row.item.to?.dport)),
        u8("to_proto", "its IP protocol number", |row| Some(row.item.to?.proto)),
        u64("packets", "packets, at most", |row| Some(row.item.packets)),
        text("what", "what was changed: address, mark or epoch", |row| {
            Some(row.item.what.name().into())
        }),
    ],
    rows: |report, rows| rows.extend(whole(report, &report.rewritten)),
};

static AMENDMENTS: TableOf<EpochReport, Amendment> = TableOf {
    name: "amendments",
    help: "what an epoch showed of a flow's loss in an earlier one",
    columns: &[
        epoch(),
        start(),
        u64("amended_epoch", "the earlier epoch", |row| Some(row.item.epoch)),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("was", "packets that were reported lost", |row| Some(row.item.was)),
        u64("lost", "packets lost at least; exactly, where late is known", |row| {
            Some(row.item.lost)
        }),
        u64("late", "packets that were late; NULL where unknown", |row| row.item.late),
        u64("at_most_late", "packets late at most; NULL where late is known", |row| {
            row.item.at_most_late
        }),
        text("why", "what shows it", |row| Some(row.item.why.as_str().into())),
    ],
    rows: |report, rows| rows.extend(whole(report, &report.amendments)),
};

static EDGES: TableOf<EpochReport, EdgeReport> = TableOf {
    name: "edges",
    help: "an edge in an epoch",
    columns: &[
        epoch(),
        start(),
        edge(),
        u64("packets_in", "packets that entered the network here; NULL where unknown", |row| {
            row.item.packets_in
        }),
        u64("packets_out", "packets that left it here; NULL where unknown", |row| {
            row.item.packets_out
        }),
        number("cardinality", "flows that entered the network here", |row| row.item.cardinality),
        number("cardinality_error", "its standard error; NULL where it is a lower bound", |row| {
            row.item.cardinality_error
        }),
        number("entropy", "entropy of the flow sizes in bits", |row| row.item.entropy),
        text("hh_decode", "complete, partial, skipped or absent", |row| {
            Some(row.item.hh_decode.name().into())
        }),
        number("hh_load_factor", "flows over buckets of the HH encoder", |row| {
            row.item.hh_load_factor
        }),
        u64("heavy_changes_since", "epoch that heavy changes are seen against", |row| {
            row.item.heavy_changes_since
        }),
        truth("heavy_hitters_complete", "whether no heavy hitter is missing", |row| {
            Some(row.item.heavy_hitters_complete)
        }),
        truth("heavy_changes_complete", "whether no heavy change is missing", |row| {
            Some(row.item.heavy_changes_complete)
        }),
    ],
    rows: |report, rows| {
        rows.extend(Row::of_nodes(report.head(), &report.edges, |edge| &edge.edge));
    },
};

static HEAVY_HITTERS: TableOf<EpochReport, HeavyHitter> = TableOf {
    name: "heavy_hitters",
    help: "a heavy hitter at an edge in an epoch",
    columns: &[
        epoch(),
        start(),
        edge(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64("size", "packets; an upper bound where size_min is less", |row| Some(row.item.size)),
        u64("size_min", "packets at least; equals size where that is exact", |row| {
            Some(row.item.size_min.unwrap_or(row.item.size))
        }),
    ],
    rows: |report, rows| of_edges(report, rows, |edge| &edge.heavy_hitters),
};

static HEAVY_CHANGES: TableOf<EpochReport, HeavyChange> = TableOf {
    name: "heavy_changes",
    help: "a flow whose size changed heavily at an edge since the epoch before",
    columns: &[
        epoch(),
        start(),
        edge(),
        src(),
        dst(),
        sport(),
        dport(),
        proto(),
        u64(
            "before",
            "packets in the epoch before; an upper bound where before_min is less",
            |row| Some(row.item.before),
        ),
        u64("after", "packets in this epoch; an upper bound where after_min is less", |row| {
            Some(row.item.after)
        }),
        u64("before_min", "packets before at least; equals before where that is exact", |row| {
            Some(row.item.before_min.unwrap_or(row.item.before))
        }),
        u64("after_min", "packets at least; equals after where that is exact", |row| {
            Some(row.item.after_min.unwrap_or(row.item.after))
        }),
    ],
    rows: |report, rows| of_edges(report, rows, |edge| &edge.heavy_changes),
};

static SIZE_DISTRIBUTION: TableOf<EpochReport, (u64, f64)> = TableOf {
    name: "size_distribution",
    help: "the number of flows of one size at an edge in an epoch",
    columns: &[
        epoch(),
        start(),
        edge(),
        u64("size", "size in packets", |row| Some(row.item.0)),
        number("flows", "flows of that size; an estimate that need not be whole", |row| {
            Some(row.item.1)
        }),
    ],
    rows: |report, rows| of_edges(report, rows, |edge| &edge.size_distribution),
};

static PLANS: TableOf<EpochReport, PlanReport> = TableOf {
    name: "plans",
    help: "what the controller decided from an epoch",
    columns: &[
        epoch(),
        start(),
        u64("effective_epoch", "first epoch that it is meant to hold for", |row| {
            Some(row.item.effective_epoch)
        }),
        truth("applied", "whether the switches were reconfigured", |row| Some(row.item.applied)),
        text("state", "network state that it is made for: healthy or ill", |row| {
            Some(row.item.state.name().into())
        }),
        u32("t_h", "threshold of heavy-hitter candidates", |row| Some(planned(row).t_h)),
        u32("t_l", "threshold of light-loss candidates", |row| Some(planned(row).t_l)),
        number("sample_rate", "share of light-loss candidates to monitor", |row| {
            Some(planned(row).sample_rate)
        }),
        u32("hh_buckets", "buckets an array of the HH encoder", |row| {
            Some(planned(row).hh_buckets)
        }),
        u32("hl_buckets", "buckets an array of the HL encoder", |row| {
            Some(planned(row).hl_buckets)
        }),
        u32("ll_buckets", "buckets an array of the LL encoder", |row| {
            Some(planned(row).ll_buckets)
        }),
        text("reasons", "why, step by step; NULL where nothing changes", |row| {
            joined(&row.item.reasons)
        }),
    ],
    rows: |report, rows| {
        rows.extend(report.plan.iter().map(|item| Row { head: report.head(), node: "", item }));
    },
};

fn whole<'a, T>(report: &'a EpochReport, items: &'a [T]) -> impl Iterator<Item = Row<'a, T>> {
    items.iter().map(move |item| Row { head: report.head(), node: "", item })
}

fn of_edges<'a, T>(
    report: &'a EpochReport,
    rows: &mut Vec<Row<'a, T>>,
    items: impl Fn(&'a EdgeReport) -> &'a Vec<T>,
) {
    for edge in &report.edges {
        rows.extend(Row::of_nodes(report.head(), items(edge), |_| &edge.edge));
    }
}

fn planned<'a>(row: &Row<'a, PlanReport>) -> &'a EpochConfig {
    &row.item.config
}

/// Several sentences or names in one field.
fn joined<'a>(parts: &[String]) -> Option<Cow<'a, str>> {
    (!parts.is_empty()).then(|| parts.join("; ").into())
}

impl OfFlow for Rewritten {
    fn flow(&self) -> &Flow {
        &self.from
    }
}

of_flow!(Amendment, Loss, Surplus, HeavyHitter, HeavyChange);
