//! Partial blocks: the log has some sectors, the core the current data of the others.
//!
//! In the map such a part is a dirty version that the cleaner's index does not name; when its
//! sectors were written to the core it becomes written and clean like others. This table
//! distinguishes it from a whole block. A row is valid as long as the map has that version in that
//! place: superseding or invalidating a version does not update the table.
//!
//! **Invariants**
//! - No dirty data is below a part: it supersedes nothing, or the previous part, which it includes.
//!   Data read from the core may have been inserted in between.
//! - A row is there before its version is published.
//!
//! **Not here**: reading the rest (`completion`).

use super::{Intake, Log, Purpose};
use crate::format::record::EntryKind;
use crate::line_map::{Marks, State, Version};
use crate::types::{BlockRun, CoreBlock, Sectors, Sequence, SlotIndex};
use foldhash::fast::FixedState;
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, ByteRange, defect};
use std::collections::HashMap;

/// A table has room for so many.
const PARTS_MAX: u64 = 256;
/// And for one of so many blocks that may be dirty: the cleaner can do nothing about them.
const DIRTY_PER_PART: u64 = 16;
/// Of longer runs the table is looked through instead.
const BLOCKS_ONE_BY_ONE: u64 = 16;

/// By place in the log.
#[derive(Default)]
pub(super) struct Parts {
    rows: HashMap<SlotIndex, Row, FixedState>,
    /// Beyond so many rows those that count no more are looked for.
    sweep_from: usize,
}

struct Row {
    block: CoreBlock,
    /// First record of the segment, which tells what came to the place later.
    first: Sequence,
    part: Part,
}

impl Row {
    /// Whether it is of what lies at its place now, in a segment that began with record `first`.
    fn is_of(&self, version: &Version, first: Sequence) -> bool {
        version.state != State::Free && (version.block, first) == (self.block, self.first)
    }
}

/// Some sectors of a block.
#[derive(Clone)]
pub(crate) struct Part {
    pub sectors: Sectors,
    /// One block with the sectors in their places; `None` where the cache device has not given it
    /// since the log was opened.
    pub data: Option<Buffers>,
}

impl Part {
    /// Puts the sectors where they belong in a whole block; `false`, and nothing has happened,
    /// where they could not be read.
    pub fn lay_over(&self, block: &Buffers) -> bool {
        let Some(data) = &self.data else { return false };
        for place in self.sectors.places() {
            block.slice(place.clone()).copy_from_buffers(&data.slice(place));
        }
        true
    }

    /// Whether it has all of a range within its block.
    pub fn covers(&self, range: ByteRange) -> bool {
        let bits = Sectors::bits_of(range);
        bits != 0 && self.sectors.bits() & bits == bits
    }
}

impl Log {
    /// Whether there may be parts of blocks.
    #[inline]
    pub(crate) fn may_have_parts(&self) -> bool {
        !self.parts.rows.is_empty()
    }

    /// What a version is a part of a block of; `None` where it is whole.
    #[inline]
    pub(crate) fn part_of(&self, version: &Version) -> Option<&Part> {
        if !self.may_have_parts() {
            return None;
        }
        self.look_up(version)
    }

    /// Whether a version is not a part.
    #[inline]
    pub(crate) fn is_whole(&self, version: &Version) -> bool {
        self.part_of(version).is_none()
    }

    /// The same of what lies at a place.
    #[inline]
    pub(crate) fn is_whole_at(&self, slot: SlotIndex) -> bool {
        !self.may_have_parts() || self.is_whole(&self.map.version(slot))
    }

    #[cold]
    fn look_up(&self, version: &Version) -> Option<&Part> {
        let row = self.parts.rows.get(&version.slot)?;
        row.is_of(version, self.first_at(version.slot)).then_some(&row.part)
    }

    /// Whether a version that readers get of a run is a part.
    #[inline]
    pub(crate) fn has_part_in(&self, run: BlockRun) -> bool {
        self.may_have_parts() && self.finds_part_in(run)
    }

    #[cold]
    fn finds_part_in(&self, run: BlockRun) -> bool {
        let is_part = |block| self.part_at(block).is_some();
        match run.count <= BLOCKS_ONE_BY_ONE {
            true => run.blocks().any(is_part),
            false => {
                self.parts.rows.values().any(|row| run.contains(row.block) && is_part(row.block))
            }
        }
    }

    /// The blocks of which readers get a part that the core lacks, ascending.
    pub(crate) fn part_blocks(&self) -> Vec<CoreBlock> {
        let mut blocks: Vec<CoreBlock> = self.parts.rows.values().map(|row| row.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        self.parts_of(&blocks)
    }

    /// Those of some blocks of which readers get a part that the core lacks.
    pub(crate) fn parts_of(&self, blocks: &[CoreBlock]) -> Vec<CoreBlock> {
        let is_lacked = |block: &CoreBlock| {
            let found = self.part_at(*block);
            found.is_some_and(|(version, _)| version.state == State::Dirty)
        };
        match self.may_have_parts() {
            true => blocks.iter().copied().filter(is_lacked).collect(),
            false => Vec::new(),
        }
    }

    /// Whether there are parts that memory has, and that the core lacks, or may lack.
    pub(crate) fn has_parts_to_complete(&self) -> bool {
        self.parts.rows.iter().any(|(slot, row)| {
            let version = self.version_of(*slot, row);
            row.part.data.is_some() && version.is_some_and(|it| it.is_unsafe_at_core())
        })
    }

    /// The places where parts lie, ascending.
    pub(super) fn part_places(&self) -> Vec<u32> {
        let rows = self.parts.rows.iter();
        let versions = rows.filter_map(|(slot, row)| self.version_of(*slot, row));
        let mut places: Vec<u32> = versions.map(|version| version.slot.0).collect();
        places.sort_unstable();
        places
    }

    /// The version that a row is of, while it counts.
    fn version_of(&self, slot: SlotIndex, row: &Row) -> Option<Version> {
        let version = self.map.version(slot);
        row.is_of(&version, self.first_at(slot)).then_some(version)
    }

    /// The part that readers get of a block, and its version.
    pub(crate) fn part_at(&self, block: CoreBlock) -> Option<(Version, Part)> {
        if !self.may_have_parts() {
            return None;
        }
        let version = self.map.published(block)?;
        Some((version, self.part_of(&version)?.clone()))
    }

    /// Whether one more block may be there in part; forgets the rows that count no more.
    pub(crate) fn has_room_for_part(&mut self) -> bool {
        let most = PARTS_MAX.min(self.dirty_max() / DIRTY_PER_PART) as usize;
        if self.parts.rows.len() >= most {
            self.forget_ended_parts();
        }
        self.identity.keeps_parts && self.parts.rows.len() < most
    }

    /// Forgets the rows that count no more.
    pub(crate) fn forget_ended_parts(&mut self) {
        let mut parts = std::mem::take(&mut self.parts.rows);
        parts.retain(|slot, row| self.version_of(*slot, row).is_some());
        self.parts.rows = parts;
    }

    /// Memory of the sectors and their rows.
    pub(crate) fn parts_bytes(&self) -> u64 {
        let data = self.parts.rows.values().filter(|row| row.part.data.is_some()).count() as u64;
        (self.parts.rows.capacity() * size_of::<(SlotIndex, Row)>()) as u64 + data * BLOCK_BYTES
    }

    /// What the log knows of a part that an intake puts at a place.
    pub(super) fn note_part(&mut self, intake: &Intake, slot: SlotIndex) {
        let Purpose::Part(sectors) = intake.purpose else { return };
        assert_eq!(intake.run.count, 1, "part of one block");
        let part = Part { sectors, data: Some(intake.buffers.clone()) };
        self.put_part(intake.run.first, slot, part);
    }

    fn put_part(&mut self, block: CoreBlock, slot: SlotIndex, part: Part) {
        if self.parts.rows.len() > self.parts.sweep_from {
            self.forget_ended_parts();
            self.parts.sweep_from = 2 * self.parts.rows.len().max(PARTS_MAX as usize);
        }
        let first = self.first_at(slot);
        self.parts.rows.insert(slot, Row { block, first, part });
    }

    /// A copy of a version lies at a place as well.
    pub(super) fn carry_part(&mut self, version: &Version, to: SlotIndex) {
        if let Some(part) = self.part_of(version).cloned() {
            self.put_part(version.block, to, part);
        }
    }

    /// How the copy of a version is recorded. Of a part always as one: the core has those sectors,
    /// or is to have them.
    pub(super) fn kind_of_copy(&self, version: &Version) -> EntryKind {
        match (self.part_of(version), version.state) {
            (Some(part), _) => EntryKind::Part(part.sectors),
            (None, State::Clean) => EntryKind::ReadInsert,
            _ if defect!(ReinsertDirtyAsRead) => EntryKind::ReadInsert,
            _ => EntryKind::Dirty,
        }
    }

    pub(super) fn check_parts(&self) {
        let Parts { rows, sweep_from } = &self.parts;
        assert!(rows.len() <= sweep_from + 1, "rows that count no more are swept");
        for (slot, row) in rows {
            let bytes = row.part.data.as_ref().map_or(BLOCK_BYTES as usize, Buffers::len_bytes);
            assert_eq!(bytes as u64, BLOCK_BYTES, "a part has room for its block");
            let Some(version) = self.version_of(*slot, row) else { continue };
            let is_for_cleaner =
                version.target == State::Dirty && version.marks.contains(Marks::INDEXED);
            assert!(!is_for_cleaner, "{:?} is there in part, and cleaned whole", row.block);
        }
    }

    /// What a version holds, where it is a part and memory has it.
    pub(crate) fn data_of_part(&self, version: &Version) -> Option<Buffers> {
        self.part_of(version)?.data.clone()
    }

    /// Another life left a part, which has to be read.
    pub(crate) fn restore_part(&mut self, block: CoreBlock, slot: SlotIndex, sectors: Sectors) {
        self.put_part(block, slot, Part { sectors, data: None });
    }

    /// Whether a block is there in part, which the cache device has not given since the log was
    /// opened.
    pub(crate) fn part_to_read(&self, block: CoreBlock) -> Option<Version> {
        let found = self.part_at(block).filter(|(_, part)| part.data.is_none());
        found.map(|(version, _)| version)
    }

    /// The cache device has given a part.
    pub(crate) fn note_part_read(&mut self, version: &Version, data: Buffer) {
        let first = self.first_at(version.slot);
        let row = self.parts.rows.get_mut(&version.slot);
        if let Some(row) = row.filter(|row| row.is_of(version, first)) {
            row.part.data = Some(data.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::self_check::tests::lived;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_is_wrong_with_parts() {
        fn row(log: &mut Log) -> &mut Row {
            log.parts.rows.values_mut().next().expect("a block is there in part")
        }
        let breaks: [Break<Log>; 4] = [
            ("count no more are swept", |log| {
                let others = lived().parts.rows.into_iter();
                log.parts.rows.extend(others.map(|(slot, row)| (SlotIndex(slot.0 + 1), row)));
            }),
            ("has room for its block", |log| row(log).part.data = Some(Buffers::new())),
            ("and cleaned whole", |log| {
                let slot = *log.parts.rows.keys().next().expect("a block is there in part");
                log.map.mark(slot, Marks::INDEXED);
            }),
            ("and cleaned whole", |log| {
                let indexed = log.map.published(CoreBlock(0)).expect("it was written");
                let part = row(log).part.clone();
                log.put_part(CoreBlock(0), indexed.slot, part);
            }),
        ];
        assert_trips(lived, Log::check_parts, &breaks);
    }
}
