//! Paths of packets: parts of [`Window`](super::Window), which has the bytes.

use calumma_sketch::sketchint::{MOST_HOPS, Path, PathCount, Totals};
use calumma_sketch::{KeyKind, WideKey};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32};

use super::columns::{put_keys, put_numbers, read_keys, read_numbers};
use super::layout::Layout;
use super::window::{in_order, number};

/// The stack of one packet of a large flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSeen {
    /// The flow.
    pub key: WideKey,
    /// The switches that the packet came by.
    pub path: Path,
}

/// Appends how many hops paths have, and whether they are partial.
fn put_lengths<'a>(out: &mut Vec<u8>, paths: impl Iterator<Item = &'a Path> + Clone) {
    put_numbers(out, 1, paths.clone().map(|path| path.nodes().len() as u64));
    put_numbers(out, 1, paths.map(|path| path.is_partial.into()));
}

/// Reads that of so many.
fn read_lengths(
    body: &mut Body<'_>,
    field: &'static str,
    number: usize,
) -> Result<Vec<(usize, bool)>, DecodeError> {
    let at_hops = body.offset();
    let hops = read_numbers(body, field, 1, number)?;
    if let Some(more) = hops.iter().find(|&&hops| hops > MOST_HOPS as u64) {
        return Err(body.wrong(at_hops, field, format_args!("one of {more} hops")));
    }
    let at_partial = body.offset();
    let partial = read_numbers(body, field, 1, number)?;
    if partial.iter().any(|&partial| partial > 1) {
        return Err(body.wrong(at_partial, field, "one is partial by neither 0 nor 1"));
    }
    let both = hops.into_iter().zip(partial);
    Ok(both.map(|(hops, partial)| (hops as usize, partial == 1)).collect())
}

/// Appends the nodes of paths.
fn put_nodes_of<'a>(out: &mut Vec<u8>, paths: impl Iterator<Item = &'a Path> + Clone) {
    let nodes: Vec<u64> = paths.flat_map(Path::nodes).map(|&node| node.into()).collect();
    put_numbers(out, 4, nodes.into_iter());
}

/// Reads them: the paths of these lengths.
fn read_nodes_of(
    body: &mut Body<'_>,
    field: &'static str,
    lengths: &[(usize, bool)],
) -> Result<Vec<Path>, DecodeError> {
    let all = lengths.iter().map(|of| of.0).sum();
    let mut nodes = read_numbers(body, field, 4, all)?.into_iter().map(|node| node as u32);
    let path =
        |&(hops, is_partial): &(usize, bool)| Path::new(nodes.by_ref().take(hops), is_partial);
    Ok(lengths.iter().map(path).collect())
}

pub(super) fn put_paths(out: &mut Vec<u8>, paths: &[PathCount]) {
    put_u32(out, paths.len() as u32);
    put_lengths(out, paths.iter().map(|of| &of.path));
    put_numbers(out, 8, paths.iter().map(|of| of.packets));
    put_nodes_of(out, paths.iter().map(|of| &of.path));
}

pub(super) fn read_paths(
    body: &mut Body<'_>,
    layout: &Layout,
    totals: &Totals,
) -> Result<Vec<PathCount>, DecodeError> {
    const FIELD: &str = "paths";
    let offset = body.offset();
    let number = number(body, FIELD, Layout::most_of(layout.shape.paths))?;
    let lengths = read_lengths(body, FIELD, number)?;
    let at_packets = body.offset();
    let packets = read_numbers(body, FIELD, 8, number)?;
    let of_paths = read_nodes_of(body, FIELD, &lengths)?;
    in_order(body, FIELD, &of_paths)?;
    let all: u128 = packets.iter().map(|&packets| u128::from(packets)).sum();
    if all + u128::from(totals.paths_full) != u128::from(totals.int_packets) {
        let (full, int) = (totals.paths_full, totals.int_packets);
        let why = format_args!("{all} packets and {full} without room, of {int} with INT");
        return Err(body.wrong(at_packets, FIELD, why));
    }
    if packets.contains(&0) {
        return Err(body.wrong(offset, FIELD, "one without packets"));
    }
    let both = of_paths.into_iter().zip(packets);
    Ok(both.map(|(path, packets)| PathCount { path, packets }).collect())
}

pub(super) fn put_seen(out: &mut Vec<u8>, keys: KeyKind, seen: &[PathSeen]) {
    put_u32(out, seen.len() as u32);
    put_keys(out, keys, seen.iter().map(|of| &of.key));
    put_lengths(out, seen.iter().map(|of| &of.path));
    put_nodes_of(out, seen.iter().map(|of| &of.path));
}

/// Stacks of flows that are among the large ones, of a sink without rows.
pub(super) fn read_seen(
    body: &mut Body<'_>,
    (keys, layout): (KeyKind, &Layout),
    large: &[WideKey],
) -> Result<Vec<PathSeen>, DecodeError> {
    const FIELD: &str = "stacks of large flows";
    let offset = body.offset();
    let most = if layout.shape.row_sets == 0 { large.len() } else { 0 };
    let number = number(body, FIELD, most)?;
    let of_keys = read_keys(body, keys, number)?;
    in_order(body, FIELD, &of_keys)?;
    if let Some(key) = of_keys.iter().find(|key| large.binary_search(key).is_err()) {
        return Err(body.wrong(offset, FIELD, format_args!("{key}: it is not large")));
    }
    let lengths = read_lengths(body, FIELD, number)?;
    let paths = read_nodes_of(body, FIELD, &lengths)?;
    let both = of_keys.into_iter().zip(paths);
    Ok(both.map(|(key, path)| PathSeen { key, path }).collect())
}
