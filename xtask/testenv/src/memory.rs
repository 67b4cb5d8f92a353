//! How often a test's threads ask for memory.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread how often it is asked for memory. A test
/// that asks it has it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

impl Counting {
    /// How often this thread asks for memory during `work`.
    pub fn during(work: impl FnOnce()) -> usize {
        let before = ALLOCATIONS.get();
        work();
        ALLOCATIONS.get() - before
    }
}

// SAFETY: every call goes on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, start: *mut u8, memory: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; all memory is the system's.
        unsafe { System.dealloc(start, memory) }
    }
}
