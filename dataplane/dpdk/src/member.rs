//! The sketch of DPDK's membership library (`rte_member`): a count-min sketch with a heap of heavy
//! flows. Here to be measured beside; no edge switch uses it.

use std::ffi::{CString, c_void};
use std::ptr::NonNull;

use crate::eal::Eal;
use crate::error::{Error, Result, check, last_error};

/// What a [`MemberSketch`] is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberSketchConfig {
    /// Bytes of a key.
    pub key_len: u32,
    /// How far a flow's count may be off, as a share of all packets. Sets the size.
    pub error_rate: f32,
    /// The share of packets that are counted.
    pub sample_rate: f32,
    /// Heavy flows that are kept; a power of two is one more.
    pub top_k: u32,
}

/// A count-min sketch with a heap of heavy flows.
#[derive(Debug)]
pub struct MemberSketch {
    sketch: NonNull<dpdk_sys::rte_member_setsum>,
    config: MemberSketchConfig,
    /// The sketch's memory is the EAL's.
    _eal: Eal,
}

impl MemberSketch {
    /// An empty sketch. No two may have the same name.
    ///
    /// # Errors
    /// When the library refuses the configuration, or there is not as much memory.
    pub fn new(eal: &Eal, name: &str, config: MemberSketchConfig) -> Result<Self> {
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        // DPDK 22.11 keeps its free slots in a ring of the next power of two, which holds one less.
        let top_k = config.top_k + u32::from(config.top_k.is_power_of_two());
        let config = MemberSketchConfig { top_k, ..config };
        let wanted = dpdk_sys::calumma_member_sketch {
            name: c_name.as_ptr(),
            key_len: config.key_len,
            error_rate: config.error_rate,
            sample_rate: config.sample_rate,
            top_k: config.top_k,
        };
        // SAFETY: the EAL is initialised; the name is NUL-terminated, and copied.
        let sketch = unsafe { dpdk_sys::calumma_member_create(&wanted) };
        match NonNull::new(sketch) {
            Some(sketch) => Ok(Self { sketch, config, _eal: eal.clone() }),
            None => Err(Error::Call {
                what: format!("a sketch {name} of {config:?}"),
                reason: last_error().reason(),
            }),
        }
    }

    /// Counts one packet of `key`.
    ///
    /// # Panics
    /// When the key is not as long as the sketch's keys.
    #[inline]
    pub fn insert(&mut self, key: &[u8]) {
        // SAFETY: the sketch lives, nobody else uses it, and the key is as long as it reads.
        unsafe { dpdk_sys::rte_member_add(self.sketch.as_ptr(), self.checked(key), 1) };
    }

    /// Packets of `key`, estimated.
    ///
    /// # Panics
    /// When the key is not as long as the sketch's keys.
    pub fn query(&self, key: &[u8]) -> u64 {
        let mut count = 0;
        // SAFETY: as above; the count is ours.
        unsafe {
            dpdk_sys::rte_member_query_count(self.sketch.as_ptr(), self.checked(key), &mut count);
        }
        count
    }

    /// The heavy flows that are kept, and their packets, estimated.
    ///
    /// # Errors
    /// When the library fails.
    pub fn heavy_flows(&self) -> Result<Vec<(Vec<u8>, u64)>> {
        let room = self.config.top_k as usize;
        let mut keys: Vec<*mut c_void> = vec![std::ptr::null_mut(); room];
        let mut counts = vec![0; room];
        // SAFETY: the sketch lives, and there is room for all flows that it keeps.
        let found = unsafe {
            dpdk_sys::rte_member_report_heavyhitter(
                self.sketch.as_ptr(),
                keys.as_mut_ptr(),
                counts.as_mut_ptr(),
            )
        };
        let found = check(found, || "listing a sketch's heavy flows".to_owned())? as usize;
        let key_len = self.config.key_len as usize;
        // SAFETY: the library points to keys of this length in its own memory, and nothing changes
        // them while we hold a reference to the sketch.
        let copied = |key: *mut c_void| unsafe {
            std::slice::from_raw_parts(key.cast::<u8>(), key_len).to_vec()
        };
        Ok(keys.into_iter().map(copied).zip(counts).take(found).collect())
    }

    /// Empties the sketch.
    pub fn clear(&mut self) {
        // SAFETY: the sketch lives, and nobody else uses it.
        unsafe { dpdk_sys::rte_member_reset(self.sketch.as_ptr()) };
    }

    /// Bytes of the counters; the heavy flows come on top.
    pub fn bytes(&self) -> usize {
        // SAFETY: the sketch lives.
        unsafe { dpdk_sys::calumma_member_bytes(self.sketch.as_ptr()) }
    }

    fn checked(&self, key: &[u8]) -> *const c_void {
        assert_eq!(key.len(), self.config.key_len as usize, "the length of the sketch's keys");
        key.as_ptr().cast()
    }
}

impl Drop for MemberSketch {
    fn drop(&mut self) {
        // SAFETY: the sketch lives, and nobody can use it any more.
        unsafe { dpdk_sys::rte_member_free(self.sketch.as_ptr()) };
    }
}
