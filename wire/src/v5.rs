//! Version 5 of the protocol, which nodes and controllers one release older speak.
//!
//! It knew one system, ChameleMon, and one role, edge, and had ChameleMon's fields in the messages
//! themselves. Version 1 of ChameleMon's bodies is those same bytes, so frames are mapped to
//! messages and back without looking into them. Not everything can be said in version 5: other
//! systems, other roles, node ids, a choice of carriers, what is known of late packets but their
//! number, hash functions whose CRCs have secret generators.

use crate::body::{Body, put_text, put_u8, put_u64};
use crate::domain::Domain;
use crate::error::{DecodeError, Problem};
use crate::fields::{self, Marking, Outcome, Role, SideKind, SwitchKind};
use crate::message::{
    Generators, Hello, Message, Secret, Side, Welcome, frame, kind, name_of as name_of_v6,
};
use crate::system::{Offer, SystemId, SystemSetup};
use crate::{MAX_NAME_BYTES, MAX_TEXT_BYTES};

/// The version.
pub const VERSION: u8 = 5;

const INGRESS: u8 = 0x03;
const EGRESS: u8 = 0x04;

/// The version of ChameleMon's bodies that version 5 carries.
const BODIES: u8 = 1;

/// Bytes of an attention: thresholds, sample rate, partition.
const ATTENTION: usize = 24;

/// Bytes of a layout before its counter arrays, and of one of these.
const LAYOUT: usize = 15;
const LEVEL: usize = 8;

/// A kind of frame with its article, for errors.
pub(crate) fn name_of(kind: u8) -> Option<&'static str> {
    match kind {
        INGRESS => Some("an ingress frame"),
        EGRESS => Some("an egress frame"),
        other => name_of_v6(other),
    }
}

pub(crate) fn decode_body(kind: u8, body: &mut Body) -> Result<Message, DecodeError> {
    let system = SystemId::CHAMELEMON;
    Ok(match kind {
        kind::HELLO => {
            let node = body.text("name of the edge", MAX_NAME_BYTES)?;
            let kind = SwitchKind::decode(body)?;
            let program = body.text("program", MAX_TEXT_BYTES)?;
            let holding = if body.flag("whether it measures already")? {
                vec![(system, body.bytes("what it holds", ATTENTION + 8)?.to_vec())]
            } else {
                Vec::new()
            };
            Message::Hello(Box::new(Hello {
                node,
                role: Role::Edge,
                kind,
                program,
                marking: Marking::decode_without_offers(body)?,
                systems: vec![Offer { system, lowest: BODIES, highest: BODIES }],
                holding,
            }))
        }
        kind::APPLIED => Message::Applied {
            system,
            effective_epoch: body.u64("effective epoch")?,
            outcome: Outcome::decode(body)?,
        },
        INGRESS | EGRESS => {
            let epoch = body.u64("epoch")?;
            let mut bytes = body.bytes("attention", ATTENTION)?.to_vec();
            bytes.extend_from_slice(body.bytes("foreign packets", 8)?);
            let stall_ns = body.u64("stall")?;
            bytes.extend_from_slice(body.bytes("mixed attention", 1)?);
            let packets = body.u64("packets")?;
            let counters = fields::counters(body)?;
            bytes.extend_from_slice(body.rest());
            let side = if kind == INGRESS { SideKind::Ingress } else { SideKind::Egress };
            let side = Side { system, epoch, side, stall_ns, packets, counters, body: bytes };
            Message::Side(Box::new(side))
        }
        kind::SEALED => Message::Sealed {
            system,
            epoch: body.u64("epoch")?,
            late_packets: body.u64("late packets")?,
            body: Vec::new(),
        },
        kind::WELCOME => {
            let mut setup = body.bytes("layout", LAYOUT)?.to_vec();
            let levels = body.u8("counter arrays")?;
            setup.push(levels);
            // The counter arrays, and how they count.
            setup.extend_from_slice(body.bytes("layout", usize::from(levels) * LEVEL + 1)?);
            let hash_key = Secret { key: body.key("hash key")?, generators: Generators::Public };
            let epoch_length_ns = body.u64("epoch length")?;
            let guards = fields::guards(body)?;
            let plan = body.bytes("attention", ATTENTION)?.to_vec();
            let effective_epoch = body.u64("effective epoch")?;
            let systems = vec![SystemSetup { system, version: BODIES, setup, plan }];
            Message::Welcome(Box::new(Welcome {
                node_id: None,
                hash_key,
                epoch_length_ns,
                guards,
                effective_epoch,
                systems,
                domain: Domain::default(),
                carrier: None,
            }))
        }
        kind::RECONFIGURE => Message::Reconfigure {
            system,
            effective_epoch: body.u64("effective epoch")?,
            plan: body.bytes("attention", ATTENTION)?.to_vec(),
        },
        kind::REFUSED | kind::ECHO | kind::PROBE | kind::REPORTED => {
            Message::decode_body(kind, body)?
        }
        other => return Err(body.error(Problem::Kind(other))),
    })
}

/// Appends the message's frame in version 5; false where that has no words for it.
pub(crate) fn encode(message: &Message, out: &mut Vec<u8>) -> bool {
    match message {
        Message::Hello(hello) => {
            let offers = hello.systems.iter();
            let offered = offers.filter(|offer| offer.system == SystemId::CHAMELEMON);
            if hello.role != Role::Edge
                || !offered.into_iter().any(|offer| offer.common_version(BODIES, BODIES).is_some())
            {
                return false;
            }
            let holding = hello
                .holding
                .iter()
                .find(|(id, bytes)| *id == SystemId::CHAMELEMON && bytes.len() == ATTENTION + 8);
            frame(out, VERSION, kind::HELLO, |out| {
                put_text(out, &hello.node, MAX_NAME_BYTES);
                hello.kind.encode(out);
                put_text(out, &hello.program, MAX_TEXT_BYTES);
                put_u8(out, holding.is_some().into());
                if let Some((_, bytes)) = holding {
                    out.extend_from_slice(bytes);
                }
                hello.marking.encode_without_offers(out);
            });
        }
        Message::Applied { system: SystemId::CHAMELEMON, effective_epoch, outcome } => {
            frame(out, VERSION, kind::APPLIED, |out| {
                put_u64(out, *effective_epoch);
                outcome.encode(out);
            });
        }
        Message::Side(side) if side.system == SystemId::CHAMELEMON => {
            let kind = match side.side {
                SideKind::Ingress => INGRESS,
                SideKind::Egress => EGRESS,
                SideKind::Transit | SideKind::Host => return false,
            };
            let Some((attention, rest)) = side.body.split_at_checked(ATTENTION) else {
                return false;
            };
            let Some((foreign, rest)) = rest.split_at_checked(8) else { return false };
            let Some((mixed, sketches)) = rest.split_at_checked(1) else { return false };
            frame(out, VERSION, kind, |out| {
                put_u64(out, side.epoch);
                out.extend_from_slice(attention);
                out.extend_from_slice(foreign);
                put_u64(out, side.stall_ns);
                out.extend_from_slice(mixed);
                put_u64(out, side.packets);
                fields::put_counters(out, &side.counters);
                out.extend_from_slice(sketches);
            });
        }
        Message::Sealed { system: SystemId::CHAMELEMON, epoch, late_packets, .. } => {
            frame(out, VERSION, kind::SEALED, |out| {
                put_u64(out, *epoch);
                put_u64(out, *late_packets);
            });
        }
        Message::Welcome(welcome) => {
            let Some(of) = welcome.systems.iter().find(|of| of.system == SystemId::CHAMELEMON)
            else {
                return false;
            };
            if of.version != BODIES
                || of.plan.len() != ATTENTION
                || welcome.hash_key.generators != Generators::Public
                || !welcome.domain.is_everything()
                || welcome.carrier.is_some()
            {
                return false;
            }
            frame(out, VERSION, kind::WELCOME, |out| {
                out.extend_from_slice(&of.setup);
                out.extend_from_slice(&welcome.hash_key.key);
                put_u64(out, welcome.epoch_length_ns);
                fields::put_guards(out, &welcome.guards);
                out.extend_from_slice(&of.plan);
                put_u64(out, welcome.effective_epoch);
            });
        }
        Message::Reconfigure { system: SystemId::CHAMELEMON, effective_epoch, plan }
            if plan.len() == ATTENTION =>
        {
            frame(out, VERSION, kind::RECONFIGURE, |out| {
                put_u64(out, *effective_epoch);
                out.extend_from_slice(plan);
            });
        }
        Message::Refused { .. }
        | Message::Probe { .. }
        | Message::Echo { .. }
        | Message::Reported { .. } => return message.encode_common(VERSION, out),
        _ => return false,
    }
    true
}
