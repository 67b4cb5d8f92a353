//! One packet in memory.

use std::ptr::NonNull;
use std::sync::OnceLock;

use dpdk_sys::rte_mbuf;

use crate::error::{Result, check};

/// A packet, owned: freed when dropped, consumed when transmitted, never cloned.
///
/// It lies in one segment or, where it is longer than an mbuf of its pool, in a chain of them. All
/// headers are in the first one, which is what [`data`](Self::data) gives.
#[derive(Debug)]
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf may be freed or transmitted by another thread than the one that received it.
unsafe impl Send for Mbuf {}

/// A field of `rte_mbuf` that Rust reads and writes itself: where it is comes from the headers, how
/// wide it is the shim asserts when it is compiled.
mod field {
    use std::marker::PhantomData;

    /// Offset and type of a field.
    pub(super) struct Field<T> {
        pub(super) offset: usize,
        of: PhantomData<T>,
    }

    const fn at<T>(offset: u32) -> Field<T> {
        Field { offset: offset as usize, of: PhantomData }
    }

    pub(super) const BUF_ADDR: Field<*mut u8> = at(dpdk_sys::CALUMMA_MBUF_BUF_ADDR);
    pub(super) const DATA_OFF: Field<u16> = at(dpdk_sys::CALUMMA_MBUF_DATA_OFF);
    pub(super) const NB_SEGS: Field<u16> = at(dpdk_sys::CALUMMA_MBUF_NB_SEGS);
    pub(super) const PORT: Field<u16> = at(dpdk_sys::CALUMMA_MBUF_PORT);
    pub(super) const PKT_LEN: Field<u32> = at(dpdk_sys::CALUMMA_MBUF_PKT_LEN);
    pub(super) const DATA_LEN: Field<u16> = at(dpdk_sys::CALUMMA_MBUF_DATA_LEN);
    pub(super) const BUF_LEN: Field<u16> = at(dpdk_sys::CALUMMA_MBUF_BUF_LEN);
    pub(super) const NEXT: Field<*mut dpdk_sys::rte_mbuf> = at(dpdk_sys::CALUMMA_MBUF_NEXT);
    pub(super) const OL_FLAGS: Field<u64> = at(dpdk_sys::CALUMMA_MBUF_OL_FLAGS);

    /// A field that DPDK has found room for while it runs.
    pub(super) const fn dynamic<T>(offset: usize) -> Field<T> {
        Field { offset, of: PhantomData }
    }
}
use field::Field;

/// Where mbufs have the time at which they were received, and the flag that says so; the same in a
/// process, once something has asked for it.
static RX_TIMESTAMP: OnceLock<(usize, u64)> = OnceLock::new();

/// Makes room in mbufs for when they are received.
pub(crate) fn register_rx_timestamp() -> Result<()> {
    let (mut offset, mut flag) = (0, 0);
    // SAFETY: both numbers are written to; the EAL is up, as the caller has a port or a pool.
    let code = unsafe { dpdk_sys::calumma_rx_timestamp(&mut offset, &mut flag) };
    check(code, || "making room in mbufs for timestamps".to_owned())?;
    // The same each time: DPDK finds the field that it has made before.
    let _ = RX_TIMESTAMP.set((offset as usize, flag));
    Ok(())
}

/// One mbuf of a live, owned chain. Never outlives the borrow of the [`Mbuf`] that it came from.
#[derive(Clone, Copy)]
struct Segment(NonNull<rte_mbuf>);

impl Segment {
    #[inline(always)]
    fn get<T: Copy>(self, field: Field<T>) -> T {
        // SAFETY: the mbuf is live and owned, and the field lies there with this type.
        unsafe { self.0.as_ptr().byte_add(field.offset).cast::<T>().read() }
    }

    #[inline(always)]
    fn set<T: Copy>(self, field: Field<T>, value: T) {
        // SAFETY: as for `get`.
        unsafe { self.0.as_ptr().byte_add(field.offset).cast::<T>().write(value) }
    }

    #[inline(always)]
    fn start(self) -> *mut u8 {
        // SAFETY: DPDK and the methods below keep the data's offset within the buffer.
        unsafe { self.get(field::BUF_ADDR).add(usize::from(self.get(field::DATA_OFF))) }
    }

    #[inline(always)]
    fn len(self) -> usize {
        usize::from(self.get(field::DATA_LEN))
    }

    /// Bytes free behind the data.
    #[inline]
    fn tailroom(self) -> usize {
        let used = usize::from(self.get(field::DATA_OFF)) + self.len();
        usize::from(self.get(field::BUF_LEN)).saturating_sub(used)
    }

    #[inline]
    fn next(self) -> Option<Self> {
        NonNull::new(self.get(field::NEXT)).map(Self)
    }

    fn last(self) -> Self {
        let mut last = self;
        while let Some(next) = last.next() {
            last = next;
        }
        last
    }
}

impl Mbuf {
    /// # Safety
    /// `mbuf` must be a live mbuf that nobody else owns.
    pub(crate) unsafe fn from_raw(mbuf: NonNull<rte_mbuf>) -> Self {
        Self(mbuf)
    }

    #[inline(always)]
    fn first(&self) -> Segment {
        Segment(self.0)
    }

    /// Bytes of the whole packet, over all its segments. One load.
    #[inline]
    pub fn pkt_len(&self) -> usize {
        self.first().get(field::PKT_LEN) as usize
    }

    /// Segments that the packet lies in. One load.
    #[inline]
    pub fn segment_count(&self) -> usize {
        usize::from(self.first().get(field::NB_SEGS))
    }

    /// The number of the port that received the packet; `None` for one that was allocated. One
    /// load.
    #[inline]
    pub fn port(&self) -> Option<u16> {
        let port = self.first().get(field::PORT);
        (u32::from(port) != dpdk_sys::CALUMMA_MBUF_PORT_INVALID).then_some(port)
    }

    /// When the packet was received, where the port stamps packets ([`PortConfig::timestamps`])
    /// and has stamped this one; in the device's unit, by its clock. Two loads.
    ///
    /// [`PortConfig::timestamps`]: crate::PortConfig::timestamps
    #[inline]
    pub fn rx_timestamp(&self) -> Option<u64> {
        let &(offset, flag) = RX_TIMESTAMP.get()?;
        let first = self.first();
        // DPDK has made room there for 8 bytes.
        (first.get(field::OL_FLAGS) & flag != 0).then(|| first.get(field::dynamic(offset)))
    }

    /// Stamps the packet as a port would: for packets that a program makes.
    ///
    /// # Errors
    /// When mbufs have no more room.
    pub fn set_rx_timestamp(&mut self, timestamp: u64) -> Result<()> {
        register_rx_timestamp()?;
        if let Some(&(offset, flag)) = RX_TIMESTAMP.get() {
            let first = self.first();
            first.set(field::dynamic(offset), timestamp);
            first.set(field::OL_FLAGS, first.get(field::OL_FLAGS) | flag);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn data_ptr(&self) -> *mut u8 {
        self.first().start()
    }

    /// The bytes of the first segment, where all headers lie. Three loads from the mbuf's first
    /// cache line, none from the packet.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: DPDK keeps `data_len` bytes from there within the segment's buffer, and this
        // borrow keeps the mbuf from changing.
        unsafe { std::slice::from_raw_parts(self.data_ptr(), self.first().len()) }
    }

    /// The bytes of the first segment, to write to. Costs what [`data`](Self::data) costs.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `data`; the mbuf is owned, so the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.data_ptr(), self.first().len()) }
    }

    /// The bytes of each segment, in order. A cache line a segment.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::successors(Some(self.first()), |segment| segment.next()).map(|segment| {
            // SAFETY: as for `data`; the chain is owned as a whole.
            unsafe { std::slice::from_raw_parts(segment.start(), segment.len()) }
        })
    }

    /// Bytes free before the data: what [`prepend`](Self::prepend) can take.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.first().get(field::DATA_OFF))
    }

    /// Bytes free behind the data of the last segment: what [`append`](Self::append) can take.
    pub fn tailroom(&self) -> usize {
        self.first().last().tailroom()
    }

    /// Lengthens the packet by `len` bytes at its end and gives them, to be written; `None` where
    /// the last segment has no room for them.
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let (first, last) = (self.first(), self.first().last());
        let end = last.len();
        if len > last.tailroom() {
            return None;
        }
        last.set(field::DATA_LEN, (end + len) as u16);
        first.set(field::PKT_LEN, first.get(field::PKT_LEN) + len as u32);
        // SAFETY: there is room for `len` bytes behind the data, the mbuf is owned, and the memory
        // of a pool was written to when it was made.
        Some(unsafe { std::slice::from_raw_parts_mut(last.start().add(end), len) })
    }

    /// Lengthens the packet by `len` bytes at its start and gives them, to be written; `None` where
    /// the headroom is smaller.
    #[inline]
    pub fn prepend(&mut self, len: usize) -> Option<&mut [u8]> {
        let first = self.first();
        let offset = self.headroom().checked_sub(len)?;
        first.set(field::DATA_OFF, offset as u16);
        first.set(field::DATA_LEN, (first.len() + len) as u16);
        first.set(field::PKT_LEN, first.get(field::PKT_LEN) + len as u32);
        // SAFETY: the bytes lie between the buffer's start and the former data; else as above.
        Some(unsafe { std::slice::from_raw_parts_mut(first.start(), len) })
    }

    /// Takes `len` bytes off the packet's start. Gives whether the first segment had as many; else
    /// nothing changes.
    #[inline]
    pub fn adj(&mut self, len: usize) -> bool {
        let first = self.first();
        let Some(shorter) = first.len().checked_sub(len) else { return false };
        first.set(field::DATA_OFF, (self.headroom() + len) as u16);
        first.set(field::DATA_LEN, shorter as u16);
        first.set(field::PKT_LEN, first.get(field::PKT_LEN) - len as u32);
        true
    }

    /// Takes `len` bytes off the packet's end. Gives whether the last segment had as many; else
    /// nothing changes.
    pub fn trim(&mut self, len: usize) -> bool {
        let (first, last) = (self.first(), self.first().last());
        let Some(shorter) = last.len().checked_sub(len) else { return false };
        last.set(field::DATA_LEN, shorter as u16);
        first.set(field::PKT_LEN, first.get(field::PKT_LEN) - len as u32);
        true
    }

    /// Cuts the packet down to its first segment and frees the others. One load where there are
    /// none.
    #[inline]
    pub fn cut_to_first_segment(&mut self) {
        let first = self.first();
        let Some(second) = first.next() else { return };
        first.set(field::NEXT, std::ptr::null_mut());
        first.set(field::NB_SEGS, 1);
        first.set(field::PKT_LEN, first.len() as u32);
        // SAFETY: the segments from there on are live, owned, and part of no packet any more.
        unsafe { dpdk_sys::calumma_pktmbuf_free(second.0.as_ptr()) };
    }

    /// Asks for the first cache line of the packet's data, and waits for nothing but the mbuf's own
    /// first cache line.
    #[inline]
    pub fn prefetch(&self) {
        crate::cache::prefetch_at(self.data_ptr().cast());
    }
}

impl Drop for Mbuf {
    /// One call; [`Burst::clear`](crate::Burst::clear) frees many at the cost of one.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mbuf is live and owned, and gone after this.
        unsafe { dpdk_sys::calumma_pktmbuf_free(self.0.as_ptr()) };
    }
}
