//! What is counted of INT stacks, and the names under which it is reported.

use std::ops::AddAssign;

use crate::int::push::{NotCarried, Pushed};

/// What an lcore counts of INT stacks.
///
/// Over a network at rest, every stack that was put in was taken out, or its packet was lost:
/// `inserted = stripped + taken_out + discarded + unstripped + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntCounters {
    /// Packets from hosts that went on with a stack.
    pub inserted: u64,
    /// Hops put into packets, those of sources included.
    pub pushed: u64,
    /// Stacks taken out of packets that leave the network.
    pub stripped: u64,
    /// Stacks taken out before that: of packets that would have been too long for their next link,
    /// that are not routed, or that are answered with an ICMP error.
    pub taken_out: u64,
    /// Packets from the fabric that have the marker and no stack of this network's.
    pub foreign: u64,
    /// Packets from the fabric whose stack is this network's by its domain, and says lengths that
    /// disagree.
    pub malformed: u64,
    /// Packets that a source would have put a stack into, and why it did not.
    pub not_carried: [u64; NotCarried::ALL.len()],
    /// Hops that were not pushed since the packet would have been too long.
    pub mtu_exceeded: u64,
    /// Hops that were not pushed since the stack may have no more.
    pub hops_exceeded: u64,
    /// Packets dropped at the sink since their stack asks for that.
    pub discarded: u64,
    /// Packets dropped since their stack could not be taken out: first fragments, which somebody in
    /// the fabric has made. What they are put together to is not what was sent.
    pub unstripped: u64,
    /// Packets from hosts that had the marker set. It was cleared.
    pub dscp_cleared: u64,
    /// Packets from hosts that leave no room for a whole stack and about which an ICMP error was
    /// asked for, with the MTU that does.
    pub mtu_advised: u64,
}

impl IntCounters {
    /// Packets dropped.
    pub fn dropped(&self) -> u64 {
        self.discarded + self.unstripped
    }

    /// Notes what became of a switch's own hop.
    #[inline]
    pub fn count(&mut self, pushed: Pushed) {
        match pushed {
            Pushed::Hop => self.pushed += 1,
            Pushed::NoRoom => self.mtu_exceeded += 1,
            Pushed::NoHops => self.hops_exceeded += 1,
            Pushed::Nothing => self.malformed += 1,
        }
    }

    /// Notes why a packet goes without a stack.
    #[inline]
    pub fn go_without(&mut self, why: NotCarried) {
        self.not_carried[why as usize] += 1;
    }

    /// Every counter with its name.
    pub fn named(&self) -> Vec<(String, u64)> {
        let plain = [
            ("inserted", self.inserted),
            ("pushed", self.pushed),
            ("stripped", self.stripped),
            ("taken_out", self.taken_out),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
            ("mtu_exceeded", self.mtu_exceeded),
            ("hops_exceeded", self.hops_exceeded),
            ("discarded", self.discarded),
            ("unstripped", self.unstripped),
            ("dscp_cleared", self.dscp_cleared),
            ("mtu_advised", self.mtu_advised),
        ];
        let plain = plain.into_iter().map(|(name, value)| (format!("sketchint.{name}"), value));
        let not_carried = NotCarried::ALL.into_iter().map(|why| {
            (format!("sketchint.not_carried.{}", why.name()), self.not_carried[why as usize])
        });
        plain.chain(not_carried).collect()
    }
}

impl AddAssign<&Self> for IntCounters {
    fn add_assign(&mut self, other: &Self) {
        self.inserted += other.inserted;
        self.pushed += other.pushed;
        self.stripped += other.stripped;
        self.taken_out += other.taken_out;
        self.foreign += other.foreign;
        self.malformed += other.malformed;
        self.mtu_exceeded += other.mtu_exceeded;
        self.hops_exceeded += other.hops_exceeded;
        self.discarded += other.discarded;
        self.unstripped += other.unstripped;
        self.dscp_cleared += other.dscp_cleared;
        self.mtu_advised += other.mtu_advised;
        for (mine, theirs) in self.not_carried.iter_mut().zip(other.not_carried) {
            *mine += theirs;
        }
    }
}
