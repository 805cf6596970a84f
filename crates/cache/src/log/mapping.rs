//! Maps the blocks of a formed record: line map and dirty indexes.

use super::{Intake, Log, Purpose};
use crate::line_map::{Insertion, Marks, State, Version};
use crate::types::{BlockRun, CoreBlock, Position, SlotIndex};
use headpond_block::{BLOCK_BYTES, Buffers};

impl Log {
    pub(super) fn map_intake(&mut self, intake: &Intake, data: Position, index: &mut u64) {
        self.spoil_others(intake);
        let run = intake.run;
        let target = match intake.purpose {
            Purpose::Tombstone { .. } => return self.end_mappings(run),
            Purpose::ReadInsert => State::Clean,
            _ => State::Dirty,
        };
        if intake.purpose.is_for_cleaner() {
            self.note_open();
        }
        self.count_logged(intake.class, run);
        let each = self.layout.units_per_block();
        let (slot, unit) = self.layout.slot_at(Position(data.0 + *index * each));
        let first = *index as usize;
        *index += run.count;
        self.note_part(intake, slot);
        if self.map.has_classes() {
            return self.map_with_class(intake, target, (slot, unit, first));
        }
        if self.map.counts().replayed > 0 || intake.buffers.is_payload_free() {
            let place = (slot, unit, first);
            return self.map_one_by_one(intake, target, place);
        }
        self.map_run(intake, target, (slot, unit, first));
    }

    #[cold]
    fn map_with_class(&mut self, intake: &Intake, target: State, place: (SlotIndex, u8, usize)) {
        match self.map.counts().replayed > 0 || intake.buffers.is_payload_free() {
            true => self.map_one_by_one(intake, target, place),
            false => self.map_run(intake, target, place),
        }
        self.set_class(place.0, intake.run.count as u32, intake.class);
    }

    #[inline(always)]
    fn map_run(
        &mut self,
        intake: &Intake,
        target: State,
        (slot, unit, first): (SlotIndex, u8, usize),
    ) {
        let (run, is_indexed) = (intake.run, intake.purpose.is_for_cleaner());
        if is_indexed {
            self.count_new_dirty(run);
        }
        let indexed = if is_indexed { Marks::INDEXED } else { Marks::NONE };
        let marks = self.origin(intake) | indexed;
        let checksums = &self.draft.checksums[first..first + run.count as usize];
        self.map.insert_run(&Insertion { run, slot, unit, target, marks, checksums });
        if is_indexed {
            self.dirty.push_run(run);
        }
    }

    fn end_mappings(&mut self, run: BlockRun) {
        self.unmap(run);
        self.counters.tombstone_blocks += run.count;
    }

    /// Where the marks of the blocks may differ.
    fn map_one_by_one(
        &mut self,
        intake: &Intake,
        target: State,
        (slot, unit, first): (SlotIndex, u8, usize),
    ) {
        let has_bare = intake.buffers.is_payload_free();
        let is_indexed = intake.purpose.is_for_cleaner();
        for (place, block) in intake.run.blocks().enumerate() {
            let mut marks = self.origin(intake) | self.inherited_marks(block, is_indexed);
            if has_bare && block_of(intake.buffers, place).is_payload_free() {
                marks = marks | Marks::PAYLOAD_FREE;
            }
            let (slot, state) = (SlotIndex(slot.0 + place as u32), State::Pending);
            let checksum = self.draft.checksums[first + place];
            self.map.insert(Version { slot, block, state, target, unit, marks }, checksum);
        }
    }

    /// A version that follows a dirty one takes over its place in the index and its parity debt.
    pub(super) fn inherited_marks(&mut self, block: CoreBlock, is_indexed: bool) -> Marks {
        let older = self.map.newest(block).filter(|older| older.target == State::Dirty);
        let older = older.map_or(Marks::NONE, |older| older.marks);
        let mut marks = Marks::NONE;
        if older.contains(Marks::REPLAYED) {
            marks = marks | Marks::REPLAYED;
        }
        if is_indexed {
            if !older.contains(Marks::INDEXED) {
                self.index(block, marks);
            }
            marks = marks | Marks::INDEXED;
        }
        marks
    }

    /// Notes for the cleaner that a version with these marks is dirty.
    pub fn index(&mut self, block: CoreBlock, marks: Marks) {
        let needs_parity = marks.contains(Marks::REPLAYED);
        let index = if needs_parity { &mut self.replayed } else { &mut self.dirty };
        index.push(block);
        if let Some(chunks) = &mut self.chunks {
            chunks.add(block);
        }
    }

    /// Counts, where that is wanted, those of a run that were not dirty before.
    fn count_new_dirty(&mut self, run: BlockRun) {
        let Some(chunks) = &mut self.chunks else { return };
        self.map.each_newest(run, |block, older| {
            let was_counted = older.is_some_and(|older| {
                older.target == State::Dirty && older.marks.contains(Marks::INDEXED)
            });
            if !was_counted {
                chunks.add(block);
            }
        });
    }

    /// What has a guard was in part, or all of it, read from the core; and so may be what another
    /// cache hands on.
    fn origin(&self, intake: &Intake) -> Marks {
        let is_written = matches!(intake.purpose, Purpose::WriteBack | Purpose::WriteThrough);
        let is_given = is_written && intake.guard.is_none() && !self.is_from_another_cache;
        if is_given { Marks::GIVEN } else { Marks::NONE }
    }
}

fn block_of(buffers: &Buffers, index: usize) -> Buffers {
    let start = index * BLOCK_BYTES as usize;
    buffers.slice(start..start + BLOCK_BYTES as usize)
}
