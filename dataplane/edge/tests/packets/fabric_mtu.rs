//! Packets that a link of the fabric may cut, where the identification carries marks: neither edge
//! measures them, and nobody changes them.

use crate::captured::captured;
use crate::passage::{cut, whole};
use calumma_edge::carrier::{Carrier, Carry, IpId, Numbers};
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Parsed, PlainFlows, Unmeasured, parse};
use calumma_edge::worker::{DropMask, Path, Policy, Treatment, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::LcoreMerger;
use calumma_sketch::KeyKind;
use calumma_wire::{Domain, Secret};

const EPOCH: u64 = 100;

/// An edge in the middle of an epoch, of a deployment whose fabric takes packets of so many bytes.
fn edge(fabric_mtu: u16, unmeasured: Treatment) -> Worker {
    edge_in(Domain::default().with_fabric_mtu(fabric_mtu).unwrap(), unmeasured)
}

fn edge_in(domain: Domain, unmeasured: Treatment) -> Worker {
    let policy = Policy { carrier: Carrier::IpId, unmeasured, ..Policy::default() };
    let (mut merger, mut mailboxes) = LcoreMerger::new(1);
    merger.set_domain(domain);
    let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
    merger.begin(clock, EPOCH, Secret::new([7; 32]), KeyKind::Ipv4, Vec::new());
    let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
    worker.advance_to(clock.start_of(EPOCH - 1));
    worker.advance_to(clock.start_of(EPOCH) + 25_000_000);
    worker
}

/// A UDP packet of that many bytes from its IPv4 header on, whose identification is a host's.
fn packet(length: u16, flags: u8) -> Frame {
    let mut frame = vec![2; 12];
    let [high, low] = length.to_be_bytes();
    frame.extend([8, 0, 0x45, 0, high, low, 0x12, 0x34, flags, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 80]);
    frame.extend((length - 20).to_be_bytes());
    frame.resize(14 + usize::from(length), 0xAB);
    whole(&frame)
}

fn unmeasured(worker: &Worker, kind: Unmeasured) -> u64 {
    worker.counters.unmeasured[kind as usize]
}

#[test]
fn what_the_fabric_may_cut_passes_unmarked_and_is_counted_at_both_ends() {
    const DF: u8 = 0x40;
    for (length, flags, fabric_mtu, is_marked) in [
        (1280, 0, 1280, true),
        (1281, 0, 1280, false),
        (1281, DF, 1280, true),
        (1500, 0, 1500, true),
        (1501, 0, 1500, false),
        (69, 0, 68, false),
    ] {
        let [mut entry, mut exit] = [(); 2].map(|()| edge(fabric_mtu, Treatment::Forward));
        let before = packet(length, flags);
        let mut frames = [before.clone()];
        assert_eq!(entry.ingress(&mut frames), DropMask::default());
        let case = format!("{length} bytes, flags {flags:x}, {fabric_mtu}");
        assert_eq!(frames[0].bytes()[18..20] != before.bytes()[18..20], is_marked, "{case}");
        let left_out = u64::from(!is_marked);
        assert_eq!(unmeasured(&entry, Unmeasured::AboveFabricMtu), left_out, "{case}");
        assert_eq!(unmeasured(&entry, Unmeasured::NoCarrier), 0, "{case}");
        assert_eq!(exit.egress(&mut frames), DropMask::default());
        assert_eq!(unmeasured(&exit, Unmeasured::NoCarrier), left_out, "{case}");
        assert_eq!(unmeasured(&exit, Unmeasured::AboveFabricMtu), 0, "{case}");
        assert_eq!(exit.counters.egress_unmarked, 0, "{case}");
        assert!(is_marked || frames[0] == before, "{case}");
    }
}

#[test]
fn what_the_fabric_may_cut_is_dropped_where_all_is_that_is_not_measured() {
    let mut entry = edge(1280, Treatment::Drop);
    assert_eq!(entry.ingress(&mut [packet(1281, 0), packet(1280, 0)]), DropMask(0b01));
    assert_eq!(entry.counters.dropped_unmeasured, 1);
    let mut exit = edge(1280, Treatment::Drop);
    assert_eq!(exit.egress(&mut [packet(1281, 0)]), DropMask(0b1));
}

/// What routing has read is not asked again, nor what lies beside strangers, who are left out
/// before.
#[test]
fn a_packet_is_marked_or_not_whoever_has_read_its_headers_and_whatever_is_beside_it() {
    let kinds = [
        (100, 0),
        (1280, 0),
        (1281, 0),
        (1281, 0x40),
        (1400, 0),
        (1500, 0x40),
        (1501, 0),
        (600, 0x20),
        (1001, 0),
    ];
    let burst: Vec<(u16, u8, bool, bool)> = (0..32)
        .map(|at| {
            let (length, flags) = kinds[at * 5 % kinds.len()];
            (length, flags, at % 4 == 1, at % 7 == 3)
        })
        .collect();
    let frames = burst.iter().map(|&(length, flags, is_stranger, is_icmp)| {
        let mut bytes = packet(length, flags).bytes().to_vec();
        bytes[26] = if is_stranger { 11 } else { 10 };
        bytes[23] = if is_icmp { 1 } else { 17 };
        whole(&bytes)
    });
    let frames: Vec<Frame> = frames.collect();
    for (fabric_mtu, known) in
        [1000, 1280, 1500].into_iter().flat_map(|mtu| [(mtu, 0), (mtu, !0_u32), (mtu, 0xF0F0_1234)])
    {
        let hosts = Domain::new(vec!["10.0.0.0/8".parse().unwrap()]).unwrap();
        let domain = hosts.with_fabric_mtu(fabric_mtu).unwrap();
        let mut entry = edge_in(domain, Treatment::Forward);
        let mut frames = frames.clone();
        let mut flows = PlainFlows::NONE;
        for (at, frame) in frames.iter().enumerate() {
            flows.read(at, frame.bytes(), frame.wire_len());
        }
        flows.forget(!known);
        assert!(entry.pass(Path::Enter, &mut frames, u32::MAX, &flows).is_empty());
        let mut above = 0;
        for (frame, &(length, flags, is_stranger, is_icmp)) in frames.iter().zip(&burst) {
            let case = format!("{length} {flags:x} {is_stranger} {is_icmp} {fabric_mtu} {known:x}");
            let fits = flags == 0x40 || flags == 0 && length <= fabric_mtu;
            let is_marked = frame.bytes()[18..20] != [0x12, 0x34];
            assert_eq!(is_marked, fits && !is_stranger, "{case}");
            above += u64::from(!fits && flags == 0 && !is_stranger);
        }
        assert_eq!(unmeasured(&entry, Unmeasured::AboveFabricMtu), above);
    }
}

/// A router on the way that clears DF: the far edge has a packet without a mark.
#[test]
fn a_long_packet_that_lost_its_df_on_the_way_is_one_without_a_mark() {
    let [mut entry, mut exit] = [(); 2].map(|()| edge(1280, Treatment::Forward));
    let mut frames = [packet(1500, 0x40)];
    entry.ingress(&mut frames);
    frames[0].bytes_mut()[20] = 0;
    exit.egress(&mut frames);
    assert_eq!((exit.counters.egress_unmarked, unmeasured(&exit, Unmeasured::NoCarrier)), (1, 0));
}

/// What there is for an identification to carry marks in, of real traffic.
#[test]
fn nearly_all_captured_ipv4_packets_can_be_marked_by_their_identification() {
    let Some(path) = calumma_testenv::capture("mixed-captures.pcap") else { return };
    let numbers = Numbers::new();
    let carrier = IpId::new(None, &numbers);
    let any = IpId { fabric_mtu: u16::MAX, ..carrier };
    let (mut all, mut marked, mut atomic) = (0, 0, 0);
    for (bytes, wire_len) in captured(&path, usize::MAX) {
        if let Parsed::Flow { ip_offset, .. } = parse(&bytes, wire_len) {
            let can_carry = any.can_carry(&cut(&bytes, wire_len), ip_offset);
            all += 1;
            marked += u32::from(can_carry);
            atomic += u32::from(can_carry && bytes[ip_offset + 6] & 0x40 != 0);
        }
    }
    println!("of {all} IPv4 packets {marked} can be marked, {atomic} can't become fragments");
    assert!(marked * 100 > all * 95 && atomic * 100 > all * 70);
    for (name, most) in [("mixed-captures.pcap", 3), ("backbone-65k.pcap", 5)] {
        let Some(path) = calumma_testenv::capture(name) else { return };
        let (mut all, mut left_out) = ([0_u64; 2], [[0_u64; 2]; 2]);
        for (bytes, wire_len) in captured(&path, usize::MAX) {
            let Parsed::Flow { ip_offset, .. } = parse(&bytes, wire_len) else { continue };
            let length = u16::from_be_bytes([bytes[ip_offset + 2], bytes[ip_offset + 3]]);
            let add = |to: &mut [u64; 2]| *to = [to[0] + 1, to[1] + u64::from(length)];
            add(&mut all);
            for (fabric_mtu, left_out) in [1280, 1500].into_iter().zip(&mut left_out) {
                let by = IpId { fabric_mtu, ..carrier };
                let packet = cut(&bytes, wire_len);
                if any.can_carry(&packet, ip_offset) && !by.can_carry(&packet, ip_offset) {
                    add(left_out);
                }
            }
        }
        let share = |of: [u64; 2]| [0, 1].map(|at| 100.0 * of[at] as f64 / all[at] as f64);
        let [at_1280, at_1500] = left_out.map(share);
        println!(
            "{name}: of {} IPv4 packets {:.2} % are left out with a fabric_mtu of 1280, {:.2} % of \
             the bytes; with 1500 {:.2} % and {:.2} %",
            all[0], at_1280[0], at_1280[1], at_1500[0], at_1500[1]
        );
        assert!(left_out[0][0] * 100 <= all[0] * most, "{left_out:?} of {all:?}");
        assert!(left_out[1][0] * 100 <= all[0], "{left_out:?} of {all:?}");
    }
}
