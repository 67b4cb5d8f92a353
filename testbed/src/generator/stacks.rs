//! Packets as switches hand them on: with an INT stack, put in by the code of a switch.

use std::num::NonZeroU16;

use anyhow::{Result, bail, ensure};
use calumma_plane::int::header::{HEADERS, Seen, look};
use calumma_plane::int::push::{Pushed, source, transit};
use calumma_plane::int::{Domains, Hop, Insertion, Instructions};
use calumma_plane::packet::{Frame, Packet};

use super::flows::HEAD;
use crate::workload::set_dscp;

/// Where the IP header begins.
const IP: usize = 14;

/// Hops that remain to be pushed.
pub(super) const MORE: u8 = 2;

/// The stacks that packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// Hops of each, with node id and latency.
    pub hops: u8,
    /// The deployment's number in them.
    pub domain: NonZeroU16,
}

impl Stacks {
    /// Most hops: all headers lie within two cache lines.
    const MOST: u8 = 6;

    /// Checks that packets can have them.
    ///
    /// # Errors
    /// Where that is not so, and how many hops there may be.
    pub(super) fn check(&self) -> Result<()> {
        let most = Self::MOST;
        ensure!((1..=most).contains(&self.hops), "{} hops: give 1 to {most}", self.hops);
        Ok(())
    }

    /// Bytes of a stack.
    pub(super) fn bytes(&self) -> u16 {
        HEADERS as u16 + 8 * u16::from(self.hops)
    }

    /// Puts a stack into flow number `at`'s frames, of which `head` is the beginning and `length`
    /// all bytes. Flows take one of 32 ways, and wait a microsecond or two at each switch.
    ///
    /// # Errors
    /// When a packet of the flow can have none.
    pub(super) fn put(&self, at: usize, head: &[u8], length: u16) -> Result<Vec<u8>> {
        let Self { hops, domain } = *self;
        // A source looks at all of a packet.
        let mut bytes = head.to_vec();
        bytes.resize(length.into(), 0);
        let mut frame = Frame::with_headroom(self.bytes().into(), &bytes);
        let mtu = usize::from(u16::MAX);
        for number in 0..hops {
            let node = 1 + 2 * u32::from(number) + (at >> (number % 5)) as u32 % 2;
            let latency_ns = 1_000 + (at as u32).wrapping_mul(2_654_435_761) % 1_000;
            let hop = Hop { node, latency_ns, ..Hop::UNKNOWN };
            let pushed = if number == 0 {
                let node = NonZeroU16::MIN;
                let instructions = Instructions::DEFAULT;
                // Those who receive them may push theirs.
                let hops = hops + MORE;
                source(
                    &mut frame,
                    IP,
                    (&Insertion { domain, node, instructions, hops, udp_port: None }, &hop),
                    0,
                    mtu,
                )
            } else {
                match look(&frame, IP, Domains::ANY) {
                    Seen::Stack(found) => Ok(transit(&mut frame, &found, &hop, mtu)),
                    seen => bail!("a stack that was put in is {seen:?}"),
                }
            };
            ensure!(pushed == Ok(Pushed::Hop), "a packet can have no stack: {pushed:?}");
        }
        // A mark as well: sampled.
        set_dscp(frame.bytes_mut(), 0b00_1100);
        Ok(frame.bytes()[..frame.bytes().len().min(2 * HEAD)].to_vec())
    }
}
