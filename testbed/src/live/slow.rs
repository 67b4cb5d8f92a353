//! Links that take their time: they delay packets, each by more or less, so that these overtake one
//! another, let packets wait where more come than they carry, and hold some up for long. What is
//! lost behind a link that holds up packets would be logged for another epoch: scenarios lose none
//! there.
//!
//! A rule of the router hands out packets that come in over one as a packet log and drops them;
//! they are sent on from here when they are due, through a raw socket of the router's. Nothing is
//! lost here: what a link does not carry, and finds no room in its queue, the rule before loses
//! ([`faults`](crate::fabric::faults)).
//!
//! Why not the kernel's own means: `netem` and nftables' `queue` are modules that many kernels do
//! without. `tbf` and `htb` are more common, but let no packet overtake another, and of what their
//! queues drop they count only how much.

use std::collections::BTreeMap;
use std::net::{SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use calumma_epoch::EpochClock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, socket,
};
use nix::sys::time::TimeSpec;

use super::nflog::Log;
use super::sender::send;
use super::unix_ns;
use crate::fabric::Namespace;
use crate::fabric::faults::{SLOW_GROUP, is_slow};
use crate::queue::Queue;
use crate::topology::{LinkQuality, Topology};
use crate::workload::Draw;

/// Longest that nothing is looked after.
const LOOK: Duration = Duration::from_millis(20);

/// Checks that packets get over a slow link so soon that the log of what is lost behind it tells
/// the epoch that they entered in: a way of four such links takes no longer than an epoch.
pub(super) fn check(quality: &LinkQuality, clock: EpochClock) -> Result<()> {
    ensure!(quality.min_ttl == 0, "min_ttl: only simulated routers check it");
    if !is_slow(quality) {
        return Ok(());
    }
    let LinkQuality { delay_us, jitter_us, rate_pps, queue, .. } = *quality;
    let waiting_us = if rate_pps > 0.0 { f64::from(queue + 1) * 1e6 / rate_pps } else { 0.0 };
    let most_us = clock.length_ns() as f64 / 4e3;
    let takes_us = delay_us + jitter_us + waiting_us;
    ensure!(
        takes_us <= most_us,
        "a link takes a packet up to {takes_us:.0} us: delay_us, jitter_us and a full queue may take \
         {most_us:.0} us, a quarter of an epoch, in a live fabric"
    );
    Ok(())
}

/// Checks the same of all links, and that none does what no router of the kernel can.
pub(super) fn check_all(topology: &Topology, clock: EpochClock) -> Result<()> {
    let mut links = topology.links().iter().map(|link| &link.quality);
    ensure!(
        links.clone().all(|quality| quality.snat == 0.0),
        "snat: routers of a live fabric translate destinations alone"
    );
    links.try_for_each(|quality| check(quality, clock))
}

/// What slow links into each router do, by interface.
type Qualities = Vec<BTreeMap<String, LinkQuality>>;

/// All slow links of a fabric, looked after by a thread of their own.
pub(super) struct SlowLinks {
    qualities: Arc<Mutex<Qualities>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl SlowLinks {
    /// Begins to take what `routers` hand out; what packets are drawn from `seed`.
    pub(super) fn start(routers: &[Namespace], seed: u64) -> Result<Self> {
        let exits = routers.iter().map(|router| router.within(Exit::open));
        let mut exits = exits.collect::<Result<Vec<_>>>()?;
        let qualities = Arc::new(Mutex::new(vec![BTreeMap::new(); routers.len()]));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (qualities, stop) = (qualities.clone(), stop.clone());
            move || follow(&mut exits, &qualities, &stop, Draw::new(seed))
        });
        Ok(Self { qualities, stop, thread: Some(thread) })
    }

    /// Sets what slow links do from now on, by router and interface.
    pub(super) fn set(&self, qualities: &Qualities) {
        self.qualities.lock().unwrap_or_else(PoisonError::into_inner).clone_from(qualities);
    }

    /// An error if packets are no longer sent on.
    pub(super) fn check_running(&mut self) -> Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
        }
        ensure!(self.thread.is_some(), "packets of slow links are no longer sent on");
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow!("sending on packets of slow links panicked"))?
    }
}

impl Drop for SlowLinks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(error) = self.join() {
            eprintln!("slow links: {error:#}");
        }
    }
}

/// What a router hands out, and how it gets it back.
struct Exit {
    log: Log,
    /// For IPv4 and for IPv6.
    onward: [OwnedFd; 2],
    /// What waits for each link, by interface.
    waiting: BTreeMap<String, Waiting>,
}

impl Exit {
    /// In the network namespace that the thread is in.
    fn open() -> Result<Self> {
        let raw = |family| {
            let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
            socket.context("a raw socket of a router")
        };
        let onward = [raw(AddressFamily::Inet)?, raw(AddressFamily::Inet6)?];
        Ok(Self { log: Log::open(SLOW_GROUP, u16::MAX)?, onward, waiting: BTreeMap::new() })
    }
}

/// The packets that wait for a link: all that is to be known is when it is through with them.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    through_ns: f64,
}

impl Waiting {
    /// When a packet that comes at `now_ns` arrives at the other end, in nanoseconds since the Unix
    /// epoch.
    fn arrives_ns(&mut self, quality: &LinkQuality, now_ns: u64, draw: Draw) -> u64 {
        let mut leaves_ns = now_ns as f64;
        if quality.rate_pps > 0.0 {
            leaves_ns = leaves_ns.max(self.through_ns) + 1e9 / quality.rate_pps;
            self.through_ns = leaves_ns;
        }
        let on_its_way_ns = (quality.delay_us + quality.jitter_us * draw.share()) * 1e3;
        let held_ns = match draw.of(1).share() < quality.late {
            true => {
                let [least, most] = quality.late_ms;
                (least + (most - least) * draw.of(2).share()) * 1e6
            }
            false => 0.0,
        };
        (leaves_ns + on_its_way_ns + held_ns) as u64
    }
}

fn follow(
    exits: &mut [Exit],
    qualities: &Mutex<Qualities>,
    stop: &AtomicBool,
    draw: Draw,
) -> Result<()> {
    let mut buffer = vec![0; 1 << 18];
    // The packets under way, each with its router.
    let mut under_way: Queue<(usize, Vec<u8>)> = Queue::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let next_ns = under_way.next_ns().unwrap_or(u64::MAX);
        wait(exits, Duration::from_nanos(next_ns.saturating_sub(unix_ns()?)).min(LOOK))?;
        let qualities = qualities.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (router, (exit, qualities)) in exits.iter_mut().zip(&qualities).enumerate() {
            let Exit { log, waiting, .. } = exit;
            let now_ns = unix_ns()?;
            log.read(&mut buffer, |logged| {
                number += 1;
                let quality = qualities.get(&logged.prefix).copied().unwrap_or_default();
                let waiting = waiting.entry(logged.prefix).or_default();
                let due_ns = waiting.arrives_ns(&quality, now_ns, draw.of(number));
                under_way.push(due_ns, (router, logged.packet));
            })?;
        }
        let now_ns = unix_ns()?;
        while let Some((_, (router, packet))) = under_way.pop_before(now_ns + 1) {
            send_on(&exits[router].onward, &packet)?;
        }
    }
    Ok(())
}

/// Waits until a router has handed something out, or `most` has passed.
fn wait(exits: &[Exit], most: Duration) -> Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        exits.iter().map(|exit| PollFd::new(exit.log.as_fd(), PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, Some(TimeSpec::from_duration(most)), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno).context("waiting for packets of slow links"),
    }
}

fn send_on([ipv4, ipv6]: &[OwnedFd; 2], packet: &[u8]) -> Result<()> {
    let short = || "a packet of a slow link that is shorter than its header";
    match packet.first().map(|byte| byte >> 4) {
        Some(6) => {
            let to: [u8; 16] = packet.get(24..40).with_context(short)?.try_into()?;
            send(ipv6, packet, &SockaddrIn6::from(SocketAddrV6::new(to.into(), 0, 0, 0)))
        }
        _ => {
            let to: [u8; 4] = packet.get(16..20).with_context(short)?.try_into()?;
            send(ipv4, packet, &SockaddrIn::from(SocketAddrV4::new(to.into(), 0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_for_their_turn() {
        let quality = LinkQuality { delay_us: 10.0, rate_pps: 1000.0, ..LinkQuality::default() };
        let mut waiting = Waiting::default();
        let mut arrives = |now_ns| waiting.arrives_ns(&quality, now_ns, Draw::new(1));
        let now_ns = 1_000_000_000;
        let ms = |ms: u64| now_ns + ms * 1_000_000 + 10_000;
        let at_once: Vec<_> = (0..4).map(|_| arrives(now_ns)).collect();
        assert_eq!(at_once, [ms(1), ms(2), ms(3), ms(4)]);
        assert_eq!(arrives(now_ns + 1_000_000), ms(5));
        assert_eq!(arrives(now_ns + 50_000_000), ms(51), "nothing is saved up");
    }

    #[test]
    fn packets_take_more_or_less_within_the_jitter() {
        let quality = LinkQuality { delay_us: 10.0, jitter_us: 400.0, ..LinkQuality::default() };
        let mut waiting = Waiting::default();
        let arrives = |n| waiting.arrives_ns(&quality, 0, Draw::new(1).of(n));
        let all: Vec<u64> = (0..1000).map(arrives).collect();
        assert!(all.iter().all(|arrives_ns| (10_000..=410_000).contains(arrives_ns)));
        assert!(all.iter().min().unwrap() + 350_000 < *all.iter().max().unwrap());
    }
}
