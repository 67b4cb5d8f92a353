//! What `hops` puts into the envelope. All numbers are little-endian.
//!
//! A *setup* says how many flows a table holds and how many epochs a window has. There is nothing
//! to plan. The body of a side is a table: packets of flows that were not in it, then the flows.

use std::ops::AddAssign;

use calumma_sketch::WideKey;
use calumma_wire::body::{Body, put_u16, put_u64};
use calumma_wire::{DecodeError, Offer, SystemId};

/// The number of the system in the envelope, one of those for experiments.
pub const ID: SystemId = SystemId::EXPERIMENTS;

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: ID, lowest: 1, highest: 1 };

/// What all switches of a network must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Flows that a table holds, at least one.
    pub flows: u16,
    /// Epochs of a window, at least one.
    pub window: u16,
}

impl Setup {
    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u16(&mut out, self.flows);
        put_u16(&mut out, self.window);
        out
    }

    /// The setup that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a setup of hops", bytes, 0);
        let mut positive = |field| match body.u16(field)? {
            0 => Err(body.wrong(body.offset() - 2, field, "0; at least 1 is needed")),
            number => Ok(number),
        };
        let setup = Self { flows: positive("flows")?, window: positive("window")? };
        body.end()?;
        Ok(setup)
    }
}

/// Packets at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packets {
    /// Those that came.
    pub received: u64,
    /// Those of them that it did not send: its transmit queues refused them, or, on a Tofino, it
    /// dropped them for any reason.
    pub refused: u64,
}

impl AddAssign for Packets {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.refused += other.refused;
    }
}

impl Packets {
    const LEN: usize = 16;

    fn put(self, out: &mut Vec<u8>) {
        put_u64(out, self.received);
        put_u64(out, self.refused);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, DecodeError> {
        Ok(Self { received: body.u64("packets")?, refused: body.u64("refused packets")? })
    }
}

/// Packets by flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Each flow's packets.
    pub flows: Vec<(WideKey, Packets)>,
    /// Packets of flows that found no place in the table.
    pub others: Packets,
}

impl Counts {
    /// Their bytes.
    pub fn encode(&self) -> Vec<u8> {
        let len = self.flows.len() * (WideKey::LEN + Packets::LEN);
        let mut out = Vec::with_capacity(Packets::LEN + len);
        self.others.put(&mut out);
        for (key, packets) in &self.flows {
            out.extend_from_slice(key.as_bytes());
            packets.put(&mut out);
        }
        out
    }

    /// The counts that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("counts of hops", bytes, 0);
        let others = Packets::read(&mut body)?;
        let mut flows = Vec::with_capacity(body.left() / (WideKey::LEN + Packets::LEN));
        while body.left() > 0 {
            let mut key = [0; WideKey::LEN];
            key.copy_from_slice(body.bytes("flow", WideKey::LEN)?);
            flows.push((WideKey::from_bytes(key), Packets::read(&mut body)?));
        }
        Ok(Self { flows, others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_come_back_as_they_were_sent(
            flows in prop::collection::vec((any::<[u8; WideKey::LEN]>(), any::<[u64; 2]>()), 0..9),
            others: [u64; 2],
            cut in 1_usize..40,
        ) {
            let packets = |[received, refused]: [u64; 2]| Packets { received, refused };
            let flows = flows.into_iter().map(|(key, n)| (WideKey::from_bytes(key), packets(n)));
            let (flows, others) = (flows.collect(), packets(others));
            let counts = Counts { flows, others };
            let bytes = counts.encode();
            prop_assert_eq!(&Counts::decode(&bytes).unwrap(), &counts);
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(Counts::decode(shorter).is_err());
        }

        #[test]
        fn no_bytes_make_a_panic(bytes: Vec<u8>) {
            let _ = (Counts::decode(&bytes), Setup::decode(&bytes));
        }
    }

    #[test]
    fn a_setup_without_room_names_the_field() {
        let setup = Setup { flows: 100, window: 3 };
        assert_eq!(Setup::decode(&setup.encode()), Ok(setup));
        let problem = Setup::decode(&Setup { window: 0, ..setup }.encode()).unwrap_err();
        assert!(problem.to_string().contains("window"), "{problem}");
    }
}
