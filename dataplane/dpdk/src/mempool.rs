//! Pools of mbufs.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::eal::Eal;
use crate::error::{Error, Result, last_reason};
use crate::mbuf::Mbuf;

/// A pool of mbufs. Clones stand for the same pool; ports that receive into it keep it alive.
#[derive(Clone, Debug)]
pub struct Mempool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: NonNull<dpdk_sys::rte_mempool>,
    eal: Eal,
}

// SAFETY: DPDK's pools may be used from several threads at once; handles only point to them.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Mbufs that each lcore keeps at hand.
const CACHE: u32 = 256;

impl Mempool {
    /// Bytes of packet data an mbuf holds, headroom not counted: enough for 1500-byte Ethernet
    /// frames with two VLAN tags.
    pub const DATA_ROOM: u16 = 2048;

    /// A pool of `mbufs` mbufs (best a power of two, minus one) in the memory of `socket` (negative:
    /// any).
    ///
    /// # Errors
    /// When there is not as much memory, or a pool of this name.
    pub fn new(eal: &Eal, name: &str, mbufs: u32, socket: i32) -> Result<Self> {
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        let room = Self::DATA_ROOM + dpdk_sys::RTE_PKTMBUF_HEADROOM as u16;
        let cache = CACHE.min(mbufs * 2 / 3);
        // SAFETY: the EAL is initialised, and the name is copied.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(c_name.as_ptr(), mbufs, cache, 0, room, socket)
        };
        match NonNull::new(pool) {
            Some(pool) => Ok(Self { inner: Arc::new(Inner { pool, eal: eal.clone() }) }),
            None => Err(Error::Call {
                what: format!("a pool {name} of {mbufs} mbufs of {room} bytes"),
                reason: last_reason(),
            }),
        }
    }

    /// A fresh mbuf without data; `None` where the pool is empty.
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives.
        NonNull::new(unsafe { dpdk_sys::calumma_pktmbuf_alloc(self.as_ptr()) }).map(|mbuf| {
            // SAFETY: freshly allocated, so owned by nobody else.
            unsafe { Mbuf::from_raw(mbuf) }
        })
    }

    /// An mbuf that holds `bytes`; `None` where the pool is empty or an mbuf does not hold as many.
    pub fn alloc_with(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut mbuf = self.alloc()?;
        mbuf.append(bytes.len())?.copy_from_slice(bytes);
        Some(mbuf)
    }

    /// Mbufs that are in use somewhere: owned as [`Mbuf`]s or lying in a device's queues. Counts all
    /// caches, so it is slow: for checks, not for the packet path.
    pub fn in_use(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { dpdk_sys::rte_mempool_in_use_count(self.as_ptr()) }
    }

    /// Mbufs that are free, those in lcores' caches included. As slow as [`in_use`](Self::in_use).
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.as_ptr()) }
    }

    pub(crate) fn as_ptr(&self) -> *mut dpdk_sys::rte_mempool {
        self.inner.pool.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the pool lives.
        if unsafe { dpdk_sys::rte_mempool_in_use_count(self.pool.as_ptr()) } == 0 {
            // SAFETY: no mbuf is at large, and with the last handle gone (ports hold one) nobody can
            // take another.
            unsafe { dpdk_sys::rte_mempool_free(self.pool.as_ptr()) };
        } else {
            self.eal.leak();
        }
    }
}
