//! The allocator of a program that has a reserve.

use super::has_to_have;
use super::pages::prefer_large;
use super::reserve::RESERVE;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;

/// The system's allocator, with large pages for what is large, and behind it the reserve.
pub struct ReservedMemory<A = System> {
    system: A,
}

impl ReservedMemory {
    #[expect(clippy::new_without_default, reason = "a static cannot be made by default")]
    pub const fn new() -> Self {
        Self::over(System)
    }
}

impl<A> ReservedMemory<A> {
    /// Over an allocator that may have nothing to give.
    pub const fn over(system: A) -> Self {
        Self { system }
    }
}

/// From the reserve, for callers that cannot do without.
#[cold]
fn instead(layout: Layout) -> *mut u8 {
    if has_to_have() { RESERVE.give(layout) } else { std::ptr::null_mut() }
}

// SAFETY: what the system gave goes back to it, and what the reserve gave goes back there, each for
// the layout that it was asked for.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ReservedMemory<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        let memory = unsafe { self.system.alloc(layout) };
        if memory.is_null() {
            return instead(layout);
        }
        prefer_large(memory, layout.size());
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        let memory = unsafe { self.system.alloc_zeroed(layout) };
        if !memory.is_null() {
            prefer_large(memory, layout.size());
            return memory;
        }
        let memory = instead(layout);
        if !memory.is_null() {
            // SAFETY: the reserve gave as many bytes as the layout has.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match NonNull::new(memory).filter(|it| RESERVE.has_given(it.as_ptr())) {
            // SAFETY: it is the reserve's, and our caller is done with it.
            Some(given) => unsafe { RESERVE.take_back(given, layout) },
            // SAFETY: as the caller guarantees.
            None => unsafe { self.system.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !RESERVE.has_given(memory) {
            // SAFETY: as the caller guarantees.
            let moved = unsafe { self.system.realloc(memory, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller guarantees a size that fits the alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: `bytes` is not zero, as the caller guarantees.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            let kept = layout.size().min(bytes);
            // SAFETY: both have so many bytes, and are not the same memory.
            unsafe { moved.copy_from_nonoverlapping(memory, kept) };
            // SAFETY: as the caller guarantees.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}
