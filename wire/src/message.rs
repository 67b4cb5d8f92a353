//! Every message, and how it is laid out in its frame.

use std::fmt;

use calumma_epoch::Guards;

use crate::body::{Body, put_bytes, put_text, put_u8, put_u16, put_u32, put_u64};
use crate::domain::Domain;
use crate::error::{DecodeError, Problem};
use crate::fields::{self, Marking, Outcome, Role, SideKind, SwitchKind};
use crate::frame::{LENGTH_BYTES, MAGIC, OLDEST_VERSION, VERSION};
use crate::paths::{PathsSeen, PathsWanted};
use crate::system::{Offer, SystemId, SystemSetup};
use crate::{MAX_NAME_BYTES, MAX_TEXT_BYTES, v5};

/// Numbers of the kinds of frames. From the controller to a switch, the top bit is set.
pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 0x01;
    pub(crate) const APPLIED: u8 = 0x02;
    pub(crate) const SIDE: u8 = 0x03;
    pub(crate) const SEALED: u8 = 0x05;
    pub(crate) const ECHO: u8 = 0x06;
    pub(crate) const PATHS_SEEN: u8 = 0x07;
    pub(crate) const NOTICE: u8 = 0x08;
    pub(crate) const PART: u8 = 0x09;
    pub(crate) const WELCOME: u8 = 0x81;
    pub(crate) const RECONFIGURE: u8 = 0x82;
    pub(crate) const REFUSED: u8 = 0x83;
    pub(crate) const PROBE: u8 = 0x84;
    pub(crate) const REPORTED: u8 = 0x85;
    pub(crate) const PATHS_WANTED: u8 = 0x86;
}

/// What a node and the controller send to each other. Epochs are numbered from the Unix epoch
/// ([`calumma_epoch::EpochClock`]).
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Node: who it is. The first frame of a connection.
    Hello(Box<Hello>),
    /// Node: what became of a reconfiguration.
    Applied {
        /// The system that was to be reconfigured.
        system: SystemId,
        /// The epoch at which it was to take effect.
        effective_epoch: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// Node: what a system recorded on one side in an epoch.
    Side(Box<Side>),
    /// Node: no packet of the epoch can be recorded any more.
    Sealed {
        /// The system.
        system: SystemId,
        /// The epoch.
        epoch: u64,
        /// Packets of the epoch that came too late to be recorded.
        late_packets: u64,
        /// What else is known of them, in the system's own format; often empty.
        body: Vec<u8>,
    },
    /// Node: what a system reports before its epoch is over, to a controller that reads notices of
    /// that system in the version it runs; it is in the side again. Lost without a connection.
    Notice {
        /// The system.
        system: SystemId,
        /// The epoch; of a system that sums over windows, the window's first.
        epoch: u64,
        /// What is reported, in the system's own format.
        body: Vec<u8>,
    },
    /// Node: the answer to a probe, at once. All times are nanoseconds since the Unix epoch.
    Echo {
        /// The probe's own time.
        sent_ns: u64,
        /// When the probe was received, by the node's clock.
        received_ns: u64,
        /// When this was sent, by the node's clock.
        answered_ns: u64,
    },
    /// Edge: what it has seen of the paths to it; to a controller that wants it.
    PathsSeen(Box<PathsSeen>),
    /// Controller: all that the node measures by.
    Welcome(Box<Welcome>),
    /// Controller: a plan that takes effect at an epoch.
    Reconfigure {
        /// The system.
        system: SystemId,
        /// The epoch.
        effective_epoch: u64,
        /// What holds from then on, in the system's own format.
        plan: Vec<u8>,
    },
    /// Controller: this node is not wanted; the connection closes.
    Refused {
        /// Why, and what to do about it.
        reason: String,
    },
    /// Controller: what time is it there?
    Probe {
        /// When this was sent, in nanoseconds since the Unix epoch by the controller's clock.
        sent_ns: u64,
    },
    /// Controller: this epoch and all before it have been reported; the node need not hold them for
    /// a controller to come.
    Reported {
        /// The epoch.
        epoch: u64,
    },
    /// Controller: what it wants to know of paths; to an edge that offers [`SystemId::PROBES`].
    PathsWanted(Box<PathsWanted>),
}

/// Who a node is, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node's name, by which the controller expects it.
    pub node: String,
    /// What it does in the network.
    pub role: Role,
    /// What kind of switch it is.
    pub kind: SwitchKind,
    /// Its program and version, for the operator.
    pub program: String,
    /// How it marks and reads packets.
    pub marking: Marking,
    /// The systems that it can run.
    pub systems: Vec<Offer>,
    /// What it measures by already, in each system's own format; empty where it has just started.
    pub holding: Vec<(SystemId, Vec<u8>)>,
}

/// All that a node measures by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The node's number, never 0; `None` from a controller that gives out none.
    pub node_id: Option<u16>,
    /// Secret from which hash functions are drawn.
    pub hash_key: Secret,
    /// Length of an epoch in nanoseconds.
    pub epoch_length_ns: u64,
    /// How long to wait at the edges of an epoch.
    pub guards: Guards,
    /// The first epoch in which the plans hold.
    pub effective_epoch: u64,
    /// The systems to run.
    pub systems: Vec<SystemSetup>,
    /// Whose packets are measured.
    pub domain: Domain,
    /// By which carrier packets are marked, in the words of [`Marking::carrier`]; `None` where the
    /// controller does not choose.
    pub carrier: Option<String>,
}

/// The secret of a deployment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    /// What hash functions are drawn from.
    pub key: [u8; 32],
    /// The generators of the CRCs in them.
    pub generators: Generators,
}

/// Where the generators of the CRCs that keys are compressed by come from (docs/contract.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generators {
    /// They are CRC-32C's and CRC-32's, as in releases that speak version 5.
    Public,
    /// They are drawn from the key.
    Secret,
}

impl Secret {
    /// A key from which generators are drawn as well.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, generators: Generators::Secret }
    }
}

impl fmt::Debug for Secret {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a system recorded on one side of a node in an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The system.
    pub system: SystemId,
    /// The epoch.
    pub epoch: u64,
    /// Which side.
    pub side: SideKind,
    /// By how much a step of the rotation came later than the guards allow, in nanoseconds, where
    /// packets of this epoch or window and another may be mixed by it; else 0.
    pub stall_ns: u64,
    /// Packets that were recorded.
    pub packets: u64,
    /// The node's totals since it started, by name; only those that changed need to be there.
    pub counters: Vec<(String, u64)>,
    /// What was recorded, in the system's own format.
    pub body: Vec<u8>,
}

/// Appends a frame of `version` around the body that `body` appends.
pub(crate) fn frame(out: &mut Vec<u8>, version: u8, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, 0);
    put_u16(out, MAGIC);
    put_u8(out, version);
    put_u8(out, kind);
    body(out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

impl Message {
    /// The kind of the message, as errors and logs name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Applied { .. } => "applied",
            Self::Side(side) => side.side.name(),
            Self::Sealed { .. } => "sealed",
            Self::Notice { .. } => "notice",
            Self::Echo { .. } => "echo",
            Self::Welcome(_) => "welcome",
            Self::Reconfigure { .. } => "reconfigure",
            Self::Refused { .. } => "refused",
            Self::Probe { .. } => "probe",
            Self::Reported { .. } => "reported",
            Self::PathsSeen(_) => "paths seen",
            Self::PathsWanted(_) => "paths wanted",
        }
    }

    /// Appends the message's frame in this crate's [`VERSION`]. Texts and lists beyond their limits
    /// are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let frame = |out, kind, body: &dyn Fn(&mut Vec<u8>)| frame(out, VERSION, kind, body);
        match self {
            Self::Hello(hello) => frame(out, kind::HELLO, &|out| {
                put_text(out, &hello.node, MAX_NAME_BYTES);
                hello.role.encode(out);
                hello.kind.encode(out);
                put_text(out, &hello.program, MAX_TEXT_BYTES);
                hello.marking.encode(out);
                fields::put_offers(out, &hello.systems);
                fields::put_holding(out, &hello.holding);
            }),
            Self::Applied { system, effective_epoch, outcome } => {
                frame(out, kind::APPLIED, &|out| {
                    fields::put_system(out, *system);
                    put_u64(out, *effective_epoch);
                    outcome.encode(out);
                });
            }
            Self::Side(side) => frame(out, kind::SIDE, &|out| {
                fields::put_system(out, side.system);
                put_u64(out, side.epoch);
                side.side.encode(out);
                put_u64(out, side.stall_ns);
                put_u64(out, side.packets);
                fields::put_counters(out, &side.counters);
                out.extend_from_slice(&side.body);
            }),
            Self::Sealed { system, epoch, late_packets, body } => {
                frame(out, kind::SEALED, &|out| {
                    fields::put_system(out, *system);
                    put_u64(out, *epoch);
                    put_u64(out, *late_packets);
                    out.extend_from_slice(body);
                });
            }
            Self::Notice { system, epoch, body } => frame(out, kind::NOTICE, &|out| {
                fields::put_system(out, *system);
                put_u64(out, *epoch);
                out.extend_from_slice(body);
            }),
            Self::Welcome(welcome) => frame(out, kind::WELCOME, &|out| {
                put_u16(out, welcome.node_id.unwrap_or(0));
                out.extend_from_slice(&welcome.hash_key.key);
                put_u8(out, u8::from(welcome.hash_key.generators == Generators::Secret));
                put_u64(out, welcome.epoch_length_ns);
                fields::put_guards(out, &welcome.guards);
                put_u64(out, welcome.effective_epoch);
                fields::put_setups(out, &welcome.systems);
                fields::put_domain(out, &welcome.domain);
                put_text(out, welcome.carrier.as_deref().unwrap_or_default(), MAX_NAME_BYTES);
            }),
            Self::Reconfigure { system, effective_epoch, plan } => {
                frame(out, kind::RECONFIGURE, &|out| {
                    fields::put_system(out, *system);
                    put_u64(out, *effective_epoch);
                    put_bytes(out, plan);
                });
            }
            Self::PathsSeen(seen) => frame(out, kind::PATHS_SEEN, &|out| seen.encode(out)),
            Self::PathsWanted(wanted) => {
                frame(out, kind::PATHS_WANTED, &|out| wanted.encode(out));
            }
            Self::Refused { .. }
            | Self::Probe { .. }
            | Self::Echo { .. }
            | Self::Reported { .. } => {
                self.encode_common(VERSION, out);
            }
        }
    }

    /// Appends the frame of a message that is the same in every version; false where it is not one
    /// of those.
    pub(crate) fn encode_common(&self, version: u8, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Refused { reason } => {
                frame(out, version, kind::REFUSED, |out| put_text(out, reason, MAX_TEXT_BYTES));
            }
            Self::Probe { sent_ns } => {
                frame(out, version, kind::PROBE, |out| put_u64(out, *sent_ns));
            }
            Self::Echo { sent_ns, received_ns, answered_ns } => {
                frame(out, version, kind::ECHO, |out| {
                    [sent_ns, received_ns, answered_ns]
                        .into_iter()
                        .for_each(|&time| put_u64(out, time));
                });
            }
            Self::Reported { epoch } => {
                frame(out, version, kind::REPORTED, |out| put_u64(out, *epoch));
            }
            _ => return false,
        }
        true
    }

    /// Appends the message's frame in another version of the protocol, of those that this crate
    /// speaks. Gives false, and appends nothing, where that version has no such message.
    pub fn encode_as(&self, version: u8, out: &mut Vec<u8>) -> bool {
        match version {
            v5::VERSION => v5::encode(self, out),
            VERSION => {
                self.encode(out);
                true
            }
            _ => false,
        }
    }

    /// The message of exactly one frame, its length field included, of any version from
    /// [`OLDEST_VERSION`] to [`VERSION`].
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_versioned(bytes).map(|(_, message)| message)
    }

    /// As [`decode`](Self::decode), with the version of the frame.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_versioned(bytes: &[u8]) -> Result<(u8, Self), DecodeError> {
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
        let known = (OLDEST_VERSION..=VERSION).contains(&version);
        if !known && kind != kind::REFUSED {
            return Err(header.error_at(at, Problem::Version(version)));
        }
        let name = if version == v5::VERSION { v5::name_of(kind) } else { name_of(kind) };
        let Some(name) = name else {
            return Err(header.error_at(header.offset() - 1, Problem::Kind(kind)));
        };
        let mut body = Body::new(name, bytes, header.offset());
        let message = if version == v5::VERSION {
            v5::decode_body(kind, &mut body)?
        } else {
            Self::decode_body(kind, &mut body)?
        };
        body.end()?;
        Ok((version, message))
    }

    pub(crate) fn decode_body(kind: u8, body: &mut Body) -> Result<Self, DecodeError> {
        Ok(match kind {
            kind::HELLO => Self::Hello(Box::new(Hello {
                node: body.text("name of the node", MAX_NAME_BYTES)?,
                role: Role::decode(body)?,
                kind: SwitchKind::decode(body)?,
                program: body.text("program", MAX_TEXT_BYTES)?,
                marking: Marking::decode(body)?,
                systems: fields::offers(body)?,
                holding: fields::holding(body)?,
            })),
            kind::APPLIED => Self::Applied {
                system: fields::system(body)?,
                effective_epoch: body.u64("effective epoch")?,
                outcome: Outcome::decode(body)?,
            },
            kind::SIDE => Self::Side(Box::new(Side {
                system: fields::system(body)?,
                epoch: body.u64("epoch")?,
                side: SideKind::decode(body)?,
                stall_ns: body.u64("stall")?,
                packets: body.u64("packets")?,
                counters: fields::counters(body)?,
                body: body.rest().to_vec(),
            })),
            kind::SEALED => Self::Sealed {
                system: fields::system(body)?,
                epoch: body.u64("epoch")?,
                late_packets: body.u64("late packets")?,
                body: body.rest().to_vec(),
            },
            kind::NOTICE => Self::Notice {
                system: fields::system(body)?,
                epoch: body.u64("epoch")?,
                body: body.rest().to_vec(),
            },
            kind::WELCOME => Self::Welcome(Box::new(Welcome {
                node_id: match body.u16("node id")? {
                    0 => None,
                    id => Some(id),
                },
                hash_key: Secret {
                    key: body.key("hash key")?,
                    generators: match body.flag("whether generators are secret")? {
                        false => Generators::Public,
                        true => Generators::Secret,
                    },
                },
                epoch_length_ns: body.u64("epoch length")?,
                guards: fields::guards(body)?,
                effective_epoch: body.u64("effective epoch")?,
                systems: fields::setups(body)?,
                domain: fields::domain(body)?,
                carrier: Some(body.text("carrier", MAX_NAME_BYTES)?).filter(|of| !of.is_empty()),
            })),
            kind::RECONFIGURE => Self::Reconfigure {
                system: fields::system(body)?,
                effective_epoch: body.u64("effective epoch")?,
                plan: body.blob("plan")?,
            },
            kind::REFUSED => Self::Refused { reason: body.text("reason", MAX_TEXT_BYTES)? },
            kind::ECHO => Self::Echo {
                sent_ns: body.u64("time of the probe")?,
                received_ns: body.u64("time of its receipt")?,
                answered_ns: body.u64("time of the answer")?,
            },
            kind::PROBE => Self::Probe { sent_ns: body.u64("time of the probe")? },
            kind::REPORTED => Self::Reported { epoch: body.u64("epoch")? },
            kind::PATHS_SEEN => Self::PathsSeen(Box::new(PathsSeen::decode(body)?)),
            kind::PATHS_WANTED => Self::PathsWanted(Box::new(PathsWanted::decode(body)?)),
            other => return Err(body.error(Problem::Kind(other))),
        })
    }
}

/// A kind of frame with its article, for errors.
pub(crate) fn name_of(kind: u8) -> Option<&'static str> {
    Some(match kind {
        kind::HELLO => "a hello frame",
        kind::APPLIED => "an applied frame",
        kind::SIDE => "a side frame",
        kind::SEALED => "a sealed frame",
        kind::NOTICE => "a notice frame",
        kind::WELCOME => "a welcome frame",
        kind::RECONFIGURE => "a reconfigure frame",
        kind::REFUSED => "a refused frame",
        kind::ECHO => "an echo frame",
        kind::PROBE => "a probe frame",
        kind::REPORTED => "a reported frame",
        kind::PATHS_SEEN => "a paths seen frame",
        kind::PATHS_WANTED => "a paths wanted frame",
        _ => return None,
    })
}
