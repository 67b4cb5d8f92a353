//! Every message, and how it is laid out in its frame.

use calumma_epoch::Guards;
use calumma_sketch::{Attention, FermatSketch, HashKey, Layout, TowerSketch};

use crate::body::{Body, put_text, put_u8, put_u16, put_u32, put_u64};
use crate::error::{DecodeError, Problem};
use crate::fields::{self, Defects, Outcome, SwitchKind};
use crate::frame::{LENGTH_BYTES, MAGIC, VERSION};
use crate::{MAX_NAME_BYTES, MAX_TEXT_BYTES, sketches};

/// Numbers of the kinds of frames. From the controller to a switch, the top bit is set.
mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const APPLIED: u8 = 0x02;
    pub(super) const INGRESS: u8 = 0x03;
    pub(super) const EGRESS: u8 = 0x04;
    pub(super) const SEALED: u8 = 0x05;
    pub(super) const WELCOME: u8 = 0x81;
    pub(super) const RECONFIGURE: u8 = 0x82;
    pub(super) const REFUSED: u8 = 0x83;
}

/// What a switch and the controller say to each other. Epochs are numbered from the Unix epoch
/// ([`calumma_epoch::EpochClock`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Switch: who it is. The first frame of a connection.
    Hello {
        /// The edge's name, by which the controller expects it.
        edge: String,
        /// What kind of switch it is.
        kind: SwitchKind,
        /// Its program and version, for the operator.
        program: String,
    },
    /// Switch: what became of a reconfiguration.
    Applied {
        /// The epoch at which it was to take effect.
        effective_epoch: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// Switch: the ingress side of an epoch.
    Ingress(Box<Ingress>),
    /// Switch: the egress side of an epoch.
    Egress(Box<Egress>),
    /// Switch: no packet of the epoch can be recorded any more.
    Sealed {
        /// The epoch.
        epoch: u64,
        /// Packets that carried its timestamp bit after its egress group had been taken.
        late_packets: u64,
    },
    /// Controller: all that the switch measures by.
    Welcome {
        /// Memory of the sketches.
        layout: Layout,
        /// Secret from which the hash tables are drawn.
        hash_key: HashKey,
        /// Length of an epoch in nanoseconds.
        epoch_length_ns: u64,
        /// How long to wait at the edges of an epoch.
        guards: Guards,
        /// The attention to measure under.
        attention: Attention,
        /// The first epoch in which it holds.
        effective_epoch: u64,
    },
    /// Controller: attention that takes effect at an epoch.
    Reconfigure {
        /// The epoch.
        effective_epoch: u64,
        /// What holds from then on.
        attention: Attention,
    },
    /// Controller: this switch is not wanted; the connection closes.
    Refused {
        /// Why, and what to do about it.
        reason: String,
    },
}

/// The ingress side of an epoch at one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Ingress {
    /// The epoch.
    pub epoch: u64,
    /// The attention that the edge measured under.
    pub attention: Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that entered the network here and were recorded.
    pub packets_in: u64,
    /// The switch's totals since it started, by name.
    pub counters: Vec<(String, u64)>,
    /// The flow classifier.
    pub classifier: TowerSketch,
    /// The upstream flow encoder.
    pub upstream: FermatSketch,
}

/// The egress side of an epoch at one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct Egress {
    /// The epoch.
    pub epoch: u64,
    /// The attention that the edge measured under.
    pub attention: Attention,
    /// What makes the measurement untrustworthy.
    pub defects: Defects,
    /// Packets that left the network here and were recorded.
    pub packets_out: u64,
    /// The switch's totals since it started, by name.
    pub counters: Vec<(String, u64)>,
    /// The downstream flow encoder.
    pub downstream: FermatSketch,
}

/// Appends the frame of an ingress side without copying its sketches first.
#[expect(clippy::too_many_arguments, reason = "the fields of the frame, in its order")]
pub fn encode_ingress(
    out: &mut Vec<u8>,
    epoch: u64,
    attention: &Attention,
    defects: &Defects,
    packets_in: u64,
    counters: &[(String, u64)],
    classifier: &TowerSketch,
    upstream: &FermatSketch,
) {
    frame(out, kind::INGRESS, |out| {
        put_u64(out, epoch);
        fields::put_attention(out, attention);
        defects.encode(out);
        put_u64(out, packets_in);
        fields::put_counters(out, counters);
        sketches::put_tower(out, classifier);
        sketches::put_fermat(out, upstream);
    });
}

/// Appends the frame of an egress side without copying its sketch first.
pub fn encode_egress(
    out: &mut Vec<u8>,
    epoch: u64,
    attention: &Attention,
    defects: &Defects,
    packets_out: u64,
    counters: &[(String, u64)],
    downstream: &FermatSketch,
) {
    frame(out, kind::EGRESS, |out| {
        put_u64(out, epoch);
        fields::put_attention(out, attention);
        defects.encode(out);
        put_u64(out, packets_out);
        fields::put_counters(out, counters);
        sketches::put_fermat(out, downstream);
    });
}

/// Appends a frame around the body that `body` appends.
fn frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, 0);
    put_u16(out, MAGIC);
    put_u8(out, VERSION);
    put_u8(out, kind);
    body(out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

impl Message {
    /// The kind of the message, as errors and logs name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Applied { .. } => "applied",
            Self::Ingress(_) => "ingress",
            Self::Egress(_) => "egress",
            Self::Sealed { .. } => "sealed",
            Self::Welcome { .. } => "welcome",
            Self::Reconfigure { .. } => "reconfigure",
            Self::Refused { .. } => "refused",
        }
    }

    /// Appends the message's frame. Texts and lists beyond their limits are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { edge, kind, program } => frame(out, kind::HELLO, |out| {
                put_text(out, edge, MAX_NAME_BYTES);
                kind.encode(out);
                put_text(out, program, MAX_TEXT_BYTES);
            }),
            Self::Applied { effective_epoch, outcome } => frame(out, kind::APPLIED, |out| {
                put_u64(out, *effective_epoch);
                outcome.encode(out);
            }),
            Self::Ingress(side) => encode_ingress(
                out,
                side.epoch,
                &side.attention,
                &side.defects,
                side.packets_in,
                &side.counters,
                &side.classifier,
                &side.upstream,
            ),
            Self::Egress(side) => encode_egress(
                out,
                side.epoch,
                &side.attention,
                &side.defects,
                side.packets_out,
                &side.counters,
                &side.downstream,
            ),
            Self::Sealed { epoch, late_packets } => frame(out, kind::SEALED, |out| {
                put_u64(out, *epoch);
                put_u64(out, *late_packets);
            }),
            Self::Welcome {
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => frame(out, kind::WELCOME, |out| {
                fields::put_layout(out, layout);
                out.extend_from_slice(hash_key.as_bytes());
                put_u64(out, *epoch_length_ns);
                fields::put_guards(out, guards);
                fields::put_attention(out, attention);
                put_u64(out, *effective_epoch);
            }),
            Self::Reconfigure { effective_epoch, attention } => {
                frame(out, kind::RECONFIGURE, |out| {
                    put_u64(out, *effective_epoch);
                    fields::put_attention(out, attention);
                });
            }
            Self::Refused { reason } => {
                frame(out, kind::REFUSED, |out| put_text(out, reason, MAX_TEXT_BYTES));
            }
        }
    }

    /// The message of exactly one frame, its length field included. Sketches are read by `layout`;
    /// without one they are refused.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8], layout: Option<&Layout>) -> Result<Self, DecodeError> {
        let mut header = Body::new("a frame", bytes, 0);
        let length = header.u32("length")? as usize;
        if length != bytes.len() - LENGTH_BYTES {
            let why = format_args!("{length}, but {} bytes follow", bytes.len() - LENGTH_BYTES);
            return Err(header.wrong(0, "length", why));
        }
        let at = header.offset();
        let magic = header.u16("magic")?;
        if magic != MAGIC {
            return Err(header.error_at(at, Problem::Magic(magic)));
        }
        let at = header.offset();
        let (version, kind) = (header.u8("version")?, header.u8("kind")?);
        if version != VERSION && kind != kind::REFUSED {
            return Err(header.error_at(at, Problem::Version(version)));
        }
        let Some(name) = name_of(kind) else {
            return Err(header.error_at(header.offset() - 1, Problem::Kind(kind)));
        };
        let mut body = Body::new(name, bytes, header.offset());
        let message = Self::decode_body(kind, &mut body, layout)?;
        body.end()?;
        Ok(message)
    }

    fn decode_body(
        kind: u8,
        body: &mut Body,
        layout: Option<&Layout>,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::HELLO => Self::Hello {
                edge: body.text("name of the edge", MAX_NAME_BYTES)?,
                kind: SwitchKind::decode(body)?,
                program: body.text("program", MAX_TEXT_BYTES)?,
            },
            kind::APPLIED => Self::Applied {
                effective_epoch: body.u64("effective epoch")?,
                outcome: Outcome::decode(body)?,
            },
            kind::INGRESS => {
                let layout = layout.ok_or_else(|| body.error(Problem::NoLayout))?;
                Self::Ingress(Box::new(Ingress {
                    epoch: body.u64("epoch")?,
                    attention: fields::attention_on(layout, body)?,
                    defects: Defects::decode(body)?,
                    packets_in: body.u64("packets in")?,
                    counters: fields::counters(body)?,
                    classifier: sketches::tower("classifier", layout, body)?,
                    upstream: sketches::fermat("upstream encoder", layout.upstream_shape(), body)?,
                }))
            }
            kind::EGRESS => {
                let layout = layout.ok_or_else(|| body.error(Problem::NoLayout))?;
                let shape = layout.downstream_shape();
                Self::Egress(Box::new(Egress {
                    epoch: body.u64("epoch")?,
                    attention: fields::attention_on(layout, body)?,
                    defects: Defects::decode(body)?,
                    packets_out: body.u64("packets out")?,
                    counters: fields::counters(body)?,
                    downstream: sketches::fermat("downstream encoder", shape, body)?,
                }))
            }
            kind::SEALED => {
                Self::Sealed { epoch: body.u64("epoch")?, late_packets: body.u64("late packets")? }
            }
            kind::WELCOME => {
                let layout = fields::layout(body)?;
                Self::Welcome {
                    hash_key: HashKey::from_bytes(body.key("hash key")?),
                    epoch_length_ns: body.u64("epoch length")?,
                    guards: fields::guards(body)?,
                    attention: fields::attention_on(&layout, body)?,
                    effective_epoch: body.u64("effective epoch")?,
                    layout,
                }
            }
            kind::RECONFIGURE => Self::Reconfigure {
                effective_epoch: body.u64("effective epoch")?,
                attention: fields::attention(body)?,
            },
            kind::REFUSED => Self::Refused { reason: body.text("reason", MAX_TEXT_BYTES)? },
            other => return Err(body.error(Problem::Kind(other))),
        })
    }
}

/// A kind of frame with its article, for errors.
fn name_of(kind: u8) -> Option<&'static str> {
    Some(match kind {
        kind::HELLO => "a hello frame",
        kind::APPLIED => "an applied frame",
        kind::INGRESS => "an ingress frame",
        kind::EGRESS => "an egress frame",
        kind::SEALED => "a sealed frame",
        kind::WELCOME => "a welcome frame",
        kind::RECONFIGURE => "a reconfigure frame",
        kind::REFUSED => "a refused frame",
        _ => return None,
    })
}
