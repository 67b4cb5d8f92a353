//! Slow outputs: disks, other hosts, terminals and pipes, each on a thread of its own.
//!
//! The analysis thread hands a report over and goes on. A sink that doesn't keep up loses reports,
//! which is counted, and never holds up the measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calumma_analysis::{Published, Report};
use tracing::warn;

use super::Output;

/// Reports that may wait for a sink.
const REPORTS_WAITING: usize = 256;

/// Reports after which a sink is synced at the latest; before, as soon as none waits.
const MOST_UNSYNCED: usize = 16;

/// How often a sink is woken when no report comes.
const TICK: Duration = Duration::from_secs(1);

/// How long a terminal or a pipe may stand still at the end before it is waited for no longer, and
/// how often it is looked for.
const LAST_LINES: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// Takes reports on a thread of its own. Errors are logged and counted; the next report comes.
pub trait Sink: Send + 'static {
    /// What the log and the metrics call it.
    fn name(&self) -> &'static str;

    /// Takes a report.
    ///
    /// # Errors
    /// When something is lost.
    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()>;

    /// Takes what is reported before its epoch is over; nobody relies on it.
    ///
    /// # Errors
    /// When something is lost.
    fn notice(&mut self, _published: &Published) -> anyhow::Result<()> {
        Ok(())
    }

    /// Has all that was taken outlive the machine, where that is what the sink is for. Comes before
    /// anyone relies on it.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Does what time alone asks for; comes about once a second while no report does.
    ///
    /// # Errors
    /// When something is lost.
    fn tick(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Writes out what is still held back.
    ///
    /// # Errors
    /// When something is lost.
    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// How a sink fares.
#[derive(Debug)]
pub struct SinkStatus {
    name: &'static str,
    accepted: AtomicU64,
    /// What it has begun to take, notices as well: whether it moves on.
    begun: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

impl SinkStatus {
    /// What the log and the metrics call it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Reports that it accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Reports that it never saw, since it was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Times that it failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    fn note(&self, problem: &anyhow::Error) {
        // The first of many says enough; a full disk fails every epoch.
        if (self.failures.fetch_add(1, Relaxed) + 1).is_power_of_two() {
            warn!("{}: {problem:#}", self.name);
        }
    }

    fn check(&self, result: anyhow::Result<()>) {
        if let Err(problem) = result {
            self.note(&problem);
        }
    }
}

/// What sinks are given.
#[derive(Clone, Debug)]
enum Item {
    Report(Arc<Published>),
    Notice(Arc<Published>),
}

/// What becomes of a sink at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is waited for, and what it has lost is a failure.
    Whole,
    /// It is waited for while it moves on, since nobody may read what it writes. What it has lost
    /// is a failure.
    Moving,
    /// It shows reports to somebody: it is waited for while it moves on, and what was not shown is
    /// no failure.
    Shown,
}

/// A sink's thread and the way to it.
#[derive(Debug)]
struct Worker {
    status: Arc<SinkStatus>,
    sender: SyncSender<Item>,
    thread: JoinHandle<()>,
    end: End,
}

/// An output whose writes may wait for whoever reads them.
struct Piped<O>(&'static str, O);

impl<O: Output + 'static> Sink for Piped<O> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
        self.1.report(&*published.report, &published.json);
        Ok(())
    }

    fn notice(&mut self, published: &Published) -> anyhow::Result<()> {
        self.1.notice(&*published.report, &published.json);
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.1.finish()
    }
}

/// All sinks, as one [`Output`].
#[derive(Debug, Default)]
pub struct Background {
    workers: Vec<Worker>,
}

impl Background {
    /// Starts a thread for `sink`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn add(&mut self, sink: impl Sink) -> anyhow::Result<()> {
        self.add_keeping(sink, |_| ())
    }

    /// As [`add`](Self::add), for a sink that others rely on: `kept` is called for each report that
    /// it has taken and synced, on its thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn add_keeping(
        &mut self,
        sink: impl Sink,
        kept: impl Fn(&dyn Report) + Send + 'static,
    ) -> anyhow::Result<()> {
        self.start(sink, kept, End::Whole)
    }

    /// Starts a thread for an output to a pipe: where nobody reads, reports are dropped, and that
    /// is a failure at the end.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn add_pipe(
        &mut self,
        name: &'static str,
        output: impl Output + 'static,
    ) -> anyhow::Result<()> {
        self.start(Piped(name, output), |_| (), End::Moving)
    }

    /// Starts a thread for an output that somebody looks at, who may not want all of it: where
    /// nobody reads, reports are dropped, and that is no failure.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn add_shown(
        &mut self,
        name: &'static str,
        output: impl Output + 'static,
    ) -> anyhow::Result<()> {
        self.start(Piped(name, output), |_| (), End::Shown)
    }

    fn start(
        &mut self,
        sink: impl Sink,
        kept: impl Fn(&dyn Report) + Send + 'static,
        end: End,
    ) -> anyhow::Result<()> {
        let name = sink.name();
        let status = Arc::new(SinkStatus {
            name,
            accepted: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        let (sender, receiver) = sync_channel(REPORTS_WAITING);
        let own = status.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(sink, &own, &receiver, kept))?;
        self.workers.push(Worker { status, sender, thread, end });
        Ok(())
    }
}

/// Has a sink take reports and then sync them; gives those that others may rely on. `note` gets
/// what fails.
pub fn keep(
    sink: &mut impl Sink,
    reports: impl IntoIterator<Item = Arc<Published>>,
    note: impl Fn(anyhow::Error),
) -> Vec<Arc<Published>> {
    let mut taken = Vec::new();
    for published in reports {
        match sink.take(&published) {
            Ok(()) => taken.push(published),
            Err(lost) => note(lost),
        }
    }
    if let Err(problem) = sink.sync() {
        note(problem);
        taken.clear();
    }
    taken
}

fn run(
    mut sink: impl Sink,
    status: &SinkStatus,
    reports: &Receiver<Item>,
    kept: impl Fn(&dyn Report),
) {
    loop {
        match reports.recv_timeout(TICK) {
            Ok(first) => {
                let mut some = Vec::new();
                for item in std::iter::once(first).chain(reports.try_iter()).take(MOST_UNSYNCED) {
                    match item {
                        Item::Report(published) => some.push(published),
                        Item::Notice(published) => {
                            status.begun.fetch_add(1, Relaxed);
                            status.check(sink.notice(&published));
                        }
                    }
                }
                status.accepted.fetch_add(some.len() as u64, Relaxed);
                let some = some.into_iter().inspect(|_| {
                    status.begun.fetch_add(1, Relaxed);
                });
                let taken = keep(&mut sink, some, |problem| status.note(&problem));
                taken.iter().for_each(|published| kept(&*published.report));
            }
            Err(RecvTimeoutError::Timeout) => status.check(sink.tick()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    status.check(sink.finish());
}

impl Background {
    fn give(&self, report: &dyn Report, json: &str, item: impl Fn(Arc<Published>) -> Item) {
        if self.workers.is_empty() {
            return;
        }
        let published = Arc::new(Published { report: report.to_shared(), json: json.to_owned() });
        for Worker { status, sender, .. } in &self.workers {
            if sender.try_send(item(published.clone())).is_err() {
                let dropped = status.dropped.fetch_add(1, Relaxed) + 1;
                if dropped.is_power_of_two() {
                    warn!("{}: too slow or gone; {dropped} reports dropped so far", status.name);
                }
            }
        }
    }
}

impl Output for Background {
    fn report(&mut self, report: &dyn Report, json: &str) {
        self.give(report, json, Item::Report);
    }

    fn notice(&mut self, report: &dyn Report, json: &str) {
        self.give(report, json, Item::Notice);
    }

    fn sinks(&self) -> Vec<Arc<SinkStatus>> {
        self.workers.iter().map(|worker| worker.status.clone()).collect()
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let mut lost = Vec::new();
        for Worker { status, sender, thread, end } in self.workers.drain(..) {
            drop(sender);
            if end != End::Whole && !ends(&thread, &status) {
                warn!("{}: not read, or too slowly; what is left is not written", status.name);
                if end == End::Moving {
                    lost.push(format!("{}: not read, or too slowly", status.name));
                }
            } else if thread.join().is_err() {
                lost.push(format!("{} panicked", status.name));
            } else if end != End::Shown && status.failures() + status.dropped() > 0 {
                let (failures, dropped) = (status.failures(), status.dropped());
                lost.push(format!("{}: {failures} failures, {dropped} dropped", status.name));
            }
        }
        anyhow::ensure!(lost.is_empty(), "not everything was passed on: {}", lost.join("; "));
        Ok(())
    }
}

/// Whether a sink's thread ends without standing still for [`LAST_LINES`].
fn ends(thread: &JoinHandle<()>, status: &SinkStatus) -> bool {
    let mut since = Instant::now();
    let mut begun = status.begun.load(Relaxed);
    while !thread.is_finished() {
        let now = status.begun.load(Relaxed);
        if now != begun {
            (since, begun) = (Instant::now(), now);
        } else if since.elapsed() >= LAST_LINES {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use std::sync::mpsc;

    /// Waits for a word before each report, and fails on epoch 3.
    struct Slow {
        go: mpsc::Receiver<()>,
        seen: mpsc::Sender<u64>,
    }

    /// Stands still until the other end of the channel is gone.
    struct Still(mpsc::Receiver<()>);

    impl Output for Still {
        fn report(&mut self, _: &dyn Report, _: &str) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_nobody_reads_is_waited_for_a_moment_at_the_end() {
        for is_shown in [true, false] {
            let (still, output) = mpsc::channel();
            let mut background = Background::default();
            let added = match is_shown {
                true => background.add_shown("still", Still(output)),
                false => background.add_pipe("still", Still(output)),
            };
            added.unwrap();
            background.report(&sample(), "");
            assert_eq!(background.finish().is_ok(), is_shown);
            drop(still);
        }
    }

    /// Takes its time for each report, and says when it has it.
    struct Sluggish(mpsc::Sender<()>);

    impl Output for Sluggish {
        fn report(&mut self, _: &dyn Report, _: &str) {
            std::thread::sleep(LAST_LINES / 5);
            let _ = self.0.send(());
        }
    }

    #[test]
    fn who_reads_slowly_gets_all_at_the_end() {
        let (has, had) = mpsc::channel();
        let mut background = Background::default();
        background.add_pipe("sluggish", Sluggish(has)).unwrap();
        (0..8).for_each(|_| background.report(&sample(), ""));
        background.finish().unwrap();
        assert_eq!(had.iter().count(), 8);
    }

    /// Fails to take epoch 3, and to sync epoch 5; says what it did.
    struct Keeper {
        last: u64,
        did: mpsc::Sender<String>,
    }

    impl Sink for Keeper {
        fn name(&self) -> &'static str {
            "keeper"
        }

        fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
            self.last = published.report.head().epoch;
            let _ = self.did.send(format!("take {}", self.last));
            anyhow::ensure!(self.last != 3, "no room");
            Ok(())
        }

        fn sync(&mut self) -> anyhow::Result<()> {
            let _ = self.did.send(format!("sync {}", self.last));
            anyhow::ensure!(self.last != 5, "no disk");
            Ok(())
        }
    }

    #[test]
    fn what_a_sink_has_not_synced_is_not_relied_on() {
        let (did, done) = mpsc::channel();
        let mut background = Background::default();
        let say = did.clone();
        let kept = move |report: &dyn Report| {
            let _ = say.send(format!("kept {}", report.head().epoch));
        };
        background.add_keeping(Keeper { last: 0, did }, kept).unwrap();
        let mut report = sample();
        let mut all = Vec::new();
        for epoch in 1..=6 {
            report.epoch = epoch;
            background.report(&report, "");
            let last = format!("sync {epoch}");
            while all.last() != Some(&last) {
                all.push(done.recv().unwrap());
            }
        }
        assert!(background.finish().is_err());
        all.extend(done.iter());
        let expected = [1, 2, 3, 4, 5, 6].into_iter().flat_map(|epoch| {
            let kept = (epoch != 3 && epoch != 5).then(|| format!("kept {epoch}"));
            [format!("take {epoch}"), format!("sync {epoch}")].into_iter().chain(kept)
        });
        assert_eq!(all, expected.collect::<Vec<_>>());
    }

    impl Sink for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn take(&mut self, published: &Arc<Published>) -> anyhow::Result<()> {
            let _ = self.go.recv();
            let _ = self.seen.send(published.report.head().epoch);
            anyhow::ensure!(published.report.head().epoch != 3, "no room");
            Ok(())
        }
    }

    #[test]
    fn a_slow_sink_loses_reports_that_are_counted_and_holds_up_no_one() {
        let (go, wait) = mpsc::channel();
        let (seen, saw) = mpsc::channel();
        let mut background = Background::default();
        background.add(Slow { go: wait, seen }).unwrap();
        let status = background.sinks().remove(0);
        let mut report = sample();
        let more = 2 * MOST_UNSYNCED;
        for epoch in 0..(REPORTS_WAITING + more) as u64 {
            report.epoch = epoch;
            background.report(&report, "");
        }
        // Some may be with the sink already.
        let dropped = status.dropped() as usize;
        assert!((more - MOST_UNSYNCED..=more).contains(&dropped), "{dropped}");
        drop(go);
        let problem = background.finish().unwrap_err().to_string();
        assert!(problem.contains("slow: 1 failures"), "{problem}");
        let seen: Vec<u64> = saw.iter().collect();
        assert_eq!(seen.len() as u64, status.accepted());
        assert!(seen.is_sorted() && seen[0] == 0);
    }
}
