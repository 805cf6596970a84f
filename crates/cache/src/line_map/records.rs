//! The memory of the extents: a link of four bytes and a word each, in as few bytes as the word
//! needs.
//!
//! **Not here**: what the word says.

use headpond_block::prefetch;

const LINK_BYTES: usize = size_of::<u32>();
/// Words are read and written whole, whatever they take: so much follows the last one.
const WORD_BYTES: usize = size_of::<u64>();

/// Words and links, all zero at first.
pub(super) struct Records {
    bytes: Box<[u8]>,
    len: usize,
    word_bytes: usize,
    /// The bits of a word.
    mask: u64,
}

impl Records {
    /// So many, with words of so many bits.
    pub fn new(len: usize, word_bits: u32) -> Self {
        assert!(word_bits <= u64::BITS);
        let word_bytes = word_bits.div_ceil(u8::BITS) as usize;
        let bytes = vec![0; len * (LINK_BYTES + word_bytes) + WORD_BYTES].into();
        let mask = u64::MAX >> (u64::BITS - u8::BITS * word_bytes as u32);
        Self { bytes, len, word_bytes, mask }
    }

    /// The words have room for so many bits from now on.
    pub fn widen(&mut self, word_bits: u32) {
        let mut wider = Self::new(self.len, word_bits);
        if wider.word_bytes <= self.word_bytes {
            return;
        }
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
        LINK_BYTES + self.word_bytes
    }

    #[inline]
    pub fn word(&self, at: u32) -> u64 {
        let at = self.offset(at) + LINK_BYTES;
        let word: [u8; WORD_BYTES] = self.bytes[at..at + WORD_BYTES].try_into().expect("a word");
        u64::from_le_bytes(word) & self.mask
    }

    /// Nothing but the word itself changes.
    #[inline]
    pub fn set_word(&mut self, at: u32, word: u64) {
        let (at, mask) = (self.offset(at) + LINK_BYTES, self.mask);
        assert!(word & !mask == 0, "a word of the core's width");
        let place: &mut [u8; WORD_BYTES] =
            (&mut self.bytes[at..at + WORD_BYTES]).try_into().expect("a word");
        *place = (u64::from_le_bytes(*place) & !mask | word).to_le_bytes();
    }

    #[inline]
    pub fn next(&self, at: u32) -> u32 {
        let at = self.offset(at);
        u32::from_le_bytes(self.bytes[at..at + LINK_BYTES].try_into().expect("a link"))
    }

    /// Word and link together.
    #[inline]
    pub fn both(&self, at: u32) -> (u64, u32) {
        let at = self.offset(at);
        let record = &self.bytes[at..at + LINK_BYTES + WORD_BYTES];
        let (link, word) = record.split_at(LINK_BYTES);
        let word = u64::from_le_bytes(word.try_into().expect("a word"));
        (word & self.mask, u32::from_le_bytes(link.try_into().expect("a link")))
    }

    #[inline]
    pub fn set_next(&mut self, at: u32, next: u32) {
        let at = self.offset(at);
        self.bytes[at..at + LINK_BYTES].copy_from_slice(&next.to_le_bytes());
    }

    #[inline]
    pub fn set(&mut self, at: u32, word: u64, next: u32) {
        self.set_word(at, word);
        self.set_next(at, next);
    }

    /// One will be looked at soon, where there is such a one.
    #[inline]
    pub fn foresee(&self, at: u32) {
        prefetch(self.bytes.as_ptr().wrapping_add(self.offset(at)));
    }

    #[inline]
    fn offset(&self, at: u32) -> usize {
        at as usize * (LINK_BYTES + self.word_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_keeps_what_was_set_whatever_becomes_of_its_neighbours(
            bits in 1u32..=64,
            more in 0u32..=64,
            steps in prop::collection::vec((0u32..9, any::<u64>(), any::<u32>()), 1..100),
        ) {
            let (mut records, mut twin) = (Records::new(9, bits), [(0, 0); 9]);
            for (index, (at, word, next)) in steps.into_iter().enumerate() {
                if index == 50 {
                    records.widen(bits.max(more));
                }
                let word = word >> (u64::BITS - bits);
                records.set(at, word, next);
                twin[at as usize] = (word, next);
                let found = std::array::from_fn(|at| (records.word(at as u32), records.next(at as u32)));
                prop_assert_eq!(found, twin);
                let both = std::array::from_fn(|at| records.both(at as u32));
                prop_assert_eq!(both, twin);
            }
        }
    }
}
