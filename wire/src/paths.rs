//! What edges and the controller say to each other of probes: packets that edges send one another
//! through the network, to see what it does to marks and how long it takes (docs/probes.md).

use std::net::IpAddr;

use crate::body::{Body, put_u8, put_u16, put_u64};
use crate::error::DecodeError;
use crate::fields::entries;

/// Most addresses of a list, and most probes of a frame; further ones are left out when encoded.
pub const MAX_PATH_ENTRIES: usize = 4096;

/// What a probe's mark is where none, or no valid one, arrived.
pub const NO_MARK: u8 = 0xFF;

/// What an edge has seen of the paths to it, and whose packets it has seen enter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathsSeen {
    /// Hosts behind the edge: sources of packets that entered there.
    pub hosts: Vec<IpAddr>,
    /// Where they send to.
    pub destinations: Vec<IpAddr>,
    /// Probes that arrived, in that order.
    pub probes: Vec<ProbeSeen>,
}

/// A probe that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSeen {
    /// Number of the edge that sent it.
    pub from: u16,
    /// The three bits of its mark, as it was sent.
    pub mark: u8,
    /// The three bits of its mark, as it arrived; [`NO_MARK`] where it had none that is valid.
    pub arrived: u8,
    /// When it was sent, in nanoseconds since the Unix epoch by the sender's clock.
    pub sent_ns: u64,
    /// When it arrived, by the receiver's clock.
    pub received_ns: u64,
    /// The addresses that it went by, as they arrived.
    pub source: IpAddr,
    /// The other one.
    pub destination: IpAddr,
}

/// What the controller wants to know of the paths from an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathsWanted {
    /// Whether probes are sent at all.
    pub on: bool,
    /// Hosts behind other edges, each with its edge's number: probes may be sent to them.
    pub hosts: Vec<(IpAddr, u16)>,
}

impl PathsSeen {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_list(out, &self.hosts, |out, address| put_address(out, *address));
        put_list(out, &self.destinations, |out, address| put_address(out, *address));
        put_list(out, &self.probes, |out, probe| {
            put_u16(out, probe.from);
            put_u8(out, probe.mark);
            put_u8(out, probe.arrived);
            put_u64(out, probe.sent_ns);
            put_u64(out, probe.received_ns);
            put_address(out, probe.source);
            put_address(out, probe.destination);
        });
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            hosts: list(body, "number of hosts", |body| address(body, "host"))?,
            destinations: list(body, "number of destinations", |body| {
                address(body, "destination")
            })?,
            probes: list(body, "number of probes", |body| {
                Ok(ProbeSeen {
                    from: body.u16("sender of a probe")?,
                    mark: body.u8("mark of a probe")?,
                    arrived: body.u8("mark that arrived")?,
                    sent_ns: body.u64("time of a probe")?,
                    received_ns: body.u64("time of its receipt")?,
                    source: address(body, "source of a probe")?,
                    destination: address(body, "destination of a probe")?,
                })
            })?,
        })
    }
}

impl PathsWanted {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u8(out, self.on.into());
        put_list(out, &self.hosts, |out, (address, edge)| {
            put_address(out, *address);
            put_u16(out, *edge);
        });
    }

    pub(crate) fn decode(body: &mut Body) -> Result<Self, DecodeError> {
        Ok(Self {
            on: body.flag("whether probes are sent")?,
            hosts: list(body, "number of hosts", |body| {
                Ok((address(body, "host")?, body.u16("number of an edge")?))
            })?,
        })
    }
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    let list = &list[..list.len().min(MAX_PATH_ENTRIES)];
    put_u16(out, list.len() as u16);
    list.iter().for_each(|entry| put(out, entry));
}

fn list<T>(
    body: &mut Body,
    field: &'static str,
    read: impl FnMut(&mut Body) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let offset = body.offset();
    let number = body.u16(field)?.into();
    entries(body, (offset, field), (number, MAX_PATH_ENTRIES), read)
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            put_u8(out, 4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            put_u8(out, 6);
            out.extend_from_slice(&address.octets());
        }
    }
}

fn address(body: &mut Body, field: &'static str) -> Result<IpAddr, DecodeError> {
    let start = body.offset();
    match body.u8(field)? {
        4 => Ok(IpAddr::from(*body.bytes(field, 4)?.first_chunk::<4>().unwrap_or(&[0; 4]))),
        6 => Ok(IpAddr::from(*body.bytes(field, 16)?.first_chunk::<16>().unwrap_or(&[0; 16]))),
        other => Err(body.wrong(start, field, format_args!("{other} is no IP version"))),
    }
}
