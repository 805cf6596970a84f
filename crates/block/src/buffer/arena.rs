//! Memory of a pool, mapped from the system.

use crate::memory::prefer_large;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::null_mut;

/// Zeroed memory in whole pages, each of which costs nothing before it is first used.
///
/// An allocator would have to zero all reused memory, and simulations open a volume thousands of
/// times to use a few buffers of its pool. It stays mapped until it is released.
pub(super) struct Arena {
    start: *mut u8,
    len: usize,
}

impl Arena {
    /// # Panics
    /// Without memory.
    pub(super) fn new(len: usize) -> Self {
        if len == 0 {
            return Self { start: std::ptr::dangling_mut(), len };
        }
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a mapping at an address that the kernel chooses touches no other.
        let mapped = unsafe { mmap_anonymous(null_mut(), len, access, kind) };
        let start = mapped.unwrap_or_else(|error| panic!("{len} bytes for buffers: {error}"));
        // The kernel looks up each page of a buffer that it is to read or write.
        prefer_large(start.cast(), len);
        Self { start: start.cast(), len }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Unmaps the memory.
    ///
    /// # Safety
    /// The memory is no longer used, and this is called once.
    pub(super) unsafe fn unmap(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: mapped in `new` with this length.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
