//! Parity 32 bytes at a time with AVX2, multiplying by table look-ups of half bytes (`pshufb`).

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use smallvec::SmallVec;

use super::field::nibble_products;
use super::kernel::Kernel;
use super::portable;

static KERNEL: Kernel = Kernel { name: "avx2", add, pq, add_pq, add_multiple };

const VECTOR: usize = size_of::<__m256i>();
/// Vectors in one turn of the loops: enough to hide the latency of the multiplication.
const TURN: usize = 4;

/// The kernel, where the processor can run it.
pub(super) fn kernel() -> Option<&'static Kernel> {
    is_x86_feature_detected!("avx2").then_some(&KERNEL)
}

fn add(sum: &mut [u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|source| source.len() == sum.len()));
    let whole = sum.len() / VECTOR * VECTOR;
    // SAFETY: this function is reached through `kernel` alone, which has detected the feature;
    // every source is as long as the sum.
    unsafe { add_vectors(&mut sum[..whole], sources) };
    let tails: SmallVec<[&[u8]; 16]> = sources.iter().map(|source| &source[whole..]).collect();
    portable::add(&mut sum[whole..], &tails);
}

fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    let whole = whole_vectors(p, q, data);
    // SAFETY: as in `add`, with the lengths asserted by `whole_vectors`.
    unsafe { pq_vectors::<false>(&mut p[..whole], &mut q[..whole], data) };
    portable::pq(&mut p[whole..], &mut q[whole..], &tails(data, whole));
}

fn add_pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    let whole = whole_vectors(p, q, data);
    // SAFETY: as in `add`, with the lengths asserted by `whole_vectors`.
    unsafe { pq_vectors::<true>(&mut p[..whole], &mut q[..whole], data) };
    portable::add_pq(&mut p[whole..], &mut q[whole..], &tails(data, whole));
}

fn add_multiple(sum: &mut [u8], factor: u8, source: &[u8]) {
    assert_eq!(sum.len(), source.len());
    let whole = sum.len() / VECTOR * VECTOR;
    // SAFETY: as in `add`, with the lengths asserted above.
    unsafe { add_multiple_vectors(&mut sum[..whole], factor, source) };
    portable::add_multiple(&mut sum[whole..], factor, &source[whole..]);
}

/// The bytes of the strips that are whole vectors, once the lengths are known to agree.
fn whole_vectors(p: &[u8], q: &[u8], data: &[Option<&[u8]>]) -> usize {
    assert_eq!(p.len(), q.len());
    assert!(data.iter().flatten().all(|strip| strip.len() == p.len()));
    p.len() / VECTOR * VECTOR
}

fn tails<'a>(data: &[Option<&'a [u8]>], from: usize) -> SmallVec<[Option<&'a [u8]>; 16]> {
    data.iter().map(|strip| strip.map(|strip| &strip[from..])).collect()
}

/// # Safety
/// The length of `sum` is a multiple of a vector and no source is shorter.
#[target_feature(enable = "avx2")]
unsafe fn add_vectors(sum: &mut [u8], sources: &[&[u8]]) {
    for at in (0..sum.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the sum, and inside each source.
        unsafe {
            let mut vector = load(sum.as_ptr().add(at));
            for source in sources {
                vector = _mm256_xor_si256(vector, load(source.as_ptr().add(at)));
            }
            _mm256_storeu_si256(sum.as_mut_ptr().add(at).cast(), vector);
        }
    }
}

/// # Safety
/// The length of `p` is a multiple of a vector; `q` and every strip are no shorter.
#[target_feature(enable = "avx2")]
unsafe fn pq_vectors<const ADD: bool>(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    let mut at = 0;
    while at + TURN * VECTOR <= p.len() {
        // SAFETY: `at` and the turn after it lie inside p, and inside q and each strip.
        unsafe { pq_turn::<ADD, TURN>(p, q, data, at) };
        at += TURN * VECTOR;
    }
    while at < p.len() {
        // SAFETY: the length is a multiple of a vector, so one more lies inside all of them.
        unsafe { pq_turn::<ADD, 1>(p, q, data, at) };
        at += VECTOR;
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
    let mut weighted = [_mm256_setzero_si256(); N];
    for strip in data.iter().rev() {
        for lane in &mut weighted {
            *lane = double(*lane);
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
    let (low, high) = nibble_products(factor);
    // SAFETY: both tables have sixteen bytes.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    let (low, high) = (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high));
    let nibble = _mm256_set1_epi8(0x0f);
    for at in (0..sum.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the sum and the source.
        unsafe {
            let from = load(source.as_ptr().add(at));
            let old = load(sum.as_ptr().add(at));
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(from, nibble));
            let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(from), nibble);
            let product = _mm256_xor_si256(of_low, _mm256_shuffle_epi8(high, upper));
            let new = _mm256_xor_si256(old, product);
            _mm256_storeu_si256(sum.as_mut_ptr().add(at).cast(), new);
        }
    }
}

/// Thirty-two bytes, each times two.
#[target_feature(enable = "avx2")]
fn double(vector: __m256i) -> __m256i {
    let overflow = _mm256_cmpgt_epi8(_mm256_setzero_si256(), vector);
    let reduction = _mm256_and_si256(overflow, _mm256_set1_epi8(0x1d));
    _mm256_xor_si256(_mm256_add_epi8(vector, vector), reduction)
}

/// # Safety
/// Thirty-two bytes can be read at `from`.
#[target_feature(enable = "avx2")]
unsafe fn load(from: *const u8) -> __m256i {
    // SAFETY: by the contract of this function.
    unsafe { _mm256_loadu_si256(from.cast()) }
}
