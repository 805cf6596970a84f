//! Parity eight bytes at a time in plain 64-bit words, for any processor; also the tail of the
//! others.

use super::field;
use super::kernel::Kernel;

pub(super) static KERNEL: Kernel =
    Kernel { name: "portable", sum, add, pq, add_pq, add_multiple, scale, solve_two };

const WORD: usize = size_of::<u64>();
const LOW_BITS: u64 = 0x1d1d_1d1d_1d1d_1d1d;
const HIGH_BIT: u64 = 0x8080_8080_8080_8080;

pub(super) fn sum(sum: &mut [u8], sources: &[&[u8]]) {
    let Some((first, others)) = sources.split_first() else { return sum.fill(0) };
    sum.copy_from_slice(first);
    add(sum, others);
}

pub(super) fn add(sum: &mut [u8], sources: &[&[u8]]) {
    for source in sources {
        let (words, tail) = source.as_chunks::<WORD>();
        let (sum_words, sum_tail) = sum.as_chunks_mut::<WORD>();
        for (sum, word) in sum_words.iter_mut().zip(words) {
            *sum = (u64::from_ne_bytes(*sum) ^ u64::from_ne_bytes(*word)).to_ne_bytes();
        }
        for (sum, byte) in sum_tail.iter_mut().zip(tail) {
            *sum ^= byte;
        }
    }
}

pub(super) fn pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    p.fill(0);
    q.fill(0);
    add_pq(p, q, data);
}

pub(super) fn add_pq(p: &mut [u8], q: &mut [u8], data: &[Option<&[u8]>]) {
    let words = p.len() / WORD * WORD;
    for at in (0..words).step_by(WORD) {
        let (sum, weighted) = horner(data, |strip| load(&strip[at..at + WORD]));
        store(&mut p[at..at + WORD], sum);
        store(&mut q[at..at + WORD], weighted);
    }
    for at in words..p.len() {
        let (sum, weighted) = horner(data, |strip| u64::from(strip[at]));
        p[at] ^= sum as u8;
        q[at] ^= weighted as u8;
    }
}

pub(super) fn add_multiple(sum: &mut [u8], factor: u8, source: &[u8]) {
    let (words, tail) = source.as_chunks::<WORD>();
    let (sum_words, sum_tail) = sum.as_chunks_mut::<WORD>();
    for (sum, word) in sum_words.iter_mut().zip(words) {
        let product = multiply_word(factor, u64::from_ne_bytes(*word));
        *sum = (u64::from_ne_bytes(*sum) ^ product).to_ne_bytes();
    }
    for (sum, byte) in sum_tail.iter_mut().zip(tail) {
        *sum ^= field::multiply(factor, *byte);
    }
}

pub(super) fn scale(strip: &mut [u8], factor: u8) {
    let (words, tail) = strip.as_chunks_mut::<WORD>();
    for word in words {
        *word = multiply_word(factor, u64::from_ne_bytes(*word)).to_ne_bytes();
    }
    for byte in tail {
        *byte = field::multiply(factor, *byte);
    }
}

pub(super) fn solve_two(p: &mut [u8], q: &mut [u8], of_p: u8, of_q: u8) {
    scale(q, of_q);
    add_multiple(q, of_p, p);
    add(p, &[q]);
}

/// The sum and the weighted sum of one word of each strip, the last strip first (Horner's rule).
fn horner(data: &[Option<&[u8]>], word: impl Fn(&[u8]) -> u64) -> (u64, u64) {
    data.iter().rev().fold((0, 0), |(sum, weighted), strip| {
        let word = strip.map_or(0, &word);
        (sum ^ word, double(weighted) ^ word)
    })
}

fn multiply_word(factor: u8, word: u64) -> u64 {
    let (mut factor, mut word, mut sum) = (factor, word, 0);
    while factor != 0 {
        if factor & 1 != 0 {
            sum ^= word;
        }
        word = double(word);
        factor >>= 1;
    }
    sum
}

/// Eight bytes, each times two.
fn double(word: u64) -> u64 {
    let overflow = word & HIGH_BIT;
    let mask = (overflow << 1).wrapping_sub(overflow >> 7);
    ((word ^ overflow) << 1) ^ (mask & LOW_BITS)
}

fn load(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("a word has eight bytes"))
}

fn store(bytes: &mut [u8], word: u64) {
    let sum = load(bytes) ^ word;
    bytes.copy_from_slice(&sum.to_ne_bytes());
}
