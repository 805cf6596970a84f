//! The dirty blocks for policies: by age, which is the order of the log, and by region.

use super::Log;
use crate::cleaning::{Age, Chunk, Chunks, DirtyData, Walk};
use crate::line_map::{Marks, State, Version};
use crate::types::{BlockRun, CoreBlock, SegmentIndex};

impl Log {
    /// Has the dirty blocks counted by chunk from now on, or no longer.
    pub fn count_chunks(&mut self, wanted: bool) {
        if wanted == self.chunks.is_some() {
            return;
        }
        let mut chunks = Chunks::default();
        let is_counted = |version: &Version| {
            version.target == State::Dirty && version.marks.contains(Marks::INDEXED)
        };
        let dirty = self.map.iter().filter(|version| wanted && is_counted(version));
        let mut blocks: Vec<CoreBlock> = dirty.map(|version| version.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().for_each(|block| chunks.add(block));
        self.chunks = wanted.then_some(chunks);
    }

    /// Memory of the counts by chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.as_ref().map_or(0, Chunks::memory_bytes)
    }

    /// Marks a dirty version as being cleaned. The index may still name the block.
    pub fn choose(&mut self, version: &Version) {
        self.map.exchange(version.slot, Marks::INDEXED, Marks::CLEANING);
        if let Some(chunks) = &mut self.chunks {
            chunks.remove(version.block);
        }
    }

    /// Whoever cleans is to meet a version again, where it is still the dirty one in its place.
    pub fn give_back(&mut self, version: &Version) {
        let now = self.map.version(version.slot);
        if now.state == State::Dirty && now.block == version.block && self.is_whole(&now) {
            self.map.exchange(now.slot, Marks::CLEANING, Marks::INDEXED);
            self.index(now.block, now.marks);
        }
    }

    /// Where the log is now: whatever has a place is older, and whatever gets one is not. A place
    /// that begins before the head ends after it, so that the head's own is free.
    pub fn age_now(&self) -> Age {
        let (segment, position) = self.head();
        let start = self.layout.segment_start(segment);
        let slot = (position.0 - start.0) / self.layout.units_per_block();
        Age { segment: self.ring.first_record(segment), slot: slot as u32 }
    }

    /// The used segment in which a walk from `from` begins, and the slot in it.
    fn begin_of_walk(&self, from: Age) -> (SegmentIndex, u32) {
        let segment = self.ring.first_from(from.segment);
        let is_there = self.ring.first_record(segment) == from.segment;
        (segment, if is_there { from.slot } else { 0 })
    }
}

impl DirtyData for Log {
    fn oldest(&mut self, from: &mut Age, until: Age, most: Walk) -> Vec<CoreBlock> {
        let (mut segment, mut slot) = self.begin_of_walk(*from);
        let (mut blocks, mut left) = (Vec::new(), most.slots);
        let each = self.layout.slots_per_segment() as u32;
        loop {
            let age = Age { segment: self.ring.first_record(segment), slot };
            if age >= until || blocks.len() >= most.blocks || left == 0 {
                break;
            }
            left -= 1;
            if slot >= each {
                if segment == self.ring.head() {
                    break;
                }
                (segment, slot) = (self.ring.after(segment), 0);
                continue;
            }
            let first = self.layout.slots_of(segment).next().expect("a segment has slots");
            let version = self.map.version(crate::types::SlotIndex(first.0 + slot));
            match version.state {
                // It will be dirty, and must not be passed.
                State::Pending if version.target == State::Dirty => break,
                State::Dirty if version.waits_for_cleaner() => {
                    blocks.push(version.block);
                }
                _ => {}
            }
            slot += 1;
        }
        *from = Age { segment: self.ring.first_record(segment), slot };
        blocks
    }

    fn dirtiest(&self) -> Option<Chunk> {
        self.chunks.as_ref()?.dirtiest()
    }

    fn run_of(&self, chunk: Chunk) -> BlockRun {
        Chunks::run_of(chunk)
    }

    fn dirty_in(&mut self, run: BlockRun, most: usize) -> Vec<CoreBlock> {
        let (mut blocks, mut waits) = (Vec::new(), false);
        self.map.each_newest(run, |block, version| {
            let is_dirty = |it: &Version| it.target == State::Dirty && self.is_whole(it);
            let Some(version) = version.filter(is_dirty) else { return };
            waits = true;
            if blocks.len() < most && version.waits_for_cleaner() {
                blocks.push(block);
            }
        });
        if !waits && let Some(chunks) = &mut self.chunks {
            // What was counted has been discarded since.
            chunks.clear(run);
        }
        blocks
    }
}
