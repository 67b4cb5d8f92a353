//! Memory out of which arrays are cut, again and again, without asking the system for more.
//!
//! What shares an [`Arena`] has its arrays cut out of the same lines one after the other. When all
//! of them have been given back and the lines are zero again ([`Arena::reset`]), they can be cut in
//! other sizes, and that touches none of the lines: an lcore has no time for more.
//!
//! Soundness: a range of lines is given to one array only, which alone reaches it, by its pointer.
//! An array is a value of its own as long as it lives, and lines are given away anew only when no
//! array is left. What an array says it has was written as its type, or is of a type of which zeros
//! are a value, in lines that are zero.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{LINE, prefer_huge_pages};
use crate::fermat::{Bucket, WideBucket};

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; LINE / size_of::<u64>()]);

/// Types of which zeros in all bytes are a value, no references among them.
///
/// # Safety
/// Zeros must be a value of the type.
pub unsafe trait Zeros: Copy {}

// SAFETY: any bytes are a number.
unsafe impl Zeros for u32 {}
// SAFETY: any bytes are a number.
unsafe impl Zeros for i64 {}
// SAFETY: it has numbers only.
unsafe impl Zeros for Bucket {}
// SAFETY: it has numbers only.
unsafe impl Zeros for WideBucket {}
// SAFETY: it has numbers only.
unsafe impl Zeros for crate::table::IndexBucket {}

/// Cache lines that so many values take.
pub(crate) const fn lines_of<T>(number: usize) -> usize {
    (number * size_of::<T>()).div_ceil(LINE)
}

/// Lines that arrays lie in, until the last of those is gone.
struct Lines {
    start: NonNull<Line>,
    /// How many there are, and for how many there is room.
    number: usize,
    room: usize,
}

// SAFETY: it is memory and nothing else, which only arrays reach.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// So many lines, all zero, in huge pages where there are any. All of them are touched.
    fn new(number: usize) -> Arc<Self> {
        let mut lines: Vec<Line> = Vec::with_capacity(number);
        prefer_huge_pages(lines.spare_capacity_mut());
        lines.resize(number, Line([0; LINE / size_of::<u64>()]));
        let mut lines = std::mem::ManuallyDrop::new(lines);
        let start = NonNull::new(lines.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Arc::new(Self { start, number, room: lines.capacity() })
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: pointer and capacity are those of the vector that `new` kept from being dropped.
        // Lines need no dropping.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), 0, self.room) });
    }
}

/// Memory that what shares it cuts its arrays out of.
///
/// A copy is as large, and all of it can be cut.
pub struct Arena {
    lines: Arc<Lines>,
    /// Lines that were given away; those behind them are zero.
    given: usize,
}

impl Arena {
    /// So many cache lines. It takes all its memory now.
    pub fn new(lines: usize) -> Self {
        Self { lines: Lines::new(lines), given: 0 }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.lines.number * LINE
    }

    /// Makes all lines zero, so that they can be cut anew. As long as an array is left that was cut
    /// out of them, the arena takes new ones instead.
    pub fn reset(&mut self) {
        match Arc::get_mut(&mut self.lines) {
            Some(lines) => {
                // SAFETY: these are lines of an allocation of which no array is left.
                unsafe { lines.start.as_ptr().write_bytes(0, self.given) };
                self.given = 0;
            }
            None => *self = self.clone(),
        }
    }

    /// Lines for so many values of a type, which are zero; new ones where too few are left.
    fn cut<T: Copy>(&mut self, number: usize) -> Array<T> {
        let lines = lines_of::<T>(number);
        if self.lines.number - self.given < lines {
            return Self::new(lines).cut(number);
        }
        let at = self.given;
        self.given += lines;
        Array::lying_in(self.lines.clone(), at, number)
    }

    /// An array of so many zeros. Where too few lines are left, it has memory of its own.
    pub(crate) fn zeros<T: Zeros>(&mut self, len: usize) -> Array<T> {
        let mut array = self.cut(len);
        // Lines that are given away are zero, and zeros are values.
        array.len = len;
        array
    }

    /// An array with room for so many values. Where too few lines are left, it has memory of its
    /// own.
    pub(crate) fn room<T: Copy>(&mut self, most: usize) -> Array<T> {
        self.cut(most)
    }
}

impl Clone for Arena {
    fn clone(&self) -> Self {
        Self::new(self.lines.number)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, given } = self;
        f.debug_struct("Arena").field("lines", &lines.number).field("given", given).finish()
    }
}

/// So many values side by side, and room for more, in cache lines of its own or of an [`Arena`].
pub(crate) struct Array<T> {
    /// What it lies in, which lives as long as it does; nothing where there is no room for a value.
    _lines: Option<Arc<Lines>>,
    start: NonNull<T>,
    len: usize,
    most: usize,
}

// SAFETY: it owns its values, as a vector does; the lines are memory that no other array reaches.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above; what is shared gives shared values only.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Default for Array<T> {
    /// One without room for a value.
    fn default() -> Self {
        Self { _lines: None, start: NonNull::dangling(), len: 0, most: 0 }
    }
}

impl<T: Copy> Array<T> {
    /// An array without values in `most` values' lines from line `at` on, which nobody else has.
    fn lying_in(lines: Arc<Lines>, at: usize, most: usize) -> Self {
        const { assert!(align_of::<T>() <= LINE, "lines are not aligned enough") };
        assert!(at + lines_of::<T>(most) <= lines.number, "{most} values from line {at} on");
        // SAFETY: the lines are within the allocation, as was just seen.
        let start = unsafe { lines.start.add(at) }.cast();
        Self { _lines: Some(lines), start, len: 0, most }
    }

    /// An array of so many zeros, in memory of its own.
    pub(crate) fn zeros(len: usize) -> Self
    where
        T: Zeros,
    {
        Arena::new(lines_of::<T>(len)).zeros(len)
    }

    /// An array with room for so many values, in memory of its own.
    pub(crate) fn with_room(most: usize) -> Self {
        Arena::new(lines_of::<T>(most)).room(most)
    }

    /// For how many values there is room.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Bytes of the values that there is room for.
    pub(crate) fn bytes(&self) -> usize {
        self.most * size_of::<T>()
    }

    /// Puts a value behind the others, if there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) -> bool {
        let has_room = self.len < self.most;
        if has_room {
            // SAFETY: the place is within the array's own lines.
            unsafe { self.start.add(self.len).write(value) };
            self.len += 1;
        }
        has_room
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many values were written there, or are zeros, and who has the array has them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> Clone for Array<T> {
    /// In memory of its own.
    fn clone(&self) -> Self {
        let mut copy = Self::with_room(self.most);
        copy.extend_from(self);
        copy
    }

    /// In the memory that is there where it suffices.
    fn clone_from(&mut self, source: &Self) {
        if self.most < source.most {
            *self = source.clone();
            return;
        }
        self.clear();
        self.extend_from(source);
    }
}

impl<T: Copy> Array<T> {
    /// Puts as many of these values behind the others as there is room for.
    fn extend_from(&mut self, values: &[T]) {
        let number = values.len().min(self.most - self.len);
        // SAFETY: so many places behind the values are within the array's own lines.
        unsafe { self.start.add(self.len).as_ptr().copy_from(values.as_ptr(), number) };
        self.len += number;
    }
}

impl<T: fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

impl<T: PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Array<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_anew_is_zero_and_shares_no_line() {
        let mut arena = Arena::new(10);
        let start = arena.zeros::<u32>(1).as_ptr();
        for (one, other) in [(17, 5), (3, 40), (96, 32)] {
            arena.reset();
            let mut numbers = arena.zeros::<u32>(one);
            let mut others = arena.room::<i64>(other);
            assert_eq!(numbers.as_ptr(), start, "it is the same memory");
            assert_eq!((&*numbers, others.len()), (&vec![0; one][..], 0));
            numbers.fill(7);
            (0..other).for_each(|at| assert!(others.push(-(at as i64))));
            assert!(!others.push(1), "there is room for no more");
            assert!(numbers.iter().all(|&number| number == 7));
            assert!(others.iter().zip(0..).all(|(&number, at)| number == -at));
            assert_eq!((numbers.as_ptr().addr() | others.as_ptr().addr()) % LINE, 0);
        }
    }

    #[test]
    fn an_array_keeps_its_values_whatever_becomes_of_the_arena() {
        let mut arena = Arena::new(2);
        let mut array = arena.zeros::<u32>(16);
        array[3] = 5;
        arena.reset();
        let mut other = arena.zeros::<u32>(32);
        other.fill(9);
        // What finds no room has memory of its own.
        let beside = arena.zeros::<u32>(8);
        drop(arena);
        assert_eq!((array[3], array.iter().sum::<u32>()), (5, 5));
        assert_eq!((&*beside, other.len()), (&[0; 8][..], 32));
    }

    #[test]
    fn copies_have_memory_of_their_own() {
        let mut array = Array::<u32>::with_room(4);
        assert!(array.push(1) && array.push(2));
        let mut copy = array.clone();
        copy[0] = 8;
        assert!(copy.push(3));
        assert_eq!((&*array, &*copy, copy.most()), (&[1, 2][..], &[8, 2, 3][..], 4));
        let start = copy.as_ptr();
        copy.clone_from(&array);
        assert_eq!((&copy, copy.as_ptr()), (&array, start));
        let mut small = Array::<u32>::default();
        assert!(!small.push(1));
        small.clone_from(&array);
        assert_eq!(small, array);
    }
}
