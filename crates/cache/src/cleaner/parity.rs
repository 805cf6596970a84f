//! Blocks with suspect parity after an unclean shutdown.
//!
//! Usually they are cleaned first, regardless of age, and their parity is recomputed with that.
//! Where the core is kept in flush order, that would break the order: there their data is read from
//! the core and written back with its parity, independently of cleaning.

use super::batches::Batch;
use super::run_of;
use crate::classes::ClassId;
use crate::engine::Engine;
use crate::line_map::{Marks, State};
use crate::stats::CoreRead;
use crate::types::BlockRun;
use headpond_block::{Buffer, DeviceError, Outcome, Request, RequestFlags, defect};
use std::rc::Rc;

impl Engine {
    /// Recomputes the suspect parity of blocks of a run. The caller holds the lock on the run, and
    /// is about to change the core by a write that does not.
    pub(crate) async fn settle_parity(self: &Rc<Self>, run: BlockRun) -> Outcome {
        loop {
            let owing = self.log.borrow().replayed_in(run);
            if owing.is_empty() {
                return Ok(());
            }
            self.clean_locked(&owing).await?;
        }
    }

    /// Has the parity of neighbouring blocks recomputed by a write that changes nothing; then they
    /// wait for their turn. The caller holds the lock on them.
    pub(super) async fn settle_in_place(self: &Rc<Self>, batch: &Batch) {
        // Who had the lock may have cleaned or ended some: then the others are chosen anew.
        let is_due = self.owe_parity(batch);
        let outcome = if is_due { self.write_back(run_of(batch)).await } else { Ok(()) };
        let mut log = self.log.borrow_mut();
        for version in batch {
            if is_due && outcome.is_ok() {
                log.map.unmark_replayed(version.block);
            }
            log.give_back(version);
            // Cleaning may have passed it meanwhile.
            log.walk_back_to(version);
        }
        let Err(error) = outcome else { return };
        if error.is_damage() {
            // What lies there is written over sooner or later: then out of order, and now.
            log.mix();
            return;
        }
        drop(log);
        self.back_off(error);
    }

    fn owe_parity(&self, batch: &Batch) -> bool {
        let log = self.log.borrow();
        batch.iter().all(|version| {
            let now = log.map.version(version.slot);
            let is_there = now.block == version.block && now.state == State::Dirty;
            is_there && now.marks.contains(Marks::REPLAYED)
        })
    }

    async fn write_back(&self, run: BlockRun) -> Result<(), DeviceError> {
        let data = Buffer::zeroed(run.range().len() as usize);
        let read = Request::read(run.range().start(), &data);
        self.read_core(CoreRead::Parity, ClassId::UNCLASSIFIED, read).await?;
        let mut flags = RequestFlags::CLEANING;
        flags.set(RequestFlags::LOGGED, !self.cache_is_volatile());
        flags.set(RequestFlags::RECOMPUTE_PARITY, !defect!(PatchTornParity));
        let write = Request::write(run.range().start(), data).with_flags(flags);
        {
            let counters = &mut self.log.borrow_mut().counters;
            counters.cleaning_writes += 1;
            counters.traffic.core.written_by_cleaning += run.range().len();
        }
        self.core.submit(write).await
    }
}
