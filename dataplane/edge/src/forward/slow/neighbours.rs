//! Which neighbour has which Ethernet address: asked for, believed for a while, checked, forgotten.
//!
//! No clock, no packets written: the caller passes the time in and sends the solicitations that are
//! due. Everything is bounded, so that a scan of a network costs memory and solicitations for so
//! many addresses and no more.

use std::collections::HashMap;
use std::net::IpAddr;

use super::super::address::Mac;
use super::super::config::InterfaceId;
use super::super::counters::SlowReason;

/// A neighbour: an address on the link of an interface.
pub type Key = (InterfaceId, IpAddr);

/// Packets that wait for one neighbour at most.
const MOST_WAITING: usize = 4;
/// Neighbours that are asked for at a time and not known, at most.
const MOST_UNKNOWN: usize = 1024;
/// Neighbours at most.
const MOST: usize = 65_536;
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
    waiting: Vec<P>,
}

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
    waiting: usize,
    lifetime_ns: u64,
    changed: bool,
    /// Interfaces without a link, by number; those beyond have one.
    down: Vec<bool>,
}

impl<P> Neighbours<P> {
    /// No neighbours. Known ones are checked after `lifetime_ns`.
    pub fn new(lifetime_ns: u64) -> Self {
        let (all, down) = (HashMap::new(), Vec::new());
        Self { all, unknown: 0, waiting: 0, lifetime_ns, changed: false, down }
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
                _ => forgotten.append(&mut neighbour.waiting),
            }
        }
        for &(key, mac) in statics {
            let state = State::Static(mac);
            let (due_ns, is_next_hop) = (u64::MAX, false);
            let new = Neighbour { state, due_ns, is_next_hop, waiting: Vec::new() };
            if let Some(mut old) = self.all.insert(key, new) {
                forgotten.append(&mut old.waiting);
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
                cut_off.append(&mut neighbour.waiting);
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
        self.unknown = self.all.values().filter(|one| one.mac().is_none()).count();
        self.waiting = self.all.values().map(|one| one.waiting.len()).sum();
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
        self.waiting
    }

    /// Lets a packet wait for a neighbour until it is known, and says whom to ask for that. Gives
    /// the packet back, at once if the neighbour is known, or with the reason why it can't
    /// wait.
    pub fn wait(
        &mut self,
        key: Key,
        packet: P,
        now_ns: u64,
    ) -> Result<Option<Question>, (P, Option<SlowReason>)> {
        if is_down(&self.down, &key) {
            return Err((packet, Some(SlowReason::LinkDown)));
        }
        let mut question = None;
        if !self.all.contains_key(&key) {
            if self.unknown >= MOST_UNKNOWN || self.all.len() >= MOST {
                return Err((packet, Some(SlowReason::NeighbourQueueFull)));
            }
            let mut new = Neighbour::unknown(now_ns);
            new.state = State::Asked(1);
            new.due_ns = now_ns + QUESTION_NS;
            self.all.insert(key, new);
            self.unknown += 1;
            question = Some(Question::Everybody(key));
        }
        let Some(neighbour) = self.all.get_mut(&key) else { return Ok(question) };
        match neighbour.state {
            State::GivenUp => Err((packet, Some(SlowReason::NeighbourUnresolved))),
            State::Asked(_) if neighbour.waiting.len() >= MOST_WAITING => {
                Err((packet, Some(SlowReason::NeighbourQueueFull)))
            }
            State::Asked(_) => {
                neighbour.waiting.push(packet);
                self.waiting += 1;
                Ok(question)
            }
            State::Static(_) | State::Known(_) | State::Checked(..) => Err((packet, None)),
        }
    }

    /// Notes a neighbour's Ethernet address as it announced it. One that was not solicited is noted
    /// only if `anew`. Gives the packets that waited for it.
    pub fn learn(&mut self, key: Key, mac: Mac, anew: bool, now_ns: u64) -> Vec<P> {
        if mac.is_group() || (!self.all.contains_key(&key) && (!anew || self.all.len() >= MOST)) {
            return Vec::new();
        }
        let neighbour = self.all.entry(key).or_insert_with(|| {
            self.unknown += 1;
            Neighbour::unknown(now_ns)
        });
        if matches!(neighbour.state, State::Static(_)) {
            return Vec::new();
        }
        let before = neighbour.mac();
        self.changed |= before != Some(mac);
        self.unknown -= usize::from(before.is_none());
        neighbour.state = State::Known(mac);
        neighbour.due_ns = now_ns + self.lifetime_ns;
        self.waiting -= neighbour.waiting.len();
        std::mem::take(&mut neighbour.waiting)
    }

    /// Does what is due: gives whom to ask, and the packets whose neighbours did not answer.
    pub fn tick(&mut self, now_ns: u64) -> (Vec<Question>, Vec<P>) {
        let (mut questions, mut given_up) = (Vec::new(), Vec::new());
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
                    given_up.append(&mut neighbour.waiting);
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
        (questions, given_up)
    }
}

fn is_down(down: &[bool], (interface, _): &Key) -> bool {
    down.get(usize::from(*interface)) == Some(&true)
}

impl<P> Neighbour<P> {
    fn unknown(now_ns: u64) -> Self {
        Self { state: State::Asked(0), due_ns: now_ns, is_next_hop: false, waiting: Vec::new() }
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
        assert_eq!(neighbours.wait(HOST, 1, 0), Ok(Some(Question::Everybody(HOST))));
        assert_eq!(neighbours.wait(HOST, 2, 1), Ok(None), "it has just been asked");
        assert_eq!(neighbours.waiting(), 2);
        assert!(!neighbours.take_changed());
        assert_eq!(neighbours.learn(HOST, MAC, false, 2), [1, 2]);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(HOST, MAC)]);
        assert_eq!(neighbours.known_len(), 1);
        assert_eq!(neighbours.wait(HOST, 3, 3), Err((3, None)), "it need not wait");
        assert_eq!(neighbours.waiting(), 0);

        assert_eq!(neighbours.learn(HOST, MAC, false, 4), [0; 0]);
        assert!(!neighbours.take_changed(), "it says the same again");
        neighbours.learn(HOST, Mac([2, 0, 0, 0, 0, 3]), false, 5);
        assert!(neighbours.take_changed(), "it has moved to another Ethernet address");
    }

    #[test]
    fn who_does_not_answer_is_asked_thrice_given_up_and_asked_anew_later() {
        let mut neighbours = Neighbours::new(60 * SECOND);
        neighbours.wait(HOST, 1, 0).unwrap();
        for more in 1..=2 {
            let (questions, given_up) = neighbours.tick(more * SECOND);
            assert_eq!((questions, given_up), (vec![Question::Everybody(HOST)], vec![]));
        }
        assert_eq!(neighbours.tick(3 * SECOND), (vec![], vec![1]));
        let refused = neighbours.wait(HOST, 2, 4 * SECOND);
        assert_eq!(refused, Err((2, Some(SlowReason::NeighbourUnresolved))));
        neighbours.tick(6 * SECOND);
        assert!(neighbours.wait(HOST, 3, 6 * SECOND).unwrap().is_some());
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
        let asked = (0..100_000).filter(|&n| neighbours.wait(address(n), n, 0).is_ok()).count();
        assert_eq!(asked, MOST_UNKNOWN);
        let full = (0..10).filter(|&n| neighbours.wait(address(7), n, 0).is_ok()).count();
        assert_eq!(full, MOST_WAITING - 1);
        neighbours.learn(address(200_000), MAC, false, 0);
        assert_eq!(
            (neighbours.known().count(), neighbours.known_len()),
            (0, 0),
            "unasked answers are not believed"
        );
    }

    #[test]
    fn without_a_link_nobody_is_sent_to_or_asked_and_with_it_who_was_known_is_asked_again() {
        let other: Key = (1, "10.9.0.2".parse().unwrap());
        let silent: Key = (0, "10.0.0.3".parse().unwrap());
        let mut neighbours = Neighbours::new(60 * SECOND);
        for key in [HOST, other] {
            neighbours.learn(key, MAC, true, 0);
        }
        neighbours.wait(silent, 1, 0).unwrap();
        neighbours.take_changed();
        assert_eq!(neighbours.set_down(vec![true], SECOND), [1]);
        assert!(neighbours.take_changed());
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(other, MAC)]);
        for key in [HOST, silent] {
            assert_eq!(neighbours.wait(key, 2, SECOND), Err((2, Some(SlowReason::LinkDown))));
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
        neighbours.wait(HOST, 1, 0).unwrap();
        let gone = neighbours.reconfigure(SECOND, &[(HOST, MAC)], [].into_iter(), |_| None, 0);
        assert_eq!(gone, [1]);
        neighbours.learn(HOST, Mac([2; 6]), true, 0);
        neighbours.tick(10 * SECOND);
        assert_eq!(neighbours.known().collect::<Vec<_>>(), [(HOST, MAC)]);
    }
}
