//! What waits for the cleaner: of a run of blocks, or of all.

use super::extents::LINKED_MAX;
use super::{LineMap, Version};
use crate::types::{BlockRun, CoreBlock};

impl LineMap {
    /// The blocks of a run of which something is, or may soon be, waiting for the cleaner.
    pub fn each_waiting(&self, run: BlockRun, mut visit: impl FnMut(CoreBlock)) {
        let waits = |version: Option<Version>| version.is_some_and(|it| it.waits_or_will());
        if !self.extents.is_by_block() {
            return self.each_newest(run, |block, version| {
                if waits(version) {
                    visit(block);
                }
            });
        }
        for piece in run.pieces(LINKED_MAX) {
            let mut linked = self.extents.linked(piece);
            while linked != 0 {
                let block = CoreBlock(piece.first.0 + u64::from(linked.trailing_zeros()));
                linked &= linked - 1;
                if waits(self.newest(block)) {
                    visit(block);
                }
            }
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
