//! The P4 program and the software edge's sketches agree: same packets, same registers, same marks.

use calumma_chamelemon::{Attention, EgressGroup, Hierarchy, IngressGroup, Partition};
use calumma_sketch::Arithmetic;

use crate::common::{FABRIC, HOST, Numbers, Pair, attention, marked, packet};

/// Both ingress registers equal the software group.
fn assert_ingress_equal(pair: &Pair, group: &IngressGroup, bit: usize) {
    for (level, shape) in pair.layout.classifier.iter().enumerate() {
        let wanted = group.classifier().counters(level).map(|count| count.min(shape.max()));
        assert!(wanted.eq(pair.counters(level, bit)), "classifier array {level}");
    }
    let words = pair.encoder("upstream", bit, pair.layout.upstream_buckets);
    assert!(group.upstream().words().eq(words), "upstream encoder");
}

fn assert_egress_equal(pair: &Pair, group: &EgressGroup, bit: usize) {
    let words = pair.encoder("downstream", bit, pair.layout.downstream_buckets);
    assert!(group.downstream().words().eq(words), "downstream encoder");
}

fn two_epochs_agree(arithmetic: Arithmetic) {
    let mut pair = Pair::new(arithmetic, attention());
    let mut numbers = Numbers(1);
    for epoch in [1000_u64, 1001] {
        pair.begin(epoch);
        let bit = (epoch & 1) as usize;
        let mut ingress = IngressGroup::new(&pair.layout, pair.attention, epoch).unwrap();
        let mut egress = EgressGroup::new(&pair.layout, pair.attention).unwrap();
        let mut seen = [0; 4];
        for _ in 0..40_000 {
            let packet = packet(&mut numbers);
            let key = packet.key;
            let hashes = pair.family.hash(&key);
            let hierarchy = ingress.record(&key, &hashes);
            seen[usize::from(hierarchy.bits())] += 1;
            let wanted = marked(&packet, (bit as u8) << 2 | hierarchy.bits());
            let sent = pair.switch.inject(HOST, &packet.bytes);
            assert_eq!(sent, [(FABRIC, wanted.clone())], "{key}");
            // Every third packet is lost on its way; the others come back to this switch.
            if numbers.below(3) > 0 {
                assert!(egress.record(&key, &hashes, hierarchy));
                let sent = pair.switch.inject(FABRIC, &wanted);
                assert_eq!(sent, [(HOST, marked(&packet, 0b101))], "{key}");
            }
        }
        assert!(seen.iter().all(|&packets| packets > 500), "all hierarchies: {seen:?}");
        assert_ingress_equal(&pair, &ingress, bit);
        assert_egress_equal(&pair, &egress, bit);
    }
    // The second epoch left the first one's group alone.
    assert!(pair.counters(0, 0).iter().any(|&count| count > 0));
}

#[test]
fn prime_registers_equal_the_software_sketches_group_by_group() {
    two_epochs_agree(Arithmetic::Prime);
}

#[test]
fn wrapping_registers_equal_the_software_sketches_group_by_group() {
    two_epochs_agree(Arithmetic::Wrapping);
}

#[test]
fn counters_stop_at_infinity_on_both_sides() {
    let attention = Attention { t_h: 70_000, t_l: 60_000, ..attention() };
    let mut pair = Pair::new(Arithmetic::Prime, attention);
    pair.begin(4);
    let mut ingress = IngressGroup::new(&pair.layout, attention, 4).unwrap();
    let packet = packet(&mut Numbers(3));
    let key = packet.key;
    let hashes = pair.family.hash(&key);
    let mut last = Hierarchy::NonSampledLl;
    for _ in 0..66_000 {
        last = ingress.record(&key, &hashes);
        let mark = last.bits() << 5;
        pair.switch.inject_with(HOST, &packet.bytes, |_, sent| {
            assert_eq!(sent[packet.ip + 1] & 0xE0, mark);
        });
    }
    assert_eq!(last, Hierarchy::HhCandidate, "infinity is above every threshold");
    assert_ingress_equal(&pair, &ingress, 0);
}

#[test]
fn what_can_not_be_read_to_the_ports_passes_unmeasured_and_unmarked() {
    let mut pair = Pair::new(Arithmetic::Prime, attention());
    pair.begin(7);
    let whole = packet(&mut Numbers(5));
    let mut broken: Vec<Vec<u8>> =
        (14..whole.ip + 24).map(|len| whole.bytes[..len].to_vec()).collect();
    let mut with = |offset: usize, value: u8| {
        let mut bytes = whole.bytes.clone();
        bytes[whole.ip + offset] = value;
        broken.push(bytes);
    };
    with(0, 0x65);
    with(0, 0x44);
    with(2, 0);
    broken.last_mut().unwrap()[whole.ip + 3] = 19;
    broken.push([vec![2; 12], vec![0x08, 0x06], vec![1; 28]].concat());
    // IPv6, whole and cut off anywhere.
    let ipv6 = [vec![2; 12], vec![0x86, 0xdd], vec![0x60; 48]].concat();
    broken.extend((14..=ipv6.len()).map(|len| ipv6[..len].to_vec()));
    for bytes in broken {
        let sent = pair.switch.inject(HOST, &bytes);
        assert_eq!(sent, [(FABRIC, bytes.clone())], "{} bytes", bytes.len());
    }
    assert!(pair.counters(0, 1).iter().all(|&count| count == 0));
}

#[test]
fn a_mark_of_a_part_without_buckets_is_restored_and_not_recorded() {
    let attention =
        Attention { t_l: 1, partition: Partition { hh: 1024, hl: 3072, ll: 0 }, ..attention() };
    let mut pair = Pair::new(Arithmetic::Prime, attention);
    pair.begin(0);
    let packet = packet(&mut Numbers(9));
    let sent = pair.switch.inject(FABRIC, &marked(&packet, 0b001));
    assert_eq!(sent, [(HOST, marked(&packet, 0b101))]);
    assert!(pair.encoder("downstream", 0, 3072).iter().all(|&word| word == 0));
    let foreign = pair.switch.read_counter("Egress.packets", 2).unwrap();
    assert_eq!(foreign.packets, 1);
}
