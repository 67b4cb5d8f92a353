//! Marks in the IPv4 identification, at a software edge and at a Tofino: what other epochs,
//! strangers and a network that sets the DSCP make of them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use calumma_chamelemon::{Attention, EgressGroup, IngressGroup, Partition, SampleRate};
use calumma_edge::carrier::{Carry, IpId, Mark, Numbers as Identifications, Signer};
use calumma_edge::measure::Side;
use calumma_edge::packet::{Frame, Packet};
use calumma_epoch::timestamp_bit;
use calumma_plane::secret::secret;
use calumma_plane::{Hierarchy, Part};
use calumma_sketch::{Arithmetic, BURST, FermatSketch, FlowKey};
use calumma_switchd::config::CarrierKind;
use calumma_switchd::marks;

use crate::p4_edge::{Both, FIRST_EPOCH, Software};
use crate::switch::{self, FABRIC, HOST, Numbers, Pair, checksum, packet};

/// Packets of a cell of one of the program's counters.
fn count(pair: &Pair, counter: &str, cell: usize) -> u64 {
    pair.switch.read_counter(counter, cell).unwrap().packets
}

/// A packet that is no fragment; where its IPv4 header begins.
fn whole(numbers: &mut Numbers) -> switch::Packet {
    loop {
        let drawn = packet(numbers);
        if drawn.bytes[drawn.ip + 6..drawn.ip + 8] == [0, 0] {
            return drawn;
        }
    }
}

/// Makes a header's checksum right.
fn correct(bytes: &mut [u8], ip: usize) {
    bytes[ip + 10..ip + 12].fill(0);
    let header = usize::from(bytes[ip] & 0xF) * 4;
    let sum = checksum(&bytes[ip..ip + header]);
    bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn what_is_marked_in_other_epochs_is_late_or_unmarked_alike() {
    let mut both = Both::new(CarrierKind::IpId, Arithmetic::Prime);
    let mut numbers = Numbers(5);
    let mut marked = Vec::new();
    let newest = FIRST_EPOCH + 10;
    for epoch in FIRST_EPOCH..newest {
        let drawn = std::iter::repeat_with(|| Frame::new(packet(&mut numbers).bytes));
        let drawn: Vec<Frame> = drawn.take(4 * BURST).collect();
        drawn.chunks(BURST).for_each(|burst| both.burst(burst, &mut numbers));
        let sent = std::mem::take(&mut both.in_flight);
        // The group of the last epoch only one of the switches has closed by then.
        if !(newest - 1 - epoch).is_multiple_of(8) {
            marked.extend(sent);
        }
        both.next_epoch();
    }
    let (signer, identifications) =
        (Signer::new(secret(&both.pair.hash_key), newest + 1), Identifications::new());
    let carrier = IpId::new(Some(&signer), &identifications);
    for _ in 0..BURST {
        let drawn = whole(&mut numbers);
        let mut frame = Frame::new(drawn.bytes);
        carrier.write(&mut frame, drawn.ip, Mark::of_epoch(newest + 1, Hierarchy::HlCandidate));
        marked.push(frame);
    }
    for burst in marked.chunks(BURST) {
        both.egress(burst.to_vec());
    }
    let counters = &both.software.worker.counters;
    let [nothing, recorded, late, unmarked] =
        [0, 1, 2, 3].map(|cell| count(&both.pair, "Egress.packets", cell));
    assert_eq!(unmarked, counters.egress_unmarked);
    assert_eq!(late, counters.egress_late);
    assert_eq!(nothing + recorded, counters.egress_recorded + counters.egress_unrecorded);
    // Of six epochs, and of the one to come; of two before nobody knows, but by chance.
    assert!(
        late > 200 && late + nothing > 6 * 90 + 30 && unmarked > 150,
        "{late} {nothing} {unmarked}"
    );
    assert!(recorded < 5, "{recorded} of this epoch");
}

#[test]
fn without_a_secret_nothing_is_marked_or_believed_and_no_host_gets_a_mark() {
    let mut pair = Pair::with_marks(CarrierKind::IpId, Arithmetic::Prime, switch::attention());
    pair.begin(FIRST_EPOCH);
    let drawn = whole(&mut Numbers(3));
    let sent = |pair: &mut Pair, port, bytes: &[u8]| {
        let mut sent = Vec::new();
        pair.switch.inject_with(port, bytes, |_, bytes| sent.push(bytes.to_vec()));
        sent.pop().unwrap()
    };
    let marked = sent(&mut pair, HOST, &drawn.bytes);
    assert_ne!(marked, drawn.bytes);
    pair.switch.clear_table(marks::EPOCHS).unwrap();
    assert_eq!(sent(&mut pair, HOST, &drawn.bytes), drawn.bytes);
    for (flags, identification) in [(0x40, Some([0, 0])), (0, None), (0x20, Some([0xAB, 0xCD]))] {
        let mut arrived = marked.clone();
        arrived[drawn.ip + 4..drawn.ip + 6].copy_from_slice(&[0xAB, 0xCD]);
        arrived[drawn.ip + 6] = flags;
        correct(&mut arrived, drawn.ip);
        let left = sent(&mut pair, FABRIC, &arrived);
        let found = &left[drawn.ip + 4..drawn.ip + 6];
        assert!(identification.map_or(found != [0xAB, 0xCD], |wanted| found == wanted));
        let header = usize::from(left[drawn.ip] & 0xF) * 4;
        assert_eq!(checksum(&left[drawn.ip..drawn.ip + header]), 0);
    }
    assert_eq!(count(&pair, "Egress.packets", 1) + count(&pair, "Egress.packets", 2), 0);
}

#[test]
fn fresh_identifications_between_two_addresses_rise_by_one() {
    let mut pair = Pair::with_marks(CarrierKind::IpId, Arithmetic::Prime, switch::attention());
    pair.begin(FIRST_EPOCH);
    let drawn = whole(&mut Numbers(3));
    let mut through = || {
        let mut marked = Vec::new();
        pair.switch.inject_with(HOST, &drawn.bytes, |_, bytes| marked.extend_from_slice(bytes));
        let mut number = 0;
        pair.switch.inject_with(FABRIC, &marked, |_, bytes| {
            number = u16::from_be_bytes([bytes[drawn.ip + 4], bytes[drawn.ip + 5]]);
        });
        number
    };
    let first = through();
    assert!((1..1000).all(|more| through() == first.wrapping_add(more)));
}

/// What stands between the two edges.
struct Network {
    numbers: Numbers,
    lost: BTreeMap<FlowKey, i64>,
    strangers: u64,
}

/// From where its routers send packets of their own.
const ROUTER: [u8; 4] = [10, 255, 0, 1];

impl Network {
    fn new(numbers: u64) -> Network {
        Network { numbers: Numbers(numbers), lost: BTreeMap::new(), strangers: 0 }
    }

    /// A packet passes: it is lost, or arrives with the DSCP 0; beside it comes one of a router's
    /// own, as ICMP errors are.
    fn pass(&mut self, sent: &switch::Packet, marked: &[u8]) -> Vec<Frame> {
        let mut arrives = Vec::new();
        if self.numbers.below(50) == 0 {
            *self.lost.entry(sent.key).or_default() += 1;
        } else {
            let mut bytes = marked.to_vec();
            bytes[sent.ip + 1] &= 0x03;
            correct(&mut bytes, sent.ip);
            arrives.push(Frame::new(bytes));
        }
        if self.numbers.below(4) == 0 {
            let mut bytes = sent.bytes.clone();
            bytes[sent.ip + 1] = 0xC0;
            bytes[sent.ip + 4] = self.numbers.below(256) as u8;
            bytes[sent.ip + 5] = self.numbers.below(256) as u8;
            bytes[sent.ip + 9] = 1;
            bytes[sent.ip + 12..sent.ip + 16].copy_from_slice(&ROUTER);
            correct(&mut bytes, sent.ip);
            arrives.push(Frame::new(bytes));
            self.strangers += 1;
        }
        arrives
    }

    /// What the edges say was lost is what was lost. A router's own packets are marked by chance
    /// only: once in 2,048.
    fn agrees(&self, pair: &Pair, mut upstream: FermatSketch, downstream: &FermatSketch) {
        upstream.subtract(downstream).unwrap();
        let decoded = upstream.decode(&pair.family);
        assert!(decoded.is_complete());
        let (lost, surplus): (BTreeMap<_, _>, BTreeMap<_, _>) =
            decoded.into_flowset().into_iter().partition(|&(_, packets)| packets > 0);
        assert_eq!(lost, self.lost);
        assert!(surplus.values().sum::<i64>().unsigned_abs() * 500 < self.strangers, "{surplus:?}");
        assert!(surplus.keys().all(|key| key.src() == Ipv4Addr::from(ROUTER)), "{surplus:?}");
    }
}

#[test]
fn losses_between_both_kinds_of_edge_are_exact_where_routers_clear_the_dscp() {
    let partition = Partition { hh: 1024, hl: 2500, ll: 572 };
    let attention = Attention { t_h: 1_000_000, t_l: 1, sample_rate: SampleRate::ALL, partition };
    let mut pair = Pair::with_marks(CarrierKind::IpId, Arithmetic::Prime, attention);
    let mut software = Software::new(&pair);
    pair.begin(FIRST_EPOCH);
    software.begin(FIRST_EPOCH);
    let mut numbers = Numbers(8);
    let (mut to_tofino, mut to_software) = (Network::new(1), Network::new(2));
    for _ in 0..10_000 {
        let sent = whole(&mut numbers);
        let mut marked = [Frame::new(sent.bytes.clone())];
        assert!(software.worker.ingress(&mut marked).is_empty());
        for frame in to_tofino.pass(&sent, marked[0].bytes()) {
            pair.switch.inject_with(FABRIC, frame.bytes(), |port, bytes| {
                assert_eq!((port, bytes.len()), (HOST, frame.bytes().len()));
            });
        }
        let sent = whole(&mut numbers);
        let mut marked = Vec::new();
        pair.switch.inject_with(HOST, &sent.bytes, |_, bytes| marked.extend_from_slice(bytes));
        let mut arrived = to_software.pass(&sent, &marked);
        assert!(software.worker.egress(&mut arrived).is_empty());
    }
    let unmarked = software.worker.counters.egress_unmarked;
    assert!(unmarked * 200 > to_software.strangers * 199, "{unmarked}");
    let unmarked = count(&pair, "Egress.packets", 3);
    assert!(unmarked * 200 > to_tofino.strangers * 199, "{unmarked}");

    pair.begin(FIRST_EPOCH + 1);
    software.begin(FIRST_EPOCH + 1);
    let taken = software.clock.take_time(FIRST_EPOCH);
    software.worker.advance_to(taken + 1);
    software.worker.advance_to(taken + 2);
    let (hl, bit) = (partition.hl_part(), timestamp_bit(FIRST_EPOCH));
    let of_tofino = |encoder, shape, buckets| {
        let words = pair.encoder(encoder, bit, buckets);
        FermatSketch::from_words(shape, words).unwrap().part(&hl)
    };
    let layout = &pair.layout;
    let upstream = of_tofino("upstream", layout.upstream_shape(), layout.upstream_buckets);
    let downstream = of_tofino("downstream", layout.downstream_shape(), layout.downstream_buckets);
    let mut sides = 0;
    for part in software.merger.poll() {
        let Part::Side { side, record, .. } = part else { continue };
        sides += 1;
        match side {
            Side::Ingress => {
                let sketch = record.get::<IngressGroup>().unwrap().group.upstream().part(&hl);
                to_tofino.agrees(&pair, sketch, &downstream);
            }
            Side::ByBit => {
                let sketch = record.get::<EgressGroup>().unwrap().group.downstream().part(&hl);
                to_software.agrees(&pair, upstream.clone(), &sketch);
            }
        }
    }
    assert_eq!(sides, 2);
    assert!(to_tofino.lost.len() > 50 && to_software.lost.len() > 50);
}
