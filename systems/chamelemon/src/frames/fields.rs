//! Fields of ChameleMon's bodies: layout, attention and what a switch holds.

use calumma_sketch::{Arithmetic, Insertion, KeyKind, Level, tower};
use calumma_wire::body::{Body, put_u8, put_u32, put_u64};
use calumma_wire::{DecodeError, MAX_COUNTERS, MAX_FRAME_BYTES, MAX_NAME_BYTES};

use super::records;
use super::sketches::{most_fermat_bytes, most_tower_bytes};
use crate::{Attention, Layout, Partition, SampleRate};

/// What makes an edge's measurement of an epoch untrustworthy. All zero in a sound epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Defects {
    /// Packets that carried a hierarchy without buckets in this epoch: marked by a switch under
    /// another attention, or by no switch of this deployment.
    pub foreign_packets: u64,
    /// By how much a step of the rotation came later than the guards allow, in nanoseconds; else
    /// 0.
    pub stall_ns: u64,
    /// Whether the switch's lcores measured under different attention.
    pub mixed_attention: bool,
}

impl Defects {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a switch that connects measures by already, so that a controller which has just started
/// begins with what holds instead of changing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The attention it accepted last.
    pub attention: Attention,
    /// The epoch from which it holds.
    pub effective_epoch: u64,
}

impl Holding {
    /// The bytes of it in a hello.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_attention(&mut out, &self.attention);
        put_u64(&mut out, self.effective_epoch);
        out
    }

    /// What a switch holds, not yet checked against a layout.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("what a switch holds", bytes, 0);
        let attention = attention(&mut body)?;
        let holding = Self { attention, effective_epoch: body.u64("effective epoch")? };
        body.end()?;
        Ok(holding)
    }
}

/// The bytes of an attention in a plan.
pub fn encode_plan(attention: &Attention) -> Vec<u8> {
    let mut out = Vec::new();
    put_attention(&mut out, attention);
    out
}

/// The attention of a plan, not yet checked against a layout.
///
/// # Errors
/// The first byte that can't be read, and why.
pub fn decode_plan(bytes: &[u8]) -> Result<Attention, DecodeError> {
    let mut body = Body::new("a plan", bytes, 0);
    let attention = attention(&mut body)?;
    body.end()?;
    Ok(attention)
}

/// The bytes of a layout in a setup.
pub fn encode_setup(layout: &Layout) -> Vec<u8> {
    let mut out = Vec::new();
    put_layout(&mut out, layout);
    out
}

/// The layout of a setup: one that sketches can be built by and frames can hold.
///
/// # Errors
/// The first byte that can't be read, and why.
pub fn decode_setup(bytes: &[u8]) -> Result<Layout, DecodeError> {
    let mut body = Body::new("a setup", bytes, 0);
    let layout = layout(&mut body)?;
    body.end()?;
    Ok(layout)
}

/// Checks that sketches of `layout` can be built and that a frame has room for them.
///
/// # Errors
/// What doesn't fit and what to lower.
pub fn check_layout(layout: &Layout) -> Result<(), String> {
    layout.validate().map_err(|error| error.to_string())?;
    let counters = MAX_COUNTERS * (MAX_NAME_BYTES + 10);
    let most = most_fermat_bytes(layout)
        .saturating_add(most_tower_bytes(layout))
        .saturating_add(counters + records::most_bytes() + 1024);
    if most > MAX_FRAME_BYTES {
        return Err(format!(
            "a frame with these sketches takes up to {most} bytes, at most {MAX_FRAME_BYTES} are \
             allowed: lower upstream_buckets or the classifier's counters"
        ));
    }
    Ok(())
}

pub(super) fn put_attention(out: &mut Vec<u8>, attention: &Attention) {
    put_u32(out, attention.t_h);
    put_u32(out, attention.t_l);
    put_u32(out, attention.sample_rate.threshold());
    put_u32(out, attention.partition.hh);
    put_u32(out, attention.partition.hl);
    put_u32(out, attention.partition.ll);
}

/// The attention, not yet checked against a layout.
fn attention(body: &mut Body) -> Result<Attention, DecodeError> {
    let (t_h, t_l) = (body.u32("t_h")?, body.u32("t_l")?);
    let offset = body.offset();
    let sample_rate = SampleRate::from_threshold(body.u32("sample rate")?)
        .map_err(|error| body.wrong(offset, "sample rate", error))?;
    let partition = Partition {
        hh: body.u32("hh buckets")?,
        hl: body.u32("hl buckets")?,
        ll: body.u32("ll buckets")?,
    };
    Ok(Attention { t_h, t_l, sample_rate, partition })
}

/// The attention that a switch of `layout` measured under.
pub(super) fn attention_on(layout: &Layout, body: &mut Body) -> Result<Attention, DecodeError> {
    let offset = body.offset();
    let attention = attention(body)?;
    attention.validate(layout).map_err(|error| body.wrong(offset, "attention", error))?;
    Ok(attention)
}

fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
    put_u8(
        out,
        match layout.arithmetic {
            Arithmetic::Prime => 0,
            Arithmetic::Wrapping => 1,
        },
    );
    put_u8(
        out,
        match layout.keys {
            KeyKind::Ipv4 => 0,
            KeyKind::Dual => 1,
        },
    );
    put_u8(out, layout.fingerprint.into());
    put_u32(out, layout.arrays);
    put_u32(out, layout.upstream_buckets);
    put_u32(out, layout.downstream_buckets);
    put_u8(out, layout.classifier.len() as u8);
    for level in &layout.classifier {
        put_u32(out, level.bits);
        put_u32(out, level.counters);
    }
    put_u8(
        out,
        match layout.insertion {
            Insertion::Cm => 0,
            Insertion::Cu => 1,
        },
    );
}

/// A layout that sketches can be built by and frames can hold.
fn layout(body: &mut Body) -> Result<Layout, DecodeError> {
    let start = body.offset();
    let arithmetic = match body.u8("arithmetic")? {
        0 => Arithmetic::Prime,
        1 => Arithmetic::Wrapping,
        other => return Err(body.wrong(start, "arithmetic", format_args!("{other} is unknown"))),
    };
    let offset = body.offset();
    let keys = match body.u8("kind of keys")? {
        0 => KeyKind::Ipv4,
        1 => KeyKind::Dual,
        other => {
            return Err(body.wrong(offset, "kind of keys", format_args!("{other} is unknown")));
        }
    };
    let fingerprint = body.flag("fingerprint")?;
    let arrays = body.u32("arrays")?;
    let upstream_buckets = body.u32("upstream buckets")?;
    let downstream_buckets = body.u32("downstream buckets")?;
    let offset = body.offset();
    let levels = usize::from(body.u8("counter arrays")?);
    if levels > tower::MAX_LEVELS {
        let why = format_args!("{levels}, at most {} are allowed", tower::MAX_LEVELS);
        return Err(body.wrong(offset, "counter arrays", why));
    }
    let mut classifier = Vec::with_capacity(levels);
    for _ in 0..levels {
        classifier.push(Level::new(body.u32("bits of a counter")?, body.u32("counters")?));
    }
    let offset = body.offset();
    let insertion = match body.u8("insertion")? {
        0 => Insertion::Cm,
        1 => Insertion::Cu,
        other => return Err(body.wrong(offset, "insertion", format_args!("{other} is unknown"))),
    };
    let layout = Layout {
        keys,
        arithmetic,
        fingerprint,
        arrays,
        upstream_buckets,
        downstream_buckets,
        classifier,
        insertion,
    };
    check_layout(&layout).map_err(|why| body.wrong(start, "layout", why))?;
    Ok(layout)
}
