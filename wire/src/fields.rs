//! Groups of fields that several messages share.

use std::net::IpAddr;

use calumma_epoch::Guards;

use crate::body::{Body, put_bytes, put_text, put_u8, put_u16, put_u64};
use crate::domain::{Domain, MAX_PREFIXES, Prefix};
use crate::error::DecodeError;
use crate::system::{Offer, SystemId, SystemSetup};
use crate::{MAX_CARRIERS, MAX_COUNTERS, MAX_NAME_BYTES, MAX_SYSTEMS, MAX_TEXT_BYTES};

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

/// What a node does in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Role {
    /// A switch where packets enter and leave the network.
    #[default]
    Edge = 0,
    /// A switch in the middle: packets come from the fabric and go to the fabric.
    Transit = 1,
    /// A program on an end host.
    Host = 2,
}

impl Role {
    /// The name used in configurations, reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Transit => "transit",
            Self::Host => "host",
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u8(out, self as u8);
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        let offset = body.offset();
        match body.u8("role")? {
            0 => Ok(Self::Edge),
            1 => Ok(Self::Transit),
            2 => Ok(Self::Host),
            other => Err(body.wrong(offset, "role", format_args!("{other} is unknown"))),
        }
    }
}

/// Where in a node packets were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SideKind {
    /// Packets that entered the network.
    Ingress = 0,
    /// Packets that came from the fabric and went back to it.
    Transit = 1,
    /// Packets that left the network.
    Egress = 2,
    /// Packets at an end host.
    Host = 3,
}

impl SideKind {
    /// The name used in reports and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Transit => "transit",
            Self::Egress => "egress",
            Self::Host => "host",
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u8(out, self as u8);
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        let offset = body.offset();
        match body.u8("side")? {
            0 => Ok(Self::Ingress),
            1 => Ok(Self::Transit),
            2 => Ok(Self::Egress),
            3 => Ok(Self::Host),
            other => Err(body.wrong(offset, "side", format_args!("{other} is unknown"))),
        }
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

/// How a switch marks packets and reads them, in words that are the same where switches do the
/// same: what all switches of a deployment must agree on beside what the controller tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Where packets carry their mark, and in which version where there are several: `tos`,
    /// `signed tos`, `ip-id`, `flow-label v2`, or `shim`, its EtherType and `v2`, or `v3` with
    /// hops.
    pub carrier: String,
    /// By which header packets in tunnels are measured: `outer` or `inner`.
    pub tunnels: String,
    /// The carriers among which the controller may choose, in the same words; empty where the
    /// switch has the one that is named above. Of a switch that leaves the choice to the
    /// controller, `carrier` is the one in use, or, without a session, the one that it takes where
    /// nobody chooses.
    pub offers: Vec<String>,
}

impl Default for Marking {
    /// What every kind of switch can: in the ToS byte or traffic class, and the outer header.
    fn default() -> Self {
        Self { carrier: "tos".to_owned(), tunnels: "outer".to_owned(), offers: Vec::new() }
    }
}

impl Marking {
    /// Whether the switch can mark by this carrier.
    pub fn can(&self, carrier: &str) -> bool {
        self.carrier == carrier || self.offers.iter().any(|offered| offered == carrier)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.encode_without_offers(out);
        let offers = &self.offers[..self.offers.len().min(MAX_CARRIERS)];
        put_u8(out, offers.len() as u8);
        offers.iter().for_each(|offer| put_text(out, offer, MAX_NAME_BYTES));
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        const FIELD: &str = "number of carriers";
        let marking = Self::decode_without_offers(body)?;
        let offset = body.offset();
        let number = body.u8(FIELD)?.into();
        let offers = entries(body, (offset, FIELD), (number, MAX_CARRIERS), |body| {
            body.text("a carrier", MAX_NAME_BYTES)
        })?;
        Ok(Self { offers, ..marking })
    }

    /// As version 5 has it.
    pub(crate) fn encode_without_offers(&self, out: &mut Vec<u8>) {
        put_text(out, &self.carrier, MAX_NAME_BYTES);
        put_text(out, &self.tunnels, MAX_NAME_BYTES);
    }

    pub(crate) fn decode_without_offers(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            carrier: body.text("carrier", MAX_NAME_BYTES)?,
            tunnels: body.text("tunnels", MAX_NAME_BYTES)?,
            offers: Vec::new(),
        })
    }
}

pub(crate) fn put_guards(out: &mut Vec<u8>, guards: &Guards) {
    put_u64(out, guards.clock_ns);
    put_u64(out, guards.flight_ns);
}

pub(crate) fn guards(body: &mut Body) -> Result<Guards, DecodeError> {
    Ok(Guards { clock_ns: body.u64("clock guard")?, flight_ns: body.u64("flight guard")? })
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

pub(crate) fn put_system(out: &mut Vec<u8>, system: SystemId) {
    put_u8(out, system.0);
}

pub(crate) fn system(body: &mut Body) -> Result<SystemId, DecodeError> {
    Ok(SystemId(body.u8("system")?))
}

/// Appends a list of what `put` appends, at most [`MAX_SYSTEMS`] entries.
fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    let list = &list[..list.len().min(MAX_SYSTEMS)];
    put_u8(out, list.len() as u8);
    list.iter().for_each(|entry| put(out, entry));
}

fn list<T>(
    body: &mut Body,
    field: &'static str,
    read: impl FnMut(&mut Body) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let offset = body.offset();
    let number = body.u8(field)?.into();
    entries(body, (offset, field), (number, MAX_SYSTEMS), read)
}

/// Reads `number` entries, at most `most`, by `read`; the number stood at `offset`.
pub(crate) fn entries<T>(
    body: &mut Body,
    (offset, field): (usize, &'static str),
    (number, most): (usize, usize),
    mut read: impl FnMut(&mut Body) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    if number > most {
        let why = format_args!("{number}, at most {most} are allowed");
        return Err(body.wrong(offset, field, why));
    }
    (0..number).map(|_| read(body)).collect()
}

pub(crate) fn put_domain(out: &mut Vec<u8>, domain: &Domain) {
    put_u16(out, domain.prefixes().len() as u16);
    for prefix in domain.prefixes() {
        match prefix.address() {
            IpAddr::V4(address) => {
                put_u8(out, 4);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                put_u8(out, 6);
                out.extend_from_slice(&address.octets());
            }
        }
        put_u8(out, prefix.length());
    }
    put_u16(out, domain.fabric_mtu());
}

pub(crate) fn domain(body: &mut Body) -> Result<Domain, DecodeError> {
    const FIELD: &str = "prefixes of the domain";
    let offset = body.offset();
    let number = body.u16(FIELD)?;
    if usize::from(number) > MAX_PREFIXES {
        let why = format_args!("{number}, at most {MAX_PREFIXES} are allowed");
        return Err(body.wrong(offset, FIELD, why));
    }
    let mut prefixes = Vec::with_capacity(number.into());
    for _ in 0..number {
        let start = body.offset();
        let address = match body.u8(FIELD)? {
            4 => IpAddr::from(*body.bytes(FIELD, 4)?.first_chunk::<4>().unwrap_or(&[0; 4])),
            6 => IpAddr::from(*body.bytes(FIELD, 16)?.first_chunk::<16>().unwrap_or(&[0; 16])),
            other => {
                return Err(body.wrong(start, FIELD, format_args!("{other} is no IP version")));
            }
        };
        let prefix = Prefix::new(address, body.u8(FIELD)?);
        prefixes.push(prefix.map_err(|why| body.wrong(start, FIELD, why))?);
    }
    let domain = Domain::new(prefixes).map_err(|why| body.wrong(offset, FIELD, why))?;
    let offset = body.offset();
    let fabric_mtu = body.u16("MTU of the fabric")?;
    domain.with_fabric_mtu(fabric_mtu).map_err(|why| body.wrong(offset, "MTU of the fabric", why))
}

pub(crate) fn put_offers(out: &mut Vec<u8>, offers: &[Offer]) {
    put_list(out, offers, |out, offer| {
        put_system(out, offer.system);
        put_u8(out, offer.lowest);
        put_u8(out, offer.highest);
    });
}

pub(crate) fn offers(body: &mut Body) -> Result<Vec<Offer>, DecodeError> {
    list(body, "number of systems", |body| {
        let system = system(body)?;
        Ok(Offer {
            system,
            lowest: body.u8("lowest version")?,
            highest: body.u8("highest version")?,
        })
    })
}

pub(crate) fn put_holding(out: &mut Vec<u8>, holding: &[(SystemId, Vec<u8>)]) {
    put_list(out, holding, |out, (system, bytes)| {
        put_system(out, *system);
        put_bytes(out, bytes);
    });
}

pub(crate) fn holding(body: &mut Body) -> Result<Vec<(SystemId, Vec<u8>)>, DecodeError> {
    list(body, "number of systems held", |body| Ok((system(body)?, body.blob("what it holds")?)))
}

pub(crate) fn put_setups(out: &mut Vec<u8>, setups: &[SystemSetup]) {
    put_list(out, setups, |out, setup| {
        put_system(out, setup.system);
        put_u8(out, setup.version);
        put_bytes(out, &setup.setup);
        put_bytes(out, &setup.plan);
    });
}

pub(crate) fn setups(body: &mut Body) -> Result<Vec<SystemSetup>, DecodeError> {
    list(body, "number of setups", |body| {
        Ok(SystemSetup {
            system: system(body)?,
            version: body.u8("version of a system")?,
            setup: body.blob("setup")?,
            plan: body.blob("plan")?,
        })
    })
}
