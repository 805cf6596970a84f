//! A range of the array, split at strip boundaries.
//!
//! **Not here**: which copy or plan serves a piece (`array`).

use headpond_block::ByteRange;
use smallvec::SmallVec;

use crate::layout::{Layout, Strip, StripCell, Stripe};
use crate::plan::{Extent, Span};

/// A part of one data strip, and where it is in the range that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stripe: Stripe,
    /// The data strip and the part of it.
    pub extent: Extent,
    /// Bytes from the start of the range.
    pub at: usize,
}

/// The pieces of a range in one stripe.
pub type StripePieces = SmallVec<[Piece; 8]>;

impl Piece {
    /// The first data strip of a stripe.
    pub fn whole(layout: &Layout, stripe: Stripe) -> Piece {
        Piece { stripe, extent: Extent { strip: 0, span: 0..layout.strip_bytes() }, at: 0 }
    }

    /// Bytes of the piece.
    pub fn len_bytes(&self) -> usize {
        self.extent.span.len()
    }

    /// Its offset in the memory of the request for the whole range.
    pub fn memory(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.len_bytes()
    }

    /// Where its strip lies. For mirrors this is the first copy; the others are in the same row.
    pub fn cell(&self, layout: &Layout) -> StripCell {
        layout.cell(self.stripe, Strip::Data(self.extent.strip))
    }

    /// Where the piece begins in the data area of a member that has its strip in this row.
    pub fn member_offset(&self, layout: &Layout, row: u64) -> u64 {
        layout.row_start(row) + u64::from(self.extent.span.start)
    }
}

/// Cuts a range of the array into pieces, ascending.
pub fn pieces(layout: &Layout, range: ByteRange) -> impl Iterator<Item = Piece> + '_ {
    let strip_bytes = u64::from(layout.strip_bytes());
    range.split_at_multiples(strip_bytes).map(move |part| {
        let place = layout.place(part.start());
        let span: Span = place.within..place.within + part.len() as u32;
        let extent = Extent { strip: place.strip, span };
        Piece { stripe: place.stripe, extent, at: (part.start() - range.start()) as usize }
    })
}

/// Cuts a range of the array into the pieces of each stripe, ascending.
pub fn stripes(layout: &Layout, range: ByteRange) -> impl Iterator<Item = StripePieces> + '_ {
    range.split_at_multiples(layout.stripe_bytes()).map(move |part| {
        let skipped = (part.start() - range.start()) as usize;
        pieces(layout, part).map(|piece| Piece { at: piece.at + skipped, ..piece }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_cover_the_range_in_order(start in 0_u64..200_000, len in 1_u64..200_000) {
            let layout = Layout::new(Level::Raid60, 12, 3, 4096, 1 << 20).unwrap();
            let (mut at, mut last) = (0, None);
            for group in stripes(&layout, ByteRange::at(start, len)) {
                prop_assert!(group.iter().all(|piece| piece.stripe == group[0].stripe));
                prop_assert!(last < Some(group[0].stripe));
                last = Some(group[0].stripe);
                for piece in group {
                    prop_assert_eq!(piece.at, at);
                    let place = layout.place(start + at as u64);
                    prop_assert_eq!((place.strip, place.within), {
                        (piece.extent.strip, piece.extent.span.start)
                    });
                    at += piece.len_bytes();
                }
            }
            prop_assert_eq!(at as u64, len);
        }
    }
}
