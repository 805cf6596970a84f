//! Parity 16 bytes at a time with NEON, multiplying by table look-ups of half bytes (`tbl`).

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vreinterpretq_s8_u8,
    vreinterpretq_u8_s8, vshlq_n_u8, vshrq_n_s8, vshrq_n_u8, vst1q_u8,
};
use std::arch::is_aarch64_feature_detected;

use super::field::nibble_products;
use super::whole_vectors::kernel_of_whole_vectors;

kernel_of_whole_vectors!("neon", "neon");

const VECTOR: usize = size_of::<uint8x16_t>();
/// Vectors in one turn of the loops: enough to hide the latency of the multiplication.
const TURN: usize = 4;

/// The kernel, where the processor can run it.
pub(super) fn kernel() -> Option<&'static Kernel> {
    is_aarch64_feature_detected!("neon").then_some(&KERNEL)
}

/// # Safety
/// `at + N x 16` is not past the end of `sum` or any source.
#[target_feature(enable = "neon")]
unsafe fn add_turn<const ADD: bool, const N: usize>(sum: &mut [u8], sources: &[&[u8]], at: usize) {
    // SAFETY: by the contract of this function.
    unsafe {
        let mut vectors: [uint8x16_t; N] = match ADD {
            true => load(sum.as_ptr().add(at)),
            false => [vdupq_n_u8(0); N],
        };
        for source in sources {
            let more: [uint8x16_t; N] = load(source.as_ptr().add(at));
            for lane in 0..N {
                vectors[lane] = veorq_u8(vectors[lane], more[lane]);
            }
        }
        store(sum.as_mut_ptr().add(at), vectors);
    }
}

/// # Safety
/// `at + N x 16` is not past the end of `p`, `q` or any strip.
#[target_feature(enable = "neon")]
unsafe fn pq_turn<const ADD: bool, const N: usize>(
    p: &mut [u8],
    q: &mut [u8],
    data: &[Option<&[u8]>],
    at: usize,
) {
    let mut sum = [vdupq_n_u8(0); N];
    let mut weighted = [vdupq_n_u8(0); N];
    for strip in data.iter().rev() {
        for lane in &mut weighted {
            *lane = double(*lane);
        }
        let Some(strip) = strip else { continue };
        // SAFETY: by the contract of this function.
        let vectors: [uint8x16_t; N] = unsafe { load(strip.as_ptr().add(at)) };
        for lane in 0..N {
            sum[lane] = veorq_u8(sum[lane], vectors[lane]);
            weighted[lane] = veorq_u8(weighted[lane], vectors[lane]);
        }
    }
    // SAFETY: by the contract of this function.
    unsafe {
        if ADD {
            let (old_p, old_q): ([uint8x16_t; N], [uint8x16_t; N]) =
                (load(p.as_ptr().add(at)), load(q.as_ptr().add(at)));
            for lane in 0..N {
                sum[lane] = veorq_u8(sum[lane], old_p[lane]);
                weighted[lane] = veorq_u8(weighted[lane], old_q[lane]);
            }
        }
        store(p.as_mut_ptr().add(at), sum);
        store(q.as_mut_ptr().add(at), weighted);
    }
}

/// # Safety
/// The length of `sum` is a multiple of a vector and `source` is no shorter.
#[target_feature(enable = "neon")]
unsafe fn add_multiple_vectors(sum: &mut [u8], factor: u8, source: &[u8]) {
    let table = Table::of(factor);
    for at in (0..sum.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the sum and the source.
        unsafe {
            let product = table.multiply(vld1q_u8(source.as_ptr().add(at)));
            let new = veorq_u8(vld1q_u8(sum.as_ptr().add(at)), product);
            vst1q_u8(sum.as_mut_ptr().add(at), new);
        }
    }
}

/// # Safety
/// The length of `strip` is a multiple of a vector.
#[target_feature(enable = "neon")]
unsafe fn scale_vectors(strip: &mut [u8], factor: u8) {
    let table = Table::of(factor);
    for at in (0..strip.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside the strip.
        unsafe {
            let product = table.multiply(vld1q_u8(strip.as_ptr().add(at)));
            vst1q_u8(strip.as_mut_ptr().add(at), product);
        }
    }
}

/// # Safety
/// The length of `p` is a multiple of a vector and `q` is no shorter.
#[target_feature(enable = "neon")]
unsafe fn solve_vectors(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
    let (of_p, of_q) = (Table::of(of_p), Table::of(of_q));
    for at in (0..p.len()).step_by(VECTOR) {
        // SAFETY: a whole vector at `at` lies inside p and q.
        unsafe {
            let old_p = vld1q_u8(p.as_ptr().add(at));
            let old_q = vld1q_u8(q.as_ptr().add(at));
            let first = veorq_u8(of_p.multiply(old_p), of_q.multiply(old_q));
            vst1q_u8(q.as_mut_ptr().add(at), first);
            vst1q_u8(p.as_mut_ptr().add(at), veorq_u8(old_p, first));
        }
    }
}

/// The products of one factor with half bytes.
#[derive(Clone, Copy)]
struct Table {
    low: uint8x16_t,
    high: uint8x16_t,
}

impl Table {
    #[target_feature(enable = "neon")]
    fn of(factor: u8) -> Table {
        let (low, high) = nibble_products(factor);
        // SAFETY: both tables have sixteen bytes.
        unsafe { Table { low: vld1q_u8(low.as_ptr()), high: vld1q_u8(high.as_ptr()) } }
    }

    #[target_feature(enable = "neon")]
    fn multiply(self, vector: uint8x16_t) -> uint8x16_t {
        let of_low = vqtbl1q_u8(self.low, vandq_u8(vector, vdupq_n_u8(0x0f)));
        veorq_u8(of_low, vqtbl1q_u8(self.high, vshrq_n_u8::<4>(vector)))
    }
}

/// Sixteen bytes, each times two.
#[target_feature(enable = "neon")]
fn double(vector: uint8x16_t) -> uint8x16_t {
    let overflow = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(vector)));
    veorq_u8(vshlq_n_u8::<1>(vector), vandq_u8(overflow, vdupq_n_u8(0x1d)))
}

/// # Safety
/// `N x 16` bytes can be read at `from`.
#[target_feature(enable = "neon")]
unsafe fn load<const N: usize>(from: *const u8) -> [uint8x16_t; N] {
    let mut vectors = [vdupq_n_u8(0); N];
    for (lane, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: by the contract of this function.
        *vector = unsafe { vld1q_u8(from.add(lane * VECTOR)) };
    }
    vectors
}

/// # Safety
/// `N x 16` bytes can be written at `to`.
#[target_feature(enable = "neon")]
unsafe fn store<const N: usize>(to: *mut u8, vectors: [uint8x16_t; N]) {
    for (lane, vector) in vectors.into_iter().enumerate() {
        // SAFETY: by the contract of this function.
        unsafe { vst1q_u8(to.add(lane * VECTOR), vector) };
    }
}
