//! Which flows may carry stacks: the watch list of the specification.
//!
//! ```text
//! number of rules (1)  each: what it says (1), by bits: source (1), destination (2), source port
//!   (4), destination port (8), protocol (16); of these what it says, in this order: a prefix: 4 or
//!   6 (1), its bits, their number (1); a port (2); a protocol (1)
//! ```

use std::net::IpAddr;

use calumma_sketch::Key;
use calumma_wire::body::{Body, put_u8, put_u16};
use calumma_wire::{DecodeError, Prefix};

/// A rule of a watch list: a flow is on it where all that the rule says is true of the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchRule {
    /// The prefix of its source.
    pub src: Option<Prefix>,
    /// The prefix of its destination.
    pub dst: Option<Prefix>,
    /// Its source port.
    pub sport: Option<u16>,
    /// Its destination port.
    pub dport: Option<u16>,
    /// Its IP protocol.
    pub proto: Option<u8>,
}

impl WatchRule {
    #[inline]
    fn has<K: Key>(&self, key: &K) -> bool {
        let ((src, dst), (sport, dport)) = (key.addresses(), key.ports());
        self.src.is_none_or(|prefix| prefix.contains(src))
            && self.dst.is_none_or(|prefix| prefix.contains(dst))
            && self.sport.is_none_or(|port| port == sport)
            && self.dport.is_none_or(|port| port == dport)
            && self.proto.is_none_or(|proto| proto == key.protocol())
    }

    fn put(&self, out: &mut Vec<u8>) {
        let says = [
            self.src.is_some(),
            self.dst.is_some(),
            self.sport.is_some(),
            self.dport.is_some(),
            self.proto.is_some(),
        ];
        let bits = says.iter().rev().fold(0, |bits, &says| bits << 1 | u8::from(says));
        put_u8(out, bits);
        for prefix in self.src.iter().chain(&self.dst) {
            match prefix.address() {
                IpAddr::V4(address) => {
                    put_u8(out, 4);
                    out.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    put_u8(out, 6);
                    out.extend(address.octets());
                }
            }
            put_u8(out, prefix.length());
        }
        self.sport.iter().chain(&self.dport).for_each(|&port| put_u16(out, port));
        self.proto.iter().for_each(|&proto| put_u8(out, proto));
    }

    fn read(body: &mut Body<'_>) -> Result<Self, DecodeError> {
        let offset = body.offset();
        let bits = body.u8(FIELD)?;
        if bits == 0 || bits > 0b1_1111 {
            let why = format_args!("{bits:#b}: no field, or an unknown one");
            return Err(body.wrong(offset, FIELD, why));
        }
        let says = |bit: u8| bits >> bit & 1 == 1;
        Ok(Self {
            src: says(0).then(|| prefix(body)).transpose()?,
            dst: says(1).then(|| prefix(body)).transpose()?,
            sport: says(2).then(|| body.u16(FIELD)).transpose()?,
            dport: says(3).then(|| body.u16(FIELD)).transpose()?,
            proto: says(4).then(|| body.u8(FIELD)).transpose()?,
        })
    }
}

const FIELD: &str = "watch";

fn prefix(body: &mut Body<'_>) -> Result<Prefix, DecodeError> {
    let offset = body.offset();
    let address = match body.u8(FIELD)? {
        4 => IpAddr::from(*body.bytes(FIELD, 4)?.first_chunk::<4>().unwrap_or(&[0; 4])),
        6 => IpAddr::from(*body.bytes(FIELD, 16)?.first_chunk::<16>().unwrap_or(&[0; 16])),
        other => {
            let why = format_args!("a prefix of family {other}");
            return Err(body.wrong(offset, FIELD, why));
        }
    };
    let length = body.u8(FIELD)?;
    Prefix::new(address, length).map_err(|why| body.wrong(offset, FIELD, why))
}

/// Flows that may carry stacks: all of them where it has no rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchList {
    rules: [WatchRule; Self::MOST],
    len: u8,
}

impl WatchList {
    /// Most rules.
    pub const MOST: usize = 16;

    /// The list of these rules.
    ///
    /// # Errors
    /// Why there can be no such list.
    pub fn new(of: &[WatchRule]) -> Result<Self, String> {
        if of.len() > Self::MOST {
            return Err(format!("{} rules: there may be {}", of.len(), Self::MOST));
        }
        if let Some(at) = of.iter().position(|rule| *rule == WatchRule::default()) {
            return Err(format!("rule {at} is empty: leave the list out to watch all flows"));
        }
        let mut list = Self { len: of.len() as u8, ..Self::default() };
        list.rules[..of.len()].copy_from_slice(of);
        Ok(list)
    }

    /// Its rules.
    #[inline]
    pub fn rules(&self) -> &[WatchRule] {
        &self.rules[..usize::from(self.len)]
    }

    /// Whether it is empty, so that all flows are on it.
    #[inline]
    pub fn is_everything(&self) -> bool {
        self.len == 0
    }

    /// Whether a flow is on it.
    #[inline]
    pub fn has<K: Key>(&self, key: &K) -> bool {
        self.is_everything() || self.rules().iter().any(|rule| rule.has(key))
    }

    /// Appends its bytes.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_u8(out, self.len);
        self.rules().iter().for_each(|rule| rule.put(out));
    }

    /// Reads what [`put`](Self::put) appends.
    pub(super) fn read(body: &mut Body<'_>) -> Result<Self, DecodeError> {
        let offset = body.offset();
        let number = body.u8(FIELD)?;
        let rules = (0..number).map(|_| WatchRule::read(body)).collect::<Result<Vec<_>, _>>()?;
        Self::new(&rules).map_err(|why| body.wrong(offset, FIELD, why))
    }
}
