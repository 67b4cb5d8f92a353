//! What `hops` puts into the envelope. All numbers are little-endian.
//!
//! A *setup* says how many flows a table holds and how many epochs a window has. There is nothing
//! to plan. The body of a side is a table: packets of flows that were not in it, then the flows.

use std::ops::AddAssign;

use calumma_plane::FlowList;
use calumma_wire::{Offer, SystemId, fields};
use serde::Deserialize;

/// The number of the system in the envelope, one of those for experiments.
pub const ID: SystemId = SystemId::EXPERIMENTS;

/// What a switch that runs it offers.
pub const OFFER: Offer = Offer { system: ID, lowest: 1, highest: 1 };

fields! {
    /// What all switches of a network must have in common, as the operator says it in `[hops]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Setup of "a setup of hops" {
        /// Flows that a table holds.
        pub flows: u16 as "flows" at least 1,
        /// Epochs of a window.
        pub window: u16 as "window" at least 1,
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self { flows: 1024, window: 1 }
    }
}

fields! {
    /// Packets at a switch.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Packets of "counts of hops" {
        /// Those that came.
        pub received: u64 as "packets",
        /// Those of them that it did not send: its transmit queues refused them, or, on a Tofino,
        /// it dropped them for any reason.
        pub refused: u64 as "refused packets",
    }
}

impl AddAssign for Packets {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.refused += other.refused;
    }
}

/// Packets by flow, and those of flows that found no place in the table.
pub type Counts = FlowList<Packets>;

#[cfg(test)]
mod tests {
    use calumma_sketch::WideKey;

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
        fn what_any_bytes_say_is_said_by_them_alone(bytes in prop::collection::vec(0..3_u8, 0..80)) {
            if let Ok(counts) = Counts::decode(&bytes) {
                prop_assert_eq!(&counts.encode(), &bytes);
            }
            if let Ok(setup) = Setup::decode(&bytes) {
                prop_assert_eq!(&setup.encode(), &bytes);
            }
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
