//! Takes finished groups out of the switch and clears them: by packets through the CPU port, or by
//! reads through the driver.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calumma_bfrt::ClientError;
use calumma_interface::{MAX_FRAME, Plug};
use calumma_switch_host::unix_ns;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::collection::{Clearing, Gathering, ReportError, Sender, Source};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::notices::{Inbox, Received};

/// How groups come out.
pub enum Way {
    /// By packets through the CPU port.
    Packets {
        /// The CPU port.
        port: Box<dyn Plug>,
        /// How long no packet must have come for the missing ones to be asked for again.
        retry: Duration,
    },
    /// By reads through the driver.
    Registers,
}

/// How long to wait for notices that are missing.
const PATIENCE: Duration = Duration::from_millis(1);

/// Most packets that are taken from the CPU port in one go.
const AT_ONCE: usize = 1 << 16;

/// Takes groups out of one switch.
pub struct Collector {
    driver: Driver,
    way: Way,
    /// The number of the next round of requests.
    next_round: u32,
    inbox: Inbox,
    counters: Arc<Counters>,
}

/// What goes on with packets until it is complete.
trait Exchange {
    fn requests(&mut self) -> Vec<Vec<u8>>;
    fn take(&mut self, packet: &[u8]) -> Result<Sender, ReportError>;
    fn is_complete(&self) -> bool;
}

impl Exchange for Gathering {
    fn requests(&mut self) -> Vec<Vec<u8>> {
        self.requests()
    }

    fn take(&mut self, packet: &[u8]) -> Result<Sender, ReportError> {
        self.take(packet)
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

impl Exchange for Clearing {
    fn requests(&mut self) -> Vec<Vec<u8>> {
        self.requests()
    }

    fn take(&mut self, packet: &[u8]) -> Result<Sender, ReportError> {
        self.take(packet)
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

impl Collector {
    /// A collector for that switch.
    pub fn new(driver: Driver, mut way: Way, counters: Arc<Counters>) -> Collector {
        // Notices that wait have numbers of an earlier session.
        receive(&mut way, &mut Inbox::default());
        // Milliseconds, of which a round takes one or more: numbers that no earlier session has
        // had, so that its late reports are not mistaken for this one's.
        let next_round = (unix_ns() / 1_000_000) as u32;
        Collector { driver, way, next_round, inbox: Inbox::default(), counters }
    }

    /// The way, for the next collector.
    pub fn into_way(self) -> Way {
        self.way
    }

    /// Takes the notices that wait at the CPU port.
    pub fn receive(&mut self) {
        receive(&mut self.way, &mut self.inbox);
    }

    /// What notices said that came since this was asked last, each with its stream.
    pub fn news(&mut self) -> VecDeque<(u8, Vec<u8>)> {
        self.inbox.news()
    }

    /// What came of the events that have these numbers, by stream. Waits a little for notices that
    /// are missing.
    pub fn notices(&mut self, numbers: &[Range<u32>]) -> Vec<Received> {
        self.receive();
        let mut received = self.inbox.all(numbers);
        if let Way::Packets { port, .. } = &self.way
            && received.iter().any(|of| of.missing > 0)
        {
            wait(&**port, PATIENCE);
            self.receive();
            received = self.inbox.all(numbers);
        }
        for of in &received {
            self.counters.noticed.add(of.bodies.len() as u64);
            self.counters.unnoticed.add(of.missing);
        }
        received
    }

    /// Forgets what came of events whose numbers others will have ([`Inbox::forget`]).
    pub fn forget(&mut self, numbers: &[Range<u32>]) {
        self.inbox.forget(numbers);
    }

    /// The words of each source's group of timestamp bit `bit`; none where `until` comes first.
    ///
    /// # Errors
    /// When the driver refuses to read.
    pub fn gather(
        &mut self,
        sources: &[Source],
        bit: u32,
        until: Instant,
    ) -> Result<Option<Vec<Vec<u32>>>, ClientError> {
        match &mut self.way {
            Way::Packets { port, retry } => {
                let of = |source| Gathering::new(source, bit, self.next_round);
                let mut gatherings: Vec<_> = sources.iter().map(of).collect();
                let beside = (&mut self.inbox, &*self.counters);
                let rounds = exchange(&mut **port, *retry, &mut gatherings, until, beside);
                self.next_round = self.next_round.wrapping_add(rounds);
                Ok(gatherings.iter().map(Gathering::words).collect())
            }
            Way::Registers => {
                let mut all = Vec::with_capacity(sources.len());
                for source in sources {
                    if Instant::now() > until {
                        return Ok(None);
                    }
                    all.push(read(&self.driver, source, bit)?);
                }
                Ok(Some(all))
            }
        }
    }

    /// Clears each source's group of timestamp bit `bit`; false where `until` comes first.
    ///
    /// # Errors
    /// When the driver refuses to write.
    pub fn clear(
        &mut self,
        sources: &[Source],
        bit: u32,
        until: Instant,
    ) -> Result<bool, ClientError> {
        match &mut self.way {
            Way::Packets { port, retry } => {
                let of = |source| Clearing::new(source, bit, self.next_round);
                let mut clearings: Vec<_> = sources.iter().map(of).collect();
                let beside = (&mut self.inbox, &*self.counters);
                let rounds = exchange(&mut **port, *retry, &mut clearings, until, beside);
                self.next_round = self.next_round.wrapping_add(rounds);
                Ok(clearings.iter().all(Clearing::is_complete))
            }
            Way::Registers => {
                for source in sources {
                    let range = range(source, bit);
                    for register in &source.registers {
                        // Each takes a while, and what is late already must not make others so.
                        if Instant::now() > until {
                            return Ok(false);
                        }
                        self.driver.clear_elements(register, range.clone())?;
                    }
                }
                Ok(Instant::now() < until)
            }
        }
    }
}

/// Takes what waits at the CPU port, and keeps the notices.
fn receive(way: &mut Way, inbox: &mut Inbox) {
    let Way::Packets { port, .. } = way else { return };
    let mut buffer = vec![0; MAX_FRAME];
    // Not for ever: the CPU port has other packets, too.
    for _ in 0..AT_ONCE {
        let Some(packet) = port.receive(&mut buffer) else { break };
        inbox.take(packet);
    }
}

/// Clears both groups of the sources, whatever they hold.
///
/// # Errors
/// When the driver refuses.
pub fn clear_all(driver: &Driver, sources: &[Source]) -> Result<(), ClientError> {
    for register in sources.iter().flat_map(|source| &source.registers) {
        driver.clear(register)?;
    }
    Ok(())
}

/// Sends requests and takes reports until all is complete, or `until` comes; gives the number of
/// rounds that took.
fn exchange(
    port: &mut dyn Plug,
    retry: Duration,
    all: &mut [impl Exchange],
    until: Instant,
    (inbox, counters): (&mut Inbox, &Counters),
) -> u32 {
    let mut buffer = vec![0; MAX_FRAME];
    for packet in all.iter_mut().flat_map(Exchange::requests) {
        port.send(&packet);
    }
    let mut rounds = 1;
    let mut last = Instant::now();
    // Doubled each time: a switch that is slow must not be given more and more to do.
    let mut patience = retry;
    while !all.iter().all(Exchange::is_complete) {
        let now = Instant::now();
        if now >= until {
            break;
        }
        if now >= last + patience {
            for packet in all.iter_mut().flat_map(Exchange::requests) {
                port.send(&packet);
                counters.repeated_packets.add(1);
            }
            counters.retries.add(1);
            rounds += 1;
            patience *= 2;
            last = now;
        }
        let Some(report) = port.receive(&mut buffer) else {
            wait(port, until.min(last + patience).saturating_duration_since(now));
            continue;
        };
        if inbox.take(report) {
            continue;
        }
        // The CPU port has other packets, too.
        let mut senders = all.iter_mut().filter_map(|one| one.take(report).ok());
        match senders.find(|sender| *sender != Sender::Other) {
            // It answers, so what is missing was lost, and not only late.
            Some(Sender::Last) => (last, patience) = (Instant::now(), retry),
            // It is slow.
            Some(Sender::Earlier) => last = Instant::now(),
            Some(Sender::Other) | None => {}
        }
    }
    rounds
}

/// Waits for a frame, for `most` at the longest.
fn wait(port: &dyn Plug, most: Duration) {
    // Rounded up: a wait of nothing would spin.
    let most = most + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    // Interrupted or not, the caller looks at everything next.
    let _ = poll(&mut [PollFd::new(port.as_fd(), PollFlags::POLLIN)], timeout);
}

/// The elements of a group in a source's registers.
fn range(source: &Source, bit: u32) -> Range<u32> {
    bit * source.elements..(bit + 1) * source.elements
}

/// The words of a group, read through the driver.
fn read(driver: &Driver, source: &Source, bit: u32) -> Result<Vec<u32>, ClientError> {
    let range = range(source, bit);
    let mut columns = Vec::new();
    for register in &source.registers {
        columns.push(driver.elements(register, range.clone())?);
    }
    let element = |at: usize| {
        columns.iter().flat_map(move |column| column[at].iter().map(|&word| word as u32))
    };
    Ok((0..range.len()).flat_map(element).collect())
}
