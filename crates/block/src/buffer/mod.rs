//! Memory that requests move: reference-counted, sliced without copying, pooled or from
//! the heap.
//!
//! A [`Buffer`] is a handle to bytes that a device or the kernel may be filling; it is therefore
//! not a `&[u8]`. Its bytes are copied in and out, or read in place through the two unsafe
//! accessors, whose callers state why nothing else writes there during that.
//!
//! **Invariants**
//! - Only this program, and operations that it has submitted, can write to the memory of a buffer.
//!   Checksums, parity and copies rely on that. Memory that a guest or a client shares is copied
//!   into a buffer before anything reads it (decision 0042).
//! - Memory returns to its pool or the heap when the last handle to any part of it is dropped.
//! - A buffer without payload has a length and no bytes: copying from it yields zeros, copying into
//!   it does nothing. What-if runs use it, so that a petabyte of writes costs no memory.

mod arena;
mod past_cache;
mod pool;
mod region;
mod vector;

pub(crate) use past_cache::finish_stores;
pub use pool::{BufferPool, PoolClass, PoolConfig};
pub use vector::Buffers;

use crate::prefetch::{LINE_BYTES, prefetch};
use region::Region;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

/// Alignment of all memory that Headpond allocates, in bytes: what O_DIRECT asks at most.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Less than this is copied through the cache in any case. In rows of 512 bytes and 4 KiB, as a
/// cache writes its log, a RAM device is written in four fifths of the time past it, and 64 KiB at
/// a time in two thirds (`cargo bench -p headpond-cache --bench engine`).
const PAST_CACHE_BYTES_MIN: usize = 512;

/// As much as comes from memory in the time that a read hit takes besides.
const PREFETCHED_BYTES: usize = 1 << 10;

/// A handle to contiguous memory that only this program writes to (decision 0042). Clones and
/// slices share it, on their thread.
pub struct Buffer {
    region: NonNull<Region>,
    /// Where in the region this slice begins.
    offset: usize,
    len: usize,
}

impl Buffer {
    /// Aligned memory from the heap, filled with zeros. For set-up and tests; requests take from a
    /// [`BufferPool`].
    pub fn zeroed(len: usize) -> Self {
        Self::whole(Region::heap(len))
    }

    /// Aligned memory from the heap with a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let buffer = Self::zeroed(bytes.len());
        buffer.copy_from(bytes);
        buffer
    }

    /// Memory that belongs to another thread until the last handle is dropped here, and the loan
    /// with it.
    ///
    /// # Safety
    /// The memory is valid for `len` bytes until the loan is dropped, and nothing else uses it
    /// before that, or before the answer to the request that it is lent for.
    pub(crate) unsafe fn lent(start: NonNull<u8>, len: usize, loan: Rc<dyn Any>) -> Self {
        Self::whole(Region::lent(start, len, loan))
    }

    /// A length without bytes.
    pub fn payload_free(len: usize) -> Self {
        Self::whole(Region::payload_free(len))
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn is_payload_free(&self) -> bool {
        self.region().is_payload_free()
    }

    /// The part `range` of this buffer, sharing its memory.
    ///
    /// # Panics
    /// Where the range is not within the buffer.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "slice outside its buffer");
        self.region().retain();
        let offset = self.offset + range.start;
        Self { region: self.region, offset, len: range.end - range.start }
    }

    /// The first byte, for handing to a system call; dangling where there is no payload. It is
    /// another one after [`Self::exchange`].
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region().memory().wrapping_add(self.offset)
    }

    /// Whether the memory can be exchanged: this is all of it, and it is this thread's own.
    pub fn is_exchangeable(&self) -> bool {
        self.len == self.region().len() && self.region().is_exchangeable()
    }

    /// Whether no other handle shares this memory.
    pub fn is_sole(&self) -> bool {
        self.region().is_sole()
    }

    /// The same bytes at their present address: an exchange does not change what is behind this
    /// handle. For operations of a device that may end after their memory was exchanged.
    pub fn pinned(&self) -> Self {
        Self::whole(Region::pinned(self))
    }

    /// Puts other memory, with the same contents, behind all handles that share this one's. What
    /// was there stays allocated until the last of them, and of those that were pinned, is dropped.
    ///
    /// # Panics
    /// Where the memory is not exchangeable, or the other is shorter.
    pub fn exchange(&self, other: Buffer) {
        assert!(self.is_exchangeable(), "all of its memory, and nobody else's");
        other.copy_from_buffer(self);
        self.region().exchange(other);
    }

    /// Prefetches the first bytes. Once they are read, the processor prefetches the following ones.
    #[inline]
    pub fn prefetch(&self) {
        let first = (0..self.len.min(PREFETCHED_BYTES)).step_by(LINE_BYTES);
        first.for_each(|at| prefetch(self.as_ptr().wrapping_add(at)));
    }

    /// Copies the first `to.len()` bytes out.
    ///
    /// # Panics
    /// Where the buffer is shorter.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "buffer shorter than its reader expects");
        if self.is_payload_free() {
            to.fill(0);
            return;
        }
        // SAFETY: both ranges are valid for `to.len()` bytes, and `to` is exclusively ours.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), to.len()) }
    }

    /// Copies `from` to the start of the buffer.
    ///
    /// # Panics
    /// Where the buffer is shorter.
    pub fn copy_from(&self, from: &[u8]) {
        assert!(from.len() <= self.len, "buffer shorter than what is written to it");
        if !self.is_payload_free() {
            // SAFETY: both ranges are valid for `from.len()` bytes; no reference to our bytes
            // exists outside the unsafe accessors' scopes.
            unsafe { std::ptr::copy(from.as_ptr(), self.as_ptr(), from.len()) }
        }
    }

    /// Copies all bytes of `from` to the start of the buffer; the two may overlap.
    ///
    /// # Panics
    /// Where the buffer is shorter than `from`.
    #[inline]
    pub fn copy_from_buffer(&self, from: &Buffer) {
        assert!(from.len <= self.len, "buffer shorter than what is written to it");
        if self.is_payload_free() {
            return;
        }
        if from.is_payload_free() {
            return self.slice(0..from.len).fill(0);
        }
        // SAFETY: both ranges are valid for `from.len` bytes; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from.as_ptr(), self.as_ptr(), from.len) }
    }

    /// Copies all bytes of `from` to the buffer, from byte `at` on, where they are not read early:
    /// all but short copies bypass the processor's cache. Other threads, and devices, see it after
    /// [`finish_stores`]. The two may overlap.
    ///
    /// # Panics
    /// Where they do not fit after `at`.
    #[inline]
    pub(crate) fn store_at(&self, at: usize, from: &Buffer) {
        assert!(at <= self.len && from.len <= self.len - at, "buffer shorter than what is stored");
        if self.is_payload_free() {
            return;
        }
        if from.is_payload_free() {
            return self.slice(at..at + from.len).fill(0);
        }
        let (start, to) = (from.as_ptr(), self.as_ptr().wrapping_add(at));
        let overlap = to.addr().abs_diff(start.addr()) < from.len;
        if from.len < PAST_CACHE_BYTES_MIN || overlap {
            // SAFETY: both ranges are valid for `from.len` bytes; `copy` allows them to overlap.
            return unsafe { std::ptr::copy(start, to, from.len) };
        }
        // SAFETY: both ranges are valid for `from.len` bytes, and as far apart at least.
        unsafe { past_cache::copy_past_cache(start, to, from.len) }
    }

    pub fn fill(&self, byte: u8) {
        if !self.is_payload_free() {
            // SAFETY: the range is valid for writes of `len` bytes.
            unsafe { std::ptr::write_bytes(self.as_ptr(), byte, self.len) }
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_to(&mut bytes);
        bytes
    }

    /// The bytes in place; empty where there is no payload.
    ///
    /// # Safety
    /// Until the slice is dropped nothing writes to these bytes: no read operation into them is in
    /// flight, no other handle is written through.
    #[inline]
    pub unsafe fn as_slice(&self) -> &[u8] {
        if self.is_payload_free() {
            return &[];
        }
        // SAFETY: the range is valid; the caller guarantees that there are no writers.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// The bytes in place, for writing; empty where there is no payload.
    ///
    /// # Safety
    /// Until the slice is dropped nothing else reads or writes these bytes.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn as_mut_slice(&self) -> &mut [u8] {
        if self.is_payload_free() {
            return &mut [];
        }
        // SAFETY: the range is valid; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }

    /// Whether `next` continues this buffer in the same memory.
    #[inline]
    fn is_continued_by(&self, next: &Buffer) -> bool {
        self.region == next.region && self.offset + self.len == next.offset
    }

    fn whole(region: NonNull<Region>) -> Self {
        // SAFETY: a new region carries one count, which this handle takes over.
        let len = unsafe { region.as_ref().len() };
        Self { region, offset: 0, len }
    }

    #[inline]
    fn region(&self) -> &Region {
        // SAFETY: this handle's count keeps the region alive.
        unsafe { self.region.as_ref() }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Self {
        self.slice(0..self.len)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the handle's count is given up exactly once, here.
        unsafe { Region::release(self.region) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_payload_free() { " without payload" } else { "" };
        write!(f, "Buffer({} B{kind})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_memory() {
        let buffer = Buffer::zeroed(16);
        buffer.slice(4..8).copy_from(b"abcd");
        assert_eq!(&buffer.to_vec()[..10], b"\0\0\0\0abcd\0\0");
    }

    #[test]
    fn exchanged_memory_is_behind_all_handles_but_those_that_were_pinned() {
        let pool = BufferPool::new(&PoolConfig::small());
        for buffer in [pool.take(5000), Buffer::zeroed(5000)] {
            buffer.fill(1);
            let (part, pinned) = (buffer.slice(100..200), buffer.slice(100..200).pinned());
            assert!(buffer.is_exchangeable() && !part.is_exchangeable());
            for round in 2..4 {
                buffer.exchange(pool.take(5000));
                assert_eq!((part.to_vec(), pinned.to_vec()), (vec![round - 1; 100], vec![1; 100]));
                part.fill(round);
                assert_eq!((buffer.to_vec()[150], pinned.to_vec()), (round, vec![1; 100]));
            }
        }
    }

    #[test]
    fn what_was_exchanged_is_not_used_for_something_else_while_it_is_pinned() {
        let class = PoolClass { buffer_bytes: 4096, count: 2 };
        let pool = BufferPool::new(&PoolConfig { classes: vec![class] });
        let buffer = pool.take(4096);
        let (first, pinned) = (buffer.as_ptr(), buffer.pinned());
        buffer.exchange(pool.take(4096));
        drop(buffer);
        assert_eq!(pinned.as_ptr(), first);
        pool.take(4096).fill(9);
        assert_eq!((pool.overflows(), pinned.to_vec()[0]), (1, 0), "both places are still taken");
        drop(pinned);
        let again = pool.take(4096);
        assert!(!std::ptr::eq(again.as_ptr(), pool.take(4096).as_ptr()));
        assert_eq!(pool.overflows(), 1);
    }

    #[test]
    fn heap_memory_is_aligned() {
        assert!((Buffer::zeroed(100).as_ptr() as usize).is_multiple_of(ALIGNMENT_BYTES));
    }

    #[test]
    fn payload_free_buffer_reads_as_zeros() {
        let buffer = Buffer::payload_free(1 << 40);
        buffer.slice(5..9).copy_from(b"lost");
        let mut bytes = [7; 4];
        buffer.slice(5..9).copy_to(&mut bytes);
        assert_eq!(bytes, [0; 4]);
    }

    #[test]
    fn storing_is_copying_whatever_the_length_and_the_overlap() {
        let len = 2 * PAST_CACHE_BYTES_MIN;
        let bytes: Vec<u8> = (0..2 * len).map(|at| (at % 251) as u8).collect();
        for (from, to) in [(0..len, len), (len..2 * len, 0), (3..len, 8), (8..len, 3), (5..9, 17)] {
            let (buffer, mut expected) = (Buffer::from_slice(&bytes), bytes.clone());
            expected.copy_within(from.clone(), to);
            let part = buffer.slice(from);
            buffer.store_at(to, &part);
            assert!(buffer.to_vec() == expected, "to {to}");
        }
    }

    #[test]
    #[should_panic(expected = "buffer shorter")]
    fn more_than_the_buffer_holds_is_not_stored() {
        let from = Buffer::zeroed(PAST_CACHE_BYTES_MIN + 1);
        Buffer::zeroed(PAST_CACHE_BYTES_MIN).store_at(0, &from);
    }

    #[test]
    fn large_amount_without_payload_is_stored_as_zeros() {
        let buffer = Buffer::from_slice(&vec![7; PAST_CACHE_BYTES_MIN]);
        buffer.store_at(0, &Buffer::payload_free(PAST_CACHE_BYTES_MIN));
        assert!(buffer.to_vec().iter().all(|byte| *byte == 0));
    }

    #[test]
    #[should_panic(expected = "slice outside its buffer")]
    fn slice_outside_the_buffer_is_refused() {
        drop(Buffer::zeroed(8).slice(4..9));
    }
}
