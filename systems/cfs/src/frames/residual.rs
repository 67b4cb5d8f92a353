//! What a switch's table could not take: the sketch of the flows that it refused or evicted, and
//! the filters of its tables that know which flows these are.
//!
//! ```text
//! whether what entered is apart (1)  passed (8)  mixed (8)
//! what entered, if it is apart, and the rest:
//!     packets (8), and a column for each byte of a bucket:
//!     each sum of fragments (4), packets (4), bytes (8), over all arrays
//! the filters of refused flows: see `filters`
//! ```
//!
//! Where it is a FlowRadar, parts are as `flow_radar` has them, and no filters follow.
//!
//! How many buckets there are the [`Setup`] says, and the share of the window: an edge gives half
//! of them to what entered.

use calumma_sketch::fermat::WordsError;
use calumma_sketch::residual::{
    ARRAYS, AnyResidual, Contents, Fermat, FlowRadar, Kind, Residual as _, Shape,
};
use calumma_sketch::table::Refused;
use calumma_sketch::{AnyKey, Arena, Hashes, Key, KeyKind, Keyed, either};
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u64};
use calumma_wire::columns::{put_words, read_words};

use super::entries::Entry;
use super::setup::Setup;
use super::{filters, flow_radar};

/// Flows that a switch's table refused, from their first packet on, and that it evicted, with what
/// it had counted.
///
/// Entries say on which sides packets came; a residual can't. So an edge keeps what entered apart
/// from the rest, which is what left: both are whole counts of their own. Packets in the rest that
/// came otherwise are counted, for whoever takes the rest for what left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual<K: Key> {
    /// Packets that came from hosts; only at edges.
    pub entered: Option<AnyResidual<K>>,
    /// All others: at an edge those that left, at other switches those that passed.
    pub rest: AnyResidual<K>,
    /// Packets in [`rest`](Self::rest) that passed an edge, and did not leave, or may have.
    pub passed: u64,
    /// Packets in [`rest`](Self::rest) of evicted entries some of whose packets came from hosts;
    /// at switches that are no edges, of all that did not only pass.
    pub mixed: u64,
}

impl<K: Key> Residual<K> {
    /// An empty one of a switch with such a setup, whose residual has so many buckets an array, an
    /// edge or not. It takes all its memory now.
    pub fn new(setup: &Setup, buckets: u32, is_edge: bool) -> Self {
        match setup.kind {
            Kind::Fermat => {
                Self::new_in(&mut Arena::new(Self::lines(buckets, is_edge)), buckets, is_edge)
            }
            Kind::FlowRadar => {
                let shape = part(setup.shape(buckets), is_edge);
                Self::of(is_edge, || AnyResidual::FlowRadar(FlowRadar::new(shape)))
            }
        }
    }

    /// One of the kind [`Fermat`](Kind::Fermat) in memory of an arena. Touches none of it.
    pub fn new_in(arena: &mut Arena, buckets: u32, is_edge: bool) -> Self {
        // Tables know which flows they refused.
        let buckets = fermat_part(buckets, is_edge);
        Self::of(is_edge, || AnyResidual::Fermat(Fermat::without_filter_in(arena, buckets)))
    }

    fn of(is_edge: bool, mut empty: impl FnMut() -> AnyResidual<K>) -> Self {
        Self { entered: is_edge.then(&mut empty), rest: empty(), passed: 0, mixed: 0 }
    }

    /// Cache lines that such a residual takes from an arena.
    pub fn lines(buckets: u32, is_edge: bool) -> usize {
        let parts = if is_edge { 2 } else { 1 };
        parts * Fermat::<K>::lines(fermat_part(buckets, is_edge))
    }

    /// Where packets belong that came on these [sides](Entry::sides), so many; notes them where
    /// that is not what the part is for.
    #[inline(always)]
    pub fn part(&mut self, sides: u8, packets: u64) -> &mut AnyResidual<K> {
        match &mut self.entered {
            Some(entered) if sides == Entry::ENTERED => return entered,
            Some(_) if sides & Entry::ENTERED != 0 => self.mixed += packets,
            Some(_) if sides != Entry::LEFT => self.passed += packets,
            None if sides != Entry::PASSED => self.mixed += packets,
            _ => {}
        }
        &mut self.rest
    }

    /// Packets that are in it.
    pub fn packets(&self) -> u64 {
        let entered = self.entered.as_ref().map_or(0, AnyResidual::packets);
        entered.saturating_add(self.rest.packets())
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.entered.as_ref().map_or(0, AnyResidual::bytes) + self.rest.bytes()
    }

    /// Whether tables know which flows may be in it, and it does not itself.
    pub fn is_known_by_tables(&self) -> bool {
        self.rest.kind() == Kind::Fermat
    }

    /// Whether a flow may have been put in, as far as filters of its own say it.
    fn may_hold(&self, hashes: &Hashes) -> bool {
        let mut parts = self.entered.iter().chain([&self.rest]);
        !self.is_known_by_tables() && parts.any(|part| part.may_hold(hashes))
    }

    /// Adds what another lcore of the same switch put into its own.
    pub fn merge(&mut self, other: &Self) {
        // Residuals of one switch have one shape: merging can't fail.
        if let (Some(entered), Some(of_other)) = (&mut self.entered, &other.entered) {
            let _ = entered.merge(of_other);
        }
        let _ = self.rest.merge(&other.rest);
        self.passed += other.passed;
        self.mixed += other.mixed;
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.entered.iter_mut().chain([&mut self.rest]).for_each(AnyResidual::clear);
        (self.passed, self.mixed) = (0, 0);
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_u8(out, self.entered.is_some().into());
        put_u64(out, self.passed);
        put_u64(out, self.mixed);
        self.entered.iter().chain([&self.rest]).for_each(|part| put_part(out, part));
    }

    fn read(body: &mut Body<'_>, kind: Kind, shape: Shape) -> Result<Self, DecodeError> {
        let is_edge = body.flag("whether what entered is apart")?;
        let offset = body.offset();
        let (passed, mixed) = (body.u64("passed packets")?, body.u64("mixed packets")?);
        let shape = part(shape, is_edge);
        let read = |body: &mut Body<'_>| match kind {
            Kind::Fermat => Ok(AnyResidual::Fermat(read_part(body, shape.buckets)?)),
            Kind::FlowRadar => Ok(AnyResidual::FlowRadar(flow_radar::read(body, shape)?)),
        };
        let entered = if is_edge { Some(read(body)?) } else { None };
        let rest: AnyResidual<K> = read(body)?;
        let of_rest = rest.packets();
        if passed.checked_add(mixed).is_none_or(|noted| noted > of_rest) {
            let why = format_args!("{passed} and {mixed} mixed ones, of {of_rest} in the rest");
            return Err(body.wrong(offset, "passed packets", why));
        }
        Ok(Self { entered, rest, passed, mixed })
    }
}

/// The shape of each part.
fn part(of: Shape, is_edge: bool) -> Shape {
    let parts = if is_edge { 2 } else { 1 };
    Shape { buckets: of.buckets / parts, filter_bits: of.filter_bits / parts }
}

/// Buckets an array of each part that has no filter.
fn fermat_part(buckets: u32, is_edge: bool) -> usize {
    part(Shape { buckets: buckets as usize, filter_bits: 0 }, is_edge).buckets
}

fn put_part<K: Key>(out: &mut Vec<u8>, part: &AnyResidual<K>) {
    let part = match part {
        AnyResidual::Fermat(part) => part,
        AnyResidual::FlowRadar(part) => return flow_radar::put(out, part),
    };
    let Contents { sums, bytes, packets } = part.contents();
    put_u64(out, packets);
    let words: Vec<u32> = sums.words().collect();
    let of_a_bucket = Fermat::<K>::words_of_a_bucket();
    for at in 0..of_a_bucket {
        put_words(out, 4, words[at..].iter().step_by(of_a_bucket).copied());
    }
    put_words(out, 4, bytes.iter().map(|&bytes| bytes as u32));
    put_words(out, 4, bytes.iter().map(|&bytes| (bytes >> 32) as u32));
}

fn read_part<K: Key>(body: &mut Body<'_>, buckets: usize) -> Result<Fermat<K>, DecodeError> {
    let start = body.offset();
    let packets = body.u64("packets of the residual")?;
    let (of_a_bucket, number) = (Fermat::<K>::words_of_a_bucket(), ARRAYS * buckets);
    let columns = 4 * (of_a_bucket + 2);
    if body.left() < columns {
        let why = format_args!("{columns} columns follow");
        return Err(body.wrong(start, "residual", why));
    }
    let offset = body.offset();
    let mut words = vec![0; of_a_bucket * number];
    for at in 0..of_a_bucket {
        let column = read_words(body, "sums of the residual", 4, number)?;
        let places = words[at..].iter_mut().step_by(of_a_bucket);
        places.zip(column).for_each(|(place, word)| *place = word);
    }
    let low = read_words(body, "bytes of the residual", 4, number)?;
    let high = read_words(body, "bytes of the residual", 4, number)?;
    let bytes = low.into_iter().zip(high);
    let bytes = bytes.map(|(low, high)| i64::from(low) | (i64::from(high as i32) << 32));
    let bytes: Vec<i64> = bytes.collect();
    let part = Fermat::from_contents(buckets, words, &bytes, packets);
    let part = part.map_err(|why: WordsError| body.wrong(offset, "sums of the residual", why))?;
    // Every packet is in a bucket of the first array.
    let counted = part.contents().sums.packets();
    if packets as i32 != counted as i32 {
        let why = format_args!("{packets}, but buckets have {counted}");
        return Err(body.wrong(start, "packets of the residual", why));
    }
    Ok(part)
}

/// The residual of a switch of either kind of keys, and which flows may be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncounted {
    /// Its packets.
    pub flows: AnyKey<Residuals>,
    /// Flows that its lcores' tables refused or evicted, of each one; none where the residual knows
    /// them itself.
    pub refused: Vec<Refused>,
}

impl Uncounted {
    /// Whether packets of a flow with these hashes may have had no entry.
    pub fn may_have(&self, hashes: &Hashes) -> bool {
        self.refused.iter().any(|of| of.contains(hashes))
            || either!(&self.flows, residual => residual.may_hold(hashes))
    }

    fn is_known_by_tables(&self) -> bool {
        either!(&self.flows, residual => residual.is_known_by_tables())
    }
}

/// [`Residual`]s, by their kind of keys.
#[derive(Debug)]
pub enum Residuals {}

impl Keyed for Residuals {
    type Of<K: Key> = Residual<K>;
}

pub(super) fn put(out: &mut Vec<u8>, uncounted: &Uncounted) {
    either!(&uncounted.flows, residual => residual.put(out));
    if uncounted.is_known_by_tables() {
        filters::put(out, &uncounted.refused);
    }
}

pub(super) fn read(
    body: &mut Body<'_>,
    keys: KeyKind,
    setup: &Setup,
    buckets: u32,
) -> Result<Uncounted, DecodeError> {
    let shape = setup.shape(buckets);
    let flows = match keys {
        KeyKind::Ipv4 => AnyKey::Ipv4(Residual::read(body, setup.kind, shape)?),
        KeyKind::Dual => AnyKey::Dual(Residual::read(body, setup.kind, shape)?),
    };
    let refused = match setup.kind {
        Kind::Fermat => filters::read(body, setup.filter_bits)?,
        Kind::FlowRadar => Vec::new(),
    };
    Ok(Uncounted { flows, refused })
}
