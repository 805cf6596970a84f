//! How a volume's addresses are dealt out to its slices.

use crate::description::SLICES_MAX;
use headpond_block::ByteRange;

/// Extents are at least this long, so that most requests fall into one.
const EXTENT_BYTES_MIN: u64 = 4 << 20;

/// Interleaved extents: extent `n` belongs to slice `n mod slices`.
///
/// An extent is a multiple of the core's stripe, so that no stripe is shared by two slices. The
/// format depends on the number of slices and on the stripe alone, never on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    slices: u16,
    extent_bytes: u64,
}

impl Slicing {
    /// Slices over a core whose full stripe holds `stripe_bytes`.
    ///
    /// # Panics
    /// Where there are no slices, too many, or the stripe is empty.
    pub fn new(slices: u16, stripe_bytes: u64) -> Self {
        assert!((1..=SLICES_MAX).contains(&slices) && stripe_bytes > 0);
        let extent_bytes = EXTENT_BYTES_MIN.next_multiple_of(stripe_bytes);
        Self { slices, extent_bytes }
    }

    pub fn slices(self) -> u16 {
        self.slices
    }

    pub fn slice_of(self, byte: u64) -> usize {
        (byte / self.extent_bytes % u64::from(self.slices)) as usize
    }

    /// The slice that owns all of `range`, where there is one.
    pub fn single(self, range: ByteRange) -> Option<usize> {
        let last = range.end().saturating_sub(1).max(range.start());
        let is_single =
            self.slices == 1 || range.start() / self.extent_bytes == last / self.extent_bytes;
        is_single.then(|| self.slice_of(range.start()))
    }

    /// The parts of `range` and their slices, in order of address.
    pub fn split(self, range: ByteRange) -> impl Iterator<Item = (usize, ByteRange)> {
        let pieces = range.split_at_multiples(self.extent_bytes);
        pieces.map(move |piece| (self.slice_of(piece.start()), piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_has_one_slice_and_no_stripe_has_two(
            slices in 1u16..=16, strips in 1u64..9, start in 0u64..1 << 40, len in 1u64..64 << 20,
        ) {
            let stripe = strips * 65536;
            let slicing = Slicing::new(slices, stripe);
            let mut at = start;
            for (slice, part) in slicing.split(ByteRange::at(start, len)) {
                prop_assert_eq!(part.start(), at);
                prop_assert_eq!(slicing.single(part), Some(slice));
                at = part.end();
            }
            prop_assert_eq!(at, start + len);
            let stripe_start = start - start % stripe;
            let stripe_end = stripe_start + stripe - 1;
            prop_assert_eq!(slicing.slice_of(stripe_start), slicing.slice_of(stripe_end));
        }
    }
}
