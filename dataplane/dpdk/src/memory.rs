//! Arrays in the EAL's memory, which is of huge pages where it was given some.

use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::eal::Eal;
use crate::error::{Error, Result};

/// Bytes of a cache line.
const LINE: u32 = 64;

/// So many words, zeros at first, from the beginning of a cache line on.
#[derive(Debug)]
pub struct Words {
    start: NonNull<u64>,
    len: usize,
    /// The memory is the EAL's.
    _eal: Eal,
}

impl Words {
    /// An array of `len` words.
    ///
    /// # Errors
    /// When there is not as much memory.
    pub fn new(eal: &Eal, len: usize) -> Result<Self> {
        let refused = || Error::Call {
            what: format!("an array of {len} words"),
            reason: "give the EAL more memory (-m, hugepages)".to_owned(),
        };
        // The library adds to the size without looking whether the sum has room in a word.
        let layout = Layout::array::<u64>(len.max(1)).map_err(|_| refused())?;
        // SAFETY: the EAL is initialised; memory need not have a name.
        let start = unsafe { dpdk_sys::rte_zmalloc(std::ptr::null(), layout.size(), LINE) };
        let start = NonNull::new(start.cast()).ok_or_else(refused)?;
        Ok(Self { start, len, _eal: eal.clone() })
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: so many words lie there, aligned and zeros from the beginning on, as long as this
        // lives, and nothing but this knows of them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and this is borrowed by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the memory was given by its counterpart, and nobody can use it any more.
        unsafe { dpdk_sys::rte_free(self.start.as_ptr().cast()) };
    }
}
