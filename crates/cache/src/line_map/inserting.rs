//! Insertion of blocks into the map, single or contiguous.
//!
//! **Not here**: when they are published.

use super::span::{Span, step_to};
use super::version::{Marks, State, Tag, Version};
use super::{LineMap, NONE};
use crate::types::{BlockRun, SlotIndex};

/// Where new blocks are put.
#[derive(Clone, Copy)]
pub struct Insertion<'a> {
    pub run: BlockRun,
    pub slot: SlotIndex,
    pub unit: u8,
    pub target: State,
    pub marks: Marks,
    /// One for each block.
    pub checksums: &'a [u32],
}

impl LineMap {
    /// Maps the blocks of a record as pending, ahead of all other versions of them.
    ///
    /// # Panics
    /// Where a place is not free, and where the pool lacks extents for the run.
    pub fn insert_run(&mut self, insertion: &Insertion) {
        let tag = Tag::new(State::Pending, insertion.target, insertion.marks);
        // Two requests in one record are two, who asks for one line by each has hit it twice.
        self.map_run(insertion, tag, |step| step > 0);
    }

    #[inline]
    fn map_run(&mut self, insertion: &Insertion, tag: Tag, joins: impl Fn(u8) -> bool + Copy) {
        let Insertion { run, slot, unit, checksums, .. } = *insertion;
        assert_eq!(checksums.len() as u64, run.count);
        let places = slot.0 as usize..slot.0 as usize + checksums.len();
        self.checksums[places].copy_from_slice(checksums);
        let mut place = slot.0;
        for piece in self.lines_of(run) {
            let span = Span::new(piece.first.0, place, piece.count as u32, unit);
            self.put(span, tag, joins);
            place = span.end_place();
        }
        self.count_mapped(run, tag);
    }

    /// Maps a new version, ahead of all others of its block. `version.state` is taken as it is.
    ///
    /// # Panics
    /// Where the slot is not free, and where the pool lacks an extent.
    pub fn insert(&mut self, version: Version, checksum: u32) {
        let Version { slot, block, unit, .. } = version;
        let tag = Tag::new(version.state, version.target, version.marks);
        self.put(Span::new(block.0, slot.0, 1, unit), tag, |_| true);
        self.checksums[slot.0 as usize] = checksum;
        self.count_mapped(BlockRun { first: block, count: 1 }, tag);
    }

    /// Maps what a checkpoint or replay brings back: blocks of one line that are contiguous, behind
    /// all places that were mapped so far. `insertion.target` is their state.
    ///
    /// # Panics
    /// Where a place is not free, and where the pool lacks an extent.
    pub fn restore(&mut self, insertion: &Insertion) {
        assert_eq!(self.held.all, 0, "nobody is resident before a policy is set");
        let Insertion { target, marks, .. } = *insertion;
        self.map_run(insertion, Tag::new(target, target, marks), |_| true);
    }

    /// Blocks of one line, behind all that were put before: in an extent of their own, or as part
    /// of the last one, where they go on with a step that `joins` accepts.
    #[inline]
    fn put(&mut self, span: Span, tag: Tag, joins: impl Fn(u8) -> bool) {
        self.assert_free(span.place, span.len);
        match self.step_from_open(&span).filter(|step| joins(*step)) {
            Some(step) => self.extents.extend(self.open, span, tag, step),
            None => self.open = self.extents.link(span, tag),
        }
    }

    #[inline]
    fn step_from_open(&self, next: &Span) -> Option<u8> {
        if self.extents.is_by_block() || self.open == NONE {
            return None;
        }
        let span = self.extents.span(self.open);
        let step = step_to(self.extents.line_blocks(), &span, next)?;
        let mut holes = span.end_place()..next.place;
        // Whatever was put in between would be the last one now.
        debug_assert!(holes.all(|hole| self.extents.at_place(hole).is_none()));
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CoreBlock;

    /// Where blocks are that are written one by one, behind descriptors of half a kilobyte: every
    /// eighth of these fills a place.
    fn places(count: u32) -> Vec<(SlotIndex, u8)> {
        (1..=count).map(|at| (SlotIndex(at - 1 + at / 8), (at % 8) as u8)).collect()
    }

    fn written_one_by_one(count: u32) -> LineMap {
        let mut map = LineMap::new(1024, 16, 0, 0, 1 << 16);
        for (block, (slot, unit)) in (0..).zip(places(count)) {
            let run = BlockRun { first: CoreBlock(block), count: 1 };
            let (target, marks, checksums) = (State::Dirty, Marks::NONE, &[0]);
            map.insert_run(&Insertion { run, slot, unit, target, marks, checksums });
            map.publish(slot, 1);
        }
        map.self_check();
        map
    }

    #[test]
    fn blocks_of_a_line_that_are_written_one_by_one_share_extents() {
        let map = written_one_by_one(16);
        let (pool, free) = map.pool();
        assert_eq!(pool - free, 1, "of three extents two have their windows");
        for (block, (slot, unit)) in (0..).zip(places(16)) {
            let found = map.published(CoreBlock(block)).expect("mapped");
            assert_eq!((found.slot, found.unit), (slot, unit));
            assert_eq!(map.version(slot), found);
        }
        // To the device each is told by itself.
        let mut told = Vec::new();
        map.each_mapped(0..1024, |first, checksums| told.push((first.slot, checksums.len())));
        assert_eq!(told, places(16).iter().map(|(slot, _)| (*slot, 1)).collect::<Vec<_>>());
    }

    /// What is left of one extent shared one by the count, and took one each.
    #[test]
    fn copies_share_an_extent_where_their_blocks_are_neighbours() {
        let mut map = written_one_by_one(7);
        let all: Vec<_> = places(7).iter().map(|(slot, _)| map.version(*slot)).collect();
        assert!(map.share_extent(all[0].slot, all[6].slot));
        assert_eq!(map.extents_of_copies(&all), 1);
        for version in all.iter().skip(1).step_by(2) {
            map.remove(version.slot, 1);
        }
        let left: Vec<_> = all.iter().step_by(2).copied().collect();
        assert_eq!(map.extents_of_copies(&left), 4);
    }

    /// Who wrote the rest of a line last has it resident, also in another policy.
    #[test]
    fn a_shared_extent_stands_for_the_block_that_was_written_last() {
        let map = written_one_by_one(7);
        let mut visited = Vec::new();
        map.each_line(0..1024, |slot, block| visited.push((slot, block)));
        assert_eq!(visited, [(places(7)[6].0, CoreBlock(6))]);
    }
}
