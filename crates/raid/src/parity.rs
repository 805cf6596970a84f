//! Parity over GF(2^8): P and Q of a stripe, deltas, and the recovery of lost strips.
//!
//! P is the sum of the data strips, Q the sum of `2^k` times data strip `k`, in the field with the
//! polynomial 0x11d: the same bytes as Linux md's.
//!
//! The arithmetic comes in four *kernels* (AVX-512 with GFNI, AVX2, NEON, portable), one of which
//! is chosen at the first use; all of them are tested against the naive field of `field`.
//!
//! **Not here**: which strips to read (`plan`), buffers (`array::columns`).
//! **Source**: H. P. Anvin, "The mathematics of RAID-6" (2004-2011); its names A and B are used
//! here.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod field;
mod kernel;
mod locate;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod recover;
mod whole_vectors;

pub use kernel::{Kernel, active, available};
pub use locate::{Culprit, locate};
pub use recover::{Lost, recover};

/// The coefficient of data strip `k` in Q.
pub fn coefficient(k: u16) -> u8 {
    field::power_of_two(u32::from(k))
}

/// Makes `sum` the sum of the sources. What was in it before does not matter.
///
/// # Panics
/// Where the lengths differ.
pub fn sum(sum: &mut [u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|source| source.len() == sum.len()));
    active().sum(sum, sources);
}

/// Adds every source to `sum`.
///
/// # Panics
/// Where the lengths differ.
pub fn add(sum: &mut [u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|source| source.len() == sum.len()));
    active().add(sum, sources);
}

/// Makes `p` the sum of the data strips and `q` the sum of `2^k` times data strip `k`; `None` is a
/// strip of zeros. What was in both before does not matter.
///
/// # Panics
/// Where the lengths differ.
pub fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    assert_eq!(p.len(), q.len());
    assert!(data.iter().flatten().all(|strip| strip.len() == p.len()));
    active().pq(p, q, data);
}

/// Adds the data strips to `p`, and `2^k` times data strip `k` to `q`; `None` is a strip of zeros.
///
/// # Panics
/// Where the lengths differ.
pub fn add_pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    assert_eq!(p.len(), q.len());
    assert!(data.iter().flatten().all(|strip| strip.len() == p.len()));
    active().add_pq(p, q, data);
}

/// Adds `factor` times `source` to `sum`.
///
/// # Panics
/// Where the lengths differ.
pub fn add_multiple(sum: &mut [u8], factor: u8, source: &[u8]) {
    assert_eq!(sum.len(), source.len());
    active().add_multiple(sum, factor, source);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three data strips of four bytes, and md's P and Q of them by hand: with 0x11d, 2 x 0x80 =
    /// 0x1d and 4 x 0x80 = 0x3a.
    #[test]
    fn p_and_q_are_those_of_md() {
        let data: [[u8; 4]; 3] =
            [[0x01, 0x80, 0xff, 0x10], [0x02, 0x80, 0x00, 0x20], [0x03, 0x80, 0x01, 0x40]];
        let (mut p, mut q) = ([0; 4], [0; 4]);
        let strips: Vec<Option<&[u8]>> = data.iter().map(|strip| Some(&strip[..])).collect();
        add_pq(&mut p, &mut q, &strips);
        assert_eq!(p, [0x00, 0x80, 0xfe, 0x70]);
        // Byte 0: 1 + 2x2 + 4x3 = 01 ^ 04 ^ 0c. Byte 1: 80 ^ 1d ^ 3a. Byte 2: ff ^ 00 ^ 04.
        // Byte 3: 10 ^ 40 ^ 4x40 = 10 ^ 40 ^ 1d.
        assert_eq!(q, [0x09, 0xa7, 0xfb, 0x4d]);
    }
}
