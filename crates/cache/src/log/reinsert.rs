//! Copies of blocks that outlive their segment.

use super::{Formed, Log, Refusal};
use crate::line_map::{Marks, State, Version};
use crate::types::{CoreBlock, Position, Sequence, SlotIndex};
use foldhash::fast::FixedState;
use headpond_block::Buffers;
use std::collections::HashMap;

/// A block that reclaim carries on.
#[derive(Clone)]
pub struct Reinsertion {
    pub slot: SlotIndex,
    pub birth: Option<Sequence>,
    pub data: Buffers,
}

/// By block: where reclaim has put what was on its way to the core. It is the same, so the core has
/// the one as soon as it has the other; to forget one costs a second write. Whoever cleans a block
/// takes its row or forgets it.
#[derive(Default)]
pub(super) struct Carried(HashMap<CoreBlock, Copied, FixedState>);

/// Two places, each with the first record of its segment, which tells what came there later.
struct Copied {
    from: (SlotIndex, Sequence),
    to: (SlotIndex, Sequence),
}

impl Log {
    /// The dirty copy of a version that the core has, where reclaim made one meanwhile. Whoever has
    /// chosen that to be cleaned waits for the lock on the block, and finds nothing left to do.
    pub fn take_carried(&mut self, version: &Version, first: Sequence) -> Option<Version> {
        let from = (version.slot, first);
        self.carried.0.get(&version.block).filter(|copied| copied.from == from)?;
        let Copied { to: (slot, first_there), .. } = self.carried.0.remove(&version.block)?;
        let copy = self.map.version(slot);
        let is_copy = self.first_at(slot) == first_there && copy.block == version.block;
        (is_copy && copy.state == State::Dirty).then_some(copy)
    }

    /// Whoever was to clean a block has given it up, or follows to what is current of it.
    pub fn forget_carried(&mut self, block: CoreBlock) {
        self.carried.0.remove(&block);
    }

    pub fn carried_bytes(&self) -> u64 {
        (self.carried.0.capacity() * size_of::<(CoreBlock, Copied)>()) as u64
    }

    fn note_carried(&mut self, old: &Version, to: SlotIndex) {
        let (from, to) = ((old.slot, self.first_at(old.slot)), (to, self.first_at(to)));
        if let Some(copied) = self.carried.0.get_mut(&old.block)
            && copied.to == from
        {
            copied.to = to;
            return;
        }
        let is_leaving = old.state == State::Dirty && old.marks.contains(Marks::CLEANING);
        if !is_leaving || old.marks.contains(Marks::REPLAYED) || self.epochs.is_some() {
            return;
        }
        self.carried.0.insert(old.block, Copied { from, to });
    }

    /// Forms a record of reinserted copies. Those that were superseded meanwhile are left out.
    ///
    /// # Errors
    /// `NoSpace` or `Scattered`; nothing was changed.
    pub fn form_reinsertion(&mut self, copies: &[Reinsertion]) -> Result<Option<Formed>, Refusal> {
        let is_current = |copy: &&Reinsertion| {
            let version = self.map.version(copy.slot);
            version.state != State::Free && self.map.newest(version.block) == Some(version)
        };
        let copies: Vec<&Reinsertion> = copies.iter().filter(is_current).collect();
        if copies.is_empty() {
            return Ok(None);
        }
        let (_, extents) = self.map.pool();
        if self.map.extents_in_a_row(copies.len() as u64) > u64::from(extents) {
            return Err(Refusal::Scattered);
        }
        self.draft.clear();
        for copy in &copies {
            let version = self.map.version(copy.slot);
            let kind = self.kind_of_copy(&version);
            let birth = copy.birth.or(Some(self.next()));
            let class = self.kept_class_at(copy.slot);
            let fits = self.draft.push(version.block, kind, birth, class);
            assert!(fits, "copies fit a descriptor");
        }
        let is_clean = |copy: &&&Reinsertion| !self.map.version(copy.slot).is_unsafe_at_core();
        let clean = copies.iter().filter(is_clean).count();
        if clean < copies.len() {
            // They lose their place in the order of the flushes.
            self.mix();
        }
        let blocks = copies.len() as u32;
        let descriptor_units = self.take_room(self.descriptor_units(blocks), blocks, 0)?;
        let data = Position(self.ring.position().0 + descriptor_units);
        for (index, copy) in copies.iter().enumerate() {
            self.map_copy(copy, Position(data.0 + index as u64 * self.layout.units_per_block()));
        }
        self.counters.reinserted_blocks += copies.len() as u64;
        self.eviction.copies.note_copied(clean as u64);
        let parts = copies.iter().map(|copy| &copy.data);
        let formed = self.seal_off(data, copies.len() as u32, false, parts);
        Ok(Some(Formed { is_moved: true, ..formed }))
    }

    fn map_copy(&mut self, copy: &Reinsertion, position: Position) {
        let old = self.map.version(copy.slot);
        let (slot, unit) = self.layout.slot_at(position);
        self.note_carried(&old, slot);
        self.carry_part(&old, slot);
        self.count_versions([old].iter(), |part| &mut part.cache_written);
        let mut marks = match old.state {
            // Parts are for no cleaner.
            State::Dirty if self.is_whole(&old) => self.inherited_marks(old.block, true),
            _ => Marks::NONE,
        };
        for lasting in [Marks::PAYLOAD_FREE, Marks::GIVEN] {
            if old.marks.contains(lasting) {
                marks = marks | lasting;
            }
        }
        let known = self.checksum(copy.slot);
        let checksum = known.unwrap_or_else(|| self.checksummed.of_block(&copy.data));
        self.draft.checksums.push(checksum);
        let (state, target) = (State::Pending, old.state);
        self.map.insert(Version { slot, unit, state, target, marks, ..old }, checksum);
    }

    /// The published versions of a record that the core has but has not flushed.
    pub fn written_in(&self, formed: &Formed) -> Vec<Version> {
        let each = self.layout.units_per_block();
        let slots = (0..u64::from(formed.blocks))
            .map(|index| self.layout.slot_at(Position(formed.data.0 + index * each)).0);
        let versions = slots.map(|slot| self.map.version(slot));
        versions.filter(|version| version.state == State::Written).collect()
    }

    /// Blocks of a reinsertion that fill the head segment, or a whole record where it is full.
    pub fn copies_that_fit(&self) -> usize {
        let each = self.layout.units_per_block();
        match (self.ring.room() / each).saturating_sub(1) as usize {
            0 => self.layout.record_blocks_max(),
            room => room.min(self.layout.record_blocks_max()),
        }
    }
}
