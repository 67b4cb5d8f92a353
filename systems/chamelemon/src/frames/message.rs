//! The messages of a conversation about ChameleMon, with their bodies decoded.

use calumma_epoch::Guards;
use calumma_plane::AnyStrays;
use calumma_plane::secret::{hash_key, secret};
use calumma_sketch::{AnyKey, FermatSketch, HashKey, Key, either};
use calumma_wire::{
    self as wire, DecodeError, Domain, Hello, Marking, Outcome, Problem, Role, Side, SideKind,
    SwitchKind, SystemSetup, Welcome,
};

use super::side::{self, Egress, EgressSide, Ingress, IngressSide};
use super::{
    Holding, ID, OFFER, decode_late, decode_plan, decode_setup, encode_plan, encode_setup,
};
use crate::{Attention, Layout};

/// What an edge and the controller send to each other about ChameleMon: the messages of the
/// [envelope](wire::Message) with the bodies of this system read.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Edge: who it is, and that it runs ChameleMon.
    Hello {
        /// The edge's name.
        edge: String,
        /// What kind of switch it is.
        kind: SwitchKind,
        /// Its program and version.
        program: String,
        /// What it measures by already; none where it has just started.
        holding: Option<Holding>,
        /// How it marks and reads packets.
        marking: Marking,
    },
    /// Edge: what became of a reconfiguration.
    Applied {
        /// The epoch at which it was to take effect.
        effective_epoch: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// Edge: the ingress side of an epoch.
    Ingress(Box<Ingress>),
    /// Edge: the egress side of an epoch.
    Egress(Box<Egress>),
    /// Edge: no packet of the epoch can be recorded any more.
    Sealed {
        /// The epoch.
        epoch: u64,
        /// Packets that carried its timestamp bit after its egress group had been taken.
        late_packets: u64,
        /// What is known of them beyond their number, for [`decode_late`] to read; empty where that
        /// is nothing.
        late: Vec<u8>,
    },
    /// Controller: all that the edge measures by.
    Welcome {
        /// The version of the bodies that it is to write.
        version: u8,
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
    /// Edge: the answer to a probe; as in the envelope.
    Echo {
        /// The probe's own time.
        sent_ns: u64,
        /// When the probe was received.
        received_ns: u64,
        /// When this was sent.
        answered_ns: u64,
    },
    /// Controller: as in the envelope.
    Refused {
        /// Why, and what to do about it.
        reason: String,
    },
    /// Controller: as in the envelope.
    Probe {
        /// When this was sent.
        sent_ns: u64,
    },
    /// Controller: as in the envelope.
    Reported {
        /// The epoch.
        epoch: u64,
    },
}

impl Message {
    /// A message with its body read; `None` where it is about other systems. The bodies of sides
    /// are read by `layout`; without one they are refused.
    ///
    /// # Errors
    /// The first byte of the body that can't be read, and why.
    pub fn read(
        message: wire::Message,
        layout: Option<&Layout>,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match message {
            wire::Message::Hello(hello) => {
                if !hello.systems.iter().any(|offer| offer.system == ID) {
                    return Ok(None);
                }
                let holding = hello.holding.iter().find(|(system, _)| *system == ID);
                Self::Hello {
                    edge: hello.node,
                    kind: hello.kind,
                    program: hello.program,
                    holding: holding.map(|(_, bytes)| Holding::decode(bytes)).transpose()?,
                    marking: hello.marking,
                }
            }
            wire::Message::Applied { system: ID, effective_epoch, outcome } => {
                Self::Applied { effective_epoch, outcome }
            }
            wire::Message::Side(side) if side.system == ID => {
                let layout = layout.ok_or_else(no_layout)?;
                match side.side {
                    SideKind::Ingress => Self::Ingress(Box::new(side::ingress(*side, layout)?)),
                    SideKind::Egress => Self::Egress(Box::new(side::egress(*side, layout)?)),
                    SideKind::Transit | SideKind::Host => return Ok(None),
                }
            }
            wire::Message::Sealed { system: ID, epoch, late_packets, body: late } => {
                if !late.is_empty() {
                    decode_late(layout.ok_or_else(no_layout)?.keys, &late)?;
                }
                Self::Sealed { epoch, late_packets, late }
            }
            wire::Message::Welcome(welcome) => {
                let Some(of) = welcome.systems.iter().find(|of| of.system == ID) else {
                    return Ok(None);
                };
                Self::Welcome {
                    version: of.version,
                    layout: decode_setup(&of.setup)?,
                    hash_key: hash_key(&welcome.hash_key),
                    epoch_length_ns: welcome.epoch_length_ns,
                    guards: welcome.guards,
                    attention: decode_plan(&of.plan)?,
                    effective_epoch: welcome.effective_epoch,
                }
            }
            wire::Message::Reconfigure { system: ID, effective_epoch, plan } => {
                Self::Reconfigure { effective_epoch, attention: decode_plan(&plan)? }
            }
            wire::Message::Echo { sent_ns, received_ns, answered_ns } => {
                Self::Echo { sent_ns, received_ns, answered_ns }
            }
            wire::Message::Refused { reason } => Self::Refused { reason },
            wire::Message::Probe { sent_ns } => Self::Probe { sent_ns },
            wire::Message::Reported { epoch } => Self::Reported { epoch },
            wire::Message::Applied { .. }
            | wire::Message::Side(_)
            | wire::Message::Sealed { .. }
            | wire::Message::Notice { .. }
            | wire::Message::Reconfigure { .. }
            | wire::Message::PathsSeen(_)
            | wire::Message::PathsWanted(_) => return Ok(None),
        }))
    }

    /// The message in its envelope.
    pub fn to_wire(&self) -> wire::Message {
        match self.clone() {
            Self::Hello { edge, kind, program, holding, marking } => {
                wire::Message::Hello(Box::new(Hello {
                    node: edge,
                    role: Role::Edge,
                    kind,
                    program,
                    marking,
                    systems: vec![OFFER],
                    holding: holding.iter().map(|holding| (ID, holding.encode())).collect(),
                }))
            }
            Self::Applied { effective_epoch, outcome } => {
                wire::Message::Applied { system: ID, effective_epoch, outcome }
            }
            Self::Ingress(side) => wire::Message::Side(Box::new(ingress_to_wire(&side))),
            Self::Egress(side) => wire::Message::Side(Box::new(egress_to_wire(&side))),
            Self::Sealed { epoch, late_packets, late } => {
                wire::Message::Sealed { system: ID, epoch, late_packets, body: late }
            }
            Self::Welcome {
                version,
                layout,
                hash_key,
                epoch_length_ns,
                guards,
                attention,
                effective_epoch,
            } => wire::Message::Welcome(Box::new(Welcome {
                node_id: None,
                hash_key: secret(&hash_key),
                epoch_length_ns,
                guards,
                effective_epoch,
                systems: vec![setup(&layout, &attention, version)],
                domain: Domain::default(),
                carrier: None,
            })),
            Self::Reconfigure { effective_epoch, attention } => wire::Message::Reconfigure {
                system: ID,
                effective_epoch,
                plan: encode_plan(&attention),
            },
            Self::Echo { sent_ns, received_ns, answered_ns } => {
                wire::Message::Echo { sent_ns, received_ns, answered_ns }
            }
            Self::Refused { reason } => wire::Message::Refused { reason },
            Self::Probe { sent_ns } => wire::Message::Probe { sent_ns },
            Self::Reported { epoch } => wire::Message::Reported { epoch },
        }
    }

    /// Appends the message's frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.to_wire().encode(out);
    }

    /// The message of exactly one frame; see [`read`](Self::read).
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8], layout: Option<&Layout>) -> Result<Option<Self>, DecodeError> {
        Self::read(wire::Message::decode(bytes)?, layout)
    }
}

/// ChameleMon's setup in a welcome, for a switch that writes bodies of `version`.
pub fn setup(layout: &Layout, attention: &Attention, version: u8) -> SystemSetup {
    let (setup, plan) = (encode_setup(layout), encode_plan(attention));
    SystemSetup { system: ID, version, setup, plan }
}

fn no_layout() -> DecodeError {
    let why = "sketches can't be read before it is agreed on".to_owned();
    let problem = Problem::Value { field: "layout", why };
    DecodeError { offset: 0, frame: "a side", problem }
}

fn ingress_to_wire(side: &Ingress) -> Side {
    let wire = either!(&side.upstream, upstream => {
        IngressSide {
            epoch: side.epoch,
            attention: &side.attention,
            defects: side.defects,
            packets: side.packets_in,
            classifier: &side.classifier,
            upstream: &upstream.encoder,
            balance: side.balance,
            key: side.key,
            lcores: side.lcores,
        }
        .to_wire(upstream.hh_flows.as_deref())
    });
    Side { counters: side.counters.clone(), ..wire }
}

fn egress_to_wire(side: &Egress) -> Side {
    match &side.downstream {
        AnyKey::Ipv4(downstream) => egress_of(side, downstream),
        AnyKey::Dual(downstream) => egress_of(side, downstream),
    }
}

fn egress_of<K: Key>(side: &Egress, downstream: &FermatSketch<K>) -> Side {
    let of_keys = |strays: &Option<AnyKey<AnyStrays>>| strays.as_ref()?.get::<K>().cloned();
    let wire = EgressSide {
        epoch: side.epoch,
        attention: &side.attention,
        defects: side.defects,
        packets: side.packets_out,
        downstream,
        balance: side.balance,
        strays: of_keys(&side.strays),
        unmarked: of_keys(&side.unmarked),
        key: side.key,
    }
    .to_wire();
    Side { counters: side.counters.clone(), ..wire }
}

/// Takes messages about ChameleMon out of a stream of bytes, and skips those about other systems.
#[derive(Debug, Default)]
pub struct FrameReader(wire::FrameReader);

impl FrameReader {
    /// A reader of frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// The next message, `None` where bytes of it are still to come; see [`Message::read`].
    ///
    /// # Errors
    /// As [`Message::decode`].
    pub fn next(&mut self, layout: Option<&Layout>) -> Result<Option<Message>, DecodeError> {
        while let Some(message) = self.0.next_message()? {
            if let Some(message) = Message::read(message, layout)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// The protocol version of the last message.
    pub fn version(&self) -> u8 {
        self.0.version()
    }

    /// Bytes of the last message's frame.
    pub fn frame_bytes(&self) -> usize {
        self.0.frame_bytes()
    }
}
