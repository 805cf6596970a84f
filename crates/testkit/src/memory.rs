//! Allocators for tests: one that counts, and one that has nothing when it is told so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted. It counts all threads: a test that asks it is alone in its
/// program.
pub struct CountedMemory {
    now_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl CountedMemory {
    #[expect(clippy::new_without_default, reason = "a static cannot be made by default")]
    pub const fn new() -> Self {
        Self { now_bytes: AtomicUsize::new(0), peak_bytes: AtomicUsize::new(0) }
    }

    /// What is allocated.
    pub fn now_bytes(&self) -> usize {
        self.now_bytes.load(Ordering::Relaxed)
    }

    /// The most that was allocated at once, since the start or the last [`Self::forget_peak`].
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// The peak is what is allocated now, until there is more.
    pub fn forget_peak(&self) {
        self.peak_bytes.store(self.now_bytes(), Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for CountedMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = self.now_bytes.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        self.peak_bytes.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.now_bytes.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

thread_local! {
    /// The longest piece that there is.
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The system's allocator, or one that gives short pieces only, to the thread that has said so.
pub struct ScarceMemory;

impl ScarceMemory {
    /// For this thread there is no longer piece from now on.
    pub fn at_most(bytes: usize) {
        MOST.set(bytes);
    }

    /// For this thread there is memory again.
    pub fn plenty() {
        Self::at_most(usize::MAX);
    }
}

// SAFETY: the system's allocator, or nothing.
unsafe impl GlobalAlloc for ScarceMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.size() <= MOST.get() {
            // SAFETY: as our caller promised.
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted_and_the_most_of_it_kept_until_it_is_forgotten() {
        let memory = CountedMemory::new();
        let layout = Layout::new::<[u8; 1000]>();
        // SAFETY: the layout is not empty, and the piece is given back as it came.
        unsafe { memory.dealloc(memory.alloc(layout), layout) };
        assert_eq!((memory.now_bytes(), memory.peak_bytes()), (0, 1000));
        memory.forget_peak();
        assert_eq!(memory.peak_bytes(), 0);
    }
}
