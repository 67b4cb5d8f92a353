//! A packet's passage through an ingress and an egress edge in the middle of an epoch, checked byte
//! by byte. The fuzz target drives the same.

use calumma_chamelemon::frames::SessionPlan;
use calumma_chamelemon::{Attention, Layout, SwitchHalf};
use calumma_edge::carrier::{Carrier, Carry, IpId, Numbers, Shim, SignedTos, Signer, Tos};
use calumma_edge::counters::Counters;
use calumma_edge::measure::Measurement;
use calumma_edge::packet::{Frame, Packet};
use calumma_edge::parse::tunnel::{self, Tunnels};
use calumma_edge::parse::{Parsed, Unmeasured, parse};
use calumma_edge::worker::{DropMask, Policy, Worker};
use calumma_epoch::{EpochClock, Guards};
use calumma_plane::LcoreMerger;
use calumma_sketch::{HashKey, KeyKind};
use calumma_wire::{DEFAULT_FABRIC_MTU, Secret};

/// No passage takes as long.
const EPOCH_NS: u64 = 3_600_000_000_000;

/// The epoch in which all of them are.
pub(crate) const EPOCH: u64 = 10;

const SECRET: [u8; 32] = [7; 32];

/// Every carrier, by the name of its kind.
pub(crate) const CARRIERS: [(&str, Carrier); 6] = [
    ("tos", Carrier::Tos(Tos { dscp: 8 })),
    ("tos with a signature", Carrier::SignedTos(SignedTos { dscp: 46 })),
    ("flow label", Carrier::FlowLabel),
    ("identification", Carrier::IpId),
    ("shim with hops", Carrier::Shim(Shim { ether_type: Shim::LOCAL_EXPERIMENT, hops: true })),
    ("shim", Carrier::Shim(Shim { ether_type: Shim::LOCAL_EXPERIMENT, hops: false })),
];

/// A packet of which a capture kept the first `bytes`, with room before it, as in an mbuf.
pub(crate) fn cut(bytes: &[u8], wire_len: usize) -> Frame {
    Frame::with_headroom(8, bytes).cut_from(wire_len)
}

/// A whole one.
pub(crate) fn whole(bytes: &[u8]) -> Frame {
    cut(bytes, bytes.len())
}

/// An edge in the middle of an epoch, and who takes what it finishes.
pub(crate) struct Edge {
    pub(crate) worker: Worker,
    _merger: LcoreMerger,
}

impl Edge {
    pub(crate) fn new(policy: Policy) -> Self {
        Self::by_keys(policy, KeyKind::Ipv4)
    }

    pub(crate) fn by_keys(policy: Policy, keys: KeyKind) -> Self {
        let layout =
            Layout { upstream_buckets: 512, downstream_buckets: 256, keys, ..Layout::default() };
        let attention = Attention::healthy(&layout, 256);
        let clock = EpochClock::new(EPOCH_NS, Guards::default()).unwrap();
        let hash_key = HashKey::from_bytes(SECRET);
        let plan = SessionPlan { layout, hash_key, clock, first_epoch: EPOCH, attention };
        let system = SwitchHalf::new(plan).unwrap();
        let (mut merger, mut mailboxes) = LcoreMerger::new(1);
        merger.begin(clock, EPOCH, Secret::new(SECRET), keys, vec![Box::new(system)]);
        let mut worker = Worker::new(policy, Measurement::new(mailboxes.remove(0)));
        worker.advance_to(clock.start_of(EPOCH - 1) + EPOCH_NS / 2);
        worker.advance_to(clock.start_of(EPOCH) + EPOCH_NS / 2);
        Self { worker, _merger: merger }
    }
}

/// The way from one edge to another of a network whose packets carry marks in one way.
pub(crate) struct Passage {
    carrier: Carrier,
    tunnels: Tunnels,
    pub(crate) entry: Edge,
    pub(crate) exit: Edge,
    /// That of both edges.
    signer: Signer,
    numbers: Numbers,
}

impl Passage {
    pub(crate) fn new(carrier: Carrier, tunnels: Tunnels) -> Self {
        let policy = Policy { carrier, tunnels, ..Policy::default() };
        let (signer, numbers) = (Signer::new(Secret::new(SECRET), EPOCH), Numbers::new());
        let [entry, exit] = [(); 2].map(|()| Edge::new(policy));
        Self { carrier, tunnels, entry, exit, signer, numbers }
    }

    /// Sends a burst through both edges.
    ///
    /// # Panics
    /// When a packet does not come out as it should, or when the edges differ on what was measured.
    pub(crate) fn pass(&mut self, burst: &[Frame]) {
        let burst: Vec<Frame> =
            burst.iter().filter(|frame| !self.bears_a_mark(frame)).cloned().collect();
        let mut frames = burst.clone();
        let recorded = self.entry.worker.counters.ingress_recorded;
        let drops = self.entry.worker.ingress(&mut frames);
        let recorded = self.entry.worker.counters.ingress_recorded - recorded;

        let mut left = Vec::new();
        for (at, (frame, before)) in frames.into_iter().zip(&burst).enumerate() {
            if drops.drops(at) {
                assert!(self.is_forged(before), "only forged shims are dropped: {before:02x?}");
            } else {
                left.push((frame, before));
            }
        }
        let before_exit = self.exit.worker.counters;
        let (mut frames, came): (Vec<_>, Vec<_>) = left.into_iter().unzip();
        assert_eq!(self.exit.worker.egress(&mut frames), DropMask::default());
        let exit = &self.exit.worker.counters;
        assert_eq!(exit.egress_recorded - before_exit.egress_recorded, recorded);
        assert_eq!(exit.egress_unmarked, before_exit.egress_unmarked);
        let no_carrier = |counters: &Counters| counters.unmeasured[Unmeasured::NoCarrier as usize];
        let unmarkable = came.iter().filter(|frame| self.can_not_be_marked(frame)).count();
        assert_eq!(no_carrier(exit) - no_carrier(&before_exit), unmarkable as u64);

        for (frame, before) in frames.iter().zip(came) {
            self.check(frame.bytes(), before);
        }
    }

    /// What both edges take a packet for.
    fn parse(&self, frame: &Frame) -> Parsed {
        match self.tunnels {
            Tunnels::Outer => parse(frame.bytes(), frame.wire_len()),
            Tunnels::Inner => tunnel::parse(frame.bytes(), frame.wire_len()).0,
        }
    }

    fn is_forged(&self, before: &Frame) -> bool {
        let parsed = self.parse(before);
        matches!(self.carrier, Carrier::Shim(_)) && parsed == Parsed::Unmeasured(Unmeasured::NotIp)
    }

    fn can_not_be_marked(&self, frame: &Frame) -> bool {
        let Parsed::Flow { ip_offset, .. } = self.parse(frame) else { return false };
        let header = &frame.bytes()[ip_offset..];
        match self.carrier {
            Carrier::FlowLabel => header[0] >> 4 == 4,
            Carrier::IpId => header[0] >> 4 == 4 && !is_own_whole(header),
            _ => false,
        }
    }

    /// Whether a host's first fragment, or a long packet, has the identification of a mark by
    /// chance.
    fn bears_a_mark(&self, frame: &Frame) -> bool {
        let Parsed::Flow { ip_offset, .. } = self.parse(frame) else { return false };
        let carrier = IpId::new(Some(&self.signer), &self.numbers);
        self.carrier == Carrier::IpId
            && self.can_not_be_marked(frame)
            && (carrier.read(frame, ip_offset).is_some()
                || carrier.may_have_carried(frame, ip_offset))
    }

    /// Checks that a packet came out as it went in, save the bits that carried the mark.
    fn check(&self, after: &[u8], before: &Frame) {
        let mut wanted = before.bytes().to_vec();
        let mut after = after.to_vec();
        if let Parsed::Flow { ip_offset, .. } = self.parse(before) {
            let (mask, dscp) = match self.carrier {
                Carrier::Tos(tos) => (0xE0, tos.dscp),
                Carrier::SignedTos(tos) => (0xFC, tos.dscp),
                Carrier::FlowLabel | Carrier::IpId | Carrier::Shim(_) | Carrier::Unchosen => (0, 0),
            };
            let header = &mut wanted[ip_offset..ip_offset + 20];
            if header[0] >> 4 == 6 {
                let word = u32::from_be_bytes(header[..4].try_into().unwrap());
                let class = (word >> 20) as u8 & !mask | dscp << 2 & mask;
                let label = if self.carrier.needs_session() { 0 } else { word & 0xF_FFFF };
                header[..4]
                    .copy_from_slice(&(6 << 28 | u32::from(class) << 20 | label).to_be_bytes());
            } else {
                let restored = &mut after[ip_offset..ip_offset + 20];
                assert_eq!(sum(header), sum(restored), "the checksum is as right as it was");
                header[1] = header[1] & !mask | dscp << 2 & mask;
                if self.carrier == Carrier::IpId && is_own_whole(header) {
                    let atomic = header[6] & 0x40 != 0;
                    let fresh = if atomic { [0; 2] } else { [restored[4], restored[5]] };
                    header[4..6].copy_from_slice(&fresh);
                }
                header[10..12].fill(0);
                restored[10..12].fill(0);
            }
        }
        assert_eq!(after, wanted);
    }
}

/// Whether an IPv4 packet is no fragment and will be none, and nothing covers its identification.
fn is_own_whole(header: &[u8]) -> bool {
    let stays_whole =
        header[6] & 0x40 != 0 || u16::from_be_bytes([header[2], header[3]]) <= DEFAULT_FABRIC_MTU;
    header[6] & 0x3F == 0 && header[7] == 0 && header[9] != 51 && stays_whole
}

/// The sum of an IPv4 header's words as the Internet checksum sees it.
fn sum(header: &[u8]) -> u32 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    words.sum::<u32>() % 0xFFFF
}
