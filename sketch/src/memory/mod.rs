//! Huge pages for large arrays, memory made ready before it is needed, and memory that arrays of
//! several sizes share ([`Arena`]).
//!
//! A decoder goes through a large sketch at random: with pages of 4 KiB, a million flows lie in
//! more pages than the CPU keeps translations of, and every page costs a fault when it is first
//! touched. Asking changes nothing but speed, and is asked for in vain where there are none.

#![allow(unsafe_code)]

mod arena;

pub use self::arena::{Arena, Zeros};
pub(crate) use self::arena::{Array, lines_of};

/// Below this many bytes the kernel would hardly find a whole huge page in an array.
#[cfg(target_os = "linux")]
const WORTHWHILE: usize = 4 << 20;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Cache lines of the smallest page.
const LINES_OF_A_PAGE: usize = 4096 / LINE;

/// Cache lines of `memory`.
pub(crate) fn lines<T>(memory: &[T]) -> usize {
    size_of_val(memory).div_ceil(LINE)
}

/// Readies cache line number `line` of `memory` for being written to soon. Where `memory` has
/// fewer, gives by how many: the number of the line in what comes after it.
///
/// The CPU is asked for the line. That maps no page which the system or a hypervisor has taken away
/// or keeps an eye on; writing does, so in each page what is there is written there once more.
#[inline]
pub(crate) fn make_ready<T: Copy>(memory: &mut [T], line: usize) -> Option<usize> {
    let lines = lines(memory);
    if line >= lines {
        return Some(line - lines);
    }
    if (line.is_multiple_of(LINES_OF_A_PAGE) || line + 1 == lines)
        && let Some(cell) = memory.get_mut(line * LINE / size_of::<T>())
    {
        *cell = std::hint::black_box(*cell);
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

/// So many times `value`, in huge pages where there are any.
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> Box<[T]> {
    let mut memory = Vec::with_capacity(len);
    prefer_huge_pages(memory.spare_capacity_mut());
    memory.resize(len, value);
    memory.into_boxed_slice()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_ready_stays_as_it_is_and_lines_beyond_are_counted() {
        let numbered: Vec<u32> = (0..40_000).collect();
        let mut memory = numbered.clone();
        let lines = lines(&memory);
        assert_eq!(lines, 2500);
        for line in 0..lines {
            assert_eq!(make_ready(&mut memory, line), None);
        }
        assert_eq!(make_ready(&mut memory, lines + 3), Some(3));
        assert_eq!(make_ready(&mut [0_u8; 65], 1), None);
        assert_eq!(make_ready::<u64>(&mut [], 0), Some(0));
        assert_eq!(memory, numbered);
    }
}
