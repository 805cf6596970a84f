//! A checked range of bytes on a device.

use std::fmt;

/// A half-open range of bytes `[start, end)` whose end is known to fit into 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteRange {
    start: u64,
    len: u64,
}

impl ByteRange {
    pub const EMPTY: ByteRange = ByteRange { start: 0, len: 0 };

    /// The range of `len` bytes at `start`, or `None` where its end would overflow.
    #[inline]
    pub const fn new(start: u64, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(_) => Some(Self { start, len }),
            None => None,
        }
    }

    /// The range of `len` bytes at `start`.
    ///
    /// # Panics
    /// Where its end overflows: for addresses that were already checked, never for a client's.
    #[inline]
    pub const fn at(start: u64, len: u64) -> Self {
        match Self::new(start, len) {
            Some(range) => range,
            None => panic!("byte range overflows 64 bits"),
        }
    }

    /// The range from `start` up to, not including, `end`.
    ///
    /// # Panics
    /// Where `end` lies before `start`.
    #[inline]
    pub const fn between(start: u64, end: u64) -> Self {
        assert!(start <= end, "byte range ends before it starts");
        Self { start, len: end - start }
    }

    #[inline]
    pub const fn start(self) -> u64 {
        self.start
    }

    #[inline]
    pub const fn end(self) -> u64 {
        self.start + self.len
    }

    #[inline]
    pub const fn len(self) -> u64 {
        self.len
    }

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline]
    pub const fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    pub const fn contains_byte(self, byte: u64) -> bool {
        self.start <= byte && byte < self.end()
    }

    /// Whether both ranges share at least one byte.
    #[inline]
    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end() && other.start < self.end() && self.len > 0 && other.len > 0
    }

    /// The bytes that both ranges share; empty where there are none.
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        if start < end { ByteRange::between(start, end) } else { ByteRange::EMPTY }
    }

    #[inline]
    pub const fn is_aligned(self, unit_bytes: u64) -> bool {
        self.start.is_multiple_of(unit_bytes) && self.len.is_multiple_of(unit_bytes)
    }

    /// The smallest range of whole units that holds this one.
    ///
    /// # Panics
    /// Where rounding up overflows 64 bits.
    #[inline]
    pub const fn align_outward(self, unit_bytes: u64) -> ByteRange {
        let start = self.start - self.start % unit_bytes;
        ByteRange::between(start, self.end().next_multiple_of(unit_bytes))
    }

    /// The same length, `by` bytes further on.
    #[inline]
    pub const fn shifted(self, by: u64) -> ByteRange {
        ByteRange::at(self.start + by, self.len)
    }

    /// The pieces of this range between multiples of `unit_bytes`, in order.
    pub fn split_at_multiples(self, unit_bytes: u64) -> impl Iterator<Item = ByteRange> {
        assert!(unit_bytes > 0);
        let mut at = self.start;
        std::iter::from_fn(move || {
            if at >= self.end() {
                return None;
            }
            let next = (at - at % unit_bytes).saturating_add(unit_bytes).min(self.end());
            let piece = ByteRange::between(at, next);
            at = next;
            Some(piece)
        })
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.len)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {} to {}", self.start, self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overflowing_range_is_refused() {
        assert_eq!(ByteRange::new(u64::MAX, 1), None);
        assert!(ByteRange::new(u64::MAX - 1, 1).is_some());
    }

    #[test]
    fn empty_ranges_overlap_nothing() {
        assert!(!ByteRange::at(5, 0).overlaps(ByteRange::at(0, 10)));
    }

    proptest! {
        #[test]
        fn split_pieces_cover_the_range_and_cross_no_multiple(
            start in 0u64..1 << 40, len in 0u64..100_000, unit in 1u64..9000,
        ) {
            let range = ByteRange::at(start, len);
            let mut at = start;
            for piece in range.split_at_multiples(unit) {
                prop_assert_eq!(piece.start(), at);
                prop_assert!(!piece.is_empty());
                prop_assert_eq!(piece.start() / unit, (piece.end() - 1) / unit);
                at = piece.end();
            }
            prop_assert_eq!(at, range.end());
        }
    }
}
