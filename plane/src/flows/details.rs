//! What is added to the flows of a burst where a system asks for it, in memory that is lent.

use calumma_sketch::{BURST, HashColumns, HashFamily, Key};

use super::Flows;
use crate::arrival::Arrival;
use crate::parse::detail::IpFields;

/// The arrivals of a burst's packets.
pub(crate) type Arrivals = [Arrival; BURST];

/// What the IP headers of a burst's packets say, and when polls found the burst.
#[derive(Clone, Debug, Default)]
pub(crate) struct IpColumns {
    fields: [IpFields; BURST],
    polled_ns: u64,
}

impl<K: Key> Flows<K> {
    /// No packets, and room for their arrivals.
    pub(crate) fn with_arrivals() -> Self {
        Self { arrivals: Some(Box::new([Arrival::default(); BURST])), ..Self::new() }
    }

    /// Notes when each packet arrived, by its position in the burst, in the memory that is lent.
    pub(crate) fn lend(
        &mut self,
        memory: Option<Box<Arrivals>>,
        arrival: impl Fn(usize) -> Arrival,
    ) {
        self.arrivals = memory;
        if let Some(arrivals) = &mut self.arrivals {
            for (of, &(at, _)) in arrivals.iter_mut().zip(&self.places[..self.len]) {
                *of = arrival(usize::from(at));
            }
            self.timed = true;
        }
    }

    /// Notes what each packet's IP header says, by its position in the burst and the header's
    /// offset, in the memory that is lent.
    pub(crate) fn read_ip(
        &mut self,
        memory: Option<Box<IpColumns>>,
        polled_ns: u64,
        read: impl Fn(usize, usize) -> IpFields,
    ) {
        self.ip = memory;
        if let Some(ip) = &mut self.ip {
            ip.polled_ns = polled_ns;
            for (of, &(at, offset)) in ip.fields.iter_mut().zip(&self.places[..self.len]) {
                *of = read(at.into(), offset.into());
            }
        }
    }

    /// Gives back the memory of what IP headers say.
    pub(crate) fn take_ip(&mut self) -> Option<Box<IpColumns>> {
        self.ip.take()
    }

    /// TTL and length of each packet, as it was received; none where no system asks for them, and
    /// in what transmit queues are said to have done.
    #[inline]
    pub fn ip(&self) -> &[IpFields] {
        self.ip.as_ref().map_or(&[], |ip| &ip.fields[..self.len])
    }

    /// When the lcore began the round of polls that found the burst, in nanoseconds since the Unix
    /// epoch; 0 where no system asks for what IP headers say.
    #[inline]
    pub fn polled_ns(&self) -> u64 {
        self.ip.as_ref().map_or(0, |ip| ip.polled_ns)
    }

    /// Hashes all keys, into the memory that is lent.
    pub(crate) fn hash(&mut self, by: &HashFamily, memory: Option<Box<HashColumns>>) {
        self.hashes = memory;
        if let Some(hashes) = &mut self.hashes {
            by.hash_columns(&self.keys[..self.len], hashes);
        }
    }

    /// Gives back the memory of hashes.
    pub(crate) fn take_hashes(&mut self) -> Option<Box<HashColumns>> {
        self.hashes.take()
    }

    /// The hashes of the packets' keys, where several systems use the same functions.
    #[inline]
    pub fn hashes(&self) -> Option<&HashColumns> {
        self.hashes.as_deref()
    }

    /// Gives back what was lent.
    pub(crate) fn give_back(&mut self) -> Option<Box<Arrivals>> {
        self.timed = false;
        self.arrivals.take()
    }

    /// When packet number `at` of these arrived; `None` where no system asks for arrivals, and of
    /// what the switch itself has made or kept.
    #[inline]
    pub fn arrival(&self, at: usize) -> Option<Arrival> {
        let arrivals = self.arrivals.as_ref().filter(|_| self.timed)?;
        arrivals[..self.len].get(at).copied()
    }
}
