//! Where a recorded request goes on a volume of another size.

use crate::load::Fit;
use headpond_block::ByteRange;

/// A place on the volume, and what had to be done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreparedPlace {
    pub range: ByteRange,
    /// It had been recorded somewhere else.
    pub is_wrapped: bool,
    /// Whole logical blocks around what had been recorded.
    pub is_rounded: bool,
}

/// Why a request has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    Skipped,
    Refused,
}

/// The place of the bytes from `start` to `end` on a volume of `size_bytes`.
///
/// # Errors
/// Where they lie outside, and `fit` does not move them.
pub(crate) fn place(
    fit: Fit,
    (start, end): (u64, u64),
    size_bytes: u64,
    block_bytes: u64,
) -> Result<PreparedPlace, NoPlace> {
    let size = size_bytes / block_bytes * block_bytes;
    assert!(size > 0 && start < end, "a volume and a request");
    let first = start / block_bytes * block_bytes;
    // The last block before 2^64 is as far as a request can go.
    let last =
        end.checked_next_multiple_of(block_bytes).unwrap_or(u64::MAX / block_bytes * block_bytes);
    let is_rounded = first != start || last != end;
    if last <= size {
        return Ok(PreparedPlace {
            range: ByteRange::between(first, last),
            is_wrapped: false,
            is_rounded,
        });
    }
    match fit {
        Fit::Skip => Err(NoPlace::Skipped),
        Fit::Refuse => Err(NoPlace::Refused),
        Fit::Wrap => {
            let len = last.saturating_sub(first).max(block_bytes).min(size);
            let range = ByteRange::at((first % size).min(size - len), len);
            Ok(PreparedPlace { range, is_wrapped: true, is_rounded })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_stays_where_it_was() {
        let at = |start, end| place(Fit::Refuse, (start, end), 1 << 20, 4096);
        let whole = PreparedPlace {
            range: ByteRange::at(4096, 4096),
            is_wrapped: false,
            is_rounded: false,
        };
        assert_eq!(at(4096, 8192), Ok(whole));
        assert_eq!(at(5000, 8000), Ok(PreparedPlace { is_rounded: true, ..whole }));
        assert_eq!(at(1 << 20, (1 << 20) + 1), Err(NoPlace::Refused));
    }

    #[test]
    fn what_does_not_is_wrapped_or_left_out() {
        let (volume, block) = (10 * 4096, 4096);
        let wrapped = |start, end| place(Fit::Wrap, (start, end), volume, block).unwrap().range;
        assert_eq!(wrapped(12 * 4096, 13 * 4096), ByteRange::at(2 * 4096, 4096));
        assert_eq!(wrapped(19 * 4096, 22 * 4096), ByteRange::at(7 * 4096, 3 * 4096));
        assert_eq!(wrapped(0, 1 << 40), ByteRange::at(0, volume));
        assert_eq!(place(Fit::Skip, (volume, volume + 1), volume, block), Err(NoPlace::Skipped));
    }

    proptest! {
        #[test]
        fn a_wrapped_request_lies_in_the_volume_and_keeps_its_length(
            start in 0..u64::MAX, len in 1u64..1 << 30, size in 1u64..1 << 45, shift in 9u32..13,
        ) {
            let block = 1 << shift;
            let size = size.max(block);
            let end = start.saturating_add(len);
            let place = place(Fit::Wrap, (start, end), size, block).unwrap();
            prop_assert!(place.range.end() <= size && place.range.is_aligned(block));
            let least = (end - start).min(size / block * block);
            let near_the_top = end > u64::MAX - block;
            prop_assert!(place.range.len() >= least || near_the_top);
            prop_assert!(place.range.len() <= len + 2 * block);
        }
    }
}
