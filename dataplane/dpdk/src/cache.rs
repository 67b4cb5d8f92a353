//! The CPU's caches.

/// Asks for the cache line in which `value` begins. Costs an instruction, changes nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast());
}

/// The same for any address, whatever lies there.
#[inline(always)]
pub(crate) fn prefetch_at(address: *const u8) {
    // SAFETY: prefetching reads nothing; any address will do.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
