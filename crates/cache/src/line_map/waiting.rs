//! Blocks waiting for the cleaner: of a run, or of all.

use super::version::Tag;
use super::{LineMap, Version};
use crate::types::{BlockRun, CoreBlock};

impl LineMap {
    /// The blocks of some runs of which something is, or may soon be, waiting for the cleaner. No
    /// more blocks than a word has bits.
    pub fn each_waiting(&self, runs: &[BlockRun], mut visit: impl FnMut(CoreBlock)) {
        if !self.extents.is_by_block() {
            let waits = |version: Option<Version>| version.is_some_and(|it| it.waits_or_will());
            for run in runs {
                self.each_newest(*run, |block, version| {
                    if waits(version) {
                        visit(block);
                    }
                });
            }
            return;
        }
        let (mut waiting, mut before) = (self.extents.newest_with(runs, Tag::waits_or_will), 0);
        for run in runs {
            let end = before + run.count;
            while waiting != 0 && u64::from(waiting.trailing_zeros()) < end {
                let index = u64::from(waiting.trailing_zeros()) - before;
                waiting &= waiting - 1;
                visit(CoreBlock(run.first.0 + index));
            }
            before = end;
        }
    }

    /// All blocks that wait for the cleaner, or will when they are on the device, in no order.
    pub fn dirty_blocks(&self) -> impl Iterator<Item = CoreBlock> + '_ {
        self.extents.spans().flat_map(move |span| {
            let waits = move |place: &u32| self.extents.tag(*place).waits_for_cleaning();
            let places = (span.place..span.end_place()).filter(waits);
            places.map(move |place| CoreBlock(span.block + u64::from(place - span.place)))
        })
    }
}
