//! Every message, and how it is laid out in its frame.

use calumma_chamelemon::{Attention, Layout};
use calumma_epoch::Guards;
use calumma_sketch::{AnyKey, Encoders, FermatSketch, HashKey, Key, Keyed, TowerSketch, either};

use crate::body::{Body, put_text, put_u8, put_u16, put_u32, put_u64};
use crate::error::{DecodeError, Problem};
use crate::fields::{self, Defects, Holding, Marking, Outcome, SwitchKind};
use crate::frame::{LENGTH_BYTES, MAGIC, VERSION};
use crate::{MAX_NAME_BYTES, MAX_TEXT_BYTES, sketches};

/// Numbers of the kinds of frames. From the controller to a switch, the top bit is set.
mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const APPLIED: u8 = 0x02;
    pub(super) const INGRESS: u8 = 0x03;
    pub(super) const EGRESS: u8 = 0x04;
    pub(super) const SEALED: u8 = 0x05;
    pub(super) const ECHO: u8 = 0x06;
    pub(super) const WELCOME: u8 = 0x81;
    pub(super) const RECONFIGURE: u8 = 0x82;
    pub(super) const REFUSED: u8 = 0x83;
    pub(super) const PROBE: u8 = 0x84;
    pub(super) const REPORTED: u8 = 0x85;
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
        /// What it measures by already; none where it has just started.
        holding: Option<Holding>,
        /// How it marks and reads packets.
        marking: Marking,
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
    /// Switch: the answer to a probe, at once. All times are nanoseconds since the Unix epoch.
    Echo {
        /// The probe's own time.
        sent_ns: u64,
        /// When the probe was received, by the switch's clock.
        received_ns: u64,
        /// When this was sent, by the switch's clock.
        answered_ns: u64,
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
    /// Controller: what time is it there?
    Probe {
        /// When this was sent, in nanoseconds since the Unix epoch by the controller's clock.
        sent_ns: u64,
    },
    /// Controller: this epoch and all before it have been reported; the switch need not hold them
    /// for a controller to come.
    Reported {
        /// The epoch.
        epoch: u64,
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
    /// The upstream flow encoder, for keys of the layout's kind.
    pub upstream: AnyKey<Upstreams>,
}

/// An upstream flow encoder, and what the switch decoded of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream<K: Key> {
    /// The encoder.
    pub encoder: FermatSketch<K>,
    /// The HH flowset, ascending by key, where the switch decoded its HH encoder completely: each
    /// flow's packets in it, 1 to 2^31 - 1. The HH part of `encoder` is empty then.
    pub hh_flows: Option<Vec<(K, i64)>>,
}

impl<K: Key> Upstream<K> {
    /// An encoder of which the switch decoded nothing.
    pub fn undecoded(encoder: FermatSketch<K>) -> AnyKey<Upstreams> {
        K::any(Self { encoder, hh_flows: None })
    }
}

/// [`Upstream`]s.
#[derive(Debug)]
pub enum Upstreams {}

impl Keyed for Upstreams {
    type Of<K: Key> = Upstream<K>;
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
    /// The downstream flow encoder, for keys of the layout's kind.
    pub downstream: AnyKey<Encoders>,
}

/// What the frames of both sides begin with.
#[derive(Clone, Copy, Debug)]
pub struct SideHead<'a> {
    /// The epoch.
    pub epoch: u64,
    /// The attention that the edge measured under.
    pub attention: &'a Attention,
    /// What makes the measurement untrustworthy.
    pub defects: &'a Defects,
    /// Packets that were recorded.
    pub packets: u64,
    /// The switch's totals since it started, by name; only those that changed need to be there.
    pub counters: &'a [(String, u64)],
}

impl SideHead<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.epoch);
        fields::put_attention(out, self.attention);
        self.defects.encode(out);
        put_u64(out, self.packets);
        fields::put_counters(out, self.counters);
    }
}

/// Appends the frame of an ingress side without copying its sketches first. With `hh_flows`, all
/// that the HH encoder holds, its buckets are left out.
pub fn encode_ingress<K: Key>(
    out: &mut Vec<u8>,
    head: &SideHead,
    classifier: &TowerSketch,
    upstream: &FermatSketch<K>,
    hh_flows: Option<&[(K, i64)]>,
) {
    frame(out, kind::INGRESS, |out| {
        head.encode(out);
        sketches::put_tower(out, classifier);
        sketches::put_upstream(out, upstream, &head.attention.partition.hh_part(), hh_flows);
    });
}

/// Appends the frame of an egress side without copying its sketch first.
pub fn encode_egress<K: Key>(out: &mut Vec<u8>, head: &SideHead, downstream: &FermatSketch<K>) {
    frame(out, kind::EGRESS, |out| {
        head.encode(out);
        sketches::put_buckets(out, downstream, downstream.shape().buckets);
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
            Self::Echo { .. } => "echo",
            Self::Welcome { .. } => "welcome",
            Self::Reconfigure { .. } => "reconfigure",
            Self::Refused { .. } => "refused",
            Self::Probe { .. } => "probe",
            Self::Reported { .. } => "reported",
        }
    }

    /// Appends the message's frame. Texts and lists beyond their limits are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { edge, kind, program, holding, marking } => {
                frame(out, kind::HELLO, |out| {
                    put_text(out, edge, MAX_NAME_BYTES);
                    kind.encode(out);
                    put_text(out, program, MAX_TEXT_BYTES);
                    fields::put_holding(out, holding.as_ref());
                    marking.encode(out);
                })
            }
            Self::Applied { effective_epoch, outcome } => frame(out, kind::APPLIED, |out| {
                put_u64(out, *effective_epoch);
                outcome.encode(out);
            }),
            Self::Ingress(side) => {
                let head = SideHead {
                    epoch: side.epoch,
                    attention: &side.attention,
                    defects: &side.defects,
                    packets: side.packets_in,
                    counters: &side.counters,
                };
                fn encode<K: Key>(
                    out: &mut Vec<u8>,
                    head: &SideHead,
                    side: &Ingress,
                    upstream: &Upstream<K>,
                ) {
                    let Upstream { encoder, hh_flows } = upstream;
                    encode_ingress(out, head, &side.classifier, encoder, hh_flows.as_deref());
                }
                either!(&side.upstream, upstream => encode(out, &head, side, upstream))
            }
            Self::Egress(side) => {
                let head = SideHead {
                    epoch: side.epoch,
                    attention: &side.attention,
                    defects: &side.defects,
                    packets: side.packets_out,
                    counters: &side.counters,
                };
                either!(&side.downstream, downstream => encode_egress(out, &head, downstream))
            }
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
            Self::Echo { sent_ns, received_ns, answered_ns } => frame(out, kind::ECHO, |out| {
                [sent_ns, received_ns, answered_ns]
                    .into_iter()
                    .for_each(|&time| put_u64(out, time));
            }),
            Self::Probe { sent_ns } => frame(out, kind::PROBE, |out| put_u64(out, *sent_ns)),
            Self::Reported { epoch } => frame(out, kind::REPORTED, |out| put_u64(out, *epoch)),
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
                holding: fields::holding(body)?,
                marking: Marking::decode(body)?,
            },
            kind::APPLIED => Self::Applied {
                effective_epoch: body.u64("effective epoch")?,
                outcome: Outcome::decode(body)?,
            },
            kind::INGRESS => {
                let layout = layout.ok_or_else(|| body.error(Problem::NoLayout))?;
                let epoch = body.u64("epoch")?;
                let attention = fields::attention_on(layout, body)?;
                let defects = Defects::decode(body)?;
                let packets_in = body.u64("packets in")?;
                let counters = fields::counters(body)?;
                let classifier = sketches::tower("classifier", layout, body)?;
                let hh = attention.partition.hh_part();
                let upstream = sketches::any_upstream(layout, &hh, body)?;
                Self::Ingress(Box::new(Ingress {
                    epoch,
                    attention,
                    defects,
                    packets_in,
                    counters,
                    classifier,
                    upstream,
                }))
            }
            kind::EGRESS => {
                let layout = layout.ok_or_else(|| body.error(Problem::NoLayout))?;
                Self::Egress(Box::new(Egress {
                    epoch: body.u64("epoch")?,
                    attention: fields::attention_on(layout, body)?,
                    defects: Defects::decode(body)?,
                    packets_out: body.u64("packets out")?,
                    counters: fields::counters(body)?,
                    downstream: sketches::any_downstream(layout, body)?,
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
            kind::ECHO => Self::Echo {
                sent_ns: body.u64("time of the probe")?,
                received_ns: body.u64("time of its receipt")?,
                answered_ns: body.u64("time of the answer")?,
            },
            kind::PROBE => Self::Probe { sent_ns: body.u64("time of the probe")? },
            kind::REPORTED => Self::Reported { epoch: body.u64("epoch")? },
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
        kind::ECHO => "an echo frame",
        kind::PROBE => "a probe frame",
        kind::REPORTED => "a reported frame",
        _ => return None,
    })
}
