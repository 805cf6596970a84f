//! Blocks that come into the map, one by one or many in a row.
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
        self.map_run(insertion, Tag::new(State::Pending, insertion.target, insertion.marks));
    }

    #[inline]
    fn map_run(&mut self, insertion: &Insertion, tag: Tag) {
        let Insertion { run, slot, unit, checksums, .. } = *insertion;
        assert_eq!(checksums.len() as u64, run.count);
        let places = slot.0 as usize..slot.0 as usize + checksums.len();
        self.checksums[places].copy_from_slice(checksums);
        let mut place = slot.0;
        for piece in self.lines_of(run) {
            let span = Span::new(piece.first.0, place, piece.count as u32, unit);
            self.put(span, tag);
            place = span.end_place();
        }
        self.count_mapped(run, tag);
    }

    /// Maps a new version, ahead of all others of its block. `version.state` is taken as it is, so
    /// that replay can insert what is published already.
    ///
    /// # Panics
    /// Where the slot is not free, and where the pool lacks an extent.
    pub fn insert(&mut self, version: Version) {
        let Version { slot, block, unit, .. } = version;
        let tag = Tag::new(version.state, version.target, version.marks);
        self.put(Span::new(block.0, slot.0, 1, unit), tag);
        self.checksums[slot.0 as usize] = version.checksum;
        self.count_mapped(BlockRun { first: block, count: 1 }, tag);
    }

    /// Maps what a checkpoint or replay brings back: blocks of one line that lie in a row, behind
    /// all places that were mapped so far. `insertion.target` is their state.
    ///
    /// # Panics
    /// Where a place is not free, and where the pool lacks an extent.
    pub fn restore(&mut self, insertion: &Insertion) {
        assert_eq!(self.held.all, 0, "nobody is resident before a policy is set");
        let Insertion { target, marks, .. } = *insertion;
        self.map_run(insertion, Tag::new(target, target, marks));
    }

    /// Blocks of one line, behind all that were put before: in an extent of their own, or as part
    /// of the last one.
    #[inline]
    fn put(&mut self, span: Span, tag: Tag) {
        self.assert_free(span.place, span.len);
        match self.step_from_open(&span) {
            Some(step) => self.extents.extend(self.open, span.end_place() - 1, step),
            None => self.open = self.extents.link(span),
        }
        self.extents.set_tags(span.place..span.end_place(), tag);
    }

    #[inline]
    fn step_from_open(&self, next: &Span) -> Option<u8> {
        if self.extents.is_by_block() || self.open == NONE {
            return None;
        }
        let span = self.extents.span(self.open);
        let step = step_to(self.extents.line_blocks(), &span, next)?;
        let mut holes = span.end_place()..next.place;
        holes.all(|hole| self.extents.at_place(hole).is_none()).then_some(step)
    }
}
