//! Huge pages for large arrays.
//!
//! A decoder goes through a large sketch at random: with pages of 4 KiB, a million flows lie in
//! more pages than the CPU keeps translations of, and every page costs a fault when it is first
//! touched. Asking changes nothing but speed, and is asked for in vain where there are none.

#![allow(unsafe_code)]

/// Below this many bytes the kernel would hardly find a whole huge page in an array.
#[cfg(target_os = "linux")]
const WORTHWHILE: usize = 4 << 20;

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
