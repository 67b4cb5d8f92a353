//! A handful of packets that are received, worked on and sent together.

use std::mem::MaybeUninit;

use dpdk_sys::rte_mbuf;

use crate::mbuf::Mbuf;

/// Packets of a burst by default.
pub const BURST: usize = 32;

/// Up to `N` packets, in order, without a heap. What is still in it when it is dropped is freed.
#[derive(Debug)]
pub struct Burst<const N: usize = BURST> {
    /// The first `len` are initialised.
    mbufs: [MaybeUninit<Mbuf>; N],
    len: usize,
}

impl<const N: usize> Default for Burst<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Burst<N> {
    /// A burst without packets.
    pub fn new() -> Self {
        Self { mbufs: [const { MaybeUninit::uninit() }; N], len: 0 }
    }

    /// Most packets it holds.
    #[inline]
    pub const fn capacity(&self) -> usize {
        N
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no packet in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The packets.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len` are initialised, and `MaybeUninit` changes no layout.
        unsafe { std::slice::from_raw_parts(self.mbufs.as_ptr().cast(), self.len) }
    }

    /// The packets, to write to.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as for `as_slice`.
        unsafe { std::slice::from_raw_parts_mut(self.mbufs.as_mut_ptr().cast(), self.len) }
    }

    /// Adds a packet at the end; gives it back where the burst is full.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.mbufs.get_mut(self.len) {
            Some(place) => {
                place.write(mbuf);
                self.len += 1;
                Ok(())
            }
            None => Err(mbuf),
        }
    }

    /// Moves packets from the front of `other` to the end of this burst, as many as there is room
    /// for.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        let moved = other.len.min(N - self.len);
        // SAFETY: the first `moved` packets of `other` are initialised, there is room for them
        // behind the packets here, and two bursts don't overlap.
        unsafe {
            let to = self.mbufs.as_mut_ptr().add(self.len);
            std::ptr::copy_nonoverlapping(other.mbufs.as_ptr(), to, moved);
        }
        self.len += moved;
        // SAFETY: they are owned here from now on.
        unsafe { other.forget_first(moved) };
    }

    /// Takes the last packet out.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was initialised, and is read once: `self.len` no longer covers it.
        Some(unsafe { self.mbufs[self.len].assume_init_read() })
    }

    /// Frees all packets. One call, whatever their number; none for an empty burst.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `len` packets and frees the others, in one call.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let Some(gone) = self.len.checked_sub(len).filter(|gone| *gone > 0) else { return };
        self.len = len;
        // SAFETY: the `gone` mbufs from there on are initialised and owned; nothing else knows them
        // now that the burst ends before them.
        unsafe {
            let first = self.mbufs.as_mut_ptr().add(len).cast();
            dpdk_sys::calumma_pktmbuf_free_bulk(first, gone as u32);
        }
    }

    /// Keeps the packets for which `keep` says so, in order, and frees the others in one call.
    /// Moves a pointer for each packet behind the first one that goes.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Mbuf) -> bool) {
        let mbufs = self.as_mut_slice();
        let mut kept = 0;
        for at in 0..mbufs.len() {
            if keep(&mut mbufs[at]) {
                mbufs.swap(kept, at);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Takes all packets out, in order. Those that are not taken are freed.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, N> {
        let len = std::mem::take(&mut self.len);
        Drain { burst: self, at: 0, len }
    }

    /// Calls `work` for each packet in order, while the data of the packets behind it is on its way
    /// to the cache.
    #[inline]
    pub fn for_each(&mut self, mut work: impl FnMut(&mut Mbuf)) {
        /// Packets ahead: what a memory access takes is a few packets' work.
        const AHEAD: usize = 4;
        let mbufs = self.as_mut_slice();
        mbufs.iter().take(AHEAD).for_each(Mbuf::prefetch);
        for at in 0..mbufs.len() {
            if let Some(ahead) = mbufs.get(at + AHEAD) {
                ahead.prefetch();
            }
            work(&mut mbufs[at]);
        }
    }

    /// Asks for the first cache line of every packet's data.
    #[inline]
    pub fn prefetch(&self) {
        self.as_slice().iter().for_each(Mbuf::prefetch);
    }

    /// The places behind the packets, as DPDK fills them.
    #[inline]
    pub(crate) fn vacant(&mut self) -> &mut [MaybeUninit<*mut rte_mbuf>] {
        let vacant = &mut self.mbufs[self.len..];
        // SAFETY: an `Mbuf` is a pointer to an mbuf, and what lies there may be uninitialised.
        unsafe { std::slice::from_raw_parts_mut(vacant.as_mut_ptr().cast(), vacant.len()) }
    }

    /// Counts `n` packets in that now lie in [`vacant`](Self::vacant).
    ///
    /// # Safety
    /// The first `n` vacant places must hold live mbufs that nobody else owns.
    #[inline]
    pub(crate) unsafe fn assume_filled(&mut self, n: usize) {
        self.len += n;
    }

    /// The packets, as DPDK takes them.
    #[inline]
    pub(crate) fn as_raw(&mut self) -> *mut *mut rte_mbuf {
        self.mbufs.as_mut_ptr().cast()
    }

    /// Forgets the first `n` packets, which DPDK has taken, and moves the others up.
    ///
    /// # Safety
    /// They must no longer belong to the burst, and `n` must not exceed [`len`](Self::len).
    #[inline]
    pub(crate) unsafe fn forget_first(&mut self, n: usize) {
        let left = self.len - n;
        if n > 0 && left > 0 {
            let first = self.mbufs.as_mut_ptr();
            // SAFETY: both ranges lie within the array, by the caller's word on `n`.
            unsafe { std::ptr::copy(first.add(n), first, left) };
        }
        self.len = left;
    }
}

/// The packets of a [`Burst`] on their way out of it.
#[derive(Debug)]
pub struct Drain<'a, const N: usize> {
    /// Says that it is empty: what is still in it is this one's.
    burst: &'a mut Burst<N>,
    /// Those from here to `len` are initialised.
    at: usize,
    len: usize,
}

impl<const N: usize> Iterator for Drain<'_, N> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.at == self.len {
            return None;
        }
        self.at += 1;
        // SAFETY: it is initialised, and read once: `at` has passed it.
        Some(unsafe { self.burst.mbufs[self.at - 1].assume_init_read() })
    }
}

impl<const N: usize> Drop for Drain<'_, N> {
    #[inline]
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<const N: usize> Drop for Burst<N> {
    fn drop(&mut self) {
        self.clear();
    }
}
