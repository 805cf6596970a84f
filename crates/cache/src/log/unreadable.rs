//! Dirty data that was unreadable at the last attempt: data at risk now, regardless of the error
//! counters.
//!
//! A block counts from a failed read until one succeeds, until it is clean, or until it is
//! overwritten or discarded.

use super::Log;
use crate::line_map::{State, Version};
use crate::types::{CoreBlock, Sequence, SlotIndex};
use std::collections::BTreeMap;

/// Beyond so many, and twice what is dirty, those that are no longer so are looked for.
const SWEEP_FROM: u64 = 1024;

/// By block: where its version lies, and the first record of the segment there, which tells a
/// later version in the same place.
#[derive(Default)]
pub struct Unreadable(BTreeMap<CoreBlock, (SlotIndex, Sequence)>);

impl Unreadable {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Log {
    /// The cache device did not give this version.
    pub(crate) fn note_unreadable(&mut self, version: &Version) {
        if !self.lacks_at_core(version.block, version.slot) {
            return;
        }
        let first = self.first_at(version.slot);
        self.unreadable.0.insert(version.block, (version.slot, first));
        if self.unreadable.0.len() as u64 > SWEEP_FROM + 2 * self.dirty_now() {
            let mut all = std::mem::take(&mut self.unreadable.0);
            all.retain(|block, place| self.is_still_there(*block, *place));
            self.unreadable.0 = all;
        }
    }

    /// The cache device has given this version.
    #[inline]
    pub(crate) fn note_readable(&mut self, version: &Version) {
        if !self.unreadable.is_empty() {
            self.unreadable.0.remove(&version.block);
        }
    }

    /// Whether a block was, when it was last asked for.
    pub fn is_unreadable(&self, block: CoreBlock) -> bool {
        self.unreadable.0.contains_key(&block)
    }

    /// Blocks that are unreadable now, as far as they were requested.
    pub fn unreadable_blocks(&self) -> u64 {
        let all = self.unreadable.0.iter();
        all.filter(|(block, place)| self.is_still_there(**block, **place)).count() as u64
    }

    fn is_still_there(&self, block: CoreBlock, (slot, first): (SlotIndex, Sequence)) -> bool {
        self.lacks_at_core(block, slot) && self.first_at(slot) == first
    }

    /// Whether the version of the block at this place is what the core has not, or not for good.
    fn lacks_at_core(&self, block: CoreBlock, slot: SlotIndex) -> bool {
        matches!(self.map.state_of(slot, block), State::Dirty | State::Written)
    }
}
