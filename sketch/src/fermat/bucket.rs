//! One bucket, and what one packet adds to it.

/// Sums of key fragments and the number of packets, in eight 32-bit lanes: half a cache line, so
/// that no bucket straddles two.
///
/// Lane 7 counts packets (two's complement, so that a difference may be negative); the fragments
/// begin at lane 0 and unused lanes stay zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Bucket(pub [u32; 8]);

/// The lane of a bucket that counts packets.
pub(super) const COUNT: usize = 7;

impl Bucket {
    /// Packets counted; negative where more were subtracted than added.
    #[inline]
    pub fn count(&self) -> i32 {
        self.0[COUNT] as i32
    }

    #[inline]
    pub(super) fn set_count(&mut self, count: u32) {
        self.0[COUNT] = count;
    }

    /// Whether neither a fragment nor a packet is left.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 8]
    }
}

/// What a single packet of a flow adds to each of its buckets: its fragments, and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub(super) struct Unit(pub [u32; 8]);
