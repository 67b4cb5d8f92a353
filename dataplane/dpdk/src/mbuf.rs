//! One packet in memory.

use std::ptr::NonNull;

use dpdk_sys::rte_mbuf;

/// A packet, owned: freed when dropped, consumed when transmitted, never cloned.
#[derive(Debug)]
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an mbuf may be freed or transmitted by another thread than the one that received it.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// # Safety
    /// `mbuf` must be a live mbuf that nobody else owns.
    pub(crate) unsafe fn from_raw(mbuf: NonNull<rte_mbuf>) -> Self {
        Self(mbuf)
    }

    /// Reads a field of the mbuf.
    ///
    /// # Safety
    /// `offset` must be one of the shim's offsets, and `T` the type of the field there.
    #[inline]
    unsafe fn field<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: the mbuf is live and owned, and the caller vouches for offset and type.
        unsafe { self.0.as_ptr().byte_add(offset as usize).cast::<T>().read() }
    }

    /// Bytes of the whole packet, over all its segments.
    #[inline]
    pub fn pkt_len(&self) -> usize {
        // SAFETY: the field is a u32 in every release of DPDK.
        unsafe { self.field::<u32>(dpdk_sys::CALUMMA_MBUF_PKT_LEN) as usize }
    }

    /// Segments that the packet lies in.
    pub fn segments(&self) -> usize {
        // SAFETY: the field is a u16 in every release of DPDK.
        unsafe { self.field::<u16>(dpdk_sys::CALUMMA_MBUF_NB_SEGS) as usize }
    }

    #[inline]
    fn data_len(&self) -> usize {
        // SAFETY: the field is a u16 in every release of DPDK.
        unsafe { self.field::<u16>(dpdk_sys::CALUMMA_MBUF_DATA_LEN) as usize }
    }

    #[inline]
    pub(crate) fn data_ptr(&self) -> *mut u8 {
        // SAFETY: the fields are a pointer and a u16 in every release of DPDK.
        let (buffer, offset) = unsafe {
            (
                self.field::<*mut u8>(dpdk_sys::CALUMMA_MBUF_BUF_ADDR),
                self.field::<u16>(dpdk_sys::CALUMMA_MBUF_DATA_OFF),
            )
        };
        // SAFETY: DPDK keeps the data's offset within the buffer.
        unsafe { buffer.add(offset as usize) }
    }

    /// The bytes of the first segment, where all headers lie.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: DPDK keeps `data_len` bytes from there within the segment's buffer, and this
        // borrow keeps the mbuf from changing.
        unsafe { std::slice::from_raw_parts(self.data_ptr(), self.data_len()) }
    }

    /// The bytes of the first segment, to write to.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `data`; the mbuf is owned, so the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.data_ptr(), self.data_len()) }
    }

    /// Lengthens the packet by `len` bytes and gives them, to be written; `None` where its buffer has
    /// no room for them.
    pub fn append(&mut self, len: usize) -> Option<&mut [u8]> {
        let short = u16::try_from(len).ok()?;
        // SAFETY: the mbuf is live and owned.
        let added = unsafe { dpdk_sys::calumma_pktmbuf_append(self.0.as_ptr(), short) };
        let added = NonNull::new(added.cast::<u8>())?;
        // SAFETY: DPDK has just made room for `len` bytes there, and the memory of a pool was
        // written to when it was made.
        Some(unsafe { std::slice::from_raw_parts_mut(added.as_ptr(), len) })
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mbuf is live and owned, and gone after this.
        unsafe { dpdk_sys::calumma_pktmbuf_free(self.0.as_ptr()) };
    }
}
