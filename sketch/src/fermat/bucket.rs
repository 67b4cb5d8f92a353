//! One bucket, which is also the form of what one packet adds to it.

use std::fmt::Debug;

use crate::memory::Zeros;

/// Sums of the fragments of IPv4 keys and the number of packets, in eight 32-bit lanes: half a
/// cache line, so that no bucket straddles two.
///
/// Lane 7 counts packets (two's complement, so that a difference may be negative); the fragments
/// begin at lane 0 and unused lanes stay zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Bucket(pub [u32; 8]);

/// The same of wide keys, in sixteen lanes: a cache line. Lane 15 counts packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct WideBucket(pub [u32; 16]);

/// The lane of a bucket that counts packets.
pub(super) const COUNT: usize = 7;

/// The same of a wide bucket.
pub(super) const WIDE_COUNT: usize = 15;

/// A bucket of either kind: fragments from lane 0 on, and the count in the last lane.
pub trait Lanes: Zeros + Debug + Default + Eq + Send + Sync + 'static {
    /// All lanes.
    fn lanes(&self) -> &[u32];

    /// The same, to write to.
    fn lanes_mut(&mut self) -> &mut [u32];

    /// Packets counted; negative where more were subtracted than added.
    fn count(&self) -> i32;

    /// Whether neither a fragment nor a packet is left.
    fn is_zero(&self) -> bool;
}

impl Lanes for Bucket {
    #[inline(always)]
    fn lanes(&self) -> &[u32] {
        &self.0
    }

    #[inline(always)]
    fn lanes_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }

    #[inline(always)]
    fn count(&self) -> i32 {
        self.0[COUNT] as i32
    }

    #[inline(always)]
    fn is_zero(&self) -> bool {
        self.0 == [0; 8]
    }
}

impl Lanes for WideBucket {
    #[inline(always)]
    fn lanes(&self) -> &[u32] {
        &self.0
    }

    #[inline(always)]
    fn lanes_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }

    #[inline(always)]
    fn count(&self) -> i32 {
        self.0[WIDE_COUNT] as i32
    }

    #[inline(always)]
    fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}
