//! The thread that runs the slow path beside the lcores, and the handle by which it is given new
//! routes.
//!
//! It looks into its rings twice a millisecond, so that no lcore ever has to wake it. It gives no
//! mbuf back to a pool while lcores run, but sends all to an lcore to be freed, and takes mbufs
//! from a pool that no lcore takes from: whatever the kernel does to this thread, no lcore waits
//! for it ([`pools`](crate::pools)).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calumma_plane::sync::{Receiver, Sender, TrySendError, bounded, unbounded};
use calumma_plane::system::RouteWatch;
use dpdk::{Mbuf, Mempool};
use tracing::{info, warn};

use super::address::Mac;
use super::config::Plan;
use super::counters::{SlowCounters, SlowReason};
use super::decide::Task;
use super::exchange::{self, FromLcore, Origin, Return};
use super::found::Found;
use super::links::Links;
use super::router::Rings;
use super::slow::neighbours::MOST_OF_PORT;
use super::slow::{Output, SlowPath};
use super::tables::{BuildLpm, Publisher, Tables, TablesReader};
use crate::control::unix_ns;

/// How long the thread sleeps between two looks.
const TICK: Duration = Duration::from_micros(500);

/// Packets on their way back to the lcores.
const RETURNS: usize = 2048;

/// Packets that go back to be freed have so much of that at most: those that are to be sent need
/// the rest.
const FREED: usize = RETURNS / 2;

/// Packets that have found their neighbour go back only while fewer than these do: what the switch
/// answers and asks needs the rest.
const MOST_FOUND: usize = RETURNS * 3 / 4;

/// Neighbours that change are shown to the lcores at most once in this time, in nanoseconds: that
/// copies all of them.
const PUBLISH_NS: u64 = 10_000_000;

/// Packets that the thread has taken from its rings and that neither wait nor have found their
/// neighbour, at most, in a switch of so many ports and lcores: as many as the rings hold, its own
/// ones included. It is working on them, or has done with them and they are to be freed.
fn most_in_hand(ports: usize, lcores: usize) -> usize {
    exchange::most_handed_over(ports + 1) * lcores
}

/// Received packets that can be with the slow path at a time, in a switch of so many ports and
/// lcores: those handed over, and those in hand; those that wait for a neighbour, and as many that
/// have found theirs; and those on their way back.
pub fn most_parked(ports: usize, lcores: usize) -> usize {
    let handed_over = exchange::most_handed_over(ports) * lcores;
    handed_over + most_in_hand(ports, lcores) + 2 * ports * MOST_OF_PORT + RETURNS
}

/// The same of what the slow path has made: only one lcore takes that, and hands some of it over
/// again, to find its next hop.
pub const fn most_made() -> usize {
    2 * exchange::most_handed_over(1) + 2 * MOST_OF_PORT + RETURNS
}

/// How often links are looked at, in nanoseconds: their loss costs no more packets than that takes.
const LINKS_NS: u64 = 50_000_000;

/// The slow path with its rings.
pub struct SlowThread {
    slow_path: SlowPath<Mbuf>,
    from_lcores: Vec<FromLcore<Mbuf>>,
    to_lcore: Sender<Return<Mbuf>>,
    publisher: Publisher,
    build: Box<BuildLpm>,
    plans: Plans,
    pool: Mempool,
    counters: Arc<SlowCounters>,
    /// What the clock showed at the last step.
    clock_ns: u64,
    /// What all that is due goes by: it runs as the clock does, but never back.
    time_ns: u64,
    /// When neighbours were shown to the lcores last.
    published_ns: u64,
    found: Found<Mbuf>,
    /// Packets that are done with, until there is room for them on the way to be freed.
    spent: VecDeque<Mbuf>,
    /// While so many are spent, none is taken from the rings.
    most_spent: usize,
    /// Whether ports have links, and when that is asked next.
    links: Option<(Links, u64)>,
    /// Notified when lcores get other tables.
    watch: RouteWatch,
}

/// Gives the slow path new routes while it runs.
#[derive(Clone, Debug)]
pub struct Routes {
    plans: Sender<Plan>,
    /// Whether the last plan is not what is forwarded by.
    are_behind: Arc<AtomicBool>,
    macs: Vec<Mac>,
    watch: RouteWatch,
}

/// The slow path's end of [`Routes`].
pub(crate) struct Plans {
    given: Receiver<Plan>,
    are_behind: Arc<AtomicBool>,
}

impl Plans {
    /// The next plan that is to be forwarded by.
    pub(crate) fn next(&self) -> Option<Plan> {
        self.given.try_recv().ok()
    }

    /// Says whether that is forwarded by now.
    pub(crate) fn note(&self, is_applied: bool) {
        self.are_behind.store(!is_applied, Ordering::Relaxed);
    }
}

impl Routes {
    /// Routes of a switch whose ports have these addresses, and the slow path's end of them.
    pub(crate) fn new(macs: Vec<Mac>) -> (Self, Plans) {
        let (plans, given) = unbounded();
        let (are_behind, watch) = (Arc::<AtomicBool>::default(), RouteWatch::default());
        let of_slow_path = Plans { given, are_behind: are_behind.clone() };
        (Self { plans, are_behind, macs, watch }, of_slow_path)
    }

    /// Lets the switch forward by `plan` from now on: interfaces, routes, static neighbours,
    /// limits. Lcores change over between two bursts; packets on their way are forwarded by one
    /// or the other. Should there be no memory for the new routes, the old ones stay, the log says
    /// so, and the routes [are behind](Self::are_behind).
    ///
    /// # Errors
    /// When the slow path has ended.
    pub fn apply(&self, plan: Plan) -> anyhow::Result<()> {
        self.are_behind.store(true, Ordering::Relaxed);
        self.plans.send(plan).map_err(|_| anyhow::anyhow!("the slow path has ended"))
    }

    /// Whether the last plan is not what is forwarded by: it could not be built, or has not been
    /// yet.
    pub fn are_behind(&self) -> bool {
        self.are_behind.load(Ordering::Relaxed)
    }

    /// When the routes changed, or the neighbours that they go by.
    pub fn watch(&self) -> RouteWatch {
        self.watch.clone()
    }

    /// The Ethernet addresses of the switch's ports, which a [`Plan`] needs.
    pub fn macs(&self) -> &[Mac] {
        &self.macs
    }
}

/// What an lcore's router is made of.
pub struct RouterParts {
    /// The tables.
    pub tables: TablesReader,
    /// The rings.
    pub rings: Rings,
}

impl SlowThread {
    /// A slow path for `lcores` lcores that forward by `plan` between ports with the addresses
    /// `macs`; what it makes comes from `pool`. Gives also the handle for new routes, and what
    /// each lcore's router is made of.
    ///
    /// # Errors
    /// When there is no memory for the routes.
    pub fn new(
        plan: Plan,
        macs: Vec<Mac>,
        build: Box<BuildLpm>,
        pool: Mempool,
        lcores: usize,
        counters: Arc<SlowCounters>,
    ) -> anyhow::Result<(Self, Routes, Vec<RouterParts>)> {
        let publisher = Publisher::new(Tables::new(&plan, &*build)?);
        let (to_lcore, from_slow) = bounded(RETURNS);
        let mut from_slow = Some(from_slow);
        let (from_lcores, parts) = (0..lcores)
            .map(|_| {
                let (to_slow, from_lcore) = exchange::to_slow(macs.len());
                // The first lcore takes what comes back.
                let rings = Rings { to_slow, from_slow: from_slow.take() };
                (from_lcore, RouterParts { tables: publisher.reader(), rings })
            })
            .unzip();
        let (routes, plans) = Routes::new(macs.clone());
        let now_ns = unix_ns();
        let slow_path = SlowPath::new(plan, counters.clone(), now_ns);
        let found = Found::new(macs.len());
        let (spent, most_spent) = (VecDeque::new(), most_in_hand(macs.len(), lcores));
        let thread = Self {
            slow_path,
            from_lcores,
            to_lcore,
            publisher,
            build,
            plans,
            pool,
            counters,
            clock_ns: now_ns,
            time_ns: now_ns,
            published_ns: 0,
            found,
            spent,
            most_spent,
            links: None,
            watch: routes.watch(),
        };
        Ok((thread, routes, parts))
    }

    /// Sends only over ports that have a link by what `links` says; without it, all have.
    #[must_use]
    pub fn watching(self, links: Links) -> Self {
        Self { links: Some((links, 0)), ..self }
    }

    /// Runs until `stop` is set. Gives itself back, for
    /// [`count_left_over`](Self::count_left_over).
    pub fn run(mut self, stop: &AtomicBool) -> Self {
        while !stop.load(Ordering::Relaxed) {
            self.step(unix_ns());
            std::thread::sleep(TICK);
        }
        self
    }

    /// Takes in what there is, does what is due, and gives back what is to be sent. The clock may
    /// have been set since the last step: set back, it puts nothing off.
    pub fn step(&mut self, clock_ns: u64) {
        self.time_ns += clock_ns.saturating_sub(self.clock_ns);
        self.clock_ns = clock_ns;
        let now_ns = self.time_ns;
        while let Some(plan) = self.plans.next() {
            let is_applied = self.apply(plan, now_ns);
            self.plans.note(is_applied);
        }
        let generation = self.publisher.current().generation;
        // As much of each ring as there is room for all of them to be spent.
        let room = self.most_spent.saturating_sub(self.spent.len());
        let share = (room, self.most_spent);
        for handed in self.from_lcores.iter().flat_map(|ring| ring.share(share)) {
            if handed.generation == generation {
                self.slow_path.take(handed, now_ns);
            } else {
                self.slow_path.take_old(handed);
            }
        }
        self.look_at_links(now_ns);
        self.slow_path.tick(now_ns);
        self.publish_neighbours(now_ns);
        self.publisher.drop_unused();
        for output in self.slow_path.outputs() {
            match output {
                Output::Back(Return::Route { packet, port, origin }) => {
                    if let Err(packet) = self.found.push(packet, port, origin) {
                        self.counters.drop_for(SlowReason::ReturnsFull, 1);
                        self.spent.push_back(packet);
                    }
                }
                Output::Back(Return::Free(packet)) => self.spent.push_back(packet),
                Output::Back(back @ Return::Send { .. }) => self.send_back(back),
                Output::Route(frame) => {
                    let (port, origin) = (usize::MAX, Origin::Own);
                    self.send_made(&frame, |packet| Return::Route { packet, port, origin });
                }
                Output::Send(frame, port) => {
                    self.send_made(&frame, |packet| Return::Send { packet, port });
                }
            }
        }
        while self.to_lcore.len() < FREED
            && let Some(packet) = self.spent.pop_front()
        {
            self.send_back(Return::Free(packet));
        }
        if !self.slow_path.has_changed_neighbours() {
            self.found.publish();
        }
        while self.to_lcore.len() < MOST_FOUND
            && let Some(back) = self.found.pop()
        {
            self.send_back(back);
        }
        SlowCounters::add(&self.counters.waiting, self.found.len() as u64);
    }

    /// Shows the lcores the neighbours that have changed, once in a while.
    fn publish_neighbours(&mut self, now_ns: u64) {
        if now_ns - self.published_ns >= PUBLISH_NS
            && let Some(known) = self.slow_path.changed_neighbours()
        {
            self.published_ns = now_ns;
            let tables = self.publisher.current().with_neighbours(known.into_iter());
            self.publish(tables);
        }
    }

    /// Lets lcores forward by `tables`, and says so before and after: they take them up somewhere
    /// in between, and tables take a while to build, in which a window may begin.
    fn publish(&mut self, tables: Tables) {
        self.watch.changed(unix_ns());
        self.publisher.publish(tables);
        self.watch.changed(unix_ns());
    }

    fn look_at_links(&mut self, now_ns: u64) {
        if let Some((links, due_ns)) = &mut self.links
            && *due_ns <= now_ns
        {
            *due_ns = now_ns + LINKS_NS;
            self.slow_path.set_links(&links(), now_ns);
        }
    }

    /// Forwards by a plan from now on; false where it can't be built.
    fn apply(&mut self, plan: Plan, now_ns: u64) -> bool {
        match Tables::new(&plan, &*self.build) {
            Ok(tables) => {
                info!(
                    interfaces = plan.interfaces.len(),
                    routes = plan.routes.len(),
                    "forwarding by new routes"
                );
                self.slow_path.apply(plan, now_ns);
                // At once with the neighbours, which may have new numbers.
                let _ = self.slow_path.changed_neighbours();
                let mut tables = tables.with_neighbours(self.slow_path.known());
                tables.generation = self.publisher.current().generation.wrapping_add(1);
                self.publish(tables);
                true
            }
            Err(problem) => {
                warn!("the old routes stay, until they are read again: {problem:#}");
                false
            }
        }
    }

    /// Sends what the slow path has made, in an mbuf of its pool.
    fn send_made(&mut self, frame: &[u8], back: impl FnOnce(Mbuf) -> Return<Mbuf>) {
        // Nobody else sends there: an mbuf that is taken where there is room is not dropped here.
        let has_room = self.to_lcore.len() < RETURNS;
        let made = if has_room { self.pool.alloc_with(frame) } else { None };
        match made {
            Some(packet) => self.send_back(back(packet)),
            None => self.counters.drop_for(SlowReason::ReturnsFull, 1),
        }
    }

    /// Sends what there is room for. It is dropped only where the lcore has ended that takes it,
    /// and all others with it.
    fn send_back(&self, back: Return<Mbuf>) {
        match self.to_lcore.try_send(back) {
            Ok(())
            | Err(
                TrySendError::Full(Return::Free(_)) | TrySendError::Disconnected(Return::Free(_)),
            ) => {}
            Err(_) => self.counters.drop_for(SlowReason::ReturnsFull, 1),
        }
    }

    /// Counts all that is still on its way between lcores and the slow path, when both have ended,
    /// as dropped for that: packets handed over and not taken in, packets that wait, and those
    /// `returned` that no lcore took.
    pub fn count_left_over(&self, returned: u64) {
        let in_rings: usize = self
            .from_lcores
            .iter()
            .flat_map(FromLcore::waiting)
            .filter(|handed| !matches!(handed.task, Task::Tell(_)))
            .count();
        let waiting = self.counters.waiting.swap(0, Ordering::Relaxed);
        self.counters.drop_for(SlowReason::Stopped, in_rings as u64 + waiting + returned);
    }
}
