//! Bytes that say which write they belong to.
//!
//! Every sector carries a magic word, the seed of the run, the number of the write and its own
//! address; the rest is a pseudo-random sequence of these, so that each word of a sector proves all
//! of it.

use crate::SECTOR_BYTES;
use crate::draw::mix;

const MAGIC: u64 = u64::from_le_bytes(*b"witness1");
const WORDS: usize = (SECTOR_BYTES / 8) as usize;
const HEADER_WORDS: usize = 4;

/// Makes and recognises the contents of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    seed: u64,
}

/// Numbers the writes of a run, zeroes and discards included; 0 is the state at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Zeroes,
    /// A whole sector of this run, and the address it was written for.
    Written {
        write: WriteId,
        address: u64,
    },
    /// Nothing that was ever written in this run, or part of it.
    Garbage,
}

impl Payload {
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Fills `bytes` with what `write` puts at `address`.
    ///
    /// # Panics
    /// Where address or length are not of whole sectors.
    pub fn fill(&self, write: WriteId, address: u64, bytes: &mut [u8]) {
        assert!(address.is_multiple_of(SECTOR_BYTES), "whole sectors");
        assert!((bytes.len() as u64).is_multiple_of(SECTOR_BYTES), "whole sectors");
        for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
            let at = address + index as u64 * SECTOR_BYTES;
            for (word, bytes) in self.words(write, at).zip(sector.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Recognises the contents of one sector.
    ///
    /// # Panics
    /// Where `sector` is not one sector long.
    pub fn identify(&self, sector: &[u8]) -> Content {
        assert_eq!(sector.len() as u64, SECTOR_BYTES, "one sector");
        let word = |index: usize| {
            u64::from_le_bytes(sector[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
        };
        if sector.iter().all(|&byte| byte == 0) {
            return Content::Zeroes;
        }
        let (write, address) = (WriteId(word(2)), word(3));
        let is_whole = self.words(write, address).enumerate().all(|(i, w)| w == word(i));
        if is_whole { Content::Written { write, address } } else { Content::Garbage }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether bytes begin as a sector of whichever run does.
    pub fn is_of_any_run(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_le_bytes())
    }

    /// The run that a sector is of, and what it holds; `None` where it is no whole sector of any.
    ///
    /// # Panics
    /// Where `sector` is not one sector long.
    pub fn of_sector(sector: &[u8]) -> Option<(Self, Content)> {
        let seed = u64::from_le_bytes(sector[8..16].try_into().expect("eight bytes"));
        let payload = Self::new(seed);
        match payload.identify(sector) {
            content @ Content::Written { .. } => Some((payload, content)),
            _ => None,
        }
    }

    /// Whether a sector carries the seed of this run, whole or not.
    pub fn begins_like(&self, sector: &[u8]) -> bool {
        sector[8..].starts_with(&self.seed.to_le_bytes())
    }

    fn words(&self, write: WriteId, address: u64) -> impl Iterator<Item = u64> {
        let header = [MAGIC, self.seed, write.0, address];
        let mut state = header.iter().fold(0, |state, word| mix(state ^ word));
        let body = std::iter::repeat_with(move || {
            state = mix(state);
            state
        });
        header.into_iter().chain(body.take(WORDS - HEADER_WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_its_write_and_address() {
        let payload = Payload::new(7);
        let mut bytes = vec![0; 8192];
        payload.fill(WriteId(42), 4096, &mut bytes);
        for (index, sector) in bytes.chunks(512).enumerate() {
            let address = 4096 + index as u64 * 512;
            let expected = Content::Written { write: WriteId(42), address };
            assert_eq!(payload.identify(sector), expected);
        }
    }

    #[test]
    fn one_changed_bit_is_garbage() {
        let payload = Payload::new(7);
        let mut sector = vec![0; 512];
        payload.fill(WriteId(42), 0, &mut sector);
        for bit in 0..4096 {
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(payload.identify(&sector), Content::Garbage, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Payload::new(8).identify(&sector), Content::Garbage, "another run's");
        assert_eq!(payload.identify(&[0; 512]), Content::Zeroes);
    }
}
