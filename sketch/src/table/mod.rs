//! A table of exact counts for the flows of smallest rank.
//!
//! Of all flows that were seen, a [`BoundedTable`] counts a given number: those whose [`Rank`] is
//! smallest, *exactly* those after every packet. What makes a count exact is that the table has had
//! the flow since its first packet. As long as a flow's rank is always the same, a limit that only
//! falls guarantees that: who is above it once is above it for ever. Where a rank changes (a packet
//! takes another way), a filter remembers whom the table did not take or did not keep, and takes
//! none of them later. A flow that the filter mistakes for another goes uncounted, and is never
//! counted wrong.
//!
//! Whom the table has no entry for is handed to its user, a [`Sink`], packet by packet, and so is
//! an entry that has to go, with what it counted. So nothing is lost between the two.
//!
//! Nothing is allocated after the table was made, and no packet waits for a pass over the table:
//! whenever a flow is admitted to a full table, a selection (after q-MAX; Ben Basat and others, IMC
//! 2019) goes on by a fixed number of steps.
//!
//! ```
//! use std::ops::Range;
//!
//! use calumma_sketch::table::{BoundedTable, Capacity, Rank, Sink};
//! use calumma_sketch::{FlowKey, HashFamily, HashKey};
//!
//! /// Counts packets, those without an entry as well.
//! #[derive(Default)]
//! struct Packets {
//!     uncounted: u64,
//! }
//!
//! impl Sink<FlowKey, u64> for Packets {
//!     fn count(&mut self, value: &mut u64, packets: Range<usize>) {
//!         *value += packets.len() as u64;
//!     }
//!
//!     fn refuse(&mut self, packets: Range<usize>) {
//!         self.uncounted += packets.len() as u64;
//!     }
//!
//!     fn evict(&mut self, _: &FlowKey, _: Rank, value: &u64) {
//!         self.uncounted += value;
//!     }
//! }
//!
//! let family = HashFamily::new(&HashKey::from_bytes([7; 32]));
//! let mut table = BoundedTable::new(Capacity { entries: 256, filter_bits: 1 << 16 });
//! let mut sink = Packets::default();
//! for flow in 0..1000 {
//!     let key = FlowKey::from_words(flow, 1, 2, 6);
//!     table.record_burst(&family, &[key; 3], &[Rank::new(0, 1000 - flow); 3], &mut sink);
//! }
//! table.finish(&family, &mut sink);
//! assert_eq!(table.len(), 256);
//! assert!(table.iter().all(|(key, _, packets)| key.src_word() >= 744 && *packets == 3));
//! assert_eq!(sink.uncounted, 3 * 744);
//! ```

mod bounded;
mod filter;
mod index;
mod order;
mod refused;
mod rows;
mod selection;
mod sink;
mod sliced;
#[cfg(test)]
mod tests;

pub use self::bounded::{BoundedTable, Capacity};
pub use self::filter::BITS_OF_A_FLOW;
pub(crate) use self::filter::{Filter, Noted};
pub(crate) use self::index::Bucket as IndexBucket;
pub use self::order::{Order, Rank, Words};
pub use self::refused::{Refused, Spot};
pub use self::rows::{RowTable, Shape};
pub use self::sink::{Flow, Flows, Sink, Turnover};
pub use self::sliced::Sliced;
