//! Parity 32 bytes at a time with AVX2, multiplying by table look-ups of half bytes (`pshufb`).

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::field::{multiply, nibble_products};
use super::whole_vectors::kernel_of_whole_vectors;

kernel_of_whole_vectors!("avx2", "avx2");

const VECTOR: usize = size_of::<__m256i>();
/// Vectors in one turn of the loops: enough to hide the latency of the multiplication.
const TURN: usize = 4;

/// The kernel, where the processor can run it.
pub(super) fn kernel() -> Option<&'static Kernel> {
    is_x86_feature_detected!("avx2").then_some(&KERNEL)
}

/// # Safety
/// `at + N x 32` is not past the end of `sum` or any source.
#[target_feature(enable = "avx2")]
unsafe fn add_turn<const ADD: bool, const N: usize>(sum: &mut [u8], sources: &[&[u8]], at: usize) {
    let mut vectors = [_mm256_setzero_si256(); N];
    for source in sources {
        for (lane, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: by the contract of this function.
            let more = unsafe { load(source.as_ptr().add(at + lane * VECTOR)) };
            *vector = _mm256_xor_si256(*vector, more);
        }
    }
    for (lane, vector) in vectors.into_iter().enumerate() {
        // SAFETY: by the contract of this function.
        unsafe {
            let here = sum.as_mut_ptr().add(at + lane * VECTOR);
            let new = if ADD { _mm256_xor_si256(load(here), vector) } else { vector };
            _mm256_storeu_si256(here.cast(), new);
        }
    }
}

/// # Safety
/// `at + N x 32` is not past the end of `p`, `q` or any strip.
#[target_feature(enable = "avx2")]
unsafe fn pq_turn<const ADD: bool, const N: usize>(
    p: &mut [u8],
    q: &mut [u8],
    data: &[Option<&[u8]>],
    at: usize,
) {
    let mut sum = [_mm256_setzero_si256(); N];
    let fixed = _mm256_set1_epi8(FIXED as i8);
    let mut weighted = [fixed; N];
    for strip in data.iter().rev() {
        for lane in &mut weighted {
            *lane = double_and_add(*lane);
        }
        let Some(strip) = strip else { continue };
        for lane in 0..N {
            // SAFETY: by the contract of this function.
            let vector = unsafe { load(strip.as_ptr().add(at + lane * VECTOR)) };
            sum[lane] = _mm256_xor_si256(sum[lane], vector);
            weighted[lane] = _mm256_xor_si256(weighted[lane], vector);
        }
    }
    for lane in 0..N {
        weighted[lane] = _mm256_xor_si256(weighted[lane], fixed);
        let here = at + lane * VECTOR;
        // SAFETY: by the contract of this function.
        unsafe {
            if ADD {
                sum[lane] = _mm256_xor_si256(sum[lane], load(p.as_ptr().add(here)));
                weighted[lane] = _mm256_xor_si256(weighted[lane], load(q.as_ptr().add(here)));
            }
            _mm256_storeu_si256(p.as_mut_ptr().add(here).cast(), sum[lane]);
            _mm256_storeu_si256(q.as_mut_ptr().add(here).cast(), weighted[lane]);
        }
    }
}

/// # Safety
/// The length of `sum` is a multiple of a vector and `source` is no shorter.
#[target_feature(enable = "avx2")]
unsafe fn add_multiple_vectors(sum: &mut [u8], factor: u8, source: &[u8]) {
    let table = Table::of(factor);
    for at in (0..sum.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the sum and the source.
        unsafe {
            let product = table.multiply(load(source.as_ptr().add(at)));
            let new = _mm256_xor_si256(load(sum.as_ptr().add(at)), product);
            _mm256_storeu_si256(sum.as_mut_ptr().add(at).cast(), new);
        }
    }
}

/// # Safety
/// The length of `strip` is a multiple of a vector.
#[target_feature(enable = "avx2")]
unsafe fn scale_vectors(strip: &mut [u8], factor: u8) {
    let table = Table::of(factor);
    for at in (0..strip.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the strip.
        unsafe {
            let product = table.multiply(load(strip.as_ptr().add(at)));
            _mm256_storeu_si256(strip.as_mut_ptr().add(at).cast(), product);
        }
    }
}

/// # Safety
/// The length of `p` is a multiple of a vector and `q` is no shorter.
#[target_feature(enable = "avx2")]
unsafe fn solve_vectors(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
    let (of_p, of_q) = (Table::of(of_p), Table::of(of_q));
    for at in (0..p.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside p and q.
        unsafe {
            let (old_p, old_q) = (load(p.as_ptr().add(at)), load(q.as_ptr().add(at)));
            let first = _mm256_xor_si256(of_p.multiply(old_p), of_q.multiply(old_q));
            _mm256_storeu_si256(q.as_mut_ptr().add(at).cast(), first);
            let second = _mm256_xor_si256(old_p, first);
            _mm256_storeu_si256(p.as_mut_ptr().add(at).cast(), second);
        }
    }
}

/// The products of one factor with half bytes.
#[derive(Clone, Copy)]
struct Table {
    low: __m256i,
    high: __m256i,
}

impl Table {
    #[target_feature(enable = "avx2")]
    fn of(factor: u8) -> Table {
        let (low, high) = nibble_products(factor);
        // SAFETY: both tables have sixteen bytes.
        let (low, high) = unsafe {
            (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()))
        };
        Table { low: _mm256_broadcastsi128_si256(low), high: _mm256_broadcastsi128_si256(high) }
    }

    #[target_feature(enable = "avx2")]
    fn multiply(self, vector: __m256i) -> __m256i {
        let nibble = _mm256_set1_epi8(0x0f);
        let of_low = _mm256_shuffle_epi8(self.low, _mm256_and_si256(vector, nibble));
        let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(vector), nibble);
        _mm256_xor_si256(of_low, _mm256_shuffle_epi8(self.high, upper))
    }
}

/// Where `2 x + 0x1d` is `x`: the sum of the low bits of the polynomial and of this is twice this.
const FIXED: u8 = 0x0b;
const _: () = assert!(multiply(FIXED, 2) ^ 0x1d == FIXED);

/// Thirty-two bytes, each times two and plus 0x1d: `pshufb` brings its entry, or zero if the high
/// bit is set, which is the reduction less 0x1d. Adding [`FIXED`] before and after any number of
/// these doubles, with one instruction less each time.
#[target_feature(enable = "avx2")]
fn double_and_add(vector: __m256i) -> __m256i {
    let reduction = _mm256_shuffle_epi8(_mm256_set1_epi8(0x1d), vector);
    _mm256_xor_si256(_mm256_add_epi8(vector, vector), reduction)
}

/// # Safety
/// Thirty-two bytes can be read at `from`.
#[target_feature(enable = "avx2")]
unsafe fn load(from: *const u8) -> __m256i {
    // SAFETY: by the contract of this function.
    unsafe { _mm256_loadu_si256(from.cast()) }
}
