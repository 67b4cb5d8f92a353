//! What is to happen, in the order of time: in the simulation, and on a live fabric's slow links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of things to come. What comes at the same time comes in the order in which it was put
/// in.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }

    pub(crate) fn push(&mut self, at_ns: u64, what: T) {
        self.number += 1;
        self.heap.push(Reverse(Entry { at_ns, number: self.number, what }));
    }

    /// When the next thing comes, if there is one.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }

    /// The next thing, if it comes before `end_ns`, and its time.
    pub(crate) fn pop_before(&mut self, end_ns: u64) -> Option<(u64, T)> {
        if self.next_ns()? >= end_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}
