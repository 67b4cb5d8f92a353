//! Flows that go round for certain, reported before the window is over.
//!
//! ```text
//! number (4)
//! keys: a column for each byte of a dual key
//! highest times to live, bitmaps of differences: 1 8 columns, the least significant byte first
//! ```

use calumma_sketch::KeyKind;
use calumma_wire::DecodeError;
use calumma_wire::body::Body;

use super::suspects::{Suspect, put_flows, read_flows};
use crate::turns::Turns;

/// Flows that a switch has seen go round for certain, with an entry or without one, since it
/// reported others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// By rising keys.
    pub flows: Vec<Suspect>,
}

impl Notice {
    /// Its bytes. Flows must stand in the order of their keys, each once.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_flows(&mut out, KeyKind::Dual, &self.flows);
        out
    }

    /// The notice that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why: also a flow that does not go round for certain.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a notice of cfs", bytes, 0);
        let flows = read_flows(&mut body, KeyKind::Dual)?;
        let is_certain = |of: &Suspect| {
            Turns::of(of.ttl, of.differences).is_some_and(|turns| turns.are_certain())
        };
        if let Some(flow) = flows.iter().find(|flow| !is_certain(flow)) {
            let why = format_args!("{}: its times to live are those of no loop", flow.key);
            return Err(body.wrong(0, "flows", why));
        }
        body.end()?;
        Ok(Self { flows })
    }
}
