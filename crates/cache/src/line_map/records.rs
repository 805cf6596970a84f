//! The memory of the extents: a word and a link each, in as few bytes as both need together.
//!
//! **Not here**: the meaning of the word.

use crate::types::number_bits;
use headpond_block::prefetch;

/// Records are read and written in pieces of this, from their first byte on, whatever they take: so
/// much follows the last one. A piece that was just written is read as it was written, or the
/// processor would wait until it, and all that was stored before it, is in its cache.
const PIECE_BYTES: usize = size_of::<u64>();

/// Words and links, all zero and without a next one at first.
pub(super) struct Records {
    bytes: Box<[u8]>,
    len: usize,
    record_bytes: usize,
    /// The bits of a word: all that the link leaves.
    word_mask: u64,
    /// The bit in which the link begins, behind the word.
    link_start: u32,
    /// The bits of a link: the number of the next one and one more, or zero.
    link_mask: u64,
}

impl Records {
    /// So many, with words of so many bits.
    pub fn new(len: usize, word_bits: u32) -> Self {
        assert!(word_bits <= u64::BITS && len < u32::MAX as usize);
        let record_bytes = record_bytes(len, word_bits);
        let link_bits = link_bits(len);
        let word_bits = (record_bytes as u32 * u8::BITS - link_bits).min(u64::BITS);
        Self {
            bytes: vec![0; len * record_bytes + 2 * PIECE_BYTES].into(),
            len,
            record_bytes,
            word_mask: u64::MAX >> (u64::BITS - word_bits),
            link_start: word_bits,
            link_mask: u64::MAX >> (u64::BITS - link_bits),
        }
    }

    /// The words have room for so many bits from now on.
    pub fn widen(&mut self, word_bits: u32) {
        if word_bits <= self.word_mask.count_ones() {
            return;
        }
        let mut wider = Self::new(self.len, word_bits);
        for at in 0..self.len as u32 {
            wider.set(at, self.word(at), self.next(at));
        }
        *self = wider;
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Of one.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    #[inline]
    pub fn word(&self, at: u32) -> u64 {
        self.piece(self.offset(at)) & self.word_mask
    }

    /// Nothing but the word itself changes.
    #[inline]
    pub fn set_word(&mut self, at: u32, word: u64) {
        assert!(word & !self.word_mask == 0, "a word of the core's width");
        self.change_piece(self.offset(at), self.word_mask, word);
    }

    /// Where there is no next one, [`NONE`](super::extents::NONE).
    #[inline]
    pub fn next(&self, at: u32) -> u32 {
        self.both(at).1
    }

    /// Word and link together.
    #[inline]
    pub fn both(&self, at: u32) -> (u64, u32) {
        let offset = self.offset(at);
        let low = self.piece(offset);
        let link = match self.is_long() {
            false => low >> self.link_start,
            true => {
                let high = self.piece(offset + PIECE_BYTES);
                ((u128::from(high) << u64::BITS | u128::from(low)) >> self.link_start) as u64
            }
        };
        (low & self.word_mask, ((link & self.link_mask) as u32).wrapping_sub(1))
    }

    /// Nothing but the link itself changes.
    #[inline]
    pub fn set_next(&mut self, at: u32, next: u32) {
        let link = u64::from(next.wrapping_add(1));
        assert!(link & !self.link_mask == 0, "one of those that there are");
        let offset = self.offset(at);
        if !self.is_long() {
            let (mask, link) = (self.link_mask << self.link_start, link << self.link_start);
            return self.change_piece(offset, mask, link);
        }
        let in_place = |bits: u64| u128::from(bits) << self.link_start;
        let (mask, link) = (in_place(self.link_mask), in_place(link));
        self.change_piece(offset, mask as u64, link as u64);
        let (mask, link) = ((mask >> u64::BITS) as u64, (link >> u64::BITS) as u64);
        self.change_piece(offset + PIECE_BYTES, mask, link);
    }

    #[inline]
    pub fn set(&mut self, at: u32, word: u64, next: u32) {
        self.set_word(at, word);
        self.set_next(at, next);
    }

    /// One will be looked at soon, where there is such a one.
    #[inline]
    pub fn prefetch(&self, at: u32) {
        prefetch(self.bytes.as_ptr().wrapping_add(self.offset(at)));
    }

    /// Whether a link goes on behind the first piece.
    #[inline]
    fn is_long(&self) -> bool {
        self.record_bytes > PIECE_BYTES
    }

    #[inline]
    fn piece(&self, byte: usize) -> u64 {
        let piece = self.bytes[byte..byte + PIECE_BYTES].try_into().expect("a piece");
        u64::from_le_bytes(piece)
    }

    /// Puts these bits in the place of those of a mask.
    #[inline]
    fn change_piece(&mut self, byte: usize, mask: u64, bits: u64) {
        let piece = &mut self.bytes[byte..byte + PIECE_BYTES];
        let piece: &mut [u8; PIECE_BYTES] = piece.try_into().expect("a piece");
        *piece = (u64::from_le_bytes(*piece) & !mask | bits).to_le_bytes();
    }

    #[inline]
    fn offset(&self, at: u32) -> usize {
        at as usize * self.record_bytes
    }
}

/// Bytes of one of so many records, with words of so many bits.
fn record_bytes(len: usize, word_bits: u32) -> usize {
    (word_bits + link_bits(len)).div_ceil(u8::BITS) as usize
}

/// For the numbers from one to `len`, and zero.
fn link_bits(len: usize) -> u32 {
    number_bits(len as u64 + 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::extents::NONE;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_keeps_what_was_set_whatever_becomes_of_its_neighbours(
            bits in 1u32..=64,
            more in 0u32..=64,
            steps in prop::collection::vec((0u32..9, any::<u64>(), 0u32..10), 1..100),
        ) {
            let (mut records, mut twin) = (Records::new(9, bits), [(0, NONE); 9]);
            for (index, (at, word, next)) in steps.into_iter().enumerate() {
                if index == 50 {
                    records.widen(bits.max(more));
                }
                let word = word >> (u64::BITS - bits);
                let next = if next == 9 { NONE } else { next };
                records.set(at, word, next);
                twin[at as usize] = (word, next);
                let found = std::array::from_fn(|at| (records.word(at as u32), records.next(at as u32)));
                prop_assert_eq!(found, twin);
                let both = std::array::from_fn(|at| records.both(at as u32));
                prop_assert_eq!(both, twin);
            }
        }
    }

    /// What a cache takes for each place, before arrays of 64 GiB, of 1, 16 and 256 TiB.
    #[test]
    fn a_record_takes_as_many_bytes_as_its_bits_need() {
        let bytes = |gib: usize, core_bits: u32| record_bytes(gib << 18, 16 + core_bits);
        assert_eq!([24u32, 28, 32, 36].map(|bits| bytes(16, bits)), [8, 9, 9, 10]);
        assert_eq!([28u32, 32, 36].map(|bits| bytes(900, bits)), [9, 10, 10]);
        assert_eq!([28u32, 32, 36].map(|bits| bytes(1100, bits)), [10, 10, 11]);
    }
}
