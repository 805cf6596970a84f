//! Prefetch of memory.

/// Cache line of the processor, in bytes.
pub(crate) const LINE_BYTES: usize = 64;

/// Prefetches the cache line of `place`. It has no other effect, for any address, and none at all
/// on unsupported processors.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and an address that there is not does no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
