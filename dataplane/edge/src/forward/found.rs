//! Packets whose neighbour has answered, until the lcores know its address: then they go back, as
//! fast as the ring to the lcores has room.

use std::collections::VecDeque;

use super::exchange::{Origin, Return};
use super::slow::neighbours::MOST_OF_PORT;

/// Packets that have found their neighbour, of each port at most as many as may wait for one.
#[derive(Debug)]
pub(super) struct Found<P> {
    /// As they came, each with its port and where it is on its way.
    packets: VecDeque<(P, usize, Origin)>,
    /// The lcores know the neighbours of so many of the first.
    published: usize,
    /// How many there are by the port that they came from; the last of these is for what the
    /// switch itself made.
    of_port: Vec<usize>,
}

impl<P> Found<P> {
    /// None, in a switch of so many ports.
    pub(super) fn new(ports: usize) -> Self {
        Self { packets: VecDeque::new(), published: 0, of_port: vec![0; ports + 1] }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Adds a packet; gives it back where there is no room.
    pub(super) fn push(&mut self, packet: P, port: usize, origin: Origin) -> Result<(), P> {
        let of_port = self.held(port);
        if *of_port >= MOST_OF_PORT {
            return Err(packet);
        }
        *of_port += 1;
        self.packets.push_back((packet, port, origin));
        Ok(())
    }

    /// Notes that the lcores know the neighbours of all that there are.
    pub(super) fn publish(&mut self) {
        self.published = self.packets.len();
    }

    /// The next packet whose neighbour the lcores know.
    pub(super) fn pop(&mut self) -> Option<Return<P>> {
        self.published = self.published.checked_sub(1)?;
        let (packet, port, origin) = self.packets.pop_front()?;
        *self.held(port) -= 1;
        Some(Return::Route { packet, port, origin })
    }

    fn held(&mut self, port: usize) -> &mut usize {
        let own = self.of_port.len() - 1;
        &mut self.of_port[port.min(own)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_back_in_order_once_they_are_published_and_a_port_takes_no_others_room() {
        let mut found = Found::new(2);
        assert!((0..MOST_OF_PORT).all(|n| found.push(n, 0, Origin::Host).is_ok()));
        assert_eq!(found.push(MOST_OF_PORT, 0, Origin::Host), Err(MOST_OF_PORT));
        assert!(found.pop().is_none(), "nobody knows their neighbours");
        found.publish();
        for port in [1, usize::MAX] {
            assert_eq!(found.push(0, port, Origin::Fabric), Ok(()));
        }
        assert_eq!(found.len(), MOST_OF_PORT + 2);
        let back: Vec<_> = std::iter::from_fn(|| found.pop()).collect();
        let of_host = |(n, back): (usize, &Return<usize>)| matches!(back, Return::Route { packet, port: 0, origin: Origin::Host } if *packet == n);
        assert_eq!(back.len(), MOST_OF_PORT);
        assert!(back.iter().enumerate().all(of_host), "{back:?}");
        assert_eq!(found.len(), 2);
        assert_eq!(found.push(0, 0, Origin::Host), Ok(()));
    }
}
