//! How long packets were on links: a part of [`Window`](super::Window), which has the bytes.

use calumma_sketch::sketchint::LinkSums;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u32};

use super::columns::{put_numbers, read_numbers};
use super::layout::Layout;
use super::window::{in_order, number};

pub(super) fn put_links(out: &mut Vec<u8>, links: &[LinkSums]) {
    put_u32(out, links.len() as u32);
    put_numbers(out, 4, links.iter().map(|of| of.from.into()));
    put_numbers(out, 4, links.iter().map(|of| of.to.into()));
    put_numbers(out, 8, links.iter().map(|of| of.packets));
    put_numbers(out, 8, links.iter().map(|of| of.sum_ns.cast_unsigned()));
    put_numbers(out, 8, links.iter().map(|of| of.min_ns.cast_unsigned()));
    put_numbers(out, 8, links.iter().map(|of| of.max_ns.cast_unsigned()));
}

pub(super) fn read_links(
    body: &mut Body<'_>,
    layout: &Layout,
) -> Result<Vec<LinkSums>, DecodeError> {
    const FIELD: &str = "links";
    let offset = body.offset();
    let number = number(body, FIELD, Layout::most_of(layout.shape.links()))?;
    let from = read_numbers(body, FIELD, 4, number)?;
    let to = read_numbers(body, FIELD, 4, number)?;
    let packets = read_numbers(body, FIELD, 8, number)?;
    let sum = read_numbers(body, FIELD, 8, number)?;
    let min = read_numbers(body, FIELD, 8, number)?;
    let max = read_numbers(body, FIELD, 8, number)?;
    let link = |at: usize| LinkSums {
        from: from[at] as u32,
        to: to[at] as u32,
        packets: packets[at],
        sum_ns: sum[at].cast_signed(),
        min_ns: min[at].cast_signed(),
        max_ns: max[at].cast_signed(),
    };
    let links: Vec<LinkSums> = (0..number).map(link).collect();
    let is_wrong = |of: &&LinkSums| {
        let of_all = |ns: i64| i128::from(ns) * i128::from(of.packets);
        let beyond = of.min_ns.unsigned_abs().max(of.max_ns.unsigned_abs()) > LinkSums::MOST_NS;
        let sum = i128::from(of.sum_ns);
        beyond || of.packets == 0 || sum < of_all(of.min_ns) || sum > of_all(of.max_ns)
    };
    if let Some(LinkSums { from, to, packets, .. }) = links.iter().find(is_wrong) {
        let why = format_args!("{from} to {to}: {packets} packets can't have been on it so long");
        return Err(body.wrong(offset, FIELD, why));
    }
    let ends: Vec<(u32, u32)> = links.iter().map(|of| (of.from, of.to)).collect();
    in_order(body, FIELD, &ends)?;
    Ok(links)
}
