//! Copies of blocks that outlive their segment.

use super::{Formed, Log, Refusal};
use crate::format::record::EntryKind;
use crate::line_map::{Marks, State, Version};
use crate::types::{Position, Sequence, SlotIndex};
use headpond_block::{Buffers, defect};

/// A block that reclaim carries on.
#[derive(Clone)]
pub struct Reinsertion {
    pub slot: SlotIndex,
    pub birth: Option<Sequence>,
    pub data: Buffers,
}

impl Log {
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
            let kind = match version.state {
                State::Clean => EntryKind::ReadInsert,
                _ if defect!(ReinsertDirtyAsRead) => EntryKind::ReadInsert,
                _ => EntryKind::Dirty,
            };
            let birth = copy.birth.or(Some(self.next()));
            let class = self.kept_class_at(copy.slot);
            let fits = self.draft.push(version.block, kind, birth, class);
            assert!(fits, "copies fit a descriptor");
        }
        if copies.iter().any(|copy| self.map.version(copy.slot).is_unsafe_at_core()) {
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
        let parts = copies.iter().map(|copy| &copy.data);
        let formed = self.seal_off(data, copies.len() as u32, false, parts);
        Ok(Some(Formed { is_moved: true, ..formed }))
    }

    fn map_copy(&mut self, copy: &Reinsertion, position: Position) {
        let old = self.map.version(copy.slot);
        let (slot, unit) = self.layout.slot_at(position);
        self.count_versions([old].iter(), |part| &mut part.cache_written);
        let mut marks = match old.state {
            State::Dirty => self.inherited_marks(old.block, true),
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
