//! Huge pages for large arrays, and cache lines fetched before they are needed.
//!
//! A decoder goes through a large sketch at random: with pages of 4 KiB, a million flows lie in
//! more pages than the CPU keeps translations of, and every page costs a fault when it is first
//! touched. Asking changes nothing but speed, and is asked for in vain where there are none.

#![allow(unsafe_code)]

/// Below this many bytes the kernel would hardly find a whole huge page in an array.
#[cfg(target_os = "linux")]
const WORTHWHILE: usize = 4 << 20;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks the CPU for cache line number `line` of `memory`, to be written to soon. Where `memory` has
/// fewer, gives by how many: the number of the line in what comes after it.
#[inline]
pub(crate) fn prefetch_line<T>(memory: &[T], line: usize) -> Option<usize> {
    let lines = size_of_val(memory).div_ceil(LINE);
    if line >= lines {
        return Some(line - lines);
    }
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        let address = memory.as_ptr().cast::<i8>().wrapping_add(line * LINE);
        // SAFETY: prefetching changes nothing that a program can see; any address will do.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(address) };
    }
    None
}

/// Asks for huge pages where `memory`, which should not have been touched yet, is large.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_huge_pages<T>(memory: &[T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(memory);
    if bytes < WORTHWHILE {
        return;
    }
    let start = memory.as_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE);
    let start = start.wrapping_add(skipped).cast_mut();
    let len = (bytes - skipped) / PAGE * PAGE;
    // SAFETY: the whole pages within a slice that is borrowed; the advice leaves contents and
    // access as they are. An error (no such pages in this kernel) leaves all as it was.
    unsafe { libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE) };
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_huge_pages<T>(_memory: &[T]) {}
