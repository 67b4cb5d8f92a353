//! From the cells of registers to packets by flow.

use std::collections::BTreeMap;

use calumma_hops::frames::{Counts, Packets};
use calumma_sketch::{FlowKey, WideKey};

/// The bit of an owner that says that a cell is taken.
const TAKEN: u32 = 0x100;

/// What the cells of two ways have counted, of which nothing was refused. The last of an element's
/// `registers` words counts packets without a cell; both ways have the same.
///
/// # Errors
/// Words that no cell has, in words.
pub(crate) fn counted(ways: &[Vec<u32>], registers: usize) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let mut flows: BTreeMap<WideKey, Packets> = BTreeMap::new();
    for cell in ways.iter().flat_map(|way| way.chunks(registers)) {
        let &[owner, src, dst, ports, packets, _] = cell else {
            return Err(format!("a cell of {} words", cell.len()));
        };
        if owner & !0xFF != TAKEN || packets == 0 {
            if (owner, packets) == (0, 0) {
                continue;
            }
            return Err(format!("a cell of owner {owner:#x} with {packets} packets"));
        }
        let key = WideKey::from(FlowKey::from_words(src, dst, ports, owner as u8));
        let packets = Packets { received: packets.into(), refused: 0 };
        if flows.insert(key, packets).is_some() {
            return Err(format!("two cells of {key}"));
        }
    }
    let without = ways.last().into_iter().flat_map(|way| way.chunks(registers));
    counts.others.received = without.filter_map(|cell| cell.last()).copied().map(u64::from).sum();
    counts.flows = flows.into_iter().collect();
    Ok(counts)
}

/// What passed a switch, by what it has received and what it has sent.
///
/// A flow may have had a cell in only one of them. Where packets were counted without a cell,
/// nobody knows how many of such a flow are among those, so that all of its packets are.
///
/// # Errors
/// Where more was sent than received, in words.
pub(crate) fn passed(received: Counts, sent: Counts) -> Result<Counts, String> {
    let mut others = Packets { received: received.others.received, refused: 0 };
    let mut sent_without = sent.others.received;
    let mut of_sent: BTreeMap<WideKey, u64> =
        sent.flows.into_iter().map(|(key, packets)| (key, packets.received)).collect();
    let mut flows = Vec::with_capacity(received.flows.len());
    for (key, packets) in received.flows {
        let received = packets.received;
        let sent = match of_sent.remove(&key) {
            Some(sent) => sent,
            None if sent.others.received == 0 => 0,
            None => {
                others.received += received;
                continue;
            }
        };
        let refused = received.checked_sub(sent);
        let refused =
            refused.ok_or_else(|| format!("{key}: {received} came, and {sent} were sent"))?;
        flows.push((key, Packets { received, refused }));
    }
    sent_without += of_sent.into_values().sum::<u64>();
    let refused = others.received.checked_sub(sent_without);
    others.refused = refused.ok_or_else(|| {
        format!("{} came, and {sent_without} were sent of other flows", others.received)
    })?;
    Ok(Counts { flows, others })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> WideKey {
        FlowKey::from_words(0x0A00_0000 + number, 1, 2, 6).into()
    }

    fn counts(flows: &[(u32, u64)], others: u64) -> Counts {
        let packets = |received| Packets { received, refused: 0 };
        let flows = flows.iter().map(|&(number, count)| (key(number), packets(count))).collect();
        Counts { flows, others: packets(others) }
    }

    fn of(counts: Counts) -> (Vec<(WideKey, [u64; 2])>, [u64; 2]) {
        let pair = |packets: Packets| [packets.received, packets.refused];
        let flows = counts.flows.into_iter().map(|(key, packets)| (key, pair(packets)));
        (flows.collect(), pair(counts.others))
    }

    #[test]
    fn what_came_and_was_not_sent_was_refused() {
        let passed = passed(counts(&[(1, 5), (2, 3)], 0), counts(&[(1, 4)], 0));
        assert_eq!(of(passed.unwrap()), (vec![(key(1), [5, 1]), (key(2), [3, 3])], [0, 0]));
    }

    #[test]
    fn a_flow_without_a_cell_on_one_side_is_counted_with_others() {
        // 2 had a cell as it came, and 3 as it was sent.
        let passed = passed(counts(&[(1, 5), (2, 3)], 4), counts(&[(1, 5), (3, 2)], 3));
        assert_eq!(of(passed.unwrap()), (vec![(key(1), [5, 0])], [7, 2]));
    }

    #[test]
    fn more_sent_than_received_is_no_side() {
        let flow = passed(counts(&[(1, 5)], 0), counts(&[(1, 6)], 0)).unwrap_err();
        assert!(flow.contains("5 came, and 6 were sent"), "{flow}");
        let others = passed(counts(&[], 1), counts(&[(3, 2)], 0)).unwrap_err();
        assert!(others.contains("1 came, and 2 were sent of other flows"), "{others}");
    }

    #[test]
    fn a_cell_that_is_neither_free_nor_taken_is_no_side() {
        let cell = |owner, packets| vec![owner, 1, 2, 3, packets, 0];
        let of = |cells: &[Vec<u32>]| counted(&[cells.concat(), vec![0; 6]], 6);
        let flow = FlowKey::from_words(1, 2, 3, 17).into();
        let packets = Packets { received: 9, refused: 0 };
        assert_eq!(of(&[cell(TAKEN | 17, 9), vec![0; 6]]).unwrap().flows, [(flow, packets)]);
        for cells in [vec![cell(0, 1)], vec![cell(TAKEN, 0)], vec![cell(17, 1)]] {
            assert!(of(&cells).unwrap_err().contains("a cell of owner"), "{cells:?}");
        }
        let twice = [cell(TAKEN | 17, 9), cell(TAKEN | 17, 1)];
        assert!(of(&twice).unwrap_err().starts_with("two cells of"));
        let long = counted(&[vec![0; 7], vec![0; 6]], 6);
        assert!(long.unwrap_err().contains("a cell of 1 words"));
    }
}
