//! One set of parity routines for one kind of processor, and the choice among them.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Makes a sum of sources, or adds them to it.
pub(super) type Add = fn(&mut [u8], &[&[u8]]);
/// Makes P and Q of data strips, or adds them to it.
pub(super) type Pq = fn(&mut [u8], &mut [u8], &[Option<&[u8]>]);
/// Adds a multiple of a source to a sum.
pub(super) type AddMultiple = fn(&mut [u8], u8, &[u8]);
/// Multiplies a strip in place.
pub(super) type Scale = fn(&mut [u8], u8);
/// Solves two strips from the remainders in P and Q, in their place.
pub(super) type SolveTwo = fn(&mut [u8], &mut [u8], u8, u8);

/// The parity routines for one kind of processor. All slices of a call have the same length.
#[derive(Debug)]
pub struct Kernel {
    pub(super) name: &'static str,
    pub(super) sum: Add,
    pub(super) add: Add,
    pub(super) pq: Pq,
    pub(super) add_pq: Pq,
    pub(super) add_multiple: AddMultiple,
    pub(super) scale: Scale,
    pub(super) solve_two: SolveTwo,
}

impl Kernel {
    /// What it needs of the processor, for a report.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// See [`super::sum`].
    pub fn sum(&self, sum: &mut [u8], sources: &[&[u8]]) {
        (self.sum)(sum, sources);
    }

    /// See [`super::add`].
    pub fn add(&self, sum: &mut [u8], sources: &[&[u8]]) {
        (self.add)(sum, sources);
    }

    /// See [`super::pq`].
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
        (self.pq)(p, q, data);
    }

    /// See [`super::add_pq`].
    pub fn add_pq(&self, p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
        (self.add_pq)(p, q, data);
    }

    /// See [`super::add_multiple`].
    pub fn add_multiple(&self, sum: &mut [u8], factor: u8, source: &[u8]) {
        (self.add_multiple)(sum, factor, source);
    }

    /// Multiplies a strip by `factor`, in place.
    pub fn scale(&self, strip: &mut [u8], factor: u8) {
        (self.scale)(strip, factor);
    }

    /// Makes `q` the sum of `of_p` times `p` and `of_q` times `q`, and adds that to `p`.
    pub fn solve_two(&self, p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
        (self.solve_two)(p, q, of_p, of_q);
    }
}

/// The kernels that this processor can run, the fastest first.
pub fn available() -> Vec<&'static Kernel> {
    let mut kernels = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        kernels.extend(avx512::kernel());
        kernels.extend(avx2::kernel());
    }
    #[cfg(target_arch = "aarch64")]
    kernels.extend(neon::kernel());
    kernels.push(&portable::KERNEL);
    kernels
}

/// The kernel in use: the fastest that this processor can run.
pub fn active() -> &'static Kernel {
    static ACTIVE: OnceLock<&'static Kernel> = OnceLock::new();
    ACTIVE.get_or_init(|| available()[0])
}

#[cfg(test)]
mod tests {
    use super::super::field::{multiply, power_of_two};
    use super::*;
    use proptest::prelude::*;

    fn strips(count: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
        (0_usize..1400).prop_flat_map(move |len| {
            prop::collection::vec(prop::collection::vec(any::<u8>(), len), count..=count)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_kernel_adds_like_the_naive_field(
            strips in (1_usize..8).prop_flat_map(strips),
        ) {
            let (first, rest) = strips.split_first().unwrap();
            let sources: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
            let expected: Vec<u8> =
                (0..first.len()).map(|i| strips.iter().fold(0, |sum, s| sum ^ s[i])).collect();
            for kernel in available() {
                let mut sum = first.clone();
                kernel.add(&mut sum, &sources);
                prop_assert_eq!(&sum, &expected, "{}", kernel.name());
                kernel.sum(&mut sum, &sources);
                kernel.add(&mut sum, &[first]);
                prop_assert_eq!(&sum, &expected, "{}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_makes_p_and_q_like_the_naive_field(
            strips in (2_usize..14).prop_flat_map(strips), gap in 0_usize..14,
        ) {
            let (initial, data) = strips.split_at(2);
            let data: Vec<Option<&[u8]>> = data
                .iter()
                .enumerate()
                .map(|(k, strip)| (k != gap).then_some(strip.as_slice()))
                .collect();
            let (mut p, mut q) = (initial[0].clone(), initial[1].clone());
            for (k, strip) in data.iter().enumerate() {
                for (i, byte) in strip.iter().flat_map(|strip| strip.iter()).enumerate() {
                    p[i] ^= byte;
                    q[i] ^= multiply(power_of_two(k as u32), *byte);
                }
            }
            for kernel in available() {
                let (mut ours_p, mut ours_q) = (initial[0].clone(), initial[1].clone());
                kernel.add_pq(&mut ours_p, &mut ours_q, &data);
                prop_assert_eq!(&ours_p, &p, "{}", kernel.name());
                prop_assert_eq!(&ours_q, &q, "{}", kernel.name());
                kernel.pq(&mut ours_p, &mut ours_q, &data);
                kernel.add_pq(&mut ours_p, &mut ours_q, &data);
                prop_assert!(ours_p.iter().chain(&ours_q).all(|byte| *byte == 0));
            }
        }

        #[test]
        fn every_kernel_solves_like_the_naive_field(
            strips in strips(2), of_p in any::<u8>(), of_q in any::<u8>(),
        ) {
            let scaled: Vec<u8> = strips[0].iter().map(|byte| multiply(of_p, *byte)).collect();
            let both = || strips[0].iter().zip(&strips[1]);
            let first: Vec<u8> =
                both().map(|(p, q)| multiply(of_p, *p) ^ multiply(of_q, *q)).collect();
            let second: Vec<u8> = strips[0].iter().zip(&first).map(|(p, x)| p ^ x).collect();
            for kernel in available() {
                let (mut p, mut q) = (strips[0].clone(), strips[1].clone());
                kernel.scale(&mut p, of_p);
                prop_assert_eq!(&p, &scaled, "{}", kernel.name());
                p.clone_from(&strips[0]);
                kernel.solve_two(&mut p, &mut q, of_p, of_q);
                prop_assert_eq!(&q, &first, "{}", kernel.name());
                prop_assert_eq!(&p, &second, "{}", kernel.name());
            }
        }

        #[test]
        fn every_kernel_multiplies_like_the_naive_field(
            strips in strips(2), factor in any::<u8>(),
        ) {
            let expected: Vec<u8> = strips[0]
                .iter()
                .zip(&strips[1])
                .map(|(sum, byte)| sum ^ multiply(factor, *byte))
                .collect();
            for kernel in available() {
                let mut sum = strips[0].clone();
                kernel.add_multiple(&mut sum, factor, &strips[1]);
                prop_assert_eq!(&sum, &expected, "{}", kernel.name());
            }
        }
    }
}
