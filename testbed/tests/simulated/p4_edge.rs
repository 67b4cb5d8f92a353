//! The P4 edge switch and the software edge's own worker are one switch: the same packets, real
//! ones and fuzzed ones, leave both with the same bytes, and leave the same sketches behind, group
//! by group.
//!
//! Real captures are read from the directory that `CALUMMA_DATA` names, or from `../shared/data`
//! beside the repository.

use std::collections::VecDeque;

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{EgressGroup, IngressGroup, SwitchHalf};
use calumma_edge::carrier::{Carrier, Carry, IpId, Numbers as Identifications, Signer, Tos};
use calumma_edge::measure::{Measurement, Side};
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::{Malformed, Parsed, Unmeasured, parse};
use calumma_edge::worker::{Policy, Worker};
use calumma_epoch::{EpochClock, Guards, timestamp_bit};
use calumma_plane::secret::secret;
use calumma_plane::{LcoreMerger, Part};
use calumma_sketch::{Arithmetic, BURST};
use calumma_switchd::config::CarrierKind;

use crate::captures::{self, LONGEST};
use crate::switch::{FABRIC, HOST, Numbers, Pair, attention, checksum, packet};

pub(crate) const FIRST_EPOCH: u64 = 1000;

/// The upper half of the DSCP that the modelled switch gives back, as a whole DSCP.
const DSCP: u8 = 0b101_000;

/// The software edge in virtual time.
pub(crate) struct Software {
    pub(crate) worker: Worker,
    pub(crate) merger: LcoreMerger,
    pub(crate) clock: EpochClock,
}

impl Software {
    /// A worker that measures as `pair` does, from [`FIRST_EPOCH`] on.
    pub(crate) fn new(pair: &Pair) -> Software {
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        let carrier = match pair.carrier {
            CarrierKind::IpId => Carrier::IpId,
            _ => Carrier::Tos(Tos { dscp: DSCP }),
        };
        let policy = Policy { carrier, ..Policy::default() };
        let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let (layout, hash_key) = (pair.layout.clone(), pair.hash_key);
        let (keys, first_epoch) = (layout.keys, FIRST_EPOCH);
        let attention = pair.attention;
        let plan = SessionPlan { layout, hash_key, clock, first_epoch, attention };
        let system = SwitchHalf::new(plan).unwrap();
        merger.begin(clock, FIRST_EPOCH, secret(&hash_key), keys, vec![Box::new(system)]);
        worker.advance_to(clock.start_of(FIRST_EPOCH - 1));
        Software { worker, merger, clock }
    }

    /// On to the beginning of an epoch.
    pub(crate) fn begin(&mut self, epoch: u64) {
        self.worker.advance_to(self.clock.start_of(epoch));
    }
}

/// Both switches, and what they have done so far.
pub(crate) struct Both {
    pub(crate) pair: Pair,
    pub(crate) software: Software,
    epoch: u64,
    /// Marked packets of the last epoch that have not left the network yet.
    pub(crate) in_flight: VecDeque<Frame>,
    entered: u64,
    /// What tells marked packets from others, where marks are signed.
    signer: Signer,
    identifications: Identifications,
}

impl Both {
    pub(crate) fn new(carrier: CarrierKind, arithmetic: Arithmetic) -> Both {
        let mut pair = Pair::with_marks(carrier, arithmetic, attention());
        let mut software = Software::new(&pair);
        pair.begin(FIRST_EPOCH);
        software.begin(FIRST_EPOCH);
        let in_flight = VecDeque::new();
        let signer = Signer::new(secret(&pair.hash_key), FIRST_EPOCH);
        let (epoch, entered, identifications) = (FIRST_EPOCH, 0, Identifications::new());
        Both { pair, software, epoch, in_flight, entered, signer, identifications }
    }

    /// A burst enters the network; some of it stays in flight, the rest leaves the network or is
    /// lost.
    pub(crate) fn burst(&mut self, frames: &[Frame], numbers: &mut Numbers) {
        let whole = frames.iter().filter(|frame| !is_overlong(frame));
        let mut frames: Vec<Frame> = whole.cloned().collect();
        self.entered += frames.len() as u64;
        let plain = frames.clone();
        assert!(self.software.worker.ingress(&mut frames).is_empty(), "nothing is dropped");
        for (plain, marked) in plain.iter().zip(&frames) {
            self.inject(HOST, plain, FABRIC, marked);
        }
        for (plain, frame) in plain.iter().zip(frames) {
            // Fragments keep an identification that may look like any epoch's mark.
            let looks_marked = *plain == frame && self.is_marked(&frame, 0);
            if numbers.below(10) > 0 && !looks_marked {
                self.in_flight.push_back(frame);
            }
        }
        while self.in_flight.len() > 300 {
            self.leave();
        }
    }

    /// A burst of the packets that are in flight leaves the network.
    fn leave(&mut self) {
        let burst = self.in_flight.len().min(BURST);
        let marked: Vec<Frame> = self.in_flight.drain(..burst).collect();
        self.egress(marked);
    }

    pub(crate) fn egress(&mut self, mut marked: Vec<Frame>) {
        // In epochs without claims a software edge believes no mark that has one; a Tofino does not
        // know which these are.
        marked.retain(|frame| self.is_marked(frame, 0) || !self.is_marked(frame, 0b11));
        let mut restored = marked.clone();
        assert!(self.software.worker.egress(&mut restored).is_empty(), "nothing is dropped");
        for (marked, restored) in marked.iter().zip(&restored) {
            if self.gets_a_number(marked) {
                self.inject_and_number(marked, restored);
            } else {
                self.inject(FABRIC, marked, HOST, restored);
            }
        }
    }

    /// Whether an IPv4 packet carries a mark in its identification, in epochs with those claims.
    fn is_marked(&self, frame: &Frame, claims: u8) -> bool {
        let bytes = frame.bytes();
        let Parsed::Flow { ip_offset, .. } = parse(bytes, bytes.len()) else { return false };
        let (signer, numbers) = (Some(&self.signer), &self.identifications);
        self.pair.carrier == CarrierKind::IpId
            && bytes[ip_offset] >> 4 == 4
            && IpId { claims, ..IpId::new(signer, numbers) }.read(frame, ip_offset).is_some()
    }

    /// Whether a packet leaves the network with a fresh identification: that is any number.
    fn gets_a_number(&self, frame: &Frame) -> bool {
        let bytes = frame.bytes();
        let Parsed::Flow { ip_offset, .. } = parse(bytes, bytes.len()) else { return false };
        let may_be_cut = bytes.get(ip_offset + 6).is_some_and(|byte| byte & 0x60 == 0);
        self.is_marked(frame, 0) && may_be_cut
    }

    /// The modelled switch sends the packet as it is wanted, but for its identification, and with
    /// a checksum that is as right or wrong.
    fn inject_and_number(&mut self, frame: &Frame, wanted: &Frame) {
        let bytes = frame.bytes();
        let Parsed::Flow { ip_offset, .. } = parse(bytes, bytes.len()) else { panic!("{frame:?}") };
        let mut sent = Vec::new();
        self.pair.switch.inject_with(FABRIC, bytes, |port, bytes| {
            sent.push((port, bytes.to_vec()));
        });
        let [(HOST, sent)] = &sent[..] else { panic!("{frame:?}: {sent:?}") };
        let outside = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[ip_offset + 4..ip_offset + 6].fill(0);
            bytes[ip_offset + 10..ip_offset + 12].fill(0);
            bytes
        };
        assert_eq!(outside(sent), outside(wanted.bytes()), "{frame:?}");
        let sum = |bytes: &[u8]| !checksum(&bytes[ip_offset..ip_offset + 20]) % 0xFFFF;
        assert_eq!(sum(sent), sum(wanted.bytes()), "{frame:?}");
    }

    /// The modelled switch sends the packet as it is wanted.
    fn inject(&mut self, port: u16, frame: &Frame, to: u16, wanted: &Frame) {
        let mut sent = 0;
        self.pair.switch.inject_with(port, frame.bytes(), |port, bytes| {
            sent += 1;
            assert!((port, bytes) == (to, wanted.bytes()), "{frame:?}\n{bytes:?}\n{wanted:?}");
        });
        assert_eq!(sent, 1, "{frame:?}");
    }

    /// On to the next epoch, while packets are in flight; then compares the groups of the last one.
    pub(crate) fn next_epoch(&mut self) {
        let over = self.epoch;
        self.epoch += 1;
        self.pair.begin(self.epoch);
        self.software.begin(self.epoch);
        self.signer.begin(self.epoch);
        while !self.in_flight.is_empty() {
            self.leave();
        }
        // Past the moment when the egress group is taken.
        self.software.worker.advance_to(self.software.clock.take_time(over) + 1);
        self.software.worker.advance_to(self.software.clock.take_time(over) + 2);
        let bit = timestamp_bit(over);
        let mut compared = [false; 2];
        for part in self.software.merger.poll() {
            let (system, epoch, side, record) = match part {
                Part::Side { system, epoch, side, record, .. } => (system, epoch, side, record),
                Part::Sealed { late_packets, .. } => {
                    assert_eq!(late_packets, 0);
                    continue;
                }
            };
            assert_eq!(epoch, over);
            match side {
                Side::Ingress => {
                    compared[0] = true;
                    self.compare_ingress(&record.get::<IngressGroup>().unwrap().group, bit);
                }
                Side::ByBit => {
                    compared[1] = true;
                    let buckets = self.pair.layout.downstream_buckets;
                    let words = self.pair.encoder("downstream", bit, buckets);
                    let group = &record.get::<EgressGroup>().unwrap().group;
                    assert!(group.downstream().words().eq(words), "downstream, epoch {epoch}");
                }
            }
            self.software.merger.recycle(system, side, record);
        }
        assert_eq!(compared, [true, true], "both groups of epoch {over}");
        self.pair.clear(bit);
    }

    fn compare_ingress(&self, group: &IngressGroup, bit: usize) {
        for (level, shape) in self.pair.layout.classifier.iter().enumerate() {
            let wanted = group.classifier().counters(level).map(|count| count.min(shape.max()));
            assert!(wanted.eq(self.pair.counters(level, bit)), "classifier array {level}");
        }
        let words = self.pair.encoder("upstream", bit, self.pair.layout.upstream_buckets);
        assert!(group.upstream().words().eq(words), "upstream");
    }

    /// The totals of both agree.
    fn finish(mut self) {
        self.next_epoch();
        let count = |counter, index| self.pair.switch.read_counter(counter, index).unwrap().packets;
        let totals = &self.software.worker.counters;
        assert_eq!(totals.host_received, self.entered);
        let from_fabric = totals.egress_recorded + totals.egress_late + totals.egress_unrecorded;
        assert_eq!(count("Ingress.packets", 0b011), totals.ingress_recorded);
        assert_eq!(count("Ingress.packets", 0b001), from_fabric);
        let both =
            |class| count("Ingress.packets", class) + count("Ingress.packets", class | 0b010);
        // The hardware edge looks no further into IPv6 than that it is IPv6, be it malformed or
        // not.
        let unmeasured = |kind: Unmeasured| totals.unmeasured[kind as usize];
        let malformed: u64 = totals.malformed.iter().sum();
        let ipv6 = both(0b100);
        assert!((0..=malformed).contains(&(ipv6 - unmeasured(Unmeasured::Ipv6))));
        let rest = unmeasured(Unmeasured::Ipv6) + unmeasured(Unmeasured::NotIp) + malformed;
        assert_eq!(count("Ingress.packets", 0b111), unmeasured(Unmeasured::AboveFabricMtu));
        let unmarkable = unmeasured(Unmeasured::NoCarrier) + totals.egress_unmarked;
        assert_eq!(ipv6 + both(0), rest + unmarkable);
        let left: u64 = (0..3).map(|kind| count("Egress.packets", kind)).sum();
        let late = totals.egress_late + totals.egress_unrecorded;
        assert_eq!(left, totals.egress_recorded + late);
        assert_eq!(count("Egress.packets", 3), totals.egress_unmarked);
        assert!(totals.ingress_recorded > 0 && totals.egress_recorded > 0);
    }
}

/// Whether an IPv4 packet says it is longer than it is: a Tofino's ingress does not know how long a
/// packet is.
fn is_overlong(frame: &Frame) -> bool {
    let bytes = frame.bytes();
    parse(bytes, bytes.len()) == Parsed::Malformed(Malformed::Ipv4TotalLength)
        && matches!(parse(bytes, usize::MAX), Parsed::Flow { .. })
}

/// All the packets, in epochs of `epoch` packets.
fn agree(
    (carrier, arithmetic): (CarrierKind, Arithmetic),
    frames: impl Iterator<Item = Frame>,
    epoch: usize,
) {
    let mut both = Both::new(carrier, arithmetic);
    let mut numbers = Numbers(1);
    let mut frames = frames.peekable();
    while frames.peek().is_some() {
        let mut left = epoch;
        while left > 0 && frames.peek().is_some() {
            let burst: Vec<Frame> = frames.by_ref().take(left.min(BURST)).collect();
            both.burst(&burst, &mut numbers);
            left = left.saturating_sub(BURST);
        }
        both.next_epoch();
    }
    both.finish();
}

/// Packets of a capture.
fn captured(name: &str) -> Option<Vec<Frame>> {
    Some(captures::captured(name, LONGEST)?.into_iter().map(Frame::new).collect())
}

#[test]
fn captures_of_every_kind_of_traffic_measure_alike_with_prime_arithmetic() {
    if let Some(frames) = captured("mixed-captures.pcap") {
        agree((CarrierKind::Tos, Arithmetic::Prime), frames.into_iter(), 40_000);
    }
}

#[test]
fn captures_are_marked_and_measured_alike_by_their_identification() {
    if let Some(frames) = captured("mixed-captures.pcap") {
        agree((CarrierKind::IpId, Arithmetic::Wrapping), frames.into_iter(), 10_000);
    }
}

#[test]
fn a_backbone_link_measures_alike_with_wrapping_arithmetic() {
    if let Some(frames) = captured("backbone-65k.pcap") {
        agree((CarrierKind::Tos, Arithmetic::Wrapping), frames.into_iter(), 30_000);
    }
}

/// A packet of any kind, and often something wrong with it.
fn fuzzed(numbers: &mut Numbers) -> Frame {
    let mut bytes = packet(numbers).bytes;
    match numbers.below(4) {
        0 => {}
        1 => {
            for _ in 0..=numbers.below(4) {
                let at = 12 + numbers.below(bytes.len().min(60) as u64 - 12) as usize;
                bytes[at] = numbers.below(256) as u8;
            }
        }
        2 => {
            // The first byte of what lies behind the Ethernet header: often version and length.
            bytes[14] = numbers.below(256) as u8;
            bytes[15] = numbers.below(256) as u8;
        }
        _ => bytes.truncate(14 + numbers.below(60) as usize),
    }
    Frame::new(bytes)
}

#[test]
fn fuzzed_packets_measure_alike() {
    for (carrier, arithmetic) in [
        (CarrierKind::Tos, Arithmetic::Prime),
        (CarrierKind::Tos, Arithmetic::Wrapping),
        (CarrierKind::IpId, Arithmetic::Prime),
    ] {
        let mut numbers = Numbers(42);
        let frames = std::iter::repeat_with(move || fuzzed(&mut numbers)).take(120_000);
        agree((carrier, arithmetic), frames, 40_000);
    }
}

#[test]
fn marks_that_no_edge_has_given_are_recorded_alike() {
    for carrier in [CarrierKind::Tos, CarrierKind::IpId] {
        let mut both = Both::new(carrier, Arithmetic::Prime);
        let mut numbers = Numbers(11);
        both.burst(&[Frame::new(packet(&mut numbers).bytes)], &mut numbers);
        // Any mark, and whatever else fuzzing does, while epochs of both timestamp bits are open.
        let frames = std::iter::repeat_with(|| fuzzed(&mut numbers));
        both.in_flight.extend(frames.filter(|frame| !is_overlong(frame)).take(30_000));
        both.finish();
    }
}
