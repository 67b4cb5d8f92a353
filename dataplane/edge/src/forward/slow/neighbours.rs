//! Which neighbour has which Ethernet address: asked for, believed for a while, checked, forgotten.
//!
//! No clock, no packets written: the caller passes the time in and sends the solicitations that are
//! due. Everything is bounded, so that a scan of a network costs memory and solicitations for so
//! many addresses and no more; and bounded by port and interface, so that one host can't take the
//! room of those elsewhere.

use std::collections::HashMap;
use std::net::IpAddr;

use super::super::address::Mac;
use super::super::config::InterfaceId;
use super::super::counters::SlowReason;

/// A neighbour: an address on the link of an interface.
pub type Key = (InterfaceId, IpAddr);

/// Packets that wait for one neighbour at most.
const MOST_WAITING: usize = 4;
/// Neighbours that are asked for at a time and not known, at most, for packets of one port.
const MOST_UNKNOWN: usize = 256;
/// Neighbours at most.
const MOST: usize = 65_536;
/// Those of one interface.
const MOST_OF_INTERFACE: usize = MOST / 2;
/// Those of one interface which are only known since they asked, and have not yet answered. Others
/// are asked for once there is something to send.
const MOST_UNASKED: usize = 1024;
/// Solicitations without an answer after which a neighbour is unreachable.
const QUESTIONS: u32 = 3;
/// Time between two questions, in nanoseconds.
const QUESTION_NS: u64 = 1_000_000_000;
/// How long a neighbour that did not answer is not asked again, in nanoseconds.
const GIVEN_UP_NS: u64 = 3_000_000_000;

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Configured.
    Static(Mac),
    /// Asked for so many times, not known.
    Asked(u32),
    /// Known.
    Known(Mac),
    /// Known, and asked so many times whether that still holds.
    Checked(Mac, u32),
    /// Did not answer.
    GivenUp,
}

#[derive(Debug)]
struct Neighbour<P> {
    state: State,
    /// When something is due next.
    due_ns: u64,
    /// A next hop of a route: asked for even if nothing is to be sent there.
    is_next_hop: bool,
    /// It asked, and has not been asked.
    is_unasked: bool,
    /// The port that a packet for it came by first, while it is not known.
    wanted_by: Option<usize>,
    /// Packets for it, each with the port that it came by.
    waiting: Vec<(usize, P)>,
}

/// How many neighbours an interface has.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    all: usize,
    unasked: usize,
}

/// Packets of one port that wait for neighbours at most, whichever these are: next hops of routes,
/// of which there may be any number, and those that packets of other ports have asked for, are not
/// among the port's unknown ones. What the switch itself sends counts as a port's.
pub const MOST_OF_PORT: usize = MOST_UNKNOWN * MOST_WAITING;

/// Whom to ask, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Everybody on the link.
    Everybody(Key),
    /// The neighbour itself, whether it is still there.
    Itself(Key, Mac),
}

/// All neighbours, and the packets `P` that wait for some of them.
#[derive(Debug)]
pub struct Neighbours<P> {
    all: HashMap<Key, Neighbour<P>>,
    unknown: usize,
    /// Those not known, by the port that wants them.
    wanted: HashMap<usize, usize>,
    held: HashMap<InterfaceId, Held>,
    /// Packets that wait, by the port that they came by.
    waiting: HashMap<usize, usize>,
    lifetime_ns: u64,
    changed: bool,
    /// Interfaces without a link, by number; those beyond have one.
    down: Vec<bool>,
}

impl<P> Neighbours<P> {
    /// No neighbours. Known ones are checked after `lifetime_ns`.
    pub fn new(lifetime_ns: u64) -> Self {
        let (all, wanted, held, waiting, down) = Default::default();
        Self { all, unknown: 0, wanted, held, waiting, lifetime_ns, changed: false, down }
    }

    /// Goes on with other static neighbours and next hops. What `keep` gives nothing for is
    /// forgotten, the others have the name that it gives. Gives the packets that waited for
    /// those forgotten.
    pub fn reconfigure(
        &mut self,
        lifetime_ns: u64,
        statics: &[(Key, Mac)],
        next_hops: impl Iterator<Item = Key>,
        keep: impl Fn(Key) -> Option<Key>,
        now_ns: u64,
    ) -> Vec<P> {
        self.lifetime_ns = lifetime_ns;
        self.changed = true;
        let mut forgotten = Vec::new();
        for (key, mut neighbour) in std::mem::take(&mut self.all) {
            neighbour.is_next_hop = false;
            match (keep(key), neighbour.state) {
                (Some(key), state) if !matches!(state, State::Static(_)) => {
                    self.all.insert(key, neighbour);
                }
                _ => forgotten.extend(neighbour.take_waiting()),
            }
        }
        for &(key, mac) in statics {
            let state = State::Static(mac);
            let new = Neighbour { state, due_ns: u64::MAX, ..Neighbour::unknown(now_ns) };
            if let Some(mut old) = self.all.insert(key, new) {
                forgotten.extend(old.take_waiting());
            }
        }
        for key in next_hops {
            self.all.entry(key).or_insert_with(|| Neighbour::unknown(now_ns)).is_next_hop = true;
        }
        self.count();
        forgotten
    }

    /// Notes which interfaces, by number, have no link. Their neighbours can be neither sent to nor
    /// asked until it is back; those known before can be sent to at once then, and are asked
    /// whether they are still there. Gives the packets that waited for neighbours without a
    /// link.
    pub fn set_down(&mut self, down: Vec<bool>, now_ns: u64) -> Vec<P> {
        let before = std::mem::replace(&mut self.down, down);
        self.changed |= before != self.down;
        let mut cut_off = Vec::new();
        for (key, neighbour) in &mut self.all {
            if is_down(&self.down, key) {
                cut_off.extend(neighbour.take_waiting());
            } else if is_down(&before, key) {
                let state = match neighbour.state {
                    State::Static(_) => continue,
                    State::Known(mac) | State::Checked(mac, _) => State::Known(mac),
                    State::Asked(_) | State::GivenUp => State::Asked(0),
                };
                (neighbour.state, neighbour.due_ns) = (state, now_ns);
            }
        }
        self.count();
        cut_off
    }

    fn count(&mut self) {
        self.unknown = 0;
        self.waiting.clear();
        self.wanted.clear();
        self.held.clear();
        for (&(interface, _), neighbour) in &self.all {
            let held = self.held.entry(interface).or_default();
            held.all += 1;
            held.unasked += usize::from(neighbour.is_unasked);
            for &(port, _) in &neighbour.waiting {
                *self.waiting.entry(port).or_default() += 1;
            }
            if neighbour.mac().is_none() {
                self.unknown += 1;
                if let Some(port) = neighbour.wanted_by {
                    *self.wanted.entry(port).or_default() += 1;
                }
            }
        }
    }

    /// How many neighbours an interface has, where there is room for one more.
    fn room(&mut self, (interface, _): Key) -> Option<&mut Held> {
        let held = self.held.entry(interface).or_default();
        (self.all.len() < MOST && held.all < MOST_OF_INTERFACE).then_some(held)
    }

    /// Whether known neighbours have changed since the last call of
    /// [`take_changed`](Self::take_changed).
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether known neighbours have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Known neighbours on links that are up.
    pub fn known(&self) -> impl Iterator<Item = (Key, Mac)> + '_ {
        let up = self.all.iter().filter(|(key, _)| !is_down(&self.down, key));
        up.filter_map(|(&key, neighbour)| Some((key, neighbour.mac()?)))
    }

    /// How many are known.
    pub fn known_len(&self) -> usize {
        self.all.len() - self.unknown
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.values().sum()
    }

    /// Lets a packet that came by `port` wait for a neighbour until it is known, and says whom to
    /// ask for that. Gives the packet back, at once if the neighbour is known, or with the reason
    /// why it can't wait.
    pub fn wait(
        &mut self,
        key: Key,
        port: usize,
        packet: P,
        now_ns: u64,
    ) -> Result<Option<Question>, (P, Option<SlowReason>)> {
        if is_down(&self.down, &key) {
            return Err((packet, Some(SlowReason::LinkDown)));
        }
        let of_port = self.waiting.get(&port).copied().unwrap_or_default();
        let mut question = None;
        if !self.all.contains_key(&key) {
            let wanted = self.wanted.get(&port).copied().unwrap_or_default();
            let may_wait = wanted < MOST_UNKNOWN && of_port < MOST_OF_PORT;
            let Some(held) = may_wait.then(|| self.room(key)).flatten() else {
                return Err((packet, Some(SlowReason::NeighbourQueueFull)));
            };
            held.all += 1;
            let mut new = Neighbour::unknown(now_ns + QUESTION_NS);
            (new.state, new.wanted_by) = (State::Asked(1), Some(port));
            self.all.insert(key, new);
            self.unknown += 1;
            self.wanted.insert(port, wanted + 1);
            question = Some(Question::Everybody(key));
        }
        let Some(neighbour) = self.all.get_mut(&key) else { return Ok(question) };
        match neighbour.state {
            State::GivenUp => Err((packet, Some(SlowReason::NeighbourUnresolved))),
            State::Asked(_)
                if neighbour.waiting.len() >= MOST_WAITING || of_port >= MOST_OF_PORT =>
            {
                Err((packet, Some(SlowReason::NeighbourQueueFull)))
            }
            State::Asked(_) => {
                neighbour.waiting.push((port, packet));
                self.waiting.insert(port, of_port + 1);
                Ok(question)
            }
            State::Static(_) | State::Known(_) | State::Checked(..) => Err((packet, None)),
        }
    }

    /// Notes a neighbour's Ethernet address as it announced it. One that was not solicited is noted
    /// only if `anew`. Gives the packets that waited for it.
    pub fn learn(&mut self, key: Key, mac: Mac, anew: bool, now_ns: u64) -> Vec<P> {
        if mac.is_group() {
            return Vec::new();
        }
        if !self.all.contains_key(&key) {
            let room = if anew { self.room(key) } else { None };
            let Some(held) = room.filter(|held| held.unasked < MOST_UNASKED) else {
                return Vec::new();
            };
            held.all += 1;
            held.unasked += 1;
            self.unknown += 1;
            self.all.insert(key, Neighbour { is_unasked: true, ..Neighbour::unknown(now_ns) });
        }
        let Some(neighbour) = self.all.get_mut(&key) else { return Vec::new() };
        if matches!(neighbour.state, State::Static(_)) {
            return Vec::new();
        }
        if !anew
            && std::mem::take(&mut neighbour.is_unasked)
            && let Some(held) = self.held.get_mut(&key.0)
        {
            held.unasked -= 1;
        }
        let before = neighbour.mac();
        self.changed |= before != Some(mac);
        if before.is_none() {
            self.unknown -= 1;
            if let Some(port) = neighbour.wanted_by.take()
                && let Some(wanted) = self.wanted.get_mut(&port)
            {
                *wanted -= 1;
            }
        }
        neighbour.state = State::Known(mac);
        neighbour.due_ns = now_ns + self.lifetime_ns;
        for (port, _) in &neighbour.waiting {
            self.waiting.entry(*port).and_modify(|waiting| *waiting -= 1);
        }
        neighbour.take_waiting().collect()
    }

    /// Does what is due: gives whom to ask, and the packets whose neighbours did not answer.
    pub fn tick(&mut self, now_ns: u64) -> (Vec<Question>, Vec<P>) {
        let (mut questions, mut unresolved) = (Vec::new(), Vec::new());
        self.all.retain(|&key, neighbour| {
            if neighbour.due_ns > now_ns || is_down(&self.down, &key) {
                return true;
            }
            neighbour.due_ns = now_ns + QUESTION_NS;
            match neighbour.state {
                State::Static(_) => neighbour.due_ns = u64::MAX,
                State::Asked(asked) if asked < QUESTIONS => {
                    neighbour.state = State::Asked(asked + 1);
                    questions.push(Question::Everybody(key));
                }
                State::Asked(_) => {
                    neighbour.state = State::GivenUp;
                    neighbour.due_ns = now_ns + GIVEN_UP_NS;
                    unresolved.extend(neighbour.take_waiting());
                }
                State::Known(mac) => {
                    neighbour.state = State::Checked(mac, 1);
                    questions.push(Question::Itself(key, mac));
                }
                State::Checked(mac, asked) if asked < QUESTIONS => {
                    neighbour.state = State::Checked(mac, asked + 1);
                    questions.push(Question::Itself(key, mac));
                }
                State::Checked(..) => {
                    self.changed = true;
                    neighbour.state = State::Asked(0);
                    neighbour.due_ns = now_ns;
                    return neighbour.is_next_hop;
                }
                State::GivenUp => {
                    neighbour.state = State::Asked(0);
                    neighbour.due_ns = now_ns;
                    return neighbour.is_next_hop;
                }
            }
            true
        });
        self.count();
        (questions, unresolved)
    }
}

fn is_down(down: &[bool], (interface, _): &Key) -> bool {
    down.get(usize::from(*interface)) == Some(&true)
}

impl<P> Neighbour<P> {
    fn unknown(due_ns: u64) -> Self {
        Self {
            state: State::Asked(0),
            due_ns,
            is_next_hop: false,
            is_unasked: false,
            wanted_by: None,
            waiting: Vec::new(),
        }
    }

    /// Takes out the packets that wait for it.
    fn take_waiting(&mut self) -> impl Iterator<Item = P> + use<P> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, packet)| packet)
    }

    fn mac(&self) -> Option<Mac> {
        match self.state {
            State::Static(mac) | State::Known(mac) | State::Checked(mac, _) => Some(mac),
            State::Asked(_) | State::GivenUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HOST: Key = (0, IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn packets_wait_for_an_answer_and_go_on_with_it() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        assert_eq!(neighbours.wait(HOST, 0, 1, 0), Ok(Some(Question::Everybody(HOST))));
        assert_eq!(neighbours.wait(HOST, 0, 2, 1), Ok(None), "it has just been asked");
        assert_eq!(neighbours.waiting(), 2);
        assert!(!neighbours.take_changed());
        assert_eq!(neighbours.learn(HOST, MAC, false, 2), [1, 2]);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(HOST, MAC)]);
        assert_eq!(neighbours.known_len(), 1);
        assert_eq!(neighbours.wait(HOST, 0, 3, 3), Err((3, None)), "it need not wait");
        assert_eq!(neighbours.waiting(), 0);

        assert_eq!(neighbours.learn(HOST, MAC, false, 4), [0; 0]);
        assert!(!neighbours.take_changed(), "it says the same again");
        neighbours.learn(HOST, Mac([2, 0, 0, 0, 0, 3]), false, 5);
        assert!(neighbours.take_changed(), "it has moved to another Ethernet address");
    }

    #[test]
    fn who_does_not_answer_is_asked_thrice_given_up_and_asked_anew_later() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        neighbours.wait(HOST, 0, 1, 0).unwrap();
        for more in 1..=2 {
            let (questions, unresolved) = neighbours.tick(more * SECOND);
            assert_eq!((questions, unresolved), (vec![Question::Everybody(HOST)], vec![]));
        }
        assert_eq!(neighbours.tick(3 * SECOND), (vec![], vec![1]));
        let refused = neighbours.wait(HOST, 0, 2, 4 * SECOND);
        assert_eq!(refused, Err((2, Some(SlowReason::NeighbourUnresolved))));
        neighbours.tick(6 * SECOND);
        assert!(neighbours.wait(HOST, 0, 3, 6 * SECOND).unwrap().is_some());
    }

    #[test]
    fn neighbours_age_are_checked_and_forgotten_but_next_hops_are_asked_for_again() {
        let gateway: Key = (1, "fd00::1".parse().unwrap());
        let mut neighbours = Neighbours::<u32>::new(60 * SECOND);
        neighbours.reconfigure(60 * SECOND, &[], [gateway].into_iter(), Some, 0);
        assert_eq!(neighbours.tick(0).0, [Question::Everybody(gateway)], "before there is traffic");
        neighbours.learn(gateway, MAC, false, 0);
        neighbours.learn(HOST, MAC, true, 0);
        for check in 0..3 {
            let (questions, _) = neighbours.tick((60 + check) * SECOND);
            assert!(questions.contains(&Question::Itself(HOST, MAC)));
        }
        neighbours.learn(HOST, MAC, false, 62 * SECOND);
        neighbours.take_changed();
        neighbours.tick(63 * SECOND);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(HOST, MAC)]);
        assert_eq!(neighbours.tick(63 * SECOND).0, [Question::Everybody(gateway)]);
    }

    #[test]
    fn a_scan_fills_neither_memory_nor_the_link_with_questions() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        let address = |n: u32| (0, IpAddr::V4(n.into()));
        let mut ask = |port, n| neighbours.wait(address(n), port, n, 0).is_ok();
        assert_eq!((0..100_000).filter(|&n| ask(0, n)).count(), MOST_UNKNOWN);
        assert_eq!((0..10).filter(|_| ask(0, 7)).count(), MOST_WAITING - 1);
        assert!(ask(1, 300_000), "what others ask for has room of its own");
        neighbours.learn(address(200_000), MAC, false, 0);
        assert_eq!(
            (neighbours.known().count(), neighbours.known_len()),
            (0, 0),
            "unasked answers are not believed"
        );
        // Those that answer make room.
        neighbours.learn(address(7), MAC, false, 0);
        assert!(neighbours.wait(address(400_000), 0, 1, 0).is_ok());
        assert!(neighbours.wait(address(400_001), 0, 1, 0).is_err());
        assert!(neighbours.waiting() <= 2 * MOST_OF_PORT);
    }

    #[test]
    fn a_port_has_no_more_packets_wait_for_however_many_next_hops() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        let address = |n: u32| (0, IpAddr::V4(n.into()));
        let hops = (0..2 * MOST_UNKNOWN as u32).map(address);
        neighbours.reconfigure(60 * SECOND, &[], hops.clone(), Some, 0);
        let mut wait = |key, port| neighbours.wait(key, port, port, 0);
        let flood = hops.flat_map(|key| [key; MOST_WAITING]);
        assert_eq!(flood.filter(|&key| wait(key, 0).is_ok()).count(), MOST_OF_PORT);
        let full = Err((0, Some(SlowReason::NeighbourQueueFull)));
        assert_eq!(wait(address(1_000_000), 0), full, "nor for others");
        assert!(wait(address(MOST_UNKNOWN as u32), 1).is_ok(), "another port's may");
        assert_eq!(neighbours.waiting(), MOST_OF_PORT + 1);
        // Each that goes makes room, by whichever port those came that waited with it.
        for (hop, count) in [(MOST_UNKNOWN as u32, 1), (0, MOST_WAITING)] {
            assert_eq!(neighbours.learn(address(hop), MAC, false, 0).len(), count);
        }
        let last = address(2 * MOST_UNKNOWN as u32 - 1);
        assert_eq!((0..9).filter(|_| neighbours.wait(last, 0, 0, 0).is_ok()).count(), MOST_WAITING);
        assert_eq!(neighbours.waiting(), MOST_OF_PORT);
        (0..=3).for_each(|second| drop(neighbours.tick(second * SECOND)));
        assert_eq!(neighbours.waiting(), 0);
    }

    #[test]
    fn forged_questions_take_no_room_from_hosts() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        let address = |interface, n: u32| (interface, IpAddr::V4(n.into()));
        for n in 0..100_000 {
            neighbours.learn(address(0, n), MAC, true, 0);
        }
        assert_eq!(neighbours.known_len(), MOST_UNASKED);
        assert_eq!(neighbours.learn(address(1, 1), MAC, true, 0), [0; 0]);
        assert_eq!(neighbours.known_len(), MOST_UNASKED + 1, "another interface has its own");
        // Another host of that interface is found when there is something for it.
        let host = address(0, 200_000);
        assert_eq!(neighbours.wait(host, 0, 1, 0), Ok(Some(Question::Everybody(host))));
        assert_eq!(neighbours.learn(host, MAC, false, 0), [1]);
        // One that asked and then answered is no longer among them.
        neighbours.tick(60 * SECOND);
        neighbours.learn(address(0, 5), MAC, false, 60 * SECOND);
        neighbours.learn(address(0, 300_000), MAC, true, 60 * SECOND);
        let known: Vec<_> = neighbours.known().map(|(key, _)| key).collect();
        assert!(known.contains(&address(0, 300_000)));
        // Nobody else answers, and they are forgotten.
        (61..=63).for_each(|second| drop(neighbours.tick(second * SECOND)));
        assert!(neighbours.known_len() <= 4, "{}", neighbours.known_len());
        neighbours.learn(address(0, 400_000), MAC, true, 64 * SECOND);
        assert!(neighbours.known().any(|(key, _)| key == address(0, 400_000)));
    }

    #[test]
    fn one_interface_takes_half_of_the_room_at_most() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        let mut host = |interface, n: u32| {
            let key = (interface, IpAddr::V4(n.into()));
            let asked = neighbours.wait(key, 0, n, 0).is_ok();
            neighbours.learn(key, MAC, false, 0);
            asked
        };
        assert_eq!((0..100_000).filter(|&n| host(0, n)).count(), MOST_OF_INTERFACE);
        assert!(host(1, 0));
    }

    #[test]
    fn without_a_link_nobody_is_sent_to_or_asked_and_with_it_who_was_known_is_asked_again() {
        let other: Key = (1, "10.9.0.2".parse().unwrap());
        let silent: Key = (0, "10.0.0.3".parse().unwrap());
        let mut neighbours = Neighbours::new(60 * SECOND);
        for key in [HOST, other] {
            neighbours.learn(key, MAC, true, 0);
        }
        neighbours.wait(silent, 0, 1, 0).unwrap();
        neighbours.take_changed();
        assert_eq!(neighbours.set_down(vec![true], SECOND), [1]);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(other, MAC)]);
        for key in [HOST, silent] {
            assert_eq!(neighbours.wait(key, 0, 2, SECOND), Err((2, Some(SlowReason::LinkDown))));
        }
        let (questions, _) = neighbours.tick(100 * SECOND);
        assert_eq!(questions, [Question::Itself(other, MAC)]);

        assert_eq!(neighbours.set_down(vec![false], 101 * SECOND), [0; 0]);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().count(), 2, "at once");
        let (questions, _) = neighbours.tick(101 * SECOND);
        assert!(questions.contains(&Question::Itself(HOST, MAC)), "{questions:?}");
        assert!(questions.contains(&Question::Everybody(silent)), "{questions:?}");
    }

    #[test]
    fn static_neighbours_stay_and_what_waited_for_others_comes_back_when_they_go() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        neighbours.wait(HOST, 0, 1, 0).unwrap();
        let gone = neighbours.reconfigure(SECOND, &[(HOST, MAC)], [].into_iter(), |_| None, 0);
        assert_eq!(gone, [1]);
        neighbours.learn(HOST, Mac([2; 6]), true, 0);
        neighbours.tick(10 * SECOND);
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(HOST, MAC)]);
    }
}
