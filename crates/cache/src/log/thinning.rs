//! Tombstones for fragmented clean blocks, without a request.

use super::{Formed, Log, RESERVE_FOR_TOMBSTONES, Refusal};
use crate::eviction::ClassKey;
use crate::format::record::{Entry, EntryKind};
use crate::line_map::State;
use crate::types::{BlockRun, CoreBlock, Position, Sequence, SlotIndex};

/// A clean block, where it lay when it became that: in a segment that began with record `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered {
    pub block: CoreBlock,
    pub slot: SlotIndex,
    pub first: Sequence,
}

impl Log {
    /// Whether the map gains from the end of a block, now or when its neighbours have ended: it
    /// lies in an extent of the pool, and is not the one that replaces a lost block.
    pub fn is_thinnable(&self, block: CoreBlock, slot: SlotIndex) -> bool {
        self.map.is_in_pool(slot) && !self.lost_at_start.contains(&block)
    }

    /// Leaves away what is more than the extents to be given back, of blocks by place.
    pub fn truncate_to_wanted(&self, blocks: &mut Vec<Scattered>) {
        let (mut left, mut last) = (self.extents_to_give_back(), None);
        let is_too_much = |it: &Scattered| {
            if !last.replace(it.slot).is_some_and(|last| self.map.share_extent(last, it.slot)) {
                let Some(fewer) = left.checked_sub(1) else { return true };
                left = fewer;
            }
            false
        };
        let len = blocks.iter().position(is_too_much).unwrap_or(blocks.len());
        blocks.truncate(len);
    }

    /// Forms a record that ends those of these blocks, at most as many as one record has entries
    /// for, that are clean and have no newer version. They stay mapped: until the record is stable
    /// a write past the cache has to end them itself.
    ///
    /// # Errors
    /// `NoSpace`; nothing was changed.
    pub fn form_thinning(
        &mut self,
        blocks: &mut Vec<Scattered>,
    ) -> Result<Option<Formed>, Refusal> {
        blocks.retain(|it| {
            let newest = self.map.newest(it.block);
            newest.is_some_and(|newest| newest.slot == it.slot) && self.is_still_clean(it)
        });
        if blocks.is_empty() {
            return Ok(None);
        }
        self.draft.clear();
        for run in runs_of(blocks) {
            let (kind, count) = (EntryKind::Tombstone, run.count as u32);
            let class = ClassKey::UNKNOWN;
            let entry = Entry { first: run.first, count, kind, birth: None, class };
            assert!(self.draft.push_entry(entry), "blocks fit a descriptor");
        }
        // Not from what is kept for clients alone: they may wait for the extents, and reclaim too.
        let units = self.descriptor_units(0);
        let descriptor_units = self.take_room(units, 0, RESERVE_FOR_TOMBSTONES)?;
        let data = Position(self.ring.position().0 + descriptor_units);
        Ok(Some(self.seal_off(data, 0, false, std::iter::empty())))
    }

    /// Drops blocks whose end is stable, as far as nothing has happened to them since.
    pub fn thin(&mut self, blocks: &[Scattered]) {
        for it in blocks {
            if !self.is_still_clean(it) {
                continue;
            }
            self.drop_places(it.slot.0..it.slot.0 + 1);
            self.counters.thinned_blocks += 1;
        }
    }

    fn is_still_clean(&self, it: &Scattered) -> bool {
        self.first_at(it.slot) == it.first && self.map.state_of(it.slot, it.block) == State::Clean
    }
}

/// Ascending blocks as runs.
fn runs_of(blocks: &[Scattered]) -> Vec<BlockRun> {
    let mut runs: Vec<BlockRun> = Vec::new();
    for it in blocks {
        match runs.last_mut() {
            Some(run) if run.end() == it.block => run.count += 1,
            _ => runs.push(BlockRun { first: it.block, count: 1 }),
        }
    }
    runs
}
