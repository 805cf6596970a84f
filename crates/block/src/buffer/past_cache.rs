//! Copies with non-temporal stores, to memory that is not read again early.
//!
//! An ordinary store fetches its line and leaves it in the processor's cache, where it evicts
//! others. Where the memory is a device, both are wasted: 1 MiB took 57 instead of 125 us, and 1
//! MiB writes over NBD to a RAM device became 1.4 times as fast, the client's part included. Such
//! stores run concurrently with later instructions; where they are waited for immediately, to make
//! them visible to others, they do not pay below 64 KiB.

use crate::prefetch::LINE_BYTES;

/// Copies `len` bytes. This thread sees them immediately: a processor's loads find its own stores
/// (Intel's manual, volume 3, memory ordering). Others see them after [`finish_stores`].
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and the two do not overlap.
pub(super) unsafe fn copy_past_cache(from: *const u8, to: *mut u8, len: usize) {
    let head = to.align_offset(LINE_BYTES).min(len);
    let tail = head + (len - head) / LINE_BYTES * LINE_BYTES;
    // SAFETY: three neighbouring ranges within `len`; the middle one starts where `to` is aligned
    // and is a multiple of a line.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        copy_lines(from.add(head), to.add(head), tail - head);
        std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), len - tail);
    }
}

/// # Safety
/// As for [`copy_past_cache`]; `to` is aligned to a line, and `len` a multiple of it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_lines(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on; the processor has what is used.
    unsafe {
        if std::arch::is_x86_feature_detected!("avx512f") {
            copy_lines_whole(from, to, len)
        } else if std::arch::is_x86_feature_detected!("avx") {
            copy_lines_by_halves(from, to, len)
        } else {
            copy_lines_by_quarters(from, to, len)
        }
    }
}

/// Waits until other threads, and devices, see what was copied: streaming stores are not ordered
/// with others, not even with the one that says they are done.
#[inline]
pub(crate) fn finish_stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}

/// A complete line is written immediately.
///
/// # Safety
/// As for [`copy_lines`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_lines_whole(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    for line in (0..len).step_by(LINE_BYTES) {
        // SAFETY: the line is within `len`, and streaming stores are aligned as it is.
        unsafe {
            let whole = _mm512_loadu_si512(from.add(line).cast());
            _mm512_stream_si512(to.add(line).cast(), whole);
        }
    }
}

/// A store for each 16 bytes keeps the processor busy for most of the time that memory takes: with
/// half as many 64 KiB took 3.4 instead of 3.6 us.
///
/// # Safety
/// As for [`copy_lines`], on a processor with AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_lines_by_halves(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    for line in (0..len).step_by(LINE_BYTES) {
        // SAFETY: the line is within `len`, and streaming stores are aligned as it is.
        unsafe {
            let (from, to) = (from.add(line).cast::<__m256i>(), to.add(line).cast::<__m256i>());
            let halves = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, halves.0);
            _mm256_stream_si256(to.add(1), halves.1);
        }
    }
}

/// # Safety
/// As for [`copy_lines`].
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines_by_quarters(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const PARTS: usize = LINE_BYTES / size_of::<__m128i>();
    for line in (0..len).step_by(LINE_BYTES) {
        // SAFETY: the line is within `len`, and streaming stores are aligned as it is. SSE2 is part
        // of x86-64.
        unsafe {
            let (from, to) = (from.add(line).cast::<__m128i>(), to.add(line).cast::<__m128i>());
            // No closures: not every build has them in line, and then each costs a call.
            for part in 0..PARTS {
                _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part)));
            }
        }
    }
}

/// # Safety
/// As for [`copy_past_cache`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy_lines(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn copies_what_it_is_told_and_nothing_beside(
            from_start in 0..70_usize,
            to_start in 0..70_usize,
            len in 0..700_usize,
        ) {
            let from: Vec<u8> = (0..1024).map(|at| (at % 251) as u8).collect();
            let mut to = vec![0xee; 1024];
            let mut expected = to.clone();
            expected[to_start..to_start + len].copy_from_slice(&from[from_start..from_start + len]);
            // SAFETY: both ranges are within their vectors.
            unsafe {
                copy_past_cache(from.as_ptr().add(from_start), to.as_mut_ptr().add(to_start), len);
            }
            prop_assert!(to == expected);
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn stores_of_every_length_copy_the_same() {
        #[repr(align(64))]
        struct Lines([u8; 256]);
        let from = Lines(std::array::from_fn(|at| at as u8));
        type Copy = unsafe fn(*const u8, *mut u8, usize);
        let copies: [(bool, Copy); 3] = [
            (true, copy_lines_by_quarters),
            (std::arch::is_x86_feature_detected!("avx"), copy_lines_by_halves),
            (std::arch::is_x86_feature_detected!("avx512f"), copy_lines_whole),
        ];
        for (_, copy) in copies.into_iter().filter(|(is_there, _)| *is_there) {
            let mut to = Lines([0; 256]);
            // SAFETY: both are as long, and aligned to a line; the processor has what is used.
            unsafe { copy(from.0.as_ptr(), to.0.as_mut_ptr(), 192) }
            assert_eq!((to.0[..192].to_vec(), to.0[192]), (from.0[..192].to_vec(), 0));
        }
    }
}
