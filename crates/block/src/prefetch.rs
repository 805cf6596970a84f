//! Asking for memory before it is needed.

/// What the processor moves between cache and memory, in bytes.
pub(crate) const LINE_BYTES: usize = 64;

/// Has the processor bring `place` near, while it goes on with something else. Nothing else
/// happens, whatever the address is, and on processors for which we do not know how, not even that.
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
