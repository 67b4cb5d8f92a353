//! DPDK's hash table (`rte_hash`), a cuckoo hash. Here to be measured beside; no edge switch uses
//! it.

use std::ffi::{CString, c_void};
use std::ptr::{NonNull, without_provenance_mut};

use crate::eal::Eal;
use crate::error::{Error, Result, check, last_error};

/// A table of keys of `LEN` bytes, hashed by CRC-32C, each with a number.
#[derive(Debug)]
pub struct HashTable<const LEN: usize> {
    table: NonNull<dpdk_sys::rte_hash>,
    /// The table's memory is the EAL's.
    _eal: Eal,
}

impl<const LEN: usize> HashTable<LEN> {
    /// Keys that are looked up at once, at most.
    pub const MOST: usize = 63;

    /// An empty table for so many keys. It takes all its memory now. No two may have the same name.
    ///
    /// # Errors
    /// When the library refuses the configuration, or there is not as much memory.
    pub fn new(eal: &Eal, name: &str, entries: u32) -> Result<Self> {
        let c_name = CString::new(name).map_err(|_| Error::Nul(name.to_owned()))?;
        let wanted = dpdk_sys::calumma_hash { name: c_name.as_ptr(), entries, key_len: LEN as u32 };
        // SAFETY: the EAL is initialised; the name is NUL-terminated, and copied.
        let table = unsafe { dpdk_sys::calumma_hash_create(&wanted) };
        match NonNull::new(table) {
            Some(table) => Ok(Self { table, _eal: eal.clone() }),
            None => Err(Error::Call {
                what: format!("a hash table {name} for {entries} keys of {LEN} bytes"),
                reason: last_error().reason(),
            }),
        }
    }

    /// Looks up all `keys`. Bit i of the answer says whether the table has the i-th; its number is
    /// then in the i-th place of `numbers`, whose other places are left to the library.
    ///
    /// # Panics
    /// When there are more than [`MOST`](Self::MOST) keys, or fewer places than keys.
    #[inline]
    pub fn lookup_burst(&self, keys: &[&[u8; LEN]], numbers: &mut [usize]) -> u64 {
        assert!(keys.len() <= Self::MOST, "{} keys", keys.len());
        let numbers = &mut numbers[..keys.len()];
        let mut found = 0;
        // SAFETY: the table lives, and is only read. References are laid out as pointers, each to
        // as many bytes as a key has, and only read; there is room for a number of each key, which
        // is as large as a pointer.
        unsafe {
            dpdk_sys::rte_hash_lookup_bulk_data(
                self.table.as_ptr(),
                keys.as_ptr().cast::<*const c_void>().cast_mut(),
                keys.len() as u32,
                &mut found,
                numbers.as_mut_ptr().cast::<*mut c_void>(),
            );
        }
        found
    }

    /// The number of a key, if the table has it.
    #[inline]
    pub fn lookup(&self, key: &[u8; LEN]) -> Option<usize> {
        let mut number = std::ptr::null_mut();
        // SAFETY: the table lives, and is only read; the key is as long as its keys are.
        let place = unsafe {
            dpdk_sys::rte_hash_lookup_data(self.table.as_ptr(), key.as_ptr().cast(), &mut number)
        };
        (place >= 0).then(|| number.addr())
    }

    /// Puts a key in, with a number. One that is there already has this number from then on.
    ///
    /// # Errors
    /// When there is no room for it.
    #[inline]
    pub fn insert(&mut self, key: &[u8; LEN], number: usize) -> Result<()> {
        // SAFETY: the table lives, and nobody else uses it; the key is as long as its keys are, and
        // copied; what is no pointer is kept, and never followed.
        let code = unsafe {
            dpdk_sys::rte_hash_add_key_data(
                self.table.as_ptr(),
                key.as_ptr().cast(),
                without_provenance_mut(number),
            )
        };
        check(code, || "a key more in a hash table".to_owned()).map(drop)
    }

    /// Keys that it has.
    pub fn len(&self) -> usize {
        // SAFETY: the table lives.
        let count = unsafe { dpdk_sys::rte_hash_count(self.table.as_ptr()) };
        usize::try_from(count).unwrap_or_default()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        // SAFETY: the table lives, and nobody else uses it.
        unsafe { dpdk_sys::rte_hash_reset(self.table.as_ptr()) };
    }
}

impl<const LEN: usize> Drop for HashTable<LEN> {
    fn drop(&mut self) {
        // SAFETY: the table lives, and nobody can use it any more.
        unsafe { dpdk_sys::rte_hash_free(self.table.as_ptr()) };
    }
}
