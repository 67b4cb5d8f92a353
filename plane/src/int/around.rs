//! What a switch says in stacks of its ports and queues, where they ask for it.
//!
//! None of it is looked at where [`Instructions`] do not ask: what a burst
//! [came by](Came) and [goes by](Going) is `None` then, and all ones in stacks that ask all the
//! same.

use calumma_sketch::BURST;

use super::means::Means;
use super::{Hop, Instructions, UNKNOWN};

/// A port that is not known.
pub const NO_PORT: u16 = u16::MAX;

/// A level 2 interface that is not known.
const NO_INTERFACE: u16 = u16::MAX;

/// Interfaces by packets' positions in their burst.
#[derive(Clone, Copy, Debug)]
struct Interfaces([u16; BURST]);

impl Interfaces {
    const UNKNOWN: Self = Self([NO_INTERFACE; BURST]);

    fn set(&mut self, at: usize, interface: Option<u16>) {
        if let Some(place) = self.0.get_mut(at) {
            *place = interface.unwrap_or(NO_INTERFACE);
        }
    }

    fn of(&self, at: usize) -> u32 {
        let known = self.0.get(at).filter(|&&interface| interface != NO_INTERFACE);
        known.map_or(UNKNOWN, |&interface| interface.into())
    }
}

/// How many packets a poll of a receive queue found waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// How many.
    pub packets: u32,
    /// By what means that is known: bits of [`Means`].
    pub means: u8,
}

impl Queued {
    /// What a poll says that received so many packets, and left the queue empty or not. `waiting`
    /// is how many the driver said were there just before, where it can say that.
    #[inline]
    pub fn of_poll(waiting: Option<u32>, received: usize, emptied: bool) -> Self {
        let received = u32::try_from(received).unwrap_or(UNKNOWN);
        match waiting {
            // Others may have come in between.
            Some(waiting) => Self { packets: waiting.max(received), means: Means::QUEUE_ASKED },
            None => {
                let more = if emptied { 0 } else { Means::QUEUE_AT_LEAST };
                Self { packets: received, means: Means::QUEUE_FOUND | more }
            }
        }
    }

    /// By what means that is known.
    #[inline]
    pub fn known_by(self) -> Means {
        Means::new(self.means, 0).unwrap_or_default()
    }
}

/// By what a burst came.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    port: u16,
    queued: Option<Queued>,
    interfaces: Interfaces,
}

impl Came {
    /// By the port of this number, where so many packets were waiting, if that is known.
    #[inline]
    pub fn by(port: u16, queued: Option<Queued>) -> Self {
        Self { port, queued, interfaces: Interfaces::UNKNOWN }
    }

    /// Notes by which level 2 interface the packet at a position of the burst came.
    pub fn set_interface(&mut self, at: usize, interface: Option<u16>) {
        self.interfaces.set(at, interface);
    }

    /// By what means the queue's length is known, where stacks of these instructions ask for it.
    #[inline]
    pub(crate) fn means(&self, instructions: Instructions) -> Means {
        let queued = self.queued.filter(|_| instructions.has_queue());
        queued.map(Queued::known_by).unwrap_or_default()
    }

    /// How many packets waited where it came, if that is known.
    #[inline]
    pub(crate) fn queued(&self) -> Option<Queued> {
        self.queued
    }
}

/// By what packets of a burst go.
#[derive(Clone, Copy, Debug)]
pub struct Going {
    port: u16,
    utilisation: u32,
    interfaces: Interfaces,
}

impl Going {
    /// By the port of this number, of whose link this share is used, in 1/10,000; [`UNKNOWN`] where
    /// that is not known.
    pub fn by(port: u16, utilisation: u32) -> Self {
        Self { port, utilisation, interfaces: Interfaces::UNKNOWN }
    }

    /// Notes by which level 2 interface the packet goes that was at a position of its burst.
    pub fn set_interface(&mut self, at: usize, interface: Option<u16>) {
        self.interfaces.set(at, interface);
    }
}

/// What a hop says, with this of the packet at a position of its burst.
#[inline(never)]
pub(crate) fn complete(hop: Hop, at: usize, came: Option<&Came>, goes: Option<&Going>) -> Hop {
    let [ingress, egress] = [came.map(|of| of.port), goes.map(|of| of.port)];
    let port = |of: Option<u16>| u32::from(of.unwrap_or(NO_PORT));
    Hop {
        ports: port(ingress) << 16 | port(egress),
        queued: came.and_then(|of| of.queued).map_or(UNKNOWN, |queued| queued.packets),
        interfaces: [
            came.map_or(UNKNOWN, |of| of.interfaces.of(at)),
            goes.map_or(UNKNOWN, |of| of.interfaces.of(at)),
        ],
        utilisation: goes.map_or(UNKNOWN, |of| of.utilisation),
        ..hop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_all_ones() {
        let none = complete(Hop::UNKNOWN, 3, None, None);
        assert_eq!(none, Hop::UNKNOWN);
        let (mut came, mut goes) = (Came::by(7, None), Going::by(NO_PORT, 2_500));
        came.set_interface(3, Some(5));
        goes.set_interface(BURST, Some(5));
        let some = complete(Hop::UNKNOWN, 3, Some(&came), Some(&goes));
        let expected = Hop {
            ports: 0x0007_FFFF,
            interfaces: [5, UNKNOWN],
            utilisation: 2_500,
            ..Hop::UNKNOWN
        };
        assert_eq!(some, expected);
        let other = complete(Hop::UNKNOWN, 4, Some(&came), Some(&goes));
        assert_eq!(other, Hop { interfaces: [UNKNOWN; 2], ..expected });
    }

    #[test]
    fn a_queue_is_as_long_as_its_driver_says_or_as_a_poll_finds() {
        let queued = |packets, means| Queued { packets, means };
        assert_eq!(Queued::of_poll(Some(900), 32, false), queued(900, Means::QUEUE_ASKED));
        assert_eq!(Queued::of_poll(Some(3), 5, true), queued(5, Means::QUEUE_ASKED));
        assert_eq!(Queued::of_poll(None, 5, true), queued(5, Means::QUEUE_FOUND));
        let at_least = Means::QUEUE_FOUND | Means::QUEUE_AT_LEAST;
        let full = Queued::of_poll(None, 32, false);
        assert_eq!(full, queued(32, at_least));
        let came = Came::by(1, Some(full));
        assert_eq!(came.means(Instructions::DEFAULT), Means::default());
        let asks = Instructions::new(Instructions::DEFAULT.bits() | Instructions::QUEUE).unwrap();
        assert_eq!(Some(came.means(asks)), Means::new(at_least, 0));
        assert_eq!(complete(Hop::UNKNOWN, 0, Some(&came), None).queued, 32);
    }
}
