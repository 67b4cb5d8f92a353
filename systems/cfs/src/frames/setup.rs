//! What all switches of a network have in common.
//!
//! ```text
//! entries (4)  filter bits (4)  HyperLogLog bits (1)  epochs of a window (2)
//! how hops are numbered: see `hop`
//! grade (1)  claim (1)  reseed (1)
//! buckets an array of the residual (4), where there is one
//! a bit each: 1, from version 2 on, where flows without an entry are watched for loops
//!             2, from version 6 on, where plans divide the memory of table and residual;
//!             4, from version 7 on, at edges that say where flows entered and left;
//!             8, from version 8 on, where the residual is a FlowRadar;
//!             16, from version 10 on, at edges that sum up what entered;
//!             32, from version 12 on, where plans may override what stands here;
//!             not there where all are 0
//! ```

use std::ops::RangeInclusive;

use calumma_plane::carrier::Way;
use calumma_sketch::grade::{self, HopRule};
use calumma_sketch::residual::{ARRAYS, Fermat, FlowRadar, Kind, Shape};
use calumma_sketch::{FlowKey, HashFamily, Hashes, HyperLogLog};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u16, put_u32};

use super::graded::{self, Graded, even};
use super::hop::{self, Hop};
use super::overrides::Overrides;

/// What all switches of a network have in common, and the hops of a switch's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Flows that a switch's table holds: 256 to 2^22.
    pub entries: u32,
    /// Bits of the filter that remembers which flows were refused or evicted: 2^10 to 2^31.
    pub filter_bits: u32,
    /// The logarithm of the registers of the switch's [`HyperLogLog`].
    pub hll_bits: u8,
    /// Epochs of a window: 2 to 1000, an even number.
    pub window_epochs: u16,
    /// How hops are numbered.
    pub hop: Hop,
    /// How flows are graded; [`Graded::Random`] where hops have no number.
    pub grade: Graded,
    /// Whether packets carry a claim.
    pub claim: bool,
    /// Whether flows are graded anew in each window.
    pub reseed: bool,
    /// Buckets an array of the residual that a switch keeps of the flows without an entry; `None`
    /// where it keeps none.
    pub residual: Option<u32>,
    /// Which residual; [`Kind::Fermat`] where there is none. One of the kind
    /// [`FlowRadar`](Kind::FlowRadar) has a filter of its own, of as many bits as the table's.
    pub kind: Kind,
    /// Whether a switch watches flows without an entry for loops.
    pub guard: bool,
    /// Whether plans say which share of the memory of table and residual the table has.
    pub alpha_moves: bool,
    /// Whether an edge says which flows without an entry entered there and which left, and of which
    /// packets went to a host of the same edge; of no use to other switches.
    pub ends: bool,
    /// Whether it also sums up the packets of those that entered, so that counts of other switches
    /// show whether these are all.
    pub sums: bool,
    /// Whether plans may say otherwise ([`Overrides`]).
    pub overrides: bool,
}

/// How large table and residual of a window are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Flows that the table holds.
    pub entries: u32,
    /// Buckets an array of the residual; `None` where there is none.
    pub residual: Option<u32>,
}

/// The bit of the setup's last byte for each of what it says.
const GUARD: u8 = 1;
const ALPHA_MOVES: u8 = 2;
const ENDS: u8 = 4;
const FLOW_RADAR: u8 = 8;
const SUMS: u8 = 16;
const OVERRIDES: u8 = 32;
const ALL_BITS: u8 = GUARD | ALPHA_MOVES | ENDS | FLOW_RADAR | SUMS | OVERRIDES;

impl Default for Setup {
    fn default() -> Self {
        Self {
            entries: 16_384,
            filter_bits: 1 << 20,
            hll_bits: 12,
            window_epochs: 20,
            hop: Hop::Ttl(HopRule::default()),
            grade: Graded::Fold,
            claim: true,
            reseed: true,
            residual: None,
            kind: Kind::Fermat,
            guard: false,
            alpha_moves: false,
            ends: false,
            sums: false,
            overrides: false,
        }
    }
}

impl Setup {
    /// Bytes of an entry of IPv4, and of all that finds it.
    pub const ENTRY_BYTES: u32 = 60;

    /// Bytes of a bucket of each array of a [`Fermat`] residual of IPv4.
    pub const BUCKETS_BYTES: u32 = (ARRAYS * Fermat::<FlowKey>::BUCKET_BYTES) as u32;

    /// Bytes of a cell of each array of a [`FlowRadar`] residual of IPv4, without its filter.
    pub const CELLS_BYTES: u32 = (ARRAYS * FlowRadar::<FlowKey>::CELL_BYTES) as u32;

    /// What a plan may give the table of the memory of table and residual, in hundredths.
    pub const ALPHA: RangeInclusive<u8> = 60..=97;

    /// What [`entries`](Self::entries) may be.
    pub const ENTRIES: RangeInclusive<u32> = 256..=1 << 22;

    /// What [`filter_bits`](Self::filter_bits) may be.
    pub const FILTER_BITS: RangeInclusive<u32> = 1 << 10..=1 << 31;

    /// What [`hll_bits`](Self::hll_bits) may be.
    pub const HLL_BITS: RangeInclusive<u8> = HyperLogLog::LEAST_BITS..=HyperLogLog::MOST_BITS;

    /// What [`window_epochs`](Self::window_epochs) may be, as far as it is even.
    pub const WINDOW_EPOCHS: RangeInclusive<u16> = 2..=1000;

    /// What the buckets of a [`residual`](Self::residual) may be.
    pub const RESIDUAL: RangeInclusive<u32> = 16..=1 << 22;

    /// Whether switches can measure by it.
    ///
    /// # Errors
    /// The field that they can't measure by, and why: its value, and what it may be.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        within("entries", self.entries, Self::ENTRIES)?;
        within("filter_bits", self.filter_bits, Self::FILTER_BITS)?;
        within("hll_bits", self.hll_bits, Self::HLL_BITS)?;
        within("window_epochs", self.window_epochs, Self::WINDOW_EPOCHS)?;
        if !self.window_epochs.is_multiple_of(2) {
            return Err(("window_epochs", format!("{}: must be even", self.window_epochs)));
        }
        within("residual", self.residual.unwrap_or(*Self::RESIDUAL.start()), Self::RESIDUAL)?;
        if self.alpha_moves && self.residual.is_none() {
            return Err(("alpha_moves", "1: there is no residual".to_owned()));
        }
        if self.sums && !self.ends {
            return Err(("sums", "1: it is not said what entered".to_owned()));
        }
        if self.kind == Kind::FlowRadar && self.residual.is_none() {
            return Err(("kind", "flowradar: there is no residual".to_owned()));
        }
        if self.kind == Kind::FlowRadar && self.alpha_moves {
            let why = "1: a FlowRadar's memory is not divided anew";
            return Err(("alpha_moves", why.to_owned()));
        }
        if self.grade == Graded::Even && !matches!(self.hop, Hop::Mark { .. }) {
            let why = "even: must be fold, greedy or random where hop is not mark";
            return Err(("grade", why.to_owned()));
        }
        match self.hop {
            Hop::Ttl(rule) => {
                within("ttl_base", rule.base.unwrap_or(u8::MAX), 1..=u8::MAX)?;
                within("hop_step", rule.step, 1..=u8::MAX)
            }
            Hop::Port(_) | Hop::Mark { .. } => Ok(()),
            Hop::None if self.grade == Graded::Random => Ok(()),
            Hop::None => {
                let why = format!("{}: must be random where hop is none", self.grade.name());
                Err(("grade", why))
            }
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, self.entries);
        put_u32(&mut out, self.filter_bits);
        put_u8(&mut out, self.hll_bits);
        put_u16(&mut out, self.window_epochs);
        hop::put(&mut out, &self.hop);
        graded::put(&mut out, self.grade);
        put_u8(&mut out, self.claim.into());
        put_u8(&mut out, self.reseed.into());
        if let Some(buckets) = self.residual {
            put_u32(&mut out, buckets);
        }
        let bits = [
            (self.guard, GUARD),
            (self.alpha_moves, ALPHA_MOVES),
            (self.ends, ENDS),
            (self.kind == Kind::FlowRadar, FLOW_RADAR),
            (self.sums, SUMS),
            (self.overrides, OVERRIDES),
        ];
        let bits = bits.into_iter().filter_map(|(is_set, bit)| is_set.then_some(bit)).sum();
        if bits > 0_u8 {
            put_u8(&mut out, bits);
        }
        out
    }

    /// The setup that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a setup of cfs", bytes, 0);
        let setup = Self {
            entries: body.u32("entries")?,
            filter_bits: body.u32("filter_bits")?,
            hll_bits: body.u8("hll_bits")?,
            window_epochs: body.u16("window_epochs")?,
            hop: hop::read(&mut body)?,
            grade: graded::read(&mut body)?,
            claim: body.flag("claim")?,
            reseed: body.flag("reseed")?,
            ..Self::default()
        };
        let behind_flags = body.offset();
        // A residual has four bytes, and what follows it one.
        let residual = if body.left() > 1 { Some(body.u32("residual")?) } else { None };
        let at_bits = body.offset();
        let bits = if body.left() > 0 { Some(body.u8("guard")?) } else { None };
        if let Some(bits) = bits.filter(|bits| !(1..=ALL_BITS).contains(bits)) {
            let why = format_args!("{bits}: must be 1 to {ALL_BITS}, or not be there");
            return Err(body.wrong(at_bits, "guard", why));
        }
        let has = |bit| bits.unwrap_or(0) & bit != 0;
        let (guard, alpha_moves) = (has(GUARD), has(ALPHA_MOVES));
        let (ends, sums, overrides) = (has(ENDS), has(SUMS), has(OVERRIDES));
        let kind = if has(FLOW_RADAR) { Kind::FlowRadar } else { Kind::Fermat };
        let setup = Self { residual, kind, guard, alpha_moves, ends, sums, overrides, ..setup };
        setup.check().map_err(|(field, why)| {
            let of_field = |field| match field {
                "entries" => 0,
                "filter_bits" => 4,
                "hll_bits" => 8,
                "window_epochs" => 9,
                // What may be wrong with a hop is its last byte; the grade is behind it.
                "hop_step" => 14,
                "residual" => behind_flags,
                "alpha_moves" | "kind" | "sums" => at_bits,
                _ => behind_flags - 3,
            };
            body.wrong(of_field(field), field, why)
        })?;
        body.end()?;
        Ok(setup)
    }

    /// What switches measure by where a plan says so much otherwise.
    #[must_use]
    pub fn with(&self, Overrides { entries, grade, unclaimed }: Overrides) -> Self {
        Self {
            entries: entries.unwrap_or(self.entries),
            grade: grade.unwrap_or(self.grade),
            claim: self.claim && !unclaimed,
            ..*self
        }
    }

    /// How large table and residual are where a plan gives the table so many hundredths of their
    /// memory; 0: as the setup says. With keys of any kind, as with those of IPv4.
    pub fn sizes(&self, alpha: u8) -> Sizes {
        let Self { entries, residual, .. } = *self;
        let (Some(own), false) = (residual, alpha == 0) else { return Sizes { entries, residual } };
        let (entry, of_buckets) = (u64::from(Self::ENTRY_BYTES), u64::from(Self::BUCKETS_BYTES));
        let bytes = self.memory_of(own);
        let (least, most) = (u64::from(*Self::RESIDUAL.start()), u64::from(*Self::RESIDUAL.end()));
        let beside = u64::from(100_u8.saturating_sub(alpha));
        let buckets = (bytes * beside / 100 / of_buckets).clamp(least, most);
        let entries = bytes.saturating_sub(buckets * of_buckets) / entry;
        let entries = entries.clamp(1, u64::from(*Self::ENTRIES.end()));
        Sizes { entries: entries as u32, residual: Some(buckets as u32) }
    }

    /// The shape of a residual of so many buckets an array, both parts of an edge's together.
    pub(crate) fn shape(&self, buckets: u32) -> Shape {
        let filter_bits = match self.kind {
            // Tables know which flows they refused.
            Kind::Fermat => 0,
            Kind::FlowRadar => self.filter_bits as usize,
        };
        Shape { buckets: buckets as usize, filter_bits }
    }

    /// The share of the memory of table and residual that the table has by such a plan; `None`
    /// where there is no residual.
    pub fn share(&self, alpha: u8) -> Option<f64> {
        let of_table = u64::from(self.entries) * u64::from(Self::ENTRY_BYTES);
        let own = of_table as f64 / self.memory_of(self.residual?) as f64;
        Some(if alpha == 0 { own } else { f64::from(alpha) / 100.0 })
    }

    /// Bytes of a table of all entries and of a residual of so many buckets an array.
    fn memory_of(&self, buckets: u32) -> u64 {
        let of_table = u64::from(self.entries) * u64::from(Self::ENTRY_BYTES);
        let of_buckets = match self.kind {
            Kind::Fermat => Self::BUCKETS_BYTES,
            Kind::FlowRadar => Self::CELLS_BYTES,
        };
        of_table + u64::from(buckets) * u64::from(of_buckets)
    }

    /// By what flows' words are exclusive-ored in a window.
    pub fn seed(&self, window: u64) -> u32 {
        if self.reseed { grade::window_seed(window) } else { 0 }
    }

    /// The number of the hop at which a packet is received with this time to live; 0 where that
    /// does not say it.
    #[inline(always)]
    pub fn hop_of(&self, ttl: u8) -> u8 {
        self.way_at(ttl, u16::MAX, Way::default()).hop
    }

    /// That number of a packet that this port received and whose mark says `marked`, and the hops
    /// that it passes in all, 0 where that is not known.
    #[inline(always)]
    pub fn way_at(&self, ttl: u8, port: u16, marked: Way) -> Way {
        self.hop.at(ttl, port, marked)
    }

    /// The grade of a flow with these hashes, in a window with this [seed](Self::seed), at a switch
    /// with this [`salt`] that receives its first packet with this time to live.
    #[inline(always)]
    pub fn grade_of(
        &self,
        family: &HashFamily,
        hashes: &Hashes,
        seeds: (u32, u32),
        ttl: u8,
    ) -> u32 {
        self.grade_at(family, hashes, seeds, Way { hop: self.hop_of(ttl), length: 0 })
    }

    /// The same of a packet that has come so far.
    #[inline(always)]
    pub fn grade_at(
        &self,
        family: &HashFamily,
        hashes: &Hashes,
        (seed, salt): (u32, u32),
        way: Way,
    ) -> u32 {
        let word = grade::word(hashes, seed);
        match self.grade {
            Graded::Fold => grade::fold(word, way.hop),
            Graded::Greedy => grade::greedy(word, way.hop),
            Graded::Random => grade::random(family, word, salt),
            Graded::Even => even(word, way),
        }
    }

    /// The number of the hop that a grade is of, by what ports or marks can say: `None` where it is
    /// of none of that, or of several hops, and where neither says it.
    pub fn hop_graded(
        &self,
        family: &HashFamily,
        hashes: &Hashes,
        seeds: (u32, u32),
        grade: u32,
    ) -> Option<u8> {
        let mut fitting = self.hops_graded(family, hashes, seeds, grade);
        let first = fitting.next()?;
        fitting.all(|hop| hop == first).then_some(first)
    }

    /// Whether a grade is that of a flow at one of the hops that ports or marks can say.
    pub fn is_graded_at_a_hop(
        &self,
        family: &HashFamily,
        hashes: &Hashes,
        seeds: (u32, u32),
        grade: u32,
    ) -> bool {
        self.hops_graded(family, hashes, seeds, grade).next().is_some()
    }

    fn hops_graded(
        &self,
        family: &HashFamily,
        hashes: &Hashes,
        seeds: (u32, u32),
        grade: u32,
    ) -> impl Iterator<Item = u8> {
        let is_graded = move |&way: &Way| self.grade_at(family, hashes, seeds, way) == grade;
        self.hop.ways().filter(is_graded).map(|way| way.hop)
    }
}

/// The salt of the switch with this number, by which its grades are others than those of all other
/// switches where they are random.
pub fn salt(node_id: u16) -> u32 {
    u32::from(node_id).wrapping_mul(0x9E37_79B1)
}

/// What is wrong with a share that no plan can have; `None` where one can.
pub(super) fn wrong_alpha(alpha: u8) -> Option<String> {
    let (least, most) = (Setup::ALPHA.start(), Setup::ALPHA.end());
    let is_one = alpha == 0 || Setup::ALPHA.contains(&alpha);
    (!is_one).then(|| format!("{alpha}: must be 0, or {least} to {most}"))
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), (&'static str, String)> {
    if range.contains(&value) {
        return Ok(());
    }
    Err((field, format!("{value}: must be {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hop::PortHops;
    use super::*;

    prop_compose! {
        fn setups()(
            entries in Setup::ENTRIES,
            filter_bits in Setup::FILTER_BITS,
            hll_bits in Setup::HLL_BITS,
            half in 1_u16..=500,
            (base, offset, step) in (prop::option::of(1_u8..), any::<u8>(), 1_u8..),
            ports in prop::option::of(prop::collection::vec(any::<u8>(), 0..=PortHops::MOST)),
            length in prop::option::of(any::<u8>()),
            grade in 0..5_usize,
            [claim, reseed]: [bool; 2],
            residual in prop::option::of(Setup::RESIDUAL),
            [guard, moves, ends, radar, sums, overrides]: [bool; 6],
        ) -> Setup {
            let of_ports = ports.and_then(|ports| PortHops::new(&ports));
            let hop = match (of_ports, length) {
                _ if grade == 4 => Hop::None,
                (_, Some(length)) => Hop::Mark { length },
                _ if grade == 3 => Hop::Mark { length: 0 },
                (Some(hops), None) => Hop::Port(hops),
                (None, None) => Hop::Ttl(HopRule { base, offset, step }),
            };
            let grade = if hop == Hop::None { Graded::Random } else { Graded::ALL[grade] };
            let window_epochs = 2 * half;
            Setup {
                entries,
                filter_bits,
                hll_bits,
                window_epochs,
                hop,
                grade,
                claim,
                reseed,
                residual,
                kind: if radar && residual.is_some() { Kind::FlowRadar } else { Kind::Fermat },
                guard,
                alpha_moves: moves && !radar && residual.is_some(),
                ends,
                sums: sums && ends,
                overrides,
            }
        }
    }

    proptest! {
        #[test]
        fn setups_come_back_as_they_were_sent(setup in setups(), cut in 1..9_usize) {
            prop_assert_eq!(setup.check(), Ok(()));
            let mut bytes = setup.encode();
            prop_assert_eq!(Setup::decode(&bytes), Ok(setup));
            // What ends early is refused, or is another setup's: the last byte's bits and the
            // residual need not be there, and a residual's first byte may be taken for these bits.
            let shorter = &bytes[..bytes.len() - cut];
            if let Ok(other) = Setup::decode(shorter) {
                prop_assert_eq!(other.encode(), shorter);
                let none = Setup::default();
                let flags = |of| Setup {
                    residual: None,
                    kind: none.kind,
                    guard: none.guard,
                    alpha_moves: none.alpha_moves,
                    ends: none.ends,
                    sums: none.sums,
                    overrides: none.overrides,
                    ..of
                };
                prop_assert_eq!(flags(other), flags(setup));
            } else {
                let has_bits = setup.guard
                    || setup.alpha_moves
                    || setup.ends
                    || setup.overrides
                    || setup.kind == Kind::FlowRadar;
                let without_bits = has_bits && cut == 1;
                let without_both = setup.residual.is_some() && cut == 4 + usize::from(has_bits);
                prop_assert!(!without_bits && !without_both);
            }
            bytes.push(0);
            prop_assert!(Setup::decode(&bytes).is_err());
        }

        #[test]
        fn no_bytes_make_a_panic(bytes: Vec<u8>) {
            if let Ok(setup) = Setup::decode(&bytes) {
                prop_assert_eq!(setup.encode(), bytes);
            }
        }
    }

    #[test]
    fn what_switches_cant_measure_by_is_named_with_its_byte_and_range() {
        let setup = Setup::default();
        let says = |setup: Setup, byte: usize, words: &str| {
            let refused = Setup::decode(&setup.encode()).unwrap_err().to_string();
            assert_eq!(refused, format!("byte {byte} of a setup of cfs: {words}"));
        };
        let entries = "entries: 100: must be 256 to 4194304";
        says(Setup { entries: 100, ..setup }, 0, entries);
        let filter = "filter_bits: 1023: must be 1024 to 2147483648";
        says(Setup { filter_bits: 1023, ..setup }, 4, filter);
        says(Setup { hll_bits: 17, ..setup }, 8, "hll_bits: 17: must be 4 to 16");
        let window = "window_epochs: 1001: must be 2 to 1000";
        says(Setup { window_epochs: 1001, ..setup }, 9, window);
        says(Setup { window_epochs: 7, ..setup }, 9, "window_epochs: 7: must be even");
        let still = Hop::Ttl(HopRule { step: 0, ..HopRule::default() });
        says(Setup { hop: still, ..setup }, 14, "hop_step: 0: must be 1 to 255");
        let residual = "residual: 15: must be 16 to 4194304";
        says(Setup { residual: Some(15), ..setup }, 18, residual);
        let radar = Setup { kind: Kind::FlowRadar, ..setup };
        says(radar, 18, "kind: flowradar: there is no residual");
        let moving = Setup { residual: Some(16), alpha_moves: true, ..radar };
        says(moving, 22, "alpha_moves: 1: a FlowRadar's memory is not divided anew");
        let grade = "grade: fold: must be random where hop is none";
        says(Setup { hop: Hop::None, ..setup }, 12, grade);
        let grade = "grade: even: must be fold, greedy or random where hop is not mark";
        says(Setup { grade: Graded::Even, ..setup }, 15, grade);
    }

    #[test]
    fn shares_are_of_the_bytes_that_buckets_or_cells_take() {
        use calumma_sketch::WideKey;

        assert_eq!((Setup::BUCKETS_BYTES, Setup::CELLS_BYTES), (3 * 40, 3 * 48));
        assert_eq!(FlowRadar::<WideKey>::CELL_BYTES, 64);
        let fermat = Setup { entries: 1200, residual: Some(600), ..Setup::default() };
        let radar = Setup { residual: Some(500), kind: Kind::FlowRadar, ..fermat };
        assert_eq!((fermat.share(0), radar.share(0)), (Some(0.5), Some(0.5)));
    }

    #[test]
    fn grades_follow_hops_or_switches() {
        use calumma_sketch::{FlowKey, HashKey};

        let family = HashFamily::new(&HashKey::from_bytes([5; 32]));
        let hashes = family.hash(&FlowKey::from_words(1, 2, 3, 6));
        let of = |setup: Setup, salt, ttl| setup.grade_of(&family, &hashes, (7, salt), ttl);
        let word = grade::word(&hashes, 7);
        let fold = Setup::default();
        assert_eq!(of(fold, 1, 64), grade::fold(word, 0));
        assert_eq!(of(fold, 2, 62), grade::fold(word, 2));
        let greedy = Setup { grade: Graded::Greedy, ..fold };
        assert_eq!(of(greedy, 1, 253), grade::greedy(word, 2));
        let random = Setup { hop: Hop::None, grade: Graded::Random, ..fold };
        assert_eq!(of(random, salt(1), 64), of(random, salt(1), 60));
        assert_ne!(of(random, salt(1), 64), of(random, salt(2), 64));
        let marked = Setup { hop: Hop::Mark { length: 3 }, grade: Graded::Even, ..fold };
        let of_way = |hop, length| {
            let grade = marked.grade_at(&family, &hashes, (7, 0), Way { hop, length });
            assert!(marked.is_graded_at_a_hop(&family, &hashes, (7, 0), grade));
            assert_eq!(marked.hop_graded(&family, &hashes, (7, 0), grade), Some(hop));
            grade
        };
        assert_eq!(
            [0, 1, 2].map(|hop| of_way(hop, 3)),
            [0, 1, 2].map(|hop| grade::even(word, hop, 3))
        );
        // Of ways that are not known, or longer than is said.
        assert_eq!((of_way(2, 0), of_way(3, 3)), (grade::fold(word, 2), grade::fold(word, 3)));
        let other = grade::even(word, 1, 4);
        assert!(!marked.is_graded_at_a_hop(&family, &hashes, (7, 0), other));
        assert_eq!((Setup { reseed: false, ..fold }).seed(9), 0);
        assert_eq!(fold.seed(9), grade::window_seed(9));
    }
}
