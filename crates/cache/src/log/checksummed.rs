//! Which blocks of the log have a checksum.

use super::Log;
use crate::checksum::{crc32c_of_block, push_block_checksums};
use crate::types::{SegmentIndex, Sequence, SlotIndex};
use headpond_block::{BLOCK_BYTES, Buffers};

/// Segments whose blocks all have one. In memory that is trusted none are computed, until that is
/// wanted.
pub(super) struct Checksummed {
    /// Those whose first record is this one or a later one; `None`: none, and none are computed.
    from: Option<Sequence>,
}

impl Default for Checksummed {
    /// All of them.
    fn default() -> Self {
        Self { from: Some(Sequence(0)) }
    }
}

impl Checksummed {
    /// Adds the checksum of each block, or as many zeros.
    pub fn push(&self, buffers: &Buffers, into: &mut Vec<u32>) {
        match self.from {
            Some(_) => push_block_checksums(buffers, into),
            None => {
                let blocks = buffers.len_bytes() / BLOCK_BYTES as usize;
                into.extend(std::iter::repeat_n(0, blocks));
            }
        }
    }

    pub fn of_block(&self, block: &Buffers) -> u32 {
        if self.from.is_some() { crc32c_of_block(block) } else { 0 }
    }
}

impl Log {
    /// Has checksums computed from here on, or no longer. Those of the segment that is being filled
    /// do not count, unless nothing is there yet.
    pub fn compute_checksums(&mut self, is_wanted: bool) {
        let next_segment = Sequence(self.ring.first_record(self.ring.head()).0 + 1);
        let counts = self.map.counts();
        let is_empty = counts.mapped() + counts.pending_dirty + counts.pending_other == 0;
        let from = if is_empty { Sequence(0) } else { next_segment };
        self.checksummed.from = is_wanted.then_some(from);
    }

    /// Of what was written to a slot last, where there is one.
    pub fn checksum(&self, slot: SlotIndex) -> Option<u32> {
        let has_one = self.has_checksums(self.layout.segment_of_slot(slot));
        has_one.then(|| self.map.checksum(slot))
    }

    pub fn has_checksums(&self, segment: SegmentIndex) -> bool {
        self.checksummed.from.is_some_and(|from| self.ring.first_record(segment) >= from)
    }
}
