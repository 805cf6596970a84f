//! Block counts of each core, where one cache has several: derived from addresses, so that the
//! source of a block need not be stored.

use super::{Counts, LineMap, Tag};
use crate::types::{BlockRun, CoreBlock, SlotIndex};

pub(super) struct CoreTable {
    /// First block of each core, ascending; the first begins at the beginning.
    starts: Box<[u64]>,
    counts: Box<[Counts]>,
}

impl CoreTable {
    fn new(starts: &[CoreBlock]) -> Self {
        assert!(starts.first().is_some_and(|first| first.0 == 0) && starts.is_sorted());
        let starts: Box<[u64]> = starts.iter().map(|start| start.0).collect();
        let counts = vec![Counts::default(); starts.len()].into();
        Self { starts, counts }
    }

    fn index_of(&self, block: u64) -> usize {
        self.starts.partition_point(|start| *start <= block) - 1
    }

    fn of(&mut self, block: u64) -> &mut Counts {
        &mut self.counts[self.index_of(block)]
    }
}

impl LineMap {
    /// Counts by core from now on; by none where there is one only.
    pub fn divide(&mut self, starts: &[CoreBlock]) {
        self.by_core = None;
        if starts.len() < 2 {
            return;
        }
        let mut table = CoreTable::new(starts);
        self.each_mapped(0..self.extents.places(), |version, checksums| {
            let tag = self.extents.tag(version.slot.0);
            table.of(version.block.0).add_many(tag, checksums.len() as u64);
        });
        self.by_core = Some(Box::new(table));
    }

    /// Which of the cores, in their order, a block lies on.
    pub fn core_index(&self, block: CoreBlock) -> usize {
        self.by_core.as_ref().map_or(0, |table| table.index_of(block.0))
    }

    /// What the blocks of a core are.
    pub fn held_by_core(&self, index: usize) -> Counts {
        self.by_core.as_ref().map_or(self.counts, |table| table.counts[index])
    }

    /// A run, which lies on one core, was mapped.
    #[inline]
    pub(super) fn count_mapped(&mut self, run: BlockRun, tag: Tag) {
        self.counts.add_many(tag, run.count);
        if let Some(table) = &mut self.by_core {
            table.of(run.first.0).add_many(tag, run.count);
        }
    }

    /// The same of places of one line, as far as the whole map counts.
    #[inline]
    pub(super) fn recount_all(&mut self, count: u64, old: Tag, new: Tag) {
        self.counts.subtract_many(old, count);
        if new.is_mapped() {
            self.counts.add_many(new, count);
        }
    }

    /// What is at a place stops being what it was, and becomes something else or nothing.
    #[inline]
    pub(super) fn recount(&mut self, place: u32, old: Tag, new: Tag) {
        self.counts.subtract(old);
        if new.is_mapped() {
            self.counts.add(new);
        }
        if self.by_core.is_some() {
            self.recount_by_core(place, old, new);
        }
    }

    #[cold]
    fn recount_by_core(&mut self, place: u32, old: Tag, new: Tag) {
        let block = self.version(SlotIndex(place)).block.0;
        let Some(table) = &mut self.by_core else { return };
        let counts = table.of(block);
        counts.subtract(old);
        if new.is_mapped() {
            counts.add(new);
        }
    }

    pub(super) fn check_cores(&self) {
        let Some(table) = &self.by_core else { return };
        let mut counts = vec![Counts::default(); table.counts.len()];
        for version in self.iter() {
            let tag = self.extents.tag(version.slot.0);
            counts[table.index_of(version.block.0)].add(tag);
        }
        assert_eq!(counts, *table.counts, "cores hold what they do");
    }
}
