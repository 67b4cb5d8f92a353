//! Pools of mbufs.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::burst::Burst;
use crate::eal::Eal;
use crate::error::{Error, Result, last_error};
use crate::mbuf::Mbuf;

/// A pool of mbufs. Clones stand for the same pool; ports that receive into it keep it alive.
///
/// Its memory goes back to the EAL with the last handle, if that is dropped by the main lcore's
/// thread while no other lcore is at work and all mbufs are back. Else it stays, and so does the
/// EAL, until the process ends: an mbuf never outlives its pool.
///
/// An lcore takes mbufs from a cache of its own, and gives them back to it. Every other thread goes
/// to the pool's ring for each mbuf. The kernel may take its CPU away in the middle of that; until
/// it runs again, all who take mbufs from the ring wait, if it was taking one, and all who put some
/// in, if it was giving one back. So where a thread that is no lcore takes from a pool, lcores
/// should only give back to it, and the other way round.
#[derive(Clone, Debug)]
pub struct Mempool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: NonNull<dpdk_sys::rte_mempool>,
    data_room: u16,
    eal: Eal,
}

// SAFETY: DPDK's pools may be used from several threads at once; handles only point to them.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// How large a pool is and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MempoolConfig {
    /// Mbufs in the pool; a power of two, minus one, wastes no memory.
    pub mbufs: u32,
    /// Mbufs that each lcore keeps at hand. Cut down to what DPDK allows for a pool of this size.
    pub cache: u32,
    /// Bytes of packet data that an mbuf holds, headroom not counted.
    pub data_room: u16,
    /// The NUMA socket whose memory it is in; `None`: any.
    pub socket: Option<u32>,
}

impl Default for MempoolConfig {
    fn default() -> Self {
        Self { mbufs: 8191, cache: Mempool::CACHE, data_room: Mempool::DATA_ROOM, socket: None }
    }
}

impl Mempool {
    /// Bytes of packet data an mbuf holds by default, headroom not counted: enough for
    /// 1500-byte Ethernet frames with two VLAN tags.
    pub const DATA_ROOM: u16 = 2048;

    /// Mbufs that each lcore keeps at hand by default.
    pub const CACHE: u32 = 256;

    /// Mbufs that an lcore has in such a cache at most: DPDK empties it beyond one and a half times
    /// its size.
    pub const MOST_CACHED: u32 = Self::CACHE * 3 / 2;

    /// A pool of `mbufs` mbufs (best a power of two, minus one) in the memory of `socket`
    /// (negative: any).
    ///
    /// # Errors
    /// When there is not as much memory, or a pool of this name.
    pub fn new(eal: &Eal, name: &str, mbufs: u32, socket: i32) -> Result<Self> {
        let socket = u32::try_from(socket).ok();
        Self::with_config(eal, name, MempoolConfig { mbufs, socket, ..MempoolConfig::default() })
    }

    /// A pool made to measure.
    ///
    /// # Errors
    /// When there is not as much memory, or a pool of this name.
    pub fn with_config(eal: &Eal, name: &str, config: MempoolConfig) -> Result<Self> {
        let MempoolConfig { mbufs, cache, data_room, socket } = config;
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        let what = || format!("a pool {name} of {mbufs} mbufs of {data_room} bytes");
        let Some(buffer) = data_room.checked_add(dpdk_sys::RTE_PKTMBUF_HEADROOM as u16) else {
            let reason = "an mbuf holds at most 65407 bytes of data".to_owned();
            return Err(Error::Call { what: what(), reason });
        };
        // DPDK wants room for one and a half caches.
        let cache = cache.min(dpdk_sys::CALUMMA_MEMPOOL_CACHE_MAX).min(mbufs / 2);
        let socket = socket.map_or(-1, |socket| socket as i32);
        // SAFETY: the EAL is initialised, and the name is copied.
        let pool = unsafe {
            dpdk_sys::rte_pktmbuf_pool_create(c_name.as_ptr(), mbufs, cache, 0, buffer, socket)
        };
        let Some(pool) = NonNull::new(pool) else {
            return Err(Error::Call { what: what(), reason: last_error().pool_reason() });
        };
        Ok(Self { inner: Arc::new(Inner { pool, data_room, eal: eal.clone() }) })
    }

    /// A fresh mbuf without data; `None` where the pool is empty. One call; a few nanoseconds where
    /// the lcore's cache has one.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives.
        NonNull::new(unsafe { dpdk_sys::calumma_pktmbuf_alloc(self.as_ptr()) }).map(|mbuf| {
            // SAFETY: freshly allocated, so owned by nobody else.
            unsafe { Mbuf::from_raw(mbuf) }
        })
    }

    /// An mbuf that holds `bytes`; `None` where the pool is empty or an mbuf does not hold as many,
    /// in which case none is taken.
    pub fn alloc_with(&self, bytes: &[u8]) -> Option<Mbuf> {
        if bytes.len() > usize::from(self.data_room()) {
            return None;
        }
        let mut mbuf = self.alloc()?;
        mbuf.append(bytes.len())?.copy_from_slice(bytes);
        Some(mbuf)
    }

    /// Fills `burst` up with fresh mbufs without data, and gives their number: all that it has room
    /// for or, where the pool has fewer, none. One call.
    #[inline]
    pub fn alloc_burst<const N: usize>(&self, burst: &mut Burst<N>) -> usize {
        let vacant = burst.vacant();
        let wanted = vacant.len();
        // SAFETY: the pool lives, and there is room for as many mbufs.
        let code = unsafe {
            dpdk_sys::calumma_pktmbuf_alloc_bulk(
                self.as_ptr(),
                vacant.as_mut_ptr().cast(),
                wanted as u32,
            )
        };
        if code != 0 {
            return 0;
        }
        // SAFETY: DPDK has put as many mbufs there, and they are ours now.
        unsafe { burst.assume_filled(wanted) };
        wanted
    }

    /// Bytes of packet data that an mbuf holds, headroom not counted.
    pub fn data_room(&self) -> u16 {
        self.inner.data_room
    }

    /// Mbufs that are in use somewhere: owned as [`Mbuf`]s or lying in a device's queues. Counts
    /// all caches, so it is slow: for checks, not for the packet path.
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
        // An lcore counts an mbuf into its cache before it writes it there: all of them may seem to
        // be back while one is still on its way. Where no lcore can be at work, none is.
        // SAFETY: the pool lives.
        let at_rest = self.eal.at_rest()
            && unsafe { dpdk_sys::rte_mempool_in_use_count(self.pool.as_ptr()) } == 0;
        if at_rest {
            // SAFETY: no mbuf is in use, and with the last handle gone (ports hold one) nobody
            // can take another.
            unsafe { dpdk_sys::rte_mempool_free(self.pool.as_ptr()) };
        } else {
            self.eal.leak();
        }
    }
}
