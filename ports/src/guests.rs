//! Connections that nothing is owed to yet, within a bound in all and by address.
//!
//! Where there are too many, the oldest of the address with the most gives way to the new one, and
//! where several have as many, the oldest of theirs. So who opens thousands displaces nobody but
//! himself, and who has something to say at once is let in even from the same address. Addresses
//! that are [known](Guests::know) give way last: a crowd from more addresses than there are places
//! displaces no one who comes back. Those that are at work stay; where all are, the new one is
//! refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::rates::Rates;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub most: usize,
    /// Of one address; of IPv6, of one /64, which a single host may have.
    pub most_of_address: usize,
}

/// The connections to one port.
#[derive(Debug)]
pub struct Guests {
    bounds: Bounds,
    state: Mutex<State>,
    displaced: AtomicU64,
    refused: AtomicU64,
    requests: Rates<Source>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the next one, or of the next address that becomes known.
    next: u64,
    /// How many there are.
    total: usize,
    /// By address, oldest first.
    of: HashMap<Source, BTreeMap<u64, Entry>>,
    /// Addresses that give way last, and the number each got when it became known.
    known: HashMap<Source, u64>,
}

#[derive(Debug)]
struct Entry {
    is_at_work: bool,
    /// Dropped to have it leave.
    _stays: oneshot::Sender<()>,
}

/// What addresses are distinguished by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Source {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn of(&self, source: Source) -> usize {
        self.of.get(&source).map_or(0, BTreeMap::len)
    }

    /// The address with the most connections, or the oldest of as many; a known one only where
    /// all are.
    fn fullest(&self) -> Option<Source> {
        let rank = |(source, entries): &(&Source, &BTreeMap<u64, Entry>)| {
            let oldest = entries.keys().next().copied();
            (!self.known.contains_key(source), entries.len(), Reverse(oldest))
        };
        self.of.iter().max_by_key(rank).map(|(source, _)| *source)
    }

    /// Has the oldest of an address leave that is not at work; false where all are.
    fn displace(&mut self, source: Source) -> bool {
        let Some(entries) = self.of.get(&source) else { return false };
        let oldest = entries.iter().find(|(_, entry)| !entry.is_at_work);
        let Some(number) = oldest.map(|(&number, _)| number) else { return false };
        self.remove(source, number);
        true
    }

    fn remove(&mut self, source: Source, number: u64) {
        let Some(entries) = self.of.get_mut(&source) else { return };
        self.total -= usize::from(entries.remove(&number).is_some());
        if entries.is_empty() {
            self.of.remove(&source);
        }
    }
}

impl Guests {
    /// No connections yet.
    pub fn new(bounds: Bounds) -> Self {
        let (state, displaced, refused, requests) = Default::default();
        Self { bounds, state, displaced, refused, requests }
    }

    /// Lets a connection from an address in, or refuses it.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let source = Source::of(address);
        let mut state = self.lock();
        let full = if state.of(source) >= self.bounds.most_of_address {
            Some(source)
        } else if state.total >= self.bounds.most {
            state.fullest()
        } else {
            None
        };
        if let Some(full) = full {
            if !state.displace(full) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
        let number = state.number();
        state.total += 1;
        let (stays, displaced) = oneshot::channel();
        let entry = Entry { is_at_work: false, _stays: stays };
        state.of.entry(source).or_default().insert(number, entry);
        Some(Guest { key: Key { guests: self.clone(), source, number }, displaced })
    }

    /// From now on connections from this address give way after those from others. As many
    /// addresses are known as there may be connections; the one that was made known longest ago is
    /// forgotten first.
    pub fn know(&self, address: IpAddr) {
        let mut state = self.lock();
        let number = state.number();
        state.known.insert(Source::of(address), number);
        if state.known.len() > self.bounds.most {
            let first = state.known.iter().min_by_key(|(_, number)| **number);
            if let Some(source) = first.map(|(source, _)| *source) {
                state.known.remove(&source);
            }
        }
    }

    /// How many there are.
    pub fn present(&self) -> usize {
        self.lock().total
    }

    /// How many had to give way.
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// How many were not let in.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many requests came too soon after others from the same address.
    pub fn too_frequent(&self) -> u64 {
        self.requests.refused()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that was let in. It makes room when dropped.
#[derive(Debug)]
pub struct Guest {
    key: Key,
    displaced: oneshot::Receiver<()>,
}

/// Which one it is.
#[derive(Debug)]
struct Key {
    guests: Arc<Guests>,
    source: Source,
    number: u64,
}

impl Guest {
    /// Returns when it has to give way.
    pub async fn displaced(&mut self) {
        // Nothing is ever sent: the other end is dropped.
        let _ = (&mut self.displaced).await;
    }

    /// Whom to say that it is at work.
    pub fn worker(&self) -> Worker {
        let Key { guests, source, number } = &self.key;
        Worker(Arc::new(Key { guests: guests.clone(), source: *source, number: *number }))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Key { guests, source, number } = &self.key;
        guests.lock().remove(*source, *number);
    }
}

/// Says of a connection whether it is at work, and whether it may ask for more.
#[derive(Clone, Debug)]
pub struct Worker(Arc<Key>);

impl Worker {
    /// It is, until what is given is dropped.
    pub fn begin(&self) -> AtWork {
        self.set(true);
        AtWork(self.clone())
    }

    /// Whether its address may make a request now, or has made too many lately.
    pub fn may_ask(&self) -> bool {
        let Key { guests, source, .. } = &*self.0;
        guests.requests.allows(*source, Instant::now())
    }

    fn set(&self, is_at_work: bool) {
        let Key { guests, source, number } = &*self.0;
        let mut state = guests.lock();
        if let Some(entry) = state.of.get_mut(source).and_then(|of| of.get_mut(number)) {
            entry.is_at_work = is_at_work;
        }
    }
}

/// While this lives, its connection is at work.
#[derive(Debug)]
pub struct AtWork(Worker);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests() -> Arc<Guests> {
        Arc::new(Guests::new(Bounds { most: 8, most_of_address: 4 }))
    }

    fn is_displaced(guest: &mut Guest) -> bool {
        guest.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_opens_many_displaces_himself_alone() {
        let (guests, [own, other]) = (guests(), ["10.0.0.1", "10.0.0.2"].map(address));
        let mut honest = guests.enter(own).unwrap();
        let mut many: Vec<Guest> = (0..1000).map(|_| guests.enter(other).unwrap()).collect();
        assert!(!is_displaced(&mut honest));
        assert_eq!((guests.present(), guests.displaced()), (5, 996));
        assert!(many[..996].iter_mut().all(is_displaced));
        assert!(!many[996..].iter_mut().any(is_displaced));
        drop(many);
        assert_eq!(guests.present(), 1);
    }

    #[test]
    fn from_many_addresses_the_fullest_gives_way() {
        let guests = guests();
        let mut pair: Vec<Guest> =
            (0..2).map(|_| guests.enter(address("10.0.0.1")).unwrap()).collect();
        let rest = (2..8).map(|n| guests.enter(IpAddr::from([10, 0, 0, n])).unwrap());
        let rest: Vec<Guest> = rest.collect();
        let _new = guests.enter(address("10.0.0.99")).unwrap();
        assert!(is_displaced(&mut pair[0]) && !is_displaced(&mut pair[1]));
        assert_eq!((guests.present(), rest.len()), (8, 6));
    }

    /// One connection from each of so many addresses that are not known.
    fn crowd(guests: &Arc<Guests>, size: u8) -> Vec<Guest> {
        (0..size).map(|n| guests.enter(IpAddr::from([10, 0, 1, n])).unwrap()).collect()
    }

    #[test]
    fn of_addresses_with_as_many_the_oldest_gives_way_and_known_ones_last() {
        let (guests, known) = (guests(), address("10.0.0.1"));
        guests.know(known);
        let mut back = guests.enter(known).unwrap();
        let mut crowd = crowd(&guests, 250);
        assert!(!is_displaced(&mut back));
        assert!(crowd[..243].iter_mut().all(is_displaced), "in the order in which they came");
        assert!(!crowd[243..].iter_mut().any(is_displaced));

        let _more: Vec<Guest> = (0..4).map(|_| guests.enter(known).unwrap()).collect();
        assert!(is_displaced(&mut back), "a known address has no more than others");
    }

    #[test]
    fn as_many_addresses_are_known_as_there_may_be_connections() {
        let guests = guests();
        let known: Vec<IpAddr> = (0..9).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        known.iter().for_each(|&address| guests.know(address));
        let mut forgotten = guests.enter(known[0]).unwrap();
        let mut last = guests.enter(known[8]).unwrap();
        let _crowd = crowd(&guests, 8);
        assert!(is_displaced(&mut forgotten) && !is_displaced(&mut last));
    }

    #[test]
    fn who_is_at_work_stays() {
        let guests = guests();
        let mut four: Vec<Guest> =
            (0..4).map(|_| guests.enter(address("10.0.0.1")).unwrap()).collect();
        let mut work: Vec<AtWork> = four.iter().map(|guest| guest.worker().begin()).collect();
        assert!(guests.enter(address("::ffff:10.0.0.1")).is_none());
        assert_eq!((guests.refused(), guests.present()), (1, 4));
        work.remove(2);
        let _fifth = guests.enter(address("10.0.0.1")).unwrap();
        assert!(is_displaced(&mut four[2]) && !is_displaced(&mut four[0]));
    }

    #[test]
    fn hosts_with_many_ipv6_addresses_have_one() {
        let guests = guests();
        let kept: Vec<_> =
            (0..8).map(|n| guests.enter(address(&format!("2001:db8::{n}")))).collect();
        assert_eq!((guests.present(), kept.len()), (4, 8));
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
