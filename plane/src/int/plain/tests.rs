//! On plain packets the short way does what the long one does, and it leaves others as they were.

use proptest::prelude::*;

use super::super::header::{Seen, look};
use super::super::strip::{self, Goes, read};
use super::super::tests::{Shape, frame, hops, insertion, ours, segments, shapes, sums};
use super::super::{Domains, Hop, Instructions, MARKER, MOST_HOPS, Stack, push};
use super::{source, transit};
use crate::carrier::set_tos_bits;
use crate::packet::{Frame, Packet};

const ROOM: usize = 400;

/// A packet to each of two switches, of which one goes the long way only.
#[derive(Clone)]
struct Both {
    short: Frame,
    long: Frame,
}

impl Both {
    fn of(bytes: &[u8], more: usize) -> Self {
        let packet = Frame::with_headroom(ROOM, bytes).cut_from(bytes.len() + more);
        Self { short: packet.clone(), long: packet }
    }

    /// Whether the short way is one, which then leads where the long one does.
    fn source(&mut self, ip: usize, hop: &Hop, (hops, dscp, mtu): (u8, u8, usize)) -> bool {
        let before = self.short.clone();
        let insertion = insertion(Instructions::DEFAULT, hops);
        let long = push::source(&mut self.long, ip, (&insertion, hop), dscp, mtu);
        let short = source(&mut self.short, (&insertion, hop), dscp, mtu);
        if short {
            assert_eq!(long, Ok(push::Pushed::Hop));
            assert_eq!(self.short.bytes(), self.long.bytes());
        } else {
            assert_eq!(self.short, before);
            self.short = self.long.clone();
        }
        short
    }

    fn transit(&mut self, ip: usize, hop: &Hop, domains: Domains, mtu: usize) -> bool {
        let before = self.short.clone();
        let short = transit(&mut self.short, domains, hop, mtu);
        match look(&self.long, ip, domains) {
            Seen::Stack(found) => {
                let long = push::transit(&mut self.long, &found, hop, mtu);
                assert!(!short || long == push::Pushed::Hop);
            }
            _ => assert!(!short),
        }
        if short {
            assert_eq!(self.short.bytes(), self.long.bytes());
        } else {
            assert_eq!(self.short, before);
            self.short = self.long.clone();
        }
        short
    }

    fn strip(&mut self, ip: usize, domains: Domains) -> bool {
        let before = self.short.clone();
        let mut stacks = [Stack::EMPTY; 2];
        let [short_stack, long_stack] = &mut stacks;
        let short = super::strip(&mut self.short, domains, |_| Some(short_stack));
        match look(&self.long, ip, domains) {
            Seen::Stack(found) if !found.header.is_discarded() => {
                read(&self.long, &found, long_stack);
                let long = strip::strip(&mut self.long, ip, &found, Goes::ToHost);
                assert!(!short || long);
            }
            _ => assert!(!short),
        }
        if short {
            assert_eq!(self.short.bytes(), self.long.bytes());
            let [short_stack, long_stack] = stacks;
            assert_eq!(short_stack, long_stack);
        } else {
            assert_eq!(self.short, before);
        }
        short
    }
}

/// Whether a packet is plain, by what it was made of.
fn is_plain((tags, ipv6, more): (usize, bool, usize)) -> bool {
    tags == 0 && !ipv6 && more == 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_short_way_leads_where_the_long_one_does(
        (shape, segment, sum) in (shapes(), segments(), sums()),
        made_plain in any::<bool>(),
        hops in hops(),
        most in 1u8..=16,
        mtu in prop_oneof![Just(1500usize), 60usize..300],
        (dscp, tos) in (0u8..64, any::<u8>()),
    ) {
        let mut shape = shape;
        if made_plain {
            (shape.tags, shape.ipv6, shape.more) = (0, false, 0);
        }
        let (bytes, ip) = frame(&shape, &segment, sum);
        let mut packet = Both::of(&bytes, 0);
        for packet in [&mut packet.short, &mut packet.long] {
            set_tos_bits(packet.bytes_mut(), ip, 0xFF, tos & !MARKER);
        }
        let is_plain = is_plain((shape.tags, shape.ipv6, shape.more));
        let before = packet.long.bytes().to_vec();
        let odd = before[ip + 10..ip + 12] == [0xFF; 2]
            || segment.protocol == 6 && before[ip + 36..ip + 38] == [0xFF; 2];
        let short = packet.source(ip, &hops[0], (most, dscp, mtu));
        prop_assert_eq!(short, is_plain && before.len() - 14 + 24 <= mtu && !odd);
        let mut pushed = usize::from(packet.long.bytes() != before);
        if pushed == 0 {
            return Ok(());
        }
        for hop in &hops[1..] {
            let fits = packet.long.bytes().len() - 14 + 8 <= mtu && pushed < usize::from(most);
            let short = packet.transit(ip, hop, ours(), mtu);
            prop_assert_eq!(short, is_plain && fits);
            pushed += usize::from(fits);
        }
        let foreign = packet.clone().strip(ip, {
            let mut others = Domains::default();
            others.learn(std::num::NonZeroU16::new(9).unwrap(), None);
            others
        });
        prop_assert!(!foreign && pushed <= MOST_HOPS);
        prop_assert_eq!(packet.strip(ip, ours()), is_plain);
    }

    /// Whatever the bytes.
    #[test]
    fn of_damaged_packets_the_short_way_takes_those_that_the_long_one_takes(
        segment in segments(), sum in sums(),
        hops in hops(),
        changes in prop::collection::vec((0usize..120, any::<u8>()), 0..5),
        (cut, more) in (0usize..60, 0usize..9),
        mtu in 60usize..300,
    ) {
        let shape = Shape { tags: 0, ipv6: false, more: 0, tos: 0, padding: 0 };
        let (bytes, ip) = frame(&shape, &segment, sum);
        let mut packet = Both::of(&bytes, 0);
        for hop in &hops[..hops.len().min(3)] {
            if !packet.source(ip, hop, (6, 0, 1500)) {
                packet.transit(ip, hop, ours(), 1500);
            }
        }
        let mut bytes = packet.long.bytes().to_vec();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 2));
        for domains in [Domains::ANY, ours()] {
            let packet = Both::of(&bytes, more);
            packet.clone().source(ip, &hops[0], (6, 0, mtu));
            packet.clone().transit(ip, &hops[0], domains, mtu);
            packet.clone().strip(ip, domains);
        }
    }
}
