//! Large pages for large memory: cache devices, maps and queues are looked at all over, and with
//! small pages the processor has to ask, for as good as each look, where the page is.

use rustix::mm::{Advice, madvise};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Less has no large page to itself. What the C library keeps of such a piece for others, when it
/// is given back, is in large pages for them as well.
const LARGE_BYTES: usize = 2 << 20;
/// What the system's calls take, at least.
const PAGE_BYTES: usize = 4 << 10;

/// Asks for large pages for what has just been allocated, where that is large. A system without
/// them leaves everything as it is.
#[inline]
pub(crate) fn prefer_large(memory: *mut u8, bytes: usize) {
    if bytes >= LARGE_BYTES {
        ask(memory, bytes);
    }
}

#[cold]
fn ask(memory: *mut u8, bytes: usize) {
    let skipped = memory.align_offset(PAGE_BYTES);
    let bytes = (bytes - skipped) / PAGE_BYTES * PAGE_BYTES;
    let start = memory.wrapping_add(skipped).cast();
    // SAFETY: whole pages of memory that the caller has; what is in them stays as it is.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
}

/// Gives memory its pages before it is used, from a thread of its own: the first writes to a large
/// device then do not wait for pages to be found and zeroed. Ends with the memory.
pub struct Population {
    start: usize,
    bytes: usize,
    is_over: Arc<Mutex<bool>>,
}

/// Held by the owner of memory that is populated.
#[derive(Default)]
pub(crate) struct Populated(Arc<Mutex<bool>>);

impl Populated {
    /// The work, for another thread. The memory is the owner's until `self` is dropped.
    pub fn population(&self, start: *mut u8, bytes: usize) -> Population {
        Population { start: start.expose_provenance(), bytes, is_over: Arc::clone(&self.0) }
    }
}

impl Drop for Populated {
    fn drop(&mut self) {
        // Waits for the part that is populated now.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Population {
    /// Populates the next large page; whether there is more to do. What is in the memory stays as
    /// it is, and it may be used meanwhile. What the kernel locks for it, the program's allocations
    /// wait for. A system that cannot do this, or has no memory, ends it.
    pub fn step(&mut self) -> bool {
        let end = (self.start + self.bytes) / PAGE_BYTES * PAGE_BYTES;
        let at = self.start.next_multiple_of(PAGE_BYTES);
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_over || at >= end {
            return false;
        }
        let next = end.min((at + LARGE_BYTES) / LARGE_BYTES * LARGE_BYTES);
        self.bytes = self.start + self.bytes - next;
        self.start = next;
        populate(at, next - at).is_ok()
    }
}

fn populate(at: usize, bytes: usize) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: whole pages of memory whose owner waits for the lock before it gives them back; what
    // is in them stays as it is.
    unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) }.map_err(io::Error::from)
}
