//! What the CPU collects of the registers, and clears.

use calumma_tna::Entry;

use super::{ARRAYS, CPU, PAIRS, PLACES, Rig, large};

/// Where collection packets go round.
const RECIRCULATION: u16 = 68;

/// The elements that a collection packet brings of a source, from `next` on, or that it clears.
pub(super) fn collected(
    rig: &mut Rig,
    (source, access): (u8, u8),
    next: u16,
    left: u16,
) -> Vec<u32> {
    let mut request = vec![2; 12];
    request.extend_from_slice(&[0x88, 0xB5, source, access]);
    for field in [next, left, 300, 300, 0, 7] {
        request.extend_from_slice(&field.to_be_bytes());
    }
    let sent = rig.switch.inject(CPU, &request);
    let [(CPU, report)] = &sent[..] else { panic!("{} reports", sent.len()) };
    let words =
        report[28..].chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    // The newest comes first.
    words
        .take(if access == 4 { 0 } else { left.into() })
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect()
}

#[test]
fn each_array_of_each_group_is_collected_and_cleared() {
    [false, true].into_iter().for_each(all_is_collected_and_cleared);
}

fn all_is_collected_and_cleared(acu: bool) {
    let mut rig = Rig::new(acu);
    for port in [CPU, RECIRCULATION] {
        let entry = Entry::new("accept")
            .exact("ingress_port", port)
            .arg("report_port", CPU)
            .arg("recirculation_port", RECIRCULATION)
            .arg("session", 5u16);
        rig.switch.add_entry("collectors", &entry).unwrap();
    }
    for (array, (name, _, counters)) in (0_u8..).zip(ARRAYS) {
        let register = format!("Egress.sizes.{name}.counters");
        for (group, first) in [(0, 0), (1, counters)] {
            let source = 2 * array + group;
            for (from, left) in [(0, 5), (counters - 7, 7)] {
                let wanted: Vec<u32> = (1..=left as u32).map(|n| n + u32::from(source)).collect();
                for (at, word) in (first + from..).zip(&wanted) {
                    rig.switch.write_register(&register, at, &[*word]).unwrap();
                }
                let (next, left) = (from as u16, left as u16);
                assert_eq!(collected(&mut rig, (source, 2), next, left), wanted, "{register}");
                collected(&mut rig, (source, 4), next, left);
            }
        }
        let words = rig.switch.read_register_lanes(&register).unwrap()[0];
        assert!(words.iter().all(|word| *word == 0), "{register}");
    }
    let arrays =
        PLACES.iter().flat_map(|name| PAIRS.into_iter().enumerate().map(move |of| (name, of)));
    for (array, (name, (level, pairs))) in (3_u8..).zip(arrays) {
        let register = format!("Egress.places.{name}.level{level}.pairs");
        for (group, first) in [(0, 0), (1, pairs)] {
            let source = 2 * array + group;
            for (from, left) in [(0, 5), (pairs - 7, 7)] {
                let wanted = |of: u32| (1..=left as u32).map(move |n| 100 * of + n);
                for (at, word) in (first + from..).zip(wanted(1)) {
                    rig.switch.write_register(&register, at, &[word, word + 100]).unwrap();
                }
                let (next, left) = (from as u16, left as u16);
                for (half, access) in [(1, 2), (2, 3)] {
                    let found = collected(&mut rig, (source, access), next, left);
                    assert_eq!(found, wanted(half).collect::<Vec<_>>(), "{register}");
                }
                collected(&mut rig, (source, 4), next, left);
            }
        }
    }
    large::all_is_collected_and_cleared(&mut rig);
    rig.compare();
}
