//! Parity 64 bytes at a time with AVX-512, multiplying through GFNI's bit matrices.
//!
//! GFNI's own multiplication is in the field of AES (0x11b); its affine transform takes any matrix,
//! so also the one that multiplies in the field of RAID 6.

use std::arch::x86_64::{
    __m512i, __mmask64, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_xor_si512,
};

use super::field::bit_matrix;
use super::kernel::Kernel;

static KERNEL: Kernel =
    Kernel { name: "avx512+gfni", sum, add, pq, add_pq, add_multiple, scale, solve_two };

const VECTOR: usize = size_of::<__m512i>();
/// Vectors in one turn of the loops: enough to hide the latency of the multiplication.
const TURN: usize = 4;
/// As many for sums alone, which have no latency to hide: shorter turns go through the strips'
/// lines in an order that the cache next to the core likes better (measured: 209 GB/s, with four
/// 111, eight strips of 64 KiB).
const SUM_TURN: usize = 2;
const DOUBLE: u64 = bit_matrix(2);

/// The kernel, where the processor can run it.
pub(super) fn kernel() -> Option<&'static Kernel> {
    let supported = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni");
    supported.then_some(&KERNEL)
}

fn sum(sum: &mut [u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|source| source.len() == sum.len()));
    // SAFETY: this function is reached through `kernel` alone, which has detected the features;
    // every source is as long as the sum.
    unsafe { add_vectors::<false>(sum, sources) }
}

fn add(sum: &mut [u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|source| source.len() == sum.len()));
    // SAFETY: as in `sum`.
    unsafe { add_vectors::<true>(sum, sources) }
}

fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    assert_lengths(p, q, data);
    // SAFETY: as in `add`, with the lengths asserted above.
    unsafe { pq_vectors::<false>(p, q, data) }
}

fn add_pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    assert_lengths(p, q, data);
    // SAFETY: as in `add`, with the lengths asserted above.
    unsafe { pq_vectors::<true>(p, q, data) }
}

fn add_multiple(sum: &mut [u8], factor: u8, source: &[u8]) {
    assert_eq!(sum.len(), source.len());
    // SAFETY: as in `add`, with the lengths asserted above.
    unsafe { add_multiple_vectors(sum, factor, source) }
}

fn scale(strip: &mut [u8], factor: u8) {
    // SAFETY: as in `add`.
    unsafe { scale_vectors(strip, factor) }
}

fn solve_two(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
    assert_eq!(p.len(), q.len());
    // SAFETY: as in `add`, with the lengths asserted above.
    unsafe { solve_vectors(p, q, of_p, of_q) }
}

fn assert_lengths(p: &[u8], q: &[u8], data: &[Option<&[u8]>]) {
    assert_eq!(p.len(), q.len());
    assert!(data.iter().flatten().all(|strip| strip.len() == p.len()));
}

/// # Safety
/// Every source is as long as `sum`.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn add_vectors<const ADD: bool>(sum: &mut [u8], sources: &[&[u8]]) {
    let mut at = 0;
    while at + SUM_TURN * VECTOR <= sum.len() {
        // SAFETY: `at` and the turn after it lie inside the sum, and inside each source.
        unsafe { add_turn::<ADD, SUM_TURN>(sum, sources, at) };
        at += SUM_TURN * VECTOR;
    }
    while at < sum.len() {
        let mask = tail_mask(sum.len() - at);
        // SAFETY: the mask lets through only bytes before the common end.
        unsafe {
            let mut vector = match ADD {
                true => _mm512_maskz_loadu_epi8(mask, sum.as_ptr().add(at).cast()),
                false => _mm512_setzero_si512(),
            };
            for source in sources {
                let more = _mm512_maskz_loadu_epi8(mask, source.as_ptr().add(at).cast());
                vector = _mm512_xor_si512(vector, more);
            }
            _mm512_mask_storeu_epi8(sum.as_mut_ptr().add(at).cast(), mask, vector);
        }
        at += VECTOR;
    }
}

/// # Safety
/// `at + N x 64` is not past the end of `sum` or any source.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn add_turn<const ADD: bool, const N: usize>(sum: &mut [u8], sources: &[&[u8]], at: usize) {
    // SAFETY: by the contract of this function.
    unsafe {
        let mut vectors = match ADD {
            true => load(sum.as_ptr().add(at)),
            false => [_mm512_setzero_si512(); N],
        };
        for source in sources {
            let more: [__m512i; N] = load(source.as_ptr().add(at));
            for lane in 0..N {
                vectors[lane] = _mm512_xor_si512(vectors[lane], more[lane]);
            }
        }
        store(sum.as_mut_ptr().add(at), vectors);
    }
}

/// # Safety
/// `q` and every strip are as long as `p`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn pq_vectors<const ADD: bool>(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    let mut at = 0;
    while at + TURN * VECTOR <= p.len() {
        // SAFETY: `at` and the turn after it lie inside p, and inside q and each strip.
        unsafe { pq_turn::<ADD, TURN>(p, q, data, at) };
        at += TURN * VECTOR;
    }
    while at < p.len() {
        // SAFETY: the mask lets through only bytes before the common end.
        unsafe { pq_tail::<ADD>(p, q, data, at, tail_mask(p.len() - at)) };
        at += VECTOR;
    }
}

/// # Safety
/// `at + N x 64` is not past the end of `p`, `q` or any strip.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn pq_turn<const ADD: bool, const N: usize>(
    p: &mut [u8],
    q: &mut [u8],
    data: &[Option<&[u8]>],
    at: usize,
) {
    let double = _mm512_set1_epi64(DOUBLE as i64);
    let mut sum = [_mm512_setzero_si512(); N];
    let mut weighted = [_mm512_setzero_si512(); N];
    for strip in data.iter().rev() {
        for lane in &mut weighted {
            *lane = _mm512_gf2p8affine_epi64_epi8::<0>(*lane, double);
        }
        let Some(strip) = strip else { continue };
        // SAFETY: by the contract of this function.
        let vectors: [__m512i; N] = unsafe { load(strip.as_ptr().add(at)) };
        for lane in 0..N {
            sum[lane] = _mm512_xor_si512(sum[lane], vectors[lane]);
            weighted[lane] = _mm512_xor_si512(weighted[lane], vectors[lane]);
        }
    }
    // SAFETY: by the contract of this function.
    unsafe {
        if ADD {
            let (old_p, old_q): ([__m512i; N], [__m512i; N]) =
                (load(p.as_ptr().add(at)), load(q.as_ptr().add(at)));
            for lane in 0..N {
                sum[lane] = _mm512_xor_si512(sum[lane], old_p[lane]);
                weighted[lane] = _mm512_xor_si512(weighted[lane], old_q[lane]);
            }
        }
        store(p.as_mut_ptr().add(at), sum);
        store(q.as_mut_ptr().add(at), weighted);
    }
}

/// # Safety
/// The bytes at `at` that `mask` lets through are inside `p`, `q` and every strip.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn pq_tail<const ADD: bool>(
    p: &mut [u8],
    q: &mut [u8],
    data: &[Option<&[u8]>],
    at: usize,
    mask: __mmask64,
) {
    let double = _mm512_set1_epi64(DOUBLE as i64);
    let (mut sum, mut weighted) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for strip in data.iter().rev() {
        weighted = _mm512_gf2p8affine_epi64_epi8::<0>(weighted, double);
        let Some(strip) = strip else { continue };
        // SAFETY: by the contract of this function.
        let vector = unsafe { _mm512_maskz_loadu_epi8(mask, strip.as_ptr().add(at).cast()) };
        sum = _mm512_xor_si512(sum, vector);
        weighted = _mm512_xor_si512(weighted, vector);
    }
    // SAFETY: by the contract of this function.
    unsafe {
        let (p, q) = (p.as_mut_ptr().add(at).cast(), q.as_mut_ptr().add(at).cast());
        if ADD {
            sum = _mm512_xor_si512(sum, _mm512_maskz_loadu_epi8(mask, p));
            weighted = _mm512_xor_si512(weighted, _mm512_maskz_loadu_epi8(mask, q));
        }
        _mm512_mask_storeu_epi8(p, mask, sum);
        _mm512_mask_storeu_epi8(q, mask, weighted);
    }
}

/// # Safety
/// `source` is as long as `sum`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn add_multiple_vectors(sum: &mut [u8], factor: u8, source: &[u8]) {
    let matrix = _mm512_set1_epi64(bit_matrix(factor) as i64);
    for at in (0..sum.len()).step_by(VECTOR) {
        let mask = tail_mask(sum.len() - at);
        // SAFETY: the mask lets through only bytes before the common end.
        unsafe {
            let from = _mm512_maskz_loadu_epi8(mask, source.as_ptr().add(at).cast());
            let old = _mm512_maskz_loadu_epi8(mask, sum.as_ptr().add(at).cast());
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(from, matrix);
            let new = _mm512_xor_si512(old, product);
            _mm512_mask_storeu_epi8(sum.as_mut_ptr().add(at).cast(), mask, new);
        }
    }
}

/// # Safety
/// None beyond the features.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn scale_vectors(strip: &mut [u8], factor: u8) {
    let matrix = _mm512_set1_epi64(bit_matrix(factor) as i64);
    for at in (0..strip.len()).step_by(VECTOR) {
        let mask = tail_mask(strip.len() - at);
        // SAFETY: the mask lets through only bytes before the end.
        unsafe {
            let here = strip.as_mut_ptr().add(at).cast();
            let old = _mm512_maskz_loadu_epi8(mask, here);
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(old, matrix);
            _mm512_mask_storeu_epi8(here, mask, product);
        }
    }
}

/// # Safety
/// `q` is as long as `p`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn solve_vectors(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
    let of_p = _mm512_set1_epi64(bit_matrix(of_p) as i64);
    let of_q = _mm512_set1_epi64(bit_matrix(of_q) as i64);
    for at in (0..p.len()).step_by(VECTOR) {
        let mask = tail_mask(p.len() - at);
        // SAFETY: the mask lets through only bytes before the common end.
        unsafe {
            let (p, q) = (p.as_mut_ptr().add(at).cast(), q.as_mut_ptr().add(at).cast());
            let old_p = _mm512_maskz_loadu_epi8(mask, p);
            let old_q = _mm512_maskz_loadu_epi8(mask, q);
            let first = _mm512_xor_si512(
                _mm512_gf2p8affine_epi64_epi8::<0>(old_p, of_p),
                _mm512_gf2p8affine_epi64_epi8::<0>(old_q, of_q),
            );
            _mm512_mask_storeu_epi8(q, mask, first);
            _mm512_mask_storeu_epi8(p, mask, _mm512_xor_si512(old_p, first));
        }
    }
}

/// Lets through the first `left` bytes of a vector, all of them where it is shorter.
fn tail_mask(left: usize) -> __mmask64 {
    if left >= VECTOR { !0 } else { (1 << left) - 1 }
}

/// # Safety
/// `N x 64` bytes can be read at `from`.
#[target_feature(enable = "avx512f")]
unsafe fn load<const N: usize>(from: *const u8) -> [__m512i; N] {
    let mut vectors = [_mm512_setzero_si512(); N];
    for (lane, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: by the contract of this function.
        *vector = unsafe { _mm512_loadu_si512(from.add(lane * VECTOR).cast()) };
    }
    vectors
}

/// # Safety
/// `N x 64` bytes can be written at `to`.
#[target_feature(enable = "avx512f")]
unsafe fn store<const N: usize>(to: *mut u8, vectors: [__m512i; N]) {
    for (lane, vector) in vectors.into_iter().enumerate() {
        // SAFETY: by the contract of this function.
        unsafe { _mm512_storeu_si512(to.add(lane * VECTOR).cast(), vector) };
    }
}
