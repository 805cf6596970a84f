//! Tombstones that are not written yet.

use crate::types::{BlockRun, CoreBlock};
use headpond_block::sync::Notify;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Mappings that are being ended, and whose end is not stable yet.
#[derive(Default)]
pub(crate) struct PendingTombstones {
    pub(super) active: RefCell<Vec<BlockRun>>,
    pub(super) done: Notify,
    /// What is not mapped any more, and could not be ended on the device either.
    pub(super) pending: RefCell<BTreeSet<CoreBlock>>,
}

/// One of them, until it is dropped.
pub(super) struct PendingTombstone<'a> {
    pending_tombstones: &'a PendingTombstones,
    run: BlockRun,
}

impl PendingTombstones {
    pub(super) fn begin(&self, run: BlockRun) -> PendingTombstone<'_> {
        self.active.borrow_mut().push(run);
        PendingTombstone { pending_tombstones: self, run }
    }

    /// The blocks of a run whose end could not be recorded, and has to be.
    pub fn pending_in(&self, run: BlockRun) -> Vec<CoreBlock> {
        self.pending.borrow().range(run.first..run.end()).copied().collect()
    }

    pub(super) fn note_pending(&self, run: BlockRun) {
        self.pending.borrow_mut().extend(run.blocks());
    }

    pub(super) fn note_ended(&self, run: BlockRun) {
        let ended = self.pending_in(run);
        let mut pending = self.pending.borrow_mut();
        ended.iter().for_each(|block| _ = pending.remove(block));
    }

    /// Waits until nothing of a run is being ended.
    pub async fn settle(&self, run: BlockRun) {
        loop {
            let done = self.done.wait();
            if !self.active.borrow().iter().any(|active| active.overlaps(run)) {
                break;
            }
            done.await;
        }
    }
}

impl Drop for PendingTombstone<'_> {
    fn drop(&mut self) {
        let mut active = self.pending_tombstones.active.borrow_mut();
        let place = active.iter().position(|active| *active == self.run);
        active.swap_remove(place.expect("it is active"));
        self.pending_tombstones.done.notify_all();
    }
}
