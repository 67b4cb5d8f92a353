//! Groups of fields that several messages share.

use calumma_chamelemon::{Attention, Layout, Partition, SampleRate};
use calumma_epoch::Guards;
use calumma_sketch::{Arithmetic, Insertion, KeyKind, Level, tower};

use crate::body::{Body, put_text, put_u8, put_u16, put_u32, put_u64};
use crate::error::DecodeError;
use crate::frame::check_layout;
use crate::{MAX_COUNTERS, MAX_NAME_BYTES, MAX_TEXT_BYTES};

/// What kind of switch an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SwitchKind {
    /// `calumma-edge`, on DPDK.
    Software = 0,
    /// A Tofino, behind `calumma-switchd`.
    Tofino = 1,
}

impl SwitchKind {
    /// The name used in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Tofino => "tofino",
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u8(out, self as u8);
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        let offset = body.offset();
        match body.u8("kind of switch")? {
            0 => Ok(Self::Software),
            1 => Ok(Self::Tofino),
            other => Err(body.wrong(offset, "kind of switch", format_args!("{other} is unknown"))),
        }
    }
}

/// What makes an edge's measurement of an epoch untrustworthy. All zero in a sound epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Defects {
    /// Packets that carried a hierarchy without buckets in this epoch: marked by a switch under
    /// another attention, or by no switch of this deployment.
    pub foreign_packets: u64,
    /// By how much a step of the rotation came later than the guards allow, in nanoseconds; else 0.
    pub stall_ns: u64,
    /// Whether the switch's lcores measured under different attention.
    pub mixed_attention: bool,
}

impl Defects {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.foreign_packets);
        put_u64(out, self.stall_ns);
        put_u8(out, self.mixed_attention.into());
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            foreign_packets: body.u64("foreign packets")?,
            stall_ns: body.u64("stall")?,
            mixed_attention: body.flag("mixed attention")?,
        })
    }
}

/// What became of a reconfiguration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It will take effect at its epoch.
    Accepted,
    /// The configuration of its epoch is frozen already.
    TooLate {
        /// The first epoch that can still be changed.
        earliest: u64,
    },
    /// It can't hold on this switch.
    Invalid {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Accepted => put_u8(out, 0),
            Self::TooLate { earliest } => {
                put_u8(out, 1);
                put_u64(out, *earliest);
            }
            Self::Invalid { reason } => {
                put_u8(out, 2);
                put_text(out, reason, MAX_TEXT_BYTES);
            }
        }
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        let offset = body.offset();
        match body.u8("outcome")? {
            0 => Ok(Self::Accepted),
            1 => Ok(Self::TooLate { earliest: body.u64("earliest epoch")? }),
            2 => Ok(Self::Invalid { reason: body.text("reason", MAX_TEXT_BYTES)? }),
            other => Err(body.wrong(offset, "outcome", format_args!("{other} is unknown"))),
        }
    }
}

/// How a switch marks packets and reads them, in words that are the same where switches do the same: what
/// all switches of a deployment must agree on beside what the controller tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Where packets carry their mark: `tos`, `signed tos`, `flow-label`, or `shim` and its EtherType.
    pub carrier: String,
    /// By which header packets in tunnels are measured: `outer` or `inner`.
    pub tunnels: String,
}

impl Default for Marking {
    /// What every kind of switch can: in the ToS byte or traffic class, and the outer header.
    fn default() -> Self {
        Self { carrier: "tos".to_owned(), tunnels: "outer".to_owned() }
    }
}

impl Marking {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.carrier, MAX_NAME_BYTES);
        put_text(out, &self.tunnels, MAX_NAME_BYTES);
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            carrier: body.text("carrier", MAX_NAME_BYTES)?,
            tunnels: body.text("tunnels", MAX_NAME_BYTES)?,
        })
    }
}

/// What a switch that connects measures by already, so that a controller which has just started
/// begins with what holds instead of changing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The attention it was told last.
    pub attention: Attention,
    /// The epoch from which it holds.
    pub effective_epoch: u64,
}

pub(crate) fn put_holding(out: &mut Vec<u8>, holding: Option<&Holding>) {
    put_u8(out, holding.is_some().into());
    if let Some(holding) = holding {
        put_attention(out, &holding.attention);
        put_u64(out, holding.effective_epoch);
    }
}

/// What a switch holds, not yet checked against a layout.
pub(crate) fn holding(body: &mut Body) -> Result<Option<Holding>, DecodeError> {
    if !body.flag("whether it measures already")? {
        return Ok(None);
    }
    let attention = attention(body)?;
    Ok(Some(Holding { attention, effective_epoch: body.u64("effective epoch")? }))
}

pub(crate) fn put_attention(out: &mut Vec<u8>, attention: &Attention) {
    put_u32(out, attention.t_h);
    put_u32(out, attention.t_l);
    put_u32(out, attention.sample_rate.threshold());
    put_u32(out, attention.partition.hh);
    put_u32(out, attention.partition.hl);
    put_u32(out, attention.partition.ll);
}

/// The attention, not yet checked against a layout.
pub(crate) fn attention(body: &mut Body) -> Result<Attention, DecodeError> {
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
pub(crate) fn attention_on(layout: &Layout, body: &mut Body) -> Result<Attention, DecodeError> {
    let offset = body.offset();
    let attention = attention(body)?;
    attention.validate(layout).map_err(|error| body.wrong(offset, "attention", error))?;
    Ok(attention)
}

pub(crate) fn put_guards(out: &mut Vec<u8>, guards: &Guards) {
    put_u64(out, guards.clock_ns);
    put_u64(out, guards.flight_ns);
}

pub(crate) fn guards(body: &mut Body) -> Result<Guards, DecodeError> {
    Ok(Guards { clock_ns: body.u64("clock guard")?, flight_ns: body.u64("flight guard")? })
}

pub(crate) fn put_layout(out: &mut Vec<u8>, layout: &Layout) {
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
pub(crate) fn layout(body: &mut Body) -> Result<Layout, DecodeError> {
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

pub(crate) fn put_counters(out: &mut Vec<u8>, counters: &[(String, u64)]) {
    let counters = &counters[..counters.len().min(MAX_COUNTERS)];
    put_u16(out, counters.len() as u16);
    for (name, value) in counters {
        put_text(out, name, MAX_NAME_BYTES);
        put_u64(out, *value);
    }
}

pub(crate) fn counters(body: &mut Body) -> Result<Vec<(String, u64)>, DecodeError> {
    let offset = body.offset();
    let number = usize::from(body.u16("number of counters")?);
    if number > MAX_COUNTERS {
        let why = format_args!("{number}, at most {MAX_COUNTERS} are allowed");
        return Err(body.wrong(offset, "number of counters", why));
    }
    (0..number)
        .map(|_| Ok((body.text("name of a counter", MAX_NAME_BYTES)?, body.u64("counter")?)))
        .collect()
}
