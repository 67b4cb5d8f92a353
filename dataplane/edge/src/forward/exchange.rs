//! What lcores and the slow path hand to each other, through bounded rings that nobody waits for.
//!
//! An lcore has rings of its own for each port, so that what one port receives takes no room from
//! the others', and of those one for ARP and neighbour discovery alone: whatever a host floods the
//! slow path with, its neighbours' Ethernet addresses stay known.

use calumma_plane::sync::{Receiver, Sender, bounded};

use super::decide::{Arrived, Task};

/// Packets of ARP and neighbour discovery that one lcore can have handed over of what one port
/// received, and the slow path has not yet taken in.
const LINK_TASKS: usize = 128;

/// The same of all other packets.
const OTHER_TASKS: usize = 256;

/// ICMP errors are asked for only where fewer of these wait: packets that wait for their next hop
/// come first.
pub const ROOM_FOR_ERRORS: usize = OTHER_TASKS / 2;

/// Packets that one lcore can have handed over at most, of what so many ports received. What the
/// switch itself made counts as one port more.
pub const fn most_handed_over(ports: usize) -> usize {
    ports * (LINK_TASKS + OTHER_TASKS)
}

/// Where a packet is on its way through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It came from a host: it enters the network if it goes on to the fabric.
    Host,
    /// It came from the fabric: it leaves the network if it goes on to a host.
    Fabric,
    /// It came from the fabric and has been recorded as having left the network.
    Left,
    /// The same, for a host with a sink of its own: it has its mark still.
    Kept,
    /// It came from the fabric and has been recorded as passing: it has its mark still. With the
    /// epoch that was the newest one when it came.
    Passing(u64),
    /// The switch made it.
    Own,
}

impl Origin {
    /// Whether the packet may have a mark that an edge gave it.
    #[inline]
    pub fn may_be_marked(self) -> bool {
        matches!(self, Self::Fabric | Self::Kept | Self::Passing(_))
    }

    /// Whether it has been recorded here, and has waited since.
    #[inline]
    pub fn was_recorded(self) -> bool {
        matches!(self, Self::Left | Self::Kept | Self::Passing(_))
    }
}

/// A packet on its way to the slow path.
#[derive(Debug)]
pub struct HandOver<P> {
    /// The packet as it came, cut to its first mbuf: others may be as long as they like, and what
    /// the slow path holds is reckoned in packets. One whose IP packet goes on behind that asks for
    /// its next hop like others, and is dropped when it comes back.
    pub packet: P,
    /// Position of the port it came from.
    pub port: usize,
    /// The interface it came in by.
    pub arrived: Arrived,
    /// Where it is on its way.
    pub origin: Origin,
    /// What is to be done.
    pub task: Task,
    /// That of the tables by which interfaces have their numbers in this.
    pub generation: u32,
}

/// A packet on its way from the slow path.
#[derive(Debug)]
pub enum Return<P> {
    /// To be forwarded like any other; it is as it came, or the switch made it.
    Route {
        /// The packet.
        packet: P,
        /// Position of the port it came from.
        port: usize,
        /// Where it is on its way.
        origin: Origin,
    },
    /// To be sent as it is.
    Send {
        /// The frame.
        packet: P,
        /// Position of the port it leaves by.
        port: usize,
    },
    /// To be freed: only lcores give mbufs back, so that none ever waits for the slow path's thread
    /// at a pool ([`pools`](crate::pools)).
    Free(P),
}

/// What waits of a port's packets.
#[derive(Debug)]
struct PortRings<T> {
    link: T,
    other: T,
}

/// An lcore's ends of its rings to the slow path.
#[derive(Debug)]
pub struct ToSlow<P> {
    /// By port; the last one is for what the switch itself made.
    ports: Vec<PortRings<Sender<HandOver<P>>>>,
}

/// The slow path's ends of one lcore's rings.
#[derive(Debug)]
pub struct FromLcore<P> {
    ports: Vec<PortRings<Receiver<HandOver<P>>>>,
}

/// The rings from an lcore of a switch with so many ports to its slow path.
pub fn to_slow<P>(ports: usize) -> (ToSlow<P>, FromLcore<P>) {
    let rings = |_| {
        let (link, other) = (bounded(LINK_TASKS), bounded(OTHER_TASKS));
        (PortRings { link: link.0, other: other.0 }, PortRings { link: link.1, other: other.1 })
    };
    let (to_slow, from_lcore) = (0..=ports).map(rings).unzip();
    (ToSlow { ports: to_slow }, FromLcore { ports: from_lcore })
}

impl<P> ToSlow<P> {
    /// Hands a packet over; gives whether there was room. Where there was none, it is dropped.
    #[must_use]
    pub fn hand_over(&self, handed: HandOver<P>) -> bool {
        let own = self.ports.len() - 1;
        let rings = &self.ports[handed.port.min(own)];
        let ring = match handed.task {
            Task::Link => &rings.link,
            Task::Own | Task::Resolve(..) => &rings.other,
            Task::Tell(_) if rings.other.len() >= ROOM_FOR_ERRORS => return false,
            Task::Tell(_) => &rings.other,
        };
        ring.try_send(handed).is_ok()
    }
}

impl<P> FromLcore<P> {
    /// Packets that wait, at most as many of each ring as it holds.
    pub fn waiting(&self) -> impl Iterator<Item = HandOver<P>> + '_ {
        self.share((1, 1))
    }

    /// The same, at most this part of what each ring holds, rounded down.
    pub fn share(&self, (part, of): (usize, usize)) -> impl Iterator<Item = HandOver<P>> + '_ {
        let share = move |most: usize| most * part / of;
        self.ports.iter().flat_map(move |PortRings { link, other }| {
            let link = link.try_iter().take(share(LINK_TASKS));
            link.chain(other.try_iter().take(share(OTHER_TASKS)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::decide::Refusal;

    fn handed(port: usize, task: Task) -> HandOver<u32> {
        HandOver { packet: 0, port, arrived: 0, origin: Origin::Host, task, generation: 0 }
    }

    #[test]
    fn what_one_port_floods_leaves_room_for_others_and_for_its_own_neighbours() {
        let (to_slow, from_lcore) = to_slow(2);
        let expired = Task::Tell(Refusal::TtlExpired);
        let flood = (0..10_000).filter(|_| to_slow.hand_over(handed(0, expired))).count();
        assert_eq!(flood, ROOM_FOR_ERRORS);
        let flood = (0..10_000).filter(|_| to_slow.hand_over(handed(0, Task::Own))).count();
        assert_eq!(flood, OTHER_TASKS - ROOM_FOR_ERRORS);
        for (port, task) in [(0, Task::Link), (1, Task::Own), (1, expired), (usize::MAX, Task::Own)]
        {
            assert!(to_slow.hand_over(handed(port, task)), "{port} {task:?}");
        }
        assert_eq!(from_lcore.waiting().count(), OTHER_TASKS + 4);
        assert!(to_slow.hand_over(handed(0, expired)));
    }

    #[test]
    fn a_part_is_taken_of_what_each_ring_holds() {
        let (to_slow, from_lcore) = to_slow(1);
        let tasks = [(0, Task::Own), (usize::MAX, Task::Own), (0, Task::Link)];
        let flood = || tasks.into_iter().flat_map(|task| std::iter::repeat_n(task, OTHER_TASKS));
        let held = flood().filter(|&(port, task)| to_slow.hand_over(handed(port, task))).count();
        let most = most_handed_over(2);
        assert_eq!(held, most - LINK_TASKS, "nothing on the link of what the switch made");
        assert_eq!(from_lcore.share((0, most)).count(), 0);
        let part: Vec<_> = from_lcore.share((most / 4, most)).map(|of| of.port).collect();
        assert_eq!(part.iter().filter(|&&port| port == 0).count(), (LINK_TASKS + OTHER_TASKS) / 4);
        assert_eq!(part.len(), held / 4);
        assert_eq!(from_lcore.share((most, most)).count(), held - held / 4);
    }
}
