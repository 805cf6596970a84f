//! Large pages for large memory: cache devices, maps and queues are looked at all over, and with
//! small pages the processor has to ask, for as good as each look, where the page is.

use rustix::mm::{Advice, madvise};

/// Less has no large page to itself. What the C library keeps of such a piece for others, when it
/// is given back, is in large pages for them as well.
const LARGE_BYTES: usize = 2 << 20;
/// What the system's calls take, at least.
const PAGE_BYTES: usize = 4 << 10;

/// Asks for large pages for what has just been allocated, where that is large. A system without
/// them leaves everything as it is.
#[inline]
pub(super) fn prefer_large(memory: *mut u8, bytes: usize) {
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
