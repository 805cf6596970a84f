//! One file for each path of a request through the cache.

mod around;
mod discard;
mod entry;
mod flush;
mod past;
mod read;
mod read_ahead;
mod read_hit;
mod read_insert;
mod read_miss;
mod through_at_once;
mod unaligned;
mod write_back;
mod write_through;

pub(crate) use read_ahead::Ahead;
pub use read_ahead::Coverage;

use headpond_block::{BLOCK_BYTES, ByteRange};

/// A range cut at block boundaries: whole blocks in the middle, parts of blocks at the ends.
pub(crate) struct Cut {
    pub head: ByteRange,
    pub middle: ByteRange,
    pub tail: ByteRange,
}

impl Cut {
    pub fn new(range: ByteRange) -> Self {
        let first = range.start().next_multiple_of(BLOCK_BYTES);
        let last = range.end() - range.end() % BLOCK_BYTES;
        if first > last {
            // Within one block.
            return Self { head: range, middle: ByteRange::EMPTY, tail: ByteRange::EMPTY };
        }
        Self {
            head: ByteRange::between(range.start(), first),
            middle: ByteRange::between(first, last),
            tail: ByteRange::between(last, range.end()),
        }
    }

    /// The parts of blocks.
    pub fn ends(&self) -> impl Iterator<Item = ByteRange> {
        [self.head, self.tail].into_iter().filter(|end| !end.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BlockRun;

    #[test]
    fn cut_covers_the_range() {
        for (start, len) in [(0, 4096), (512, 512), (512, 4096), (3584, 8704), (4096, 12288)] {
            let range = ByteRange::at(start, len);
            let cut = Cut::new(range);
            assert_eq!(cut.head.len() + cut.middle.len() + cut.tail.len(), len);
            assert!(cut.middle.is_aligned(4096));
            assert!(cut.ends().all(|end| BlockRun::touching(end).count == 1));
        }
    }
}
