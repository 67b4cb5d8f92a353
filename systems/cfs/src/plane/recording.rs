//! Recording a burst: what is done with each packet of a window.

use std::ops::Range;

use calumma_plane::carrier::Way;
use calumma_plane::parse::detail::IpFields;
use calumma_sketch::burst::{first, ones};
use calumma_sketch::grade::{Chosen, Claims};
use calumma_sketch::residual::{Counts, Residual as _};
use calumma_sketch::simd::{Isa, Work};
use calumma_sketch::sketchint::flow_word;
use calumma_sketch::table::{Order, Rank, Sink, Words};
use calumma_sketch::{BURST, HashColumns, HashFamily, Hashes, Key, KeyKind, WideKey};

use super::cache::{Came, Pending, Refusal};
use super::counted::Counted;
use super::ends::Ends;
use super::guard::{self, Guard};
use super::notices::Noticing;
use super::record::{Common, Packets, Share, Sums, Window};
use crate::frames::Residual;
use crate::lives::Lives;

/// Packets, and what they are recorded in.
pub(super) struct Recording<'a, 'b, K: Key> {
    pub(super) window: &'a mut Window<K>,
    pub(super) common: &'a Common,
    pub(super) packets: &'a Packets<'b, K>,
    pub(super) noticing: &'a mut Noticing,
}

impl<K: Key> Work for Recording<'_, '_, K> {
    type Output = u32;

    #[inline(always)]
    fn work(self, isa: impl Isa) -> u32 {
        let Recording { window, common, packets, noticing } = self;
        let Packets { keys, hashes, ip, polled_ns, port, side, single, claimed } = *packets;
        let computed;
        let hashes = match hashes {
            Some(hashes) => hashes,
            None => {
                computed = hash_keys(isa, &common.family, keys);
                &computed
            }
        };
        let claims = window.share.claims.unwrap_or(Claims::NONE);
        let unpinned = if single { Chosen::Single } else { Chosen::Shared };
        let pins = &window.plan.pins;
        let has_pins = !pins.is_empty(K::KIND);
        let by = Came::by(port, side, single);
        let came = |at: usize| by.with(&fields(ip, at), claimed >> at & 1 == 1);
        let (again, mut goes_on) = count_again(&mut window.share, (keys, hashes), ip, came);
        let others = first(keys.len()) & !again;
        let us = u32::try_from(polled_ns.saturating_sub(window.start_ns) / 1000);
        let us = us.unwrap_or(u32::MAX);
        let side_counted = if single { side | Counted::LOCAL } else { side };
        let count_known = |value: &mut Counted, before: Rank, at: usize| {
            let (fields, is_claimed) = (fields(ip, at), claimed >> at & 1 == 1);
            // One that came with several times to live is of interest each time.
            if fields.ttl != value.ttl || value.differences != 0 {
                return false;
            }
            let Some(ranked) = claims.rank_again(unpinned, is_claimed, before) else {
                return false;
            };
            value.add(fields, us, side_counted);
            goes_on |= u32::from(ranked.is_claimed) << at;
            true
        };
        // Where hops go by more than that, a packet may be at another one than its flow's first.
        let known = if common.setup.hop.is_said() || !window.share.ahead.is_worth_it() {
            0
        } else {
            let Share { table, ahead, .. } = &mut window.share;
            let known = table.count_known(isa, (keys, others), hashes, count_known);
            ahead.note(known.count_ones(), others.count_ones());
            known
        };
        let others = others & !known;
        let is_wide = common.by_wide && K::KIND == KeyKind::Ipv4;
        let of_wide = is_wide.then(|| hash_wide(isa, &common.family, (keys, others)));
        let mut chosen = unpinned;
        let mut ranks = [Rank::default(); BURST];
        let (mut grade, graded) = (0, window.grade);
        // Packets that came as far as the one before are at its hop: finding that takes a division.
        let mut hop = (None, Way::default());
        let mut before = usize::MAX;
        for (number, at) in ones(others).enumerate() {
            let key = &keys[at];
            // Packets of one flow back to back are graded as the first of them.
            if keys.get(before) != Some(key) || before + 1 != at {
                let of = of_wide.as_ref().map_or_else(|| hashes.of(at), |wide| wide.of(number));
                let fields = fields(ip, at);
                if hop.0 != Some((fields.ttl, fields.way)) {
                    let way = common.setup.way_at(fields.ttl, port, fields.way);
                    hop = (Some((fields.ttl, fields.way)), way);
                }
                grade = common.grade(isa, graded, (&of, window.seed), hop.1);
                let is_pinned = has_pins && pins.has(K::KIND, flow_word(&hashes.of(at)));
                chosen = if is_pinned { Chosen::Pinned } else { unpinned };
                window.flows.insert(&of);
            }
            before = at;
            let ranked = claims.rank(chosen, claimed >> at & 1 == 1, grade);
            ranks[at] = ranked.rank;
            goes_on |= u32::from(ranked.is_claimed) << at;
        }
        let epoch = window.epoch;
        let Share { table, cache, sums, ends, .. } = &mut window.share;
        sums.claimed_in += u64::from(claimed.count_ones());
        let (residual, family) = (window.residual.as_mut(), &common.family);
        let guard = window.guard.as_mut();
        let of = (keys, hashes, epoch);
        let mut counting = Counting {
            ip,
            us,
            side: side_counted,
            sums,
            residual,
            guard,
            ends: ends.as_mut(),
            family,
            of,
            noticing,
            refused: 0,
        };
        table.record(isa, (keys, others), hashes, &ranks, &mut counting);
        let refused = counting.refused;
        // Its lines come while the residual's are written.
        if let Some(guard) = &window.guard {
            ones(refused).for_each(|at| guard.prefetch(isa, &hashes.of(at)));
        }
        if refused != 0
            && let Some(ends) = ends
        {
            ends.note_burst(keys, hashes, refused, (side, single));
        }
        if refused != 0
            && let Some(residual) = &mut window.residual
        {
            let lengths = ip.iter().map(|fields| fields.len);
            let mut bytes = [0; BURST];
            bytes.iter_mut().zip(lengths).for_each(|(bytes, length)| *bytes = length);
            let part = residual.part(side, refused.count_ones().into());
            part.insert_burst(isa, keys, hashes, &bytes, refused);
        }
        let mut suspected = 0;
        if refused != 0
            && let Some(guard) = &mut window.guard
        {
            for at in ones(refused) {
                let (Some(key), Some(fields)) = (keys.get(at), ip.get(at)) else { break };
                let hashes = &hashes.of(at);
                if let Some(lives) = guard.see(key, hashes, fields.ttl) {
                    noticing.see(epoch, (key, hashes), lives, fields.ttl);
                    suspected |= 1 << at;
                }
            }
        }
        // Each packet of a flow that is suspected to go round is of interest.
        for at in ones(refused & !suspected) {
            let order = Order::new(ranks[at], &Words::of(&hashes.of(at)));
            let refusal = Refusal { order, is_claimed: goes_on >> at & 1 == 1 };
            let made_room = cache.note(guard::word(&hashes.of(at)), &keys[at], came(at), refusal);
            if let Some(pending) = made_room {
                write_back(&pending, family, window.residual.as_mut(), ends.as_mut());
            }
        }
        goes_on
    }
}

/// Whether flows' entries are looked for ahead of all else: where few packets have one, that costs
/// more than it saves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// Bursts for which they are not.
    idle: u8,
}

impl Ahead {
    /// For how many bursts they are not where few packets had one.
    const IDLE: u8 = 15;

    #[inline(always)]
    fn is_worth_it(&mut self) -> bool {
        let is_worth_it = self.idle == 0;
        self.idle = self.idle.saturating_sub(1);
        is_worth_it
    }

    /// So many packets were counted, of so many whose flows' entries were looked for.
    #[inline(always)]
    fn note(&mut self, counted: u32, of: u32) {
        if 4 * counted < of {
            self.idle = Self::IDLE;
        }
    }
}

/// What a packet's IP header says.
#[inline(always)]
fn fields(ip: &[IpFields], at: usize) -> IpFields {
    ip.get(at).copied().unwrap_or_default()
}

/// Counts packets that came as the last one of their flow did, which was refused lately. Gives a
/// bit for each of them, and for each that goes on claimed.
#[inline(always)]
fn count_again<K: Key>(
    share: &mut Share<K>,
    (keys, hashes): (&[K], &HashColumns),
    ip: &[IpFields],
    came: impl Fn(usize) -> Came,
) -> (u32, u32) {
    let Share { table, cache, sums, .. } = share;
    let (mut again, mut goes_on) = (0_u32, 0);
    for (at, key) in keys.iter().enumerate().take(BURST) {
        again |= u32::from(cache.has(guard::word(&hashes.of(at)), key, came(at))) << at;
    }
    for at in ones(again) {
        let refusal = cache.count(guard::word(&hashes.of(at)), fields(ip, at).len);
        let is_same_run = at > 0 && again >> (at - 1) & 1 == 1 && keys[at - 1] == keys[at];
        if !is_same_run {
            table.refuse_again(refusal.order);
        }
        goes_on |= u32::from(refusal.is_claimed) << at;
    }
    sums.refused += u64::from(again.count_ones());
    (again, goes_on)
}

/// Puts what was counted of a flow without an entry where its packets would be by themselves.
pub(super) fn write_back<K: Key>(
    pending: &Pending<K>,
    family: &HashFamily,
    residual: Option<&mut Residual<K>>,
    ends: Option<&mut Ends>,
) {
    let Pending { key, came, counts } = pending;
    let (side, hashes) = (came.side(), family.hash(key));
    if let Some(residual) = residual {
        residual.part(side, counts.packets).insert(key, &hashes, *counts);
    }
    if let Some(ends) = ends {
        ends.note(&hashes, (side, came.is_single()), counts.packets);
    }
}

/// The hashes of the chosen ones of these IPv4 flows, at most [`BURST`], by their wide keys, side
/// by side.
#[inline(always)]
fn hash_wide<K: Key>(
    isa: impl Isa,
    family: &HashFamily,
    (keys, chosen): (&[K], u32),
) -> HashColumns {
    let mut wide = [WideKey::default(); BURST];
    for (wide, at) in wide.iter_mut().zip(ones(chosen)) {
        *wide = widened(&keys[at]);
    }
    hash_keys(isa, family, &wide[..chosen.count_ones() as usize])
}

/// The wide key of an IPv4 flow.
#[inline(always)]
fn widened<K: Key>(key: &K) -> WideKey {
    let [src, dst, ports] = [0, 1, 2].map(|at| key.word(at));
    WideKey::from_words([0, 0, 0xFFFF, src, 0, 0, 0xFFFF, dst, ports], key.protocol())
}

#[inline(always)]
fn hash_keys<K: Key>(isa: impl Isa, family: &HashFamily, keys: &[K]) -> HashColumns {
    family.hash_keys::<K>(isa, &K::burst(isa, keys))
}

/// Puts what an entry counted into a residual.
#[inline(always)]
pub(super) fn put<K: Key>(to: &mut Residual<K>, key: &K, hashes: &Hashes, counted: &Counted) {
    let Counted { packets, bytes, .. } = *counted;
    to.part(counted.sides(), packets).insert(key, hashes, Counts { packets, bytes });
}

/// Counts the packets of a burst.
struct Counting<'a, K: Key> {
    ip: &'a [IpFields],
    us: u32,
    /// As [`Counted::sides`].
    side: u8,
    sums: &'a mut Sums,
    residual: Option<&'a mut Residual<K>>,
    guard: Option<&'a mut Guard<K>>,
    ends: Option<&'a mut Ends>,
    family: &'a HashFamily,
    /// Their keys and hashes, and the window's first epoch.
    of: (&'a [K], &'a HashColumns, u64),
    noticing: &'a mut Noticing,
    /// A bit for each packet of a flow without an entry.
    refused: u32,
}

impl<K: Key> Counting<'_, K> {
    /// A flow with an entry, whose packets came with several times to live, has come again.
    #[cold]
    fn notice(&mut self, value: &Counted, first: usize, all: &[IpFields]) {
        let (keys, hashes, epoch) = self.of;
        if let (Some(key), Some(ttl)) = (keys.get(first), all.iter().map(|of| of.ttl).min()) {
            self.noticing.see(epoch, (key, &hashes.of(first)), Lives::from(value), ttl);
        }
    }
}

impl<K: Key> Sink<K, Counted> for Counting<'_, K> {
    #[inline(always)]
    fn count(&mut self, value: &mut Counted, packets: Range<usize>) {
        let first = packets.start;
        let all = self.ip.get(packets).unwrap_or_default();
        for fields in all {
            value.add(*fields, self.us, self.side);
        }
        if value.differences != 0 {
            self.notice(value, first, all);
        }
    }

    #[inline(always)]
    fn refuse(&mut self, packets: Range<usize>) {
        self.sums.refused += packets.len() as u64;
        self.refused |= packets.fold(0, |bits, packet| bits | 1 << packet);
    }

    #[inline(always)]
    fn evict(&mut self, key: &K, _: Rank, value: &Counted) {
        self.sums.evicted += value.packets;
        if let Some(residual) = &mut self.residual {
            put(residual, key, &self.family.hash(key), value);
        }
        if let Some(ends) = &mut self.ends {
            let side = (value.sides(), value.is_local());
            ends.note(&self.family.hash(key), side, value.packets);
        }
        if value.differences != 0
            && let Some(guard) = &mut self.guard
        {
            guard.see_entry(key, &self.family.hash(key), Lives::from(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use calumma_epoch::{EpochClock, Guards};
    use calumma_plane::Record as _;
    use calumma_sketch::grade::HopRule;
    use calumma_sketch::residual::Kind;
    use calumma_sketch::{FlowKey, HashKey};
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::record::Plan;
    use super::*;
    use crate::frames::{self, Entry, Hop, PortHops, Setup, Totals};

    /// Bursts of a window at an edge whose table is full soon: of each the side, and each packet's
    /// flow. Few flows have most packets.
    fn bursts(seed: u64) -> Vec<(u8, Vec<u32>)> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut burst = |number: u32| {
            let side = [Entry::ENTERED, Entry::LEFT][number as usize % 2];
            let most = [1, 7, BURST][rng.random_range(0..3)];
            let mut flow = || rng.random_range(0..1500_u32) >> rng.random_range(0..10);
            (side, (0..most).map(|_| flow()).collect())
        };
        (0..600).map(&mut burst).collect()
    }

    fn common(setup: Setup) -> Arc<Common> {
        Arc::new(Common {
            setup,
            family: HashFamily::new(&HashKey::from_bytes([5; 32])),
            salt: 0,
            is_edge: true,
            by_wide: true,
            clock: EpochClock::new(50_000_000, Guards::default()).unwrap(),
        })
    }

    /// An empty window, in which half of the flows are claimed.
    fn window(common: &Arc<Common>) -> Window<FlowKey> {
        let mut window = Window::new(common.clone(), 1);
        window.begin(&Plan::default(), 20);
        window.share.claims = Some(Claims::ALL.next(Some(Rank::new(2, u32::MAX / 2))));
        window
    }

    /// A burst from fabric to fabric, nothing of it claimed.
    fn passing<'a>(keys: &'a [FlowKey], ip: &'a [IpFields]) -> Packets<'a, FlowKey> {
        Packets {
            keys,
            hashes: None,
            ip,
            polled_ns: 0,
            port: 3,
            side: Entry::PASSED,
            single: false,
            claimed: 0,
        }
    }

    /// How flows come.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Coming {
        /// With other times to live and claims now and then, so that entries change hands.
        Changing,
        /// As they came first, each once before any comes again: then entries stay as they are.
        Steady,
    }

    /// What a switch says of them, and a bit for each packet that goes on claimed. Where it
    /// `forgets`, no burst knows whose packets were refused before.
    fn recorded(
        setup: Setup,
        seed: u64,
        coming: Coming,
        forgets: bool,
    ) -> (frames::Window, Vec<u32>) {
        let common = common(setup);
        let mut window = window(&common);
        let mut noticing = Noticing::default();
        let mut claimed_out = Vec::new();
        let is_steady = coming == Coming::Steady;
        let all: Vec<u32> = (0..1500).collect();
        let first = all.chunks(BURST).filter(|_| is_steady);
        let first = first.map(|flows| (Entry::PASSED, flows.to_vec()));
        for (number, (side, flows)) in (0_u32..).zip(first.chain(bursts(seed))) {
            let by = |bursts: u32| if is_steady { 0 } else { number / bursts };
            let key = |&flow: &u32| FlowKey::from_words(flow, 9, 7, 17);
            let keys: Vec<FlowKey> = flows.iter().map(key).collect();
            // Now and then a flow comes otherwise than before.
            let comes_otherwise = |flow: u32| (flow ^ by(40)).is_multiple_of(5);
            let fields = |&flow: &u32| IpFields {
                ttl: if comes_otherwise(flow) { 61 } else { 64 },
                len: 100 + flow,
                way: Way::default(),
            };
            let ip: Vec<IpFields> = flows.iter().map(fields).collect();
            let bit =
                |(at, &flow): (usize, &u32)| u32::from((flow ^ by(60)).is_multiple_of(7)) << at;
            let claimed = flows.iter().enumerate().map(bit).sum();
            let single = !is_steady && number % 9 == 0 && side == Entry::ENTERED;
            let packets = Packets { side, single, claimed, ..passing(&keys, &ip) };
            claimed_out.push(window.record(&common, &packets, &mut noticing));
            if forgets {
                window.share.cache.clear();
            }
        }
        (window.frame(1, false), claimed_out)
    }

    #[test]
    fn a_packet_with_another_time_to_live_is_claimed_by_its_own_hop() {
        let common = common(Setup::default());
        let mut window = window(&common);
        let claims = window.share.claims.unwrap();
        let keys: Vec<_> = (0..32).map(|flow| FlowKey::from_words(flow, 9, 7, 17)).collect();
        let mut claimed = Vec::new();
        for ttl in [64, 61, 64] {
            let ip = vec![IpFields { ttl, len: 100, way: Way::default() }; keys.len()];
            let packets = passing(&keys, &ip);
            let out = window.record(&common, &packets, &mut Noticing::default());
            for (at, key) in keys.iter().enumerate() {
                let hashes = common.family.hash(&widened(key));
                let seeds = (window.seed, common.salt);
                let grade = common.setup.grade_of(&common.family, &hashes, seeds, ttl);
                let ranked = claims.rank(Chosen::Shared, false, grade);
                assert_eq!(out >> at & 1 == 1, ranked.is_claimed, "flow {at}, {ttl}");
            }
            claimed.push(out);
        }
        assert!(claimed[0] == claimed[2] && claimed[0] != claimed[1], "{claimed:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_is_sent_is_the_same_without_the_cache(seed: u64, kind in 0..3) {
            let kept = Setup { entries: 256, filter_bits: 1 << 14, ..Setup::default() };
            let kept = Setup { guard: true, ends: true, sums: true, ..kept };
            let setup = match kind {
                0 => kept,
                1 => Setup { residual: Some(2000), kind: Kind::Fermat, ..kept },
                _ => Setup { residual: Some(2000), kind: Kind::FlowRadar, ..kept },
            };
            let [mut with, mut without] =
                [false, true].map(|forgets| recorded(setup, seed, Coming::Changing, forgets));
            let totals = with.0.totals;
            prop_assert!(totals.refused_packets > 500, "{:?}", totals);
            // The limit that decides what counts as filtered may fall within a burst, of which the
            // cache's packets are counted first.
            let of_without = &mut without.0.totals;
            prop_assert!(totals.filtered.abs_diff(of_without.filtered) <= 2 + totals.filtered / 50);
            of_without.filtered = totals.filtered;
            // A packet of a flow whose entry is taken in the burst is counted before that or after,
            // on its own side of the switch or on those of the entry: but it is counted once.
            let moved = totals.refused_packets.abs_diff(of_without.refused_packets);
            let lost = |of: &Totals| of.refused_packets + of.evicted_packets;
            prop_assert!(moved <= 3 && lost(&totals) == lost(of_without), "{moved}");
            (of_without.refused_packets, of_without.evicted_packets) =
                (totals.refused_packets, totals.evicted_packets);
            let sums = |of: &frames::Window| of.ends.as_ref().and_then(|ends| ends.sums).unwrap();
            prop_assert_eq!(sums(&with.0).packets, lost(&totals));
            prop_assert_eq!(sums(&without.0).packets, lost(&totals));
            if sums(&with.0) != sums(&without.0) {
                (with.0.uncounted, without.0.uncounted) = (None, None);
                let sums = sums(&without.0);
                with.0.ends.iter_mut().for_each(|ends| ends.sums = Some(sums));
            }
            prop_assert_eq!(with, without);
        }

        #[test]
        fn what_is_sent_is_the_same_without_the_cache_where_entries_stay(seed: u64) {
            let setup = Setup { entries: 256, filter_bits: 1 << 14, ..Setup::default() };
            let setup = Setup { residual: Some(2000), guard: true, ends: true, sums: true, ..setup };
            let [with, without] =
                [false, true].map(|forgets| recorded(setup, seed, Coming::Steady, forgets));
            prop_assert!(with.0.totals.refused_packets > 2000, "{:?}", with.0.totals);
            prop_assert_eq!(with, without);
        }

        #[test]
        fn what_is_sent_is_the_same_where_entries_are_not_looked_for_first(seed: u64) {
            let setup = |hop| Setup {
                hop,
                entries: 256,
                filter_bits: 1 << 14,
                guard: false,
                ..Setup::default()
            };
            // All packets are at hop 0, whatever their times to live; where ports say it, that is
            // found out of each.
            let rule = HopRule { offset: u8::MAX, ..HopRule::default() };
            let coming = Coming::Changing;
            let first = recorded(setup(Hop::Ttl(rule)), seed, coming, false);
            let mut last = recorded(setup(Hop::Port(PortHops::NONE)), seed, coming, false);
            // A flow that is evicted within a burst has its packets behind that one counted before.
            let (totals, of_last) = (first.0.totals, &mut last.0.totals);
            let uncounted = |of: &Totals| of.refused_packets + of.evicted_packets;
            prop_assert_eq!(uncounted(&totals), uncounted(of_last));
            of_last.refused_packets = totals.refused_packets;
            of_last.evicted_packets = totals.evicted_packets;
            prop_assert!(totals.filtered.abs_diff(of_last.filtered) <= 2 + totals.filtered / 50);
            of_last.filtered = totals.filtered;
            prop_assert_eq!(first, last);
        }
    }
}
