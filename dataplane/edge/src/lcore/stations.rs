//! Which stations are behind an edge's own host ports, and which behind the fabric: learned from
//! what they send, as a bridge does.
//!
//! A fabric that does not know where a station is sends packets for it everywhere. Only the edge
//! that it is behind may count them as having left the network; another one that has learned that
//! it is elsewhere leaves them out. Of a station that has sent nothing, and of groups, all
//! count: a packet too many makes losses lower bounds, where one too few would be a loss that was
//! none.
//!
//! One table for all lcores, of fixed size and without locks: an entry is one word, and a race
//! between lcores costs what is learned again with the next packet.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::packet::Packet;

/// Sets of the table.
const SETS: usize = 4096;

/// Entries of a set.
const WAYS: usize = 4;

/// Ticks of the time stamp counter in a unit of age, as a power of two: 5 to 9 seconds.
const UNIT_SHIFT: u32 = 34;

/// Units after which a station that has sent nothing is not known any more: some minutes.
const MOST_UNITS: u16 = 40;

/// Of an entry: the bit that says that the station is behind the fabric. In its address it stands
/// for groups, which send nothing.
const FABRIC: u64 = 1 << 56;

/// An entry without its age and side.
const STATION: u64 = !(FABRIC | 0xFFFF);

/// Where a station has sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// From behind one of the edge's host ports.
    Host,
    /// From anywhere else.
    Fabric,
}

/// See the [module](self). 128 KiB.
#[derive(Debug)]
pub struct Stations(Box<[[AtomicU64; WAYS]]>);

impl Default for Stations {
    fn default() -> Self {
        Self((0..SETS).map(|_| [const { AtomicU64::new(0) }; WAYS]).collect())
    }
}

impl Stations {
    /// The unit of age in which the time stamp counter reads `tsc`.
    #[inline]
    pub fn unit(tsc: u64) -> u16 {
        (tsc >> UNIT_SHIFT) as u16
    }

    /// Learns where the stations are that have sent a burst.
    #[inline]
    pub fn learn<P: Packet>(&self, packets: &[P], side: Side, unit: u16) {
        let mut last = 0;
        for packet in packets {
            let from = packet.bytes().get(6..12).map_or(0, address);
            if from != last && !is_group(from) && from != 0 {
                self.learn_one(from, side, unit);
            }
            last = from;
        }
    }

    /// Of a burst from the fabric: the packets, by position, for stations that are elsewhere.
    #[inline]
    pub fn elsewhere<P: Packet>(&self, packets: &[P], unit: u16) -> u32 {
        let (mut last, mut is_elsewhere, mut all) = (0, false, 0);
        for (at, packet) in packets.iter().enumerate() {
            let to = packet.bytes().get(..6).map_or(0, address);
            if to != last {
                is_elsewhere = !is_group(to) && self.is_elsewhere(to, unit);
                last = to;
            }
            all |= u32::from(is_elsewhere) << at;
        }
        all
    }

    /// Forgets stations that have sent nothing for long. To be called once in each unit, as ages
    /// begin anew after some days.
    #[cold]
    pub fn sweep(&self, unit: u16) {
        for entry in self.0.iter().flatten() {
            let known = entry.load(Relaxed);
            if known != 0 && age(known, unit) > MOST_UNITS {
                entry.store(0, Relaxed);
            }
        }
    }

    fn set(&self, station: u64) -> &[AtomicU64; WAYS] {
        let mixed = (station >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(mixed >> 52) as usize % SETS]
    }

    fn learn_one(&self, station: u64, side: Side, unit: u16) {
        let new = station | if side == Side::Fabric { FABRIC } else { 0 } | u64::from(unit);
        let set = self.set(station);
        if let Some(entry) = set.iter().find(|entry| entry.load(Relaxed) & STATION == station) {
            let known = entry.load(Relaxed);
            // What a loop in the fabric brings back does not move a station.
            let stays = side == Side::Fabric && known & FABRIC == 0 && is_fresh(known, unit);
            if known != new && !stays {
                entry.store(new, Relaxed);
            }
            return;
        }
        let free = |entry: &&AtomicU64| !is_fresh(entry.load(Relaxed), unit);
        let of_fabric = |entry: &&AtomicU64| entry.load(Relaxed) & FABRIC != 0;
        // Stations behind the fabric are not worth those behind this edge.
        let others = || match side {
            Side::Host => set.iter().find(of_fabric).or(set.first()),
            Side::Fabric => None,
        };
        if let Some(entry) = set.iter().find(free).or_else(others) {
            entry.store(new, Relaxed);
        }
    }

    fn is_elsewhere(&self, station: u64, unit: u16) -> bool {
        let mut elsewhere = false;
        for entry in self.set(station) {
            let known = entry.load(Relaxed);
            if known & STATION == station && is_fresh(known, unit) {
                if known & FABRIC == 0 {
                    return false;
                }
                elsewhere = true;
            }
        }
        elsewhere
    }
}

/// An Ethernet address as entries have it: in the upper six bytes.
#[inline]
fn address(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..6].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

fn is_group(address: u64) -> bool {
    address & FABRIC != 0
}

fn age(entry: u64, unit: u16) -> u16 {
    unit.wrapping_sub(entry as u16)
}

fn is_fresh(entry: u64, unit: u16) -> bool {
    entry & STATION != 0 && age(entry, unit) <= MOST_UNITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Frame;

    /// A packet between two stations; 0 stands for everybody.
    fn packet(from: u8, to: u8) -> Frame<[u8; 14]> {
        let mut bytes = [0; 14];
        bytes[..6].copy_from_slice(&[2, 0, 0, 0, 7, to]);
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 7, from]);
        if to == 0 {
            bytes[..6].fill(0xFF);
        }
        Frame::new(bytes)
    }

    #[test]
    fn only_stations_that_are_certainly_elsewhere_are_left_out() {
        let (stations, unit) = (Stations::default(), 65_530);
        stations.learn(&[packet(1, 9), packet(2, 9)], Side::Host, unit);
        stations.learn(&[packet(3, 1), packet(1, 3)], Side::Fabric, unit);
        let burst = [packet(9, 1), packet(9, 3), packet(9, 3), packet(9, 4), packet(9, 0)];
        assert_eq!(stations.elsewhere(&burst, unit), 0b00110, "neither unknown ones nor groups");
        // It moves here, says so, and is behind this edge from then on.
        stations.learn(&[packet(3, 0)], Side::Host, unit);
        assert_eq!(stations.elsewhere(&burst, unit), 0);
        // One that has said nothing for minutes may be anywhere, and may move away.
        let later = unit.wrapping_add(MOST_UNITS + 1);
        stations.learn(&[packet(2, 0)], Side::Fabric, later);
        assert_eq!(stations.elsewhere(&[packet(9, 2), packet(9, 1)], later), 0b01);
        stations.sweep(later);
        let known = stations.0.iter().flatten().filter(|entry| entry.load(Relaxed) != 0);
        assert_eq!(known.count(), 1);
    }

    proptest! {
        /// However many stations there are: one that has sent from here within the last minutes is
        /// never left out.
        #[test]
        fn a_station_that_sends_from_here_counts_here(
            senders in prop::collection::vec((any::<[u8; 6]>(), any::<bool>()), 1..400),
            clones in 0usize..4,
        ) {
            let stations = Stations::default();
            let mut here = std::collections::BTreeSet::new();
            for _ in 0..=clones {
                for (mac, host) in &senders {
                    let mut frame = packet(0, 0);
                    frame.bytes_mut()[6..12].copy_from_slice(mac);
                    frame.bytes_mut()[6] &= 0xFE;
                    let side = if *host { Side::Host } else { Side::Fabric };
                    stations.learn(std::slice::from_ref(&frame), side, 7);
                    if *host {
                        here.insert(frame.bytes()[6..12].to_vec());
                    }
                }
            }
            for mac in here {
                let mut frame = packet(1, 1);
                frame.bytes_mut()[..6].copy_from_slice(&mac);
                prop_assert_eq!(stations.elsewhere(&[frame], 7), 0);
            }
        }
    }
}
