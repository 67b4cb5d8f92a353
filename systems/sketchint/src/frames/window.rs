//! What a sink kept in a window.
//!
//! ```text
//! keys (1): 0 IPv4, 1 dual  hash key (8)  own number (4), 0 of an end host  memory (8)
//! totals (8 each)  unmarked (8)  unclassified (8)  packets without room for a hop (8), without
//!   hops left (8)
//! paths: number (4), hops (1), whether partial (1), packets (8); the nodes of all, 4
//! switches: number (4), node (4), packets (8), sum (8), least (4), longest (4), packets with a
//!   queue's length (8), their sum (8), the longest (4); the bins of all, 4
//! error of arrivals (8)  packets on links without room (8)
//! links: number (4), from (4), to (4), packets (8), sum (8), least (8), longest (8), signed
//! rows: number (4), keys, path (4), packets (8), exact (1), inflation (1), cells of hops, then of
//!   the sink itself: sum (8), longest (4), packets (4)
//! large flows: number (4), keys
//! inflated: number (4), keys, node (4), count (4), longest (4), last (4), all ones where not known
//! tower: its arrays;  pair towers: latencies (4) and packets (4) of each array
//! from version 6 on, where there are any of these or of what follows:
//!   rows with latencies by size: number (4), the place of each among all (4), counts of 128 bins
//!   of each of its hops, then of the sink itself (4)
//! from version 6 on, where there are any or means follow:
//!   stacks of large flows: number (4), keys, hops (1), whether partial (1); the nodes of all, 4
//! from version 7 on, of a switch that says them: means (1)  error of arrivals in stacks (8)
//! ```
//! All but the numbers of entries, the totals and what stands before them are columns.

use calumma_plane::int::means::Means;
use calumma_sketch::sketchint::{
    Cell, FlowRow, Inflation, LinkSums, NodeSums, Pairs, PathCount, Totals,
};
use calumma_sketch::{KeyKind, TowerSketch, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u32, put_u64};
use calumma_wire::columns::{put_column, read_column};

use super::columns::{put_keys, put_numbers, read_keys, read_numbers};
use super::layout::Layout;
use super::links::{put_links, read_links};
use super::means::{put_means, read_means};
use super::nodes::{put_nodes, read_nodes};
use super::paths::{PathSeen, put_paths, put_seen, read_paths, read_seen};
use super::quarters::{self, put_quarters, read_quarters};
use super::{ESTIMATES_SINCE, MEANS_SINCE};

/// When an inflated latency came, where that is not known.
pub const NO_TIME: u32 = u32::MAX;

/// What a sink kept in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The kind of its flows' keys.
    pub keys: KeyKind,
    /// The number of the key that it hashed by ([`calumma_sketch::HashKey::id`]).
    pub hash_key: u64,
    /// Its own number, where it is a switch.
    pub own: Option<u32>,
    /// Bytes of memory that it took.
    pub memory: u64,
    /// Sums over all packets.
    pub totals: Totals,
    /// Packets without a mark that says their window: not recorded.
    pub unmarked: u64,
    /// Packets of IPv6 for hosts whose flow is not known, in no other number: a Tofino does not
    /// read what is behind extension headers.
    pub unclassified: u64,
    /// Packets into which a switch did not push since they would have been too long.
    pub mtu_exceeded: u64,
    /// Packets into which a switch did not push since their stack may have no more hops.
    pub hops_exceeded: u64,
    /// The paths that packets came by, in order.
    pub paths: Vec<PathCount>,
    /// The switches that they came by, by rising numbers.
    pub nodes: Vec<NodeSums>,
    /// The most by which an arrival at the sink itself may be wrong, in nanoseconds: of packets for
    /// hosts, and of those that it passes on.
    pub arrival_error_ns: u64,
    /// How often a link found no room.
    pub links_full: u64,
    /// How long packets were on links, in order of their switches; none where stacks don't say.
    pub links: Vec<LinkSums>,
    /// Flows and paths with a row, in order.
    pub rows: Vec<FlowRow<WideKey>>,
    /// Large flows, and some that may be, in order.
    pub large: Vec<WideKey>,
    /// Inflated latencies of flows that have them counted, in order of flows and switches. Of a
    /// sink without rows: by the means that pair towers give.
    pub inflated: Vec<Inflation<WideKey>>,
    /// Of a sink that keeps no paths: stacks of single packets of large flows, in order of flows.
    pub seen: Vec<PathSeen>,
    /// How many packets each flow had at most.
    pub sizes: TowerSketch,
    /// What flows met without a row, at most.
    pub pairs: Pairs,
    /// By what means it knows what it has put into stacks of the window, and maybe some of a
    /// neighbouring one, and its own latencies; `None` where it does not say.
    pub means: Option<Means>,
}

const TOTALS: [&str; 9] = [
    "packets",
    "packets with INT",
    "partial stacks",
    "packets of paths without room",
    "packets without a row",
    "rows that left",
    "hops at switches without room",
    "packets of keys without room",
    "inflated latencies without room",
];

fn each(totals: &mut Totals) -> [&mut u64; TOTALS.len()] {
    [
        &mut totals.packets,
        &mut totals.int_packets,
        &mut totals.partial,
        &mut totals.paths_full,
        &mut totals.rows_refused,
        &mut totals.rows_evicted,
        &mut totals.nodes_full,
        &mut totals.keys_full,
        &mut totals.inflated_full,
    ]
}

impl Window {
    /// Its bytes. All lists must be in order.
    pub fn encode(&self) -> Vec<u8> {
        let out = &mut Vec::new();
        put_u8(out, u8::from(self.keys == KeyKind::Dual));
        put_u64(out, self.hash_key);
        put_u32(out, self.own.unwrap_or(0));
        put_u64(out, self.memory);
        let mut totals = self.totals;
        each(&mut totals).into_iter().for_each(|total| put_u64(out, *total));
        put_u64(out, self.unmarked);
        put_u64(out, self.unclassified);
        put_u64(out, self.mtu_exceeded);
        put_u64(out, self.hops_exceeded);
        put_paths(out, &self.paths);
        put_nodes(out, &self.nodes);
        put_u64(out, self.arrival_error_ns);
        put_u64(out, self.links_full);
        put_links(out, &self.links);
        put_rows(out, self.keys, &self.rows);
        put_u32(out, self.large.len() as u32);
        put_keys(out, self.keys, self.large.iter());
        put_u32(out, self.inflated.len() as u32);
        put_keys(out, self.keys, self.inflated.iter().map(|of| &of.key));
        let of = &self.inflated;
        put_numbers(out, 4, of.iter().map(|of| of.node.into()));
        put_numbers(out, 4, of.iter().map(|of| of.count.into()));
        put_numbers(out, 4, of.iter().map(|of| of.max_ns.into()));
        put_numbers(out, 4, of.iter().map(|of| of.last_us.into()));
        put_tower(out, &self.sizes);
        for level in 0..Pairs::LEVELS {
            let buckets = self.pairs.buckets(level);
            put_numbers(out, 4, buckets.iter().map(|bucket| bucket[0].into()));
            put_numbers(out, 4, buckets.iter().map(|bucket| bucket[1].into()));
        }
        let has_seen = !self.seen.is_empty() || self.means.is_some();
        if self.rows.iter().any(quarters::are_there) || has_seen {
            put_quarters(out, &self.rows);
        }
        if has_seen {
            put_seen(out, self.keys, &self.seen);
        }
        self.means.iter().for_each(|&means| put_means(out, means));
        std::mem::take(out)
    }

    /// Whether inflated latencies of a flow are those by the mean of all its packets before them,
    /// and not by an estimate.
    pub fn has_inflation(&self, key: &WideKey) -> bool {
        let at = self.rows.partition_point(|row| row.key < *key);
        self.rows.get(at).is_some_and(|row| row.key == *key && row.has_inflation)
    }

    /// What of it a controller of this version reads, of a sink of this layout.
    #[must_use]
    pub fn for_version(mut self, version: u8, layout: &Layout) -> Self {
        if version < MEANS_SINCE {
            self.means = None;
        }
        if version < ESTIMATES_SINCE && layout.shape.row_sets > 0 {
            let mut inflated = std::mem::take(&mut self.inflated);
            inflated.retain(|of| self.has_inflation(&of.key));
            self.inflated = inflated;
        }
        self
    }

    /// The window of a sink of this layout, as these bytes say it.
    ///
    /// # Errors
    /// The first byte that can't be read or contradicts what stands before it, and why.
    pub fn decode(bytes: &[u8], layout: &Layout) -> Result<Self, DecodeError> {
        let mut reader = Body::new("a window of sketchint", bytes, 0);
        let body = &mut reader;
        let keys = if body.flag("keys")? { KeyKind::Dual } else { KeyKind::Ipv4 };
        let hash_key = body.u64("hash key")?;
        let own = Some(body.u32("own number")?).filter(|&own| own != 0);
        let memory = body.u64("memory")?;
        let totals = read_totals(body)?;
        let unmarked = body.u64("unmarked packets")?;
        let unclassified = body.u64("packets of unknown flows")?;
        let mtu_exceeded = read_part(body, "packets without room for a hop", totals.partial)?;
        let hops_exceeded = read_part(body, "packets without hops left", totals.partial)?;
        let paths = read_paths(body, layout, &totals)?;
        let nodes = read_nodes(body, layout)?;
        let arrival_error_ns = body.u64("error of arrivals")?;
        let links_full = body.u64("packets on links without room")?;
        let links = read_links(body, layout)?;
        let mut rows = read_rows(body, (keys, layout), &paths, &totals)?;
        let number = number(body, "number of large flows", Layout::most_of(layout.shape.keys))?;
        let large = read_keys(body, keys, number)?;
        in_order(body, "large flows", &large)?;
        let inflated = read_inflated(body, (keys, layout))?;
        let sizes = read_tower(body, layout)?;
        let pairs = read_pairs(body, layout)?;
        if body.left() > 0 {
            read_quarters(body, layout, &mut rows)?;
        }
        let seen = match body.left() {
            0 => Vec::new(),
            _ => read_seen(body, (keys, layout), &large)?,
        };
        let means = if body.left() > 0 { Some(read_means(body)?) } else { None };
        reader.end()?;
        Ok(Self {
            keys,
            hash_key,
            own,
            memory,
            totals,
            unmarked,
            unclassified,
            mtu_exceeded,
            hops_exceeded,
            paths,
            nodes,
            arrival_error_ns,
            links_full,
            links,
            rows,
            large,
            inflated,
            seen,
            sizes,
            pairs,
            means,
        })
    }
}

pub(super) fn number(
    body: &mut Body<'_>,
    field: &'static str,
    most: usize,
) -> Result<usize, DecodeError> {
    let offset = body.offset();
    let number = body.u32(field)? as usize;
    if number > most {
        let why = format_args!("{number}, and there may be {most}");
        return Err(body.wrong(offset, field, why));
    }
    Ok(number)
}

pub(super) fn in_order<T: Ord>(
    body: &Body<'_>,
    field: &'static str,
    entries: &[T],
) -> Result<(), DecodeError> {
    match entries.windows(2).position(|pair| pair[0] >= pair[1]) {
        None => Ok(()),
        Some(at) => {
            let why = format_args!("entries {at} and {} are not in order", at + 1);
            Err(body.wrong(body.offset(), field, why))
        }
    }
}

fn read_totals(body: &mut Body<'_>) -> Result<Totals, DecodeError> {
    let offset = body.offset();
    let mut totals = Totals::default();
    for (total, name) in each(&mut totals).into_iter().zip(TOTALS) {
        *total = body.u64(name)?;
    }
    let Totals { packets, int_packets, partial, paths_full, .. } = totals;
    let parts =
        [(1, int_packets, packets), (2, partial, int_packets), (3, paths_full, int_packets)];
    for (field, part, all) in parts {
        if part > all {
            let why = format_args!("{part} of {all}");
            return Err(body.wrong(offset + 8 * field, TOTALS[field], why));
        }
    }
    Ok(totals)
}

/// A number of packets, all of which have partial stacks.
fn read_part(body: &mut Body<'_>, field: &'static str, partial: u64) -> Result<u64, DecodeError> {
    let offset = body.offset();
    let packets = body.u64(field)?;
    if packets > partial {
        let why = format_args!("{packets} of {partial} with partial stacks");
        return Err(body.wrong(offset, field, why));
    }
    Ok(packets)
}

fn put_rows(out: &mut Vec<u8>, keys: KeyKind, rows: &[FlowRow<WideKey>]) {
    put_u32(out, rows.len() as u32);
    put_keys(out, keys, rows.iter().map(|row| &row.key));
    put_numbers(out, 4, rows.iter().map(|row| row.path.into()));
    put_numbers(out, 8, rows.iter().map(|row| row.packets));
    put_numbers(out, 1, rows.iter().map(|row| row.is_exact.into()));
    put_numbers(out, 1, rows.iter().map(|row| row.has_inflation.into()));
    let hops: Vec<Cell> = rows.iter().flat_map(|row| row.hops.iter().copied()).collect();
    put_cells(out, &hops);
    let own: Vec<Cell> = rows.iter().map(|row| row.own).collect();
    put_cells(out, &own);
}

fn put_cells(out: &mut Vec<u8>, cells: &[Cell]) {
    put_numbers(out, 8, cells.iter().map(|cell| cell.sum_ns));
    put_numbers(out, 4, cells.iter().map(|cell| cell.max_ns.into()));
    put_numbers(out, 4, cells.iter().map(|cell| cell.known.into()));
}

fn read_cells(body: &mut Body<'_>, number: usize) -> Result<Vec<Cell>, DecodeError> {
    const FIELD: &str = "latencies of rows";
    let offset = body.offset();
    let sum = read_numbers(body, FIELD, 8, number)?;
    let max = read_numbers(body, FIELD, 4, number)?;
    let known = read_numbers(body, FIELD, 4, number)?;
    let each = sum.into_iter().zip(max).zip(known);
    let cells: Vec<Cell> = each
        .map(|((sum_ns, max), known)| Cell { sum_ns, max_ns: max as u32, known: known as u32 })
        .collect();
    let is_wrong = |cell: &Cell| {
        let most = u64::from(cell.max_ns) * u64::from(cell.known);
        cell.sum_ns < cell.max_ns.into() || cell.sum_ns > most
    };
    if let Some(at) = cells.iter().position(is_wrong) {
        let Cell { sum_ns, max_ns, known } = cells[at];
        let why = format_args!("{known} packets of at most {max_ns} ns, together {sum_ns}");
        return Err(body.wrong(offset, FIELD, why));
    }
    Ok(cells)
}

fn read_rows(
    body: &mut Body<'_>,
    (keys, layout): (KeyKind, &Layout),
    paths: &[PathCount],
    totals: &Totals,
) -> Result<Vec<FlowRow<WideKey>>, DecodeError> {
    const FIELD: &str = "rows";
    let offset = body.offset();
    let number = number(body, FIELD, layout.most_rows())?;
    let of_keys = read_keys(body, keys, number)?;
    let at_path = body.offset();
    let of_paths = read_numbers(body, FIELD, 4, number)?;
    if let Some(path) = of_paths.iter().find(|&&path| path > paths.len() as u64) {
        let why = format_args!("there are {} paths and no {path}", paths.len());
        return Err(body.wrong(at_path, FIELD, why));
    }
    let hops_of = |path: u64| match (path as usize).checked_sub(1) {
        Some(at) => paths[at].path.nodes().len(),
        None => 0,
    };
    let packets = read_numbers(body, FIELD, 8, number)?;
    let at_flags = body.offset();
    let exact = read_numbers(body, FIELD, 1, number)?;
    let inflation = read_numbers(body, FIELD, 1, number)?;
    if exact.iter().zip(&inflation).any(|(&exact, &inflation)| exact > 1 || inflation > exact) {
        let why = "one is exact, or has inflation, by neither 0 nor 1";
        return Err(body.wrong(at_flags, FIELD, why));
    }
    let cells = read_cells(body, of_paths.iter().map(|&path| hops_of(path)).sum())?;
    let own = read_cells(body, number)?;
    let mut cells = cells.into_iter();
    let rows: Vec<FlowRow<WideKey>> = (0..number)
        .map(|at| FlowRow {
            key: of_keys[at],
            path: of_paths[at] as u32,
            packets: packets[at],
            is_exact: exact[at] == 1,
            has_inflation: inflation[at] == 1,
            hops: cells.by_ref().take(hops_of(of_paths[at])).collect(),
            own: own[at],
            quarters: Vec::new(),
        })
        .collect();
    let order: Vec<(WideKey, u32)> = rows.iter().map(|row| (row.key, row.path)).collect();
    in_order(body, FIELD, &order)?;
    check_rows(&rows, paths, totals)
        .map_err(|(key, why)| body.wrong(offset, FIELD, format_args!("{key}: {why}")))?;
    Ok(rows)
}

/// Holds rows against each other, the paths and the totals.
fn check_rows(
    rows: &[FlowRow<WideKey>],
    paths: &[PathCount],
    totals: &Totals,
) -> Result<(), (WideKey, &'static str)> {
    let plain = totals.packets - totals.int_packets;
    let mut left: Vec<u64> =
        std::iter::once(plain).chain(paths.iter().map(|of| of.packets)).collect();
    for row in rows {
        let left = &mut left[row.path as usize];
        let Some(less) = left.checked_sub(row.packets).filter(|_| row.packets > 0) else {
            return Err((row.key, "no packets, or more than came by its path"));
        };
        *left = less;
        if row.hops.iter().any(|cell| u64::from(cell.known) > row.packets) {
            return Err((row.key, "more latencies than packets"));
        }
    }
    for flow in rows.chunk_by(|one, other| one.key == other.key) {
        let (first, others) = (&flow[0], &flow[1..]);
        let has_own = |row: &FlowRow<WideKey>| row.own != Cell::default();
        let differs = |row: &FlowRow<WideKey>| {
            row.is_exact != first.is_exact || row.has_inflation != first.has_inflation
        };
        if others.iter().any(|row| has_own(row) || differs(row)) {
            return Err((first.key, "its rows contradict each other"));
        }
        let packets = flow.iter().map(|row| u128::from(row.packets)).sum::<u128>();
        if first.is_exact && u128::from(first.own.known) > packets {
            return Err((first.key, "more latencies at the sink than packets"));
        }
    }
    Ok(())
}

fn read_inflated(
    body: &mut Body<'_>,
    (keys, layout): (KeyKind, &Layout),
) -> Result<Vec<Inflation<WideKey>>, DecodeError> {
    const FIELD: &str = "inflated";
    let offset = body.offset();
    let number = number(body, FIELD, Layout::most_of(layout.shape.inflated))?;
    let of_keys = read_keys(body, keys, number)?;
    let node = read_numbers(body, FIELD, 4, number)?;
    let count = read_numbers(body, FIELD, 4, number)?;
    let max = read_numbers(body, FIELD, 4, number)?;
    let last = read_numbers(body, FIELD, 4, number)?;
    let inflated: Vec<Inflation<WideKey>> = (0..number)
        .map(|at| Inflation {
            key: of_keys[at],
            node: node[at] as u32,
            count: count[at] as u32,
            max_ns: max[at] as u32,
            last_us: last[at] as u32,
        })
        .collect();
    let order: Vec<(WideKey, u32)> = inflated.iter().map(|of| (of.key, of.node)).collect();
    in_order(body, FIELD, &order)?;
    for of in &inflated {
        if of.count == 0 {
            return Err(body.wrong(offset, FIELD, format_args!("{}: no latencies", of.key)));
        }
    }
    Ok(inflated)
}

fn put_tower(out: &mut Vec<u8>, tower: &TowerSketch) {
    let mut bytes = Vec::with_capacity(tower.bytes());
    tower.write_to(&mut bytes);
    let mut rest = &bytes[..];
    for level in tower.levels() {
        let (these, others) = rest.split_at(level.bytes());
        rest = others;
        let width = (level.bits as usize / 8).max(1);
        for byte in 0..width {
            let column: Vec<u8> = these.iter().skip(byte).step_by(width).copied().collect();
            put_column(out, &column);
        }
    }
}

fn read_tower(body: &mut Body<'_>, layout: &Layout) -> Result<TowerSketch, DecodeError> {
    const FIELD: &str = "tower";
    let offset = body.offset();
    let levels = layout.shape.tower();
    let mut bytes = Vec::new();
    for level in &levels {
        let (from, width) = (bytes.len(), (level.bits as usize / 8).max(1));
        bytes.resize(from + level.bytes(), 0);
        let mut column = vec![0; level.bytes() / width];
        for byte in 0..width {
            read_column(body, FIELD, &mut column)?;
            let places = bytes[from..].iter_mut().skip(byte).step_by(width);
            places.zip(&column).for_each(|(place, &byte)| *place = byte);
        }
    }
    let tower = TowerSketch::from_bytes(&levels, &bytes);
    let tower = tower.map_err(|wrong| body.wrong(offset, FIELD, wrong))?;
    Ok(tower.with_insertion(layout.shape.rule.insertion()))
}

fn read_pairs(body: &mut Body<'_>, layout: &Layout) -> Result<Pairs, DecodeError> {
    const FIELD: &str = "pair towers";
    let levels = layout.shape.pairs();
    let mut pairs = Pairs::new(levels);
    for (at, level) in levels.iter().enumerate() {
        let offset = body.offset();
        let number = level.buckets as usize;
        let latencies = read_numbers(body, FIELD, 4, number)?;
        let packets = read_numbers(body, FIELD, 4, number)?;
        let each = latencies.into_iter().zip(packets);
        let buckets: Vec<[u32; 2]> =
            each.map(|(latency, packets)| [latency as u32, packets as u32]).collect();
        pairs.set_buckets(at, &buckets).map_err(|(bucket, _)| {
            let why = format_args!("array {at}, bucket {bucket}: beyond its width");
            body.wrong(offset, FIELD, why)
        })?;
    }
    Ok(pairs)
}
