//! What routers lost and doubled, packet by packet: an independent truth for every epoch. Where
//! wires are watched, all that came to switches as well.
//!
//! Rules log each packet that they touch; it still carries the mark of its ingress edge, which says
//! in what epoch it entered and with which hierarchy.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail, ensure};
use calumma_chamelemon::Run;
use calumma_edge::parse::{Parsed, parse};
use calumma_epoch::EpochClock;
use calumma_interface::{Interface, Plug};
use calumma_sketch::WideKey;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::mutants::{NOBODY, ROUTER, flow_of};
use super::nflog::{Log, Logged};
use super::unix_ns;
use super::wires::{Wires, as_sent, stack};
use crate::carrier::{Carrier, Marked};
use crate::fabric::faults::{DOUBLED, LOG_GROUP, LOST};
use crate::fabric::wires::{CAME, ENTERED};
use crate::fabric::wiring::Wiring;
use crate::simulate::{EpochTruth, FlowTruth};
use crate::topology::Segment;

/// Where the parser wants an IP header to begin.
const ETHERNET: usize = 14;

/// Bytes of each packet that are looked at: with a mark before it, where that is a shim.
const HEADERS: u16 = 72;

/// What has been logged.
#[derive(Debug, Default)]
struct Seen {
    /// By epoch and flow, until they are forgotten.
    epochs: BTreeMap<u64, HashMap<WideKey, FlowTruth>>,
    /// Packets lost of each flow, over all time.
    lost: HashMap<WideKey, u64>,
    /// Copies made of packets, over all time.
    doubled: u64,
    /// Of the packets lost and of the copies, those with an INT stack.
    stacks: [u64; 2],
    /// What came to switches.
    wires: Wires,
}

/// What was logged in all.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// Packets lost of each flow.
    pub(super) lost: HashMap<WideKey, u64>,
    /// Copies made of packets.
    pub(super) doubled: u64,
    /// Of the packets lost and of the copies, those with an INT stack.
    pub(super) stacks: [u64; 2],
}

/// Reads the logs of all routers in a thread of its own.
pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    /// What was logged before this time, in nanoseconds since the Unix epoch, has been read.
    read_until_ns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Result<()>>,
}

impl Witness {
    /// Begins to read the logs of the routers; `clock` tells epochs, and packets bear their marks
    /// in `carrier`. Where hosts send `mutants`, it watches for these at routers.
    pub(super) fn start(
        wiring: &Wiring,
        clock: EpochClock,
        carrier: Carrier,
        mutants: bool,
    ) -> Result<Self> {
        let open = |router: usize| {
            let namespace = &wiring.routers()[router];
            let log = namespace.within(|| Log::open(LOG_GROUP, HEADERS))?;
            let watched = mutants && router < wiring.hosts().len();
            let open = || Ok(Interface::open(ROUTER)?);
            let mutants = watched.then(|| namespace.within(open)).transpose()?;
            let is_edge = router < wiring.hosts().len();
            let neighbours = wiring.neighbours(router)?;
            Ok(RouterLog { log, router, is_edge, neighbours, mutants })
        };
        let mut logs = (0..wiring.routers().len()).map(open).collect::<Result<Vec<_>>>()?;
        let (seen, stop) =
            (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let read_until_ns = Arc::new(AtomicU64::new(0));
        let reader = std::thread::spawn({
            let (seen, stop) = (seen.clone(), stop.clone());
            let read_until_ns = read_until_ns.clone();
            move || follow(&mut logs, (clock, carrier), &seen, &read_until_ns, &stop)
        });
        Ok(Self { seen, read_until_ns, stop, reader })
    }

    /// The time before which all that was logged has been read: on a busy machine some time ago.
    pub(super) fn read_until_ns(&self) -> u64 {
        self.read_until_ns.load(Ordering::Acquire)
    }

    /// What happened to packets of `epoch`.
    pub(super) fn of(&self, epoch: u64) -> Result<Vec<FlowTruth>> {
        if self.reader.is_finished() {
            bail!("the log of lost packets is no longer read");
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen.epochs.get(&epoch).into_iter().flat_map(HashMap::values).cloned().collect())
    }

    /// What happened in a window; with what came to switches if wires are `watched`.
    pub(super) fn of_window(&self, epochs: Range<u64>, watched: bool) -> Result<EpochTruth> {
        let flows = epochs.clone().map(|epoch| self.of(epoch)).collect::<Result<Vec<_>>>()?;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let came = watched.then(|| seen.wires.of(epochs));
        Ok(EpochTruth { flows: flows.concat(), came, ..EpochTruth::default() })
    }

    /// Forgets the epochs before `epoch`.
    pub(super) fn forget_before(&self, epoch: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.epochs = seen.epochs.split_off(&epoch);
        seen.wires.forget_before(epoch);
    }

    /// Ends reading, and gives what was logged in all. An error where something was missed.
    pub(super) fn finish(self) -> Result<Logs> {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.join().map_err(|_| anyhow!("reading the log of lost packets panicked"))??;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = std::mem::take(&mut seen.lost);
        Ok(Logs { lost, doubled: seen.doubled, stacks: seen.stacks })
    }
}

/// The log of a router.
struct RouterLog {
    log: Log,
    router: usize,
    /// Whether it is an edge's.
    is_edge: bool,
    /// Neighbouring routers by the index of the interface towards them.
    neighbours: HashMap<u32, usize>,
    /// Where packets arrive that hosts behind its edge have sent to nobody.
    mutants: Option<Interface>,
}

impl RouterLog {
    /// Where a packet was that was logged: on the link that it came in by, or still within its
    /// edge.
    fn place_of(&self, logged: &Logged) -> Segment {
        let neighbour = logged.came_in_by.and_then(|index| self.neighbours.get(&index));
        match neighbour {
            Some(&neighbour) => Segment::link(neighbour, self.router),
            None => Segment::inside(self.router),
        }
    }
}

impl RouterLog {
    /// Notes the packets to nobody that have arrived, each of them lost: the kernel drops it next.
    fn watch_mutants(
        &mut self,
        seen: &mut Seen,
        buffer: &mut [u8],
        (clock, carrier): (EpochClock, Carrier),
    ) -> Result<()> {
        let place = Segment::inside(self.router);
        while let Some(bytes) = self.mutants.as_mut().and_then(|of| of.receive(buffer)) {
            let flow = flow_of(bytes).filter(|_| bytes.starts_with(&NOBODY));
            let Some((key, ip_offset)) = flow else { continue };
            let Some(mark) = carrier.read(&bytes[ip_offset..]) else { continue };
            // Taken behind the packet, whose epoch may have begun since the last one came.
            let epoch = entered_in(mark, clock, unix_ns()?);
            let flow = seen.epochs.entry(epoch).or_default().entry(key);
            let flow = flow.or_insert_with(|| FlowTruth::new(key, 0));
            flow.packets += 1;
            flow.lose(&Run::single(mark.hierarchy));
            add(&mut flow.losses, place);
        }
        Ok(())
    }
}

fn follow(
    logs: &mut [RouterLog],
    epochs: (EpochClock, Carrier),
    seen: &Mutex<Seen>,
    read_until_ns: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let mut buffer = vec![0; 1 << 18];
    while !stop.load(Ordering::Relaxed) {
        let mut polled: Vec<PollFd<'_>> = logs
            .iter()
            .map(|of| PollFd::new(std::os::fd::AsFd::as_fd(&of.log), PollFlags::POLLIN))
            .collect();
        poll(&mut polled, PollTimeout::from(20_u8)).context("waiting for the log")?;
        let now_ns = unix_ns()?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for of in &mut *logs {
            of.watch_mutants(&mut seen, &mut buffer, epochs)?;
            let mut failed = None;
            of.log.read(&mut buffer, |logged| {
                let noted = match logged.prefix.as_str() {
                    CAME | ENTERED => {
                        note_on_wire(&mut seen, &logged, (of.router, of.is_edge), epochs, now_ns)
                    }
                    _ => note(&mut seen, &logged, of.place_of(&logged), epochs, now_ns),
                };
                if let Err(error) = noted {
                    failed = Some(error);
                }
            })?;
            failed.map_or(Ok(()), Err)?;
        }
        read_until_ns.store(now_ns, Ordering::Release);
    }
    Ok(())
}

/// The epoch that a packet entered in: the latest that its mark fits, since it was logged within an
/// epoch's time, less the guard. The clock of the switch that has marked it may be ahead by that.
fn entered_in(mark: Marked, clock: EpochClock, logged_ns: u64) -> u64 {
    mark.epoch_by(clock.epoch_at(logged_ns.saturating_add(clock.guards().clock_ns)))
}

/// Notes a packet for the epoch that it entered in.
fn note(
    seen: &mut Seen,
    logged: &Logged,
    place: Segment,
    (clock, carrier): (EpochClock, Carrier),
    now_ns: u64,
) -> Result<()> {
    let read = carrier.read_behind_ethernet(&logged.packet);
    let flow = read.and_then(|(mark, packet)| Some((key_of(packet)?, mark, packet)));
    let Some((key, mark, packet)) = flow else {
        bail!("a logged packet that no edge can have measured: {:?}", logged.packet);
    };
    let with_stack = u64::from(stack(packet).is_some());
    let epoch = entered_in(mark, clock, logged.time_ns.unwrap_or(now_ns));
    let packet = Run::single(mark.hierarchy);
    let flow = seen.epochs.entry(epoch).or_default().entry(key);
    // Where it entered, its log doesn't say.
    let flow = flow.or_insert_with(|| FlowTruth::new(key, 0));
    flow.packets += 1;
    match logged.prefix.as_str() {
        LOST => {
            flow.lose(&packet);
            add(&mut flow.losses, place);
            *seen.lost.entry(key).or_default() += 1;
            seen.stacks[0] += with_stack;
        }
        DOUBLED => {
            flow.double(&packet);
            add(&mut flow.copies, place);
            seen.doubled += 1;
            seen.stacks[1] += with_stack;
        }
        other => bail!("a packet logged as {other:?}"),
    }
    Ok(())
}

/// Notes a packet that came to the switch beside a router; one that is no flow's, no switch counts.
fn note_on_wire(
    seen: &mut Seen,
    logged: &Logged,
    (router, is_edge): (usize, bool),
    (clock, carrier): (EpochClock, Carrier),
    now_ns: u64,
) -> Result<()> {
    let Some((mark, packet)) = carrier.read_behind_ethernet(&logged.packet) else {
        // An edge that knows no epoch says so, and no switch counts the packet.
        ensure!(carrier == Carrier::Shim, "a packet that is cut");
        return Ok(());
    };
    let Some(key) = key_of(packet) else { return Ok(()) };
    let epoch = entered_in(mark, clock, logged.time_ns.unwrap_or(now_ns));
    let entered = logged.prefix == ENTERED;
    seen.wires.note(key, (packet, is_edge), epoch, (router, entered));
    Ok(())
}

fn add(counts: &mut Vec<(Segment, u32)>, place: Segment) {
    match counts.iter_mut().find(|(at, _)| *at == place) {
        Some((_, packets)) => *packets += 1,
        None => counts.push((place, 1)),
    }
}

/// The flow of a packet of which the headers are at hand, from the IP header on, as a host sent it.
fn key_of(packet: &[u8]) -> Option<WideKey> {
    let packet = &as_sent(packet);
    let half = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    // What headers say of the packet's length is right: a router has forwarded it.
    let (ether_type, len) = match packet.first()? >> 4 {
        4 => (0x0800_u16, usize::from(half(2)?)),
        _ => (0x86DD, 40 + usize::from(half(4)?)),
    };
    let mut bytes = vec![0; ETHERNET];
    bytes[ETHERNET - 2..].copy_from_slice(&ether_type.to_be_bytes());
    bytes.extend(packet);
    match parse(&bytes, ETHERNET + len) {
        Parsed::Flow { key, .. } => Some(key.into()),
        Parsed::Flow6 { key, .. } => Some(WideKey::from_bytes(key)),
        Parsed::Unmeasured(_) | Parsed::Malformed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{frame, host_address, host_address6};
    use calumma_chamelemon::Hierarchy;
    use calumma_edge::carrier::{Mark, PlainTos};
    use calumma_epoch::Guards;

    #[test]
    fn a_packet_that_a_udp_port_marks_is_of_the_flow_that_was_sent() {
        for protocol in [17, 1] {
            let v4 = WideKey::v4(host_address(0, 0), host_address(1, 0), 7, 53, protocol);
            let v6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 7, 53, protocol);
            for (key, header, place) in [(v4, 20, 9), (v6, 40, 6)] {
                let mut packet = frame(&key, 100)[ETHERNET..].to_vec();
                let sent = key_of(&packet).unwrap();
                // A shim and three words behind it.
                let shim = if protocol == 17 { [0x14, 3, 0, 53] } else { [0x18, 3, 0, protocol] };
                let stack_len = if protocol == 17 { 16 } else { 24 };
                if protocol != 17 {
                    packet.splice(header..header, [0xC0, 0, 0, 0, 0, 60, 0, 0]);
                    packet[place] = 17;
                }
                let words = [&shim[..], &[0x20; 12]].concat();
                packet.splice(header + 8..header + 8, words);
                packet[header + 2..header + 4].copy_from_slice(&41_000_u16.to_be_bytes());
                assert_ne!(key_of(&packet), Some(sent), "nothing says that there is a stack");
                packet[if header == 20 { 1 } else { 0 }] |= if header == 20 { 0x10 } else { 1 };
                packet.truncate(HEADERS.into());
                assert_eq!((key_of(&packet), stack(&packet)), (Some(sent), Some(stack_len)));
            }
        }
    }

    #[test]
    fn a_packet_is_noted_for_the_epoch_it_entered_in_and_by_its_hierarchy() {
        let clock = EpochClock::new(50_000_000, Guards::default()).unwrap();
        let key = WideKey::v4(host_address(0, 0), host_address(1, 0), 4000, 53, 17);
        let key6 = WideKey::v6(host_address6(0, 0), host_address6(1, 0), 4000, 53, 6);
        for key in [key, key6] {
            noted_for_its_epoch(clock, key);
        }
    }

    fn noted_for_its_epoch(clock: EpochClock, key: WideKey) {
        let mut seen = Seen::default();
        let mut log = |prefix: &str, bit, hierarchy, time_ns| {
            let mut bytes = frame(&key, 60);
            PlainTos::default().write(&mut bytes, 14, Mark::plain(bit, hierarchy));
            let (prefix, packet) = (prefix.to_owned(), bytes[14..].to_vec());
            let logged = Logged { prefix, time_ns: Some(time_ns), came_in_by: None, packet };
            note(&mut seen, &logged, Segment::link(0, 2), (clock, Carrier::Tos), 0)
        };
        let begin = clock.start_of(1000);
        log(LOST, 0, Hierarchy::HhCandidate, begin + 49_000_000).unwrap();
        // Logged when the next epoch had begun.
        log(LOST, 0, Hierarchy::NonSampledLl, begin + 52_000_000).unwrap();
        log(LOST, 1, Hierarchy::SampledLl, begin + 52_000_000).unwrap();
        log(DOUBLED, 1, Hierarchy::HlCandidate, begin + 53_000_000).unwrap();
        // By a clock that is ahead.
        log(LOST, 0, Hierarchy::HhCandidate, begin - 100_000).unwrap();
        log(LOST, 1, Hierarchy::HhCandidate, begin - 100_000).unwrap();
        assert!(log("else", 1, Hierarchy::HlCandidate, begin).is_err());
        let (first, second) = (&seen.epochs[&1000][&key], &seen.epochs[&1001][&key]);
        assert_eq!((first.lost, first.encoded, first.heavy), (3, 2, 2));
        assert_eq!(seen.epochs[&999][&key].lost, 1);
        assert_eq!((second.lost, second.encoded, second.heavy), (1, 1, 0));
        assert_eq!(first.losses, [(Segment::link(0, 2), 3)]);
        assert_eq!(second.copies, [(Segment::link(0, 2), 1)]);
        assert_eq!((seen.lost[&key], seen.doubled), (5, 1));
        assert_eq!((second.doubled, second.doubled_heavy), (1, 1));
    }
}
