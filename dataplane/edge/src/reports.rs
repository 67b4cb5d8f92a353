//! Sends the telemetry reports of sinks to a collector, over UDP, on a thread of their own.
//!
//! Lcores hand packets on ([`Outlets`]); the thread asks for what there is every few milliseconds,
//! puts as many reports into a datagram as fit, and sends no more in a second than it may.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use calumma_cpus::Cpus;
use calumma_plane::int::report::{SEQUENCES, put, put_group};
use calumma_plane::outlet::{Counts, Outlets, Sample};
use calumma_plane::sync::Receiver;
use tracing::{info, warn};

use crate::config::ReportsConfig;

/// How often the thread looks for what there is to report.
const TICK: Duration = Duration::from_millis(5);

/// The unused time, in nanoseconds, whose reports may be sent at once.
const MOST_SAVED_NS: u64 = 100_000_000;

/// The part of the switch that reports: there is one.
const HARDWARE: u8 = 0;

/// Starts the thread, which ends once `over` is set; `rings` has what each lcore hands on.
///
/// # Errors
/// When there is no socket or no thread to be had.
pub fn start(
    config: &ReportsConfig,
    (outlets, rings): (Outlets, Vec<Receiver<Sample>>),
    cpus: &Cpus,
    over: Arc<AtomicBool>,
) -> anyhow::Result<JoinHandle<()>> {
    let collector = config.collector;
    let any = match collector.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).context("a socket for telemetry reports")?;
    let connected = socket.connect(collector);
    connected.with_context(|| format!("sketchint.reports.collector: {collector}"))?;
    info!("telemetry reports go to {collector}, at most {} a second", config.per_second);
    let (per_second, most) = (config.per_second, config.datagram_bytes());
    let thread = cpus.spawn("reports", move || {
        let Some(counts) = outlets.counts() else { return };
        let mut is_refused = false;
        let send = |datagram: &[u8]| {
            let sent = socket.send(datagram).map(drop);
            if let (false, Err(problem)) = (is_refused, &sent) {
                warn!("telemetry reports to {collector}: {problem}");
            }
            is_refused = sent.is_err();
            sent
        };
        let mut exporter = Exporter::new(per_second, most, counts, send);
        let begin = Instant::now();
        loop {
            // What lcores have handed on before they ended is sent as well.
            let is_over = over.load(Ordering::Relaxed);
            let now_ns = begin.elapsed().as_nanos() as u64;
            for sample in rings.iter().flat_map(|ring| ring.try_iter()) {
                exporter.take(&sample, now_ns);
            }
            exporter.flush();
            if is_over {
                return;
            }
            std::thread::sleep(TICK);
        }
    })?;
    Ok(thread)
}

/// How many reports may be sent: a bucket of time that is not used yet.
#[derive(Debug)]
struct Limit {
    cost_ns: u64,
    saved_ns: u64,
    last_ns: u64,
}

impl Limit {
    fn new(per_second: u32) -> Self {
        let cost_ns = 1_000_000_000_u64.div_ceil(per_second.max(1).into());
        Self { cost_ns, saved_ns: cost_ns.max(MOST_SAVED_NS), last_ns: 0 }
    }

    /// Whether one more may be sent.
    fn allows(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        self.saved_ns =
            self.saved_ns.saturating_add(passed_ns).min(self.cost_ns.max(MOST_SAVED_NS));
        let allows = self.saved_ns >= self.cost_ns;
        self.saved_ns -= if allows { self.cost_ns } else { 0 };
        allows
    }
}

/// Makes datagrams of reports.
struct Exporter<'a, S> {
    limit: Limit,
    /// Bytes that a datagram may have.
    most: usize,
    counts: &'a Counts,
    send: S,
    /// The next number of each node that has reported: a switch gets another where its controller
    /// gives it one.
    sequences: BTreeMap<u32, u32>,
    node: u32,
    datagram: Vec<u8>,
    report: Vec<u8>,
    /// Reports in the datagram.
    reports: u64,
}

impl<'a, S: FnMut(&[u8]) -> io::Result<()>> Exporter<'a, S> {
    fn new(per_second: u32, most: usize, counts: &'a Counts, send: S) -> Self {
        let (limit, sequences) = (Limit::new(per_second), BTreeMap::new());
        let [datagram, report] = [Vec::with_capacity(most), Vec::new()];
        Self { limit, most, counts, send, sequences, node: 0, datagram, report, reports: 0 }
    }

    /// Reports a packet, unless there are too many.
    fn take(&mut self, sample: &Sample, now_ns: u64) {
        if !self.limit.allows(now_ns) {
            self.counts.limited.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.report.clear();
        put(&mut self.report, &sample.summary, sample.packet());
        let is_full = self.datagram.len() + self.report.len() > self.most;
        if self.reports > 0 && (is_full || self.node != sample.node) {
            self.flush();
        }
        if self.reports == 0 {
            self.node = sample.node;
            let sequence = self.sequences.entry(self.node).or_default();
            put_group(&mut self.datagram, (HARDWARE, *sequence), self.node);
            *sequence = (*sequence + 1) % SEQUENCES;
        }
        self.datagram.extend_from_slice(&self.report);
        self.reports += 1;
    }

    /// Sends what there is. The number of a datagram that can't be sent is not given to another.
    fn flush(&mut self) {
        if self.reports == 0 {
            return;
        }
        let sent = (self.send)(&self.datagram).is_ok();
        let count = if sent { &self.counts.sent } else { &self.counts.dropped };
        count.fetch_add(self.reports, Ordering::Relaxed);
        self.datagram.clear();
        self.reports = 0;
    }
}

#[cfg(test)]
mod tests {
    use calumma_plane::int::report::{GROUP, Reasons, Summary};
    use proptest::prelude::*;

    use super::*;

    fn sample(node: u32, len: usize) -> Sample {
        let summary = Summary { reasons: Reasons::TRACKED, ..Summary::new(1) };
        Sample::new(node, summary, &[0x45; 256][..len])
    }

    proptest! {
        /// Whatever comes when: in no span of time are there more than may be, none is lost without
        /// being counted, and datagrams are numbered one by one for each node, and fit.
        #[test]
        fn reports_keep_to_their_limits(
            per_second in 1_u32..5000,
            most in 600_usize..1473,
            bursts in prop::collection::vec((0_u64..300_000_000, 0_usize..400, 1_u32..3), 1..30),
        ) {
            let (counts, mut sent) = (Counts::default(), Vec::new());
            let mut of_burst = Vec::new();
            let mut taken = 0;
            let send = |datagram: &[u8]| {
                sent.push(datagram.to_vec());
                Ok(())
            };
            let mut exporter = Exporter::new(per_second, most, &counts, send);
            let mut now_ns = 0;
            for (later_ns, packets, node) in bursts {
                now_ns += later_ns;
                let before = counts.limited.load(Ordering::Relaxed);
                for len in 0..packets {
                    exporter.take(&sample(node, 28 + len % 100), now_ns);
                }
                exporter.flush();
                taken += packets as u64;
                let limited = counts.limited.load(Ordering::Relaxed) - before;
                of_burst.push((now_ns, packets as u64 - limited));
            }
            drop(exporter);
            for (first, &(from_ns, _)) in of_burst.iter().enumerate() {
                let mut reports = 0;
                for &(until_ns, more) in &of_burst[first..] {
                    reports += more;
                    let span_ns = (until_ns - from_ns).saturating_add(MOST_SAVED_NS);
                    let may = u128::from(per_second) * u128::from(span_ns) / 1_000_000_000;
                    prop_assert!(u128::from(reports) <= may.max(1) + u128::from(span_ns > MOST_SAVED_NS));
                }
            }
            let [all, limited] = [&counts.sent, &counts.limited].map(|of| of.load(Ordering::Relaxed));
            prop_assert_eq!(all + limited, taken);
            let mut next = BTreeMap::<u32, u32>::new();
            let mut reports = 0;
            for datagram in &sent {
                let word = |at: usize| u32::from_be_bytes(*datagram[at..].first_chunk().unwrap());
                let number = next.entry(word(4)).or_default();
                prop_assert_eq!(word(0), 2 << 28 | *number);
                *number += 1;
                prop_assert!(datagram.len() <= most);
                let mut at = GROUP;
                while at < datagram.len() {
                    at += 4 * (1 + usize::from(datagram[at + 1]));
                    reports += 1;
                }
                prop_assert_eq!(at, datagram.len());
            }
            prop_assert_eq!(reports, all);
        }
    }

    #[test]
    fn a_datagram_that_the_host_refuses_leaves_a_gap() {
        let (counts, mut numbers) = (Counts::default(), Vec::new());
        let send = |datagram: &[u8]| {
            numbers.push(datagram[3]);
            if numbers.len() == 2 { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
        };
        let mut exporter = Exporter::new(1000, 1472, &counts, send);
        for packets in [1, 3, 2] {
            (0..packets).for_each(|_| exporter.take(&sample(7, 100), 0));
            exporter.flush();
        }
        exporter.flush();
        drop(exporter);
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(counts.sent.into_inner(), 3);
        assert_eq!(counts.dropped.into_inner(), 3);
    }
}
