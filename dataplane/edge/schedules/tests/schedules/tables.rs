//! Tables that are published while lcores forward by those before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use calumma_edge::forward::config::Plan;
use calumma_edge::forward::tables::{Hop, Lpm, Publisher, Tables, TablesReader};
use calumma_plane::sync::scheduled::point;
use ipnet::IpNet;
use shuttle::thread;

use super::{draw, explore};

/// Tables of which each address has the number as its hop. They know whether they are still there,
/// and that the thread which published them frees them, never one that reads.
#[derive(Debug)]
struct Numbered {
    number: u64,
    is_there: AtomicBool,
    left: Arc<AtomicU64>,
    publisher: thread::ThreadId,
}

impl Lpm for Numbered {
    fn lookup4(&self, _: &[u32], hops: &mut [u64]) {
        for hop in hops {
            point();
            assert!(self.is_there.load(Relaxed), "tables number {} were freed", self.number);
            *hop = self.number;
        }
    }

    fn lookup6(&self, _: &[[u8; 16]], _: &mut [u64]) {}
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.is_there.store(false, Relaxed);
        self.left.fetch_sub(1, Relaxed);
        if !std::thread::panicking() {
            assert_eq!(thread::current().id(), self.publisher, "an lcore frees tables");
        }
    }
}

fn plan() -> Plan {
    Plan {
        interfaces: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        unknown: None,
        multicast: None,
        neighbour_ns: 1,
        icmp_errors_a_second: 0,
        ports: 0,
        shim: None,
    }
}

/// Tables with a number; `left` counts those that are there.
fn tables(number: u64, left: &Arc<AtomicU64>) -> Tables {
    left.fetch_add(1, Relaxed);
    let (left, publisher) = (left.clone(), thread::current().id());
    let build = move |_: &[(IpNet, Hop)]| -> anyhow::Result<Arc<dyn Lpm>> {
        let (is_there, left) = (AtomicBool::new(true), left.clone());
        Ok(Arc::new(Numbered { number, is_there, left, publisher }))
    };
    Tables::new(&plan(), &build).expect("tables without routes")
}

/// Forwards bursts until the last tables have come; numbers must never fall, nor be lower than what
/// was published before the burst began.
fn forward(mut reader: TablesReader, published: &AtomicU64, last: u64) -> TablesReader {
    let mut seen = 0;
    while seen < last {
        let least = published.load(Relaxed);
        let mut hops = [0; 4];
        let tables = reader.load();
        tables.lpm().lookup4(&[0; 4], &mut hops);
        assert!(hops.iter().all(|&hop| hop == hops[0]), "one burst by two tables: {hops:?}");
        assert!(hops[0] >= seen.max(least), "{hops:?} after {seen}, where {least} are published");
        seen = hops[0];
        thread::yield_now();
    }
    reader
}

fn schedule() {
    let (left, published) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let last = 1 + draw(6) as u64;
    let readers = 1 + draw(3);
    let mut publisher = Publisher::new(tables(0, &left));
    thread::scope(|scope| {
        let published = &published;
        let lcores: Vec<_> = (0..readers)
            .map(|_| publisher.reader())
            .map(|reader| scope.spawn(move || forward(reader, published, last)))
            .collect();
        for number in 1..=last {
            for _ in 0..draw(4) {
                publisher.drop_unused();
                thread::yield_now();
            }
            if draw(2) == 0 {
                // What changes is not the routes.
                publisher.publish(publisher.current().with_neighbours(std::iter::empty()));
            }
            publisher.publish(tables(number, &left));
            published.store(number, Relaxed);
        }
        let readers: Vec<_> = lcores.into_iter().map(|of| of.join().expect("an lcore")).collect();
        // All read the last ones; nobody reads any other.
        publisher.drop_unused();
        assert_eq!(left.load(Relaxed), 1, "tables that nobody uses are not freed");
        drop(readers);
    });
    drop(publisher);
    assert_eq!(left.load(Relaxed), 0);
}

#[test]
fn tables_are_freed_by_who_published_them_once_no_lcore_reads_them() {
    explore(schedule);
}
