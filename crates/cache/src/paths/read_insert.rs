//! Insertion of read misses into the log.

use crate::append::{AppendOutcome, Wanted};
use crate::classes::ClassId;
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::Purpose;
use crate::paths::read::{Missing, part_of};
use crate::types::BlockRun;
use headpond_block::{Buffer, Buffers, memory};
use std::rc::Rc;

impl Engine {
    /// Inserts what was read from the core: from where it was read to, where the cache device takes
    /// it at once; otherwise nobody waits for it.
    pub(super) async fn insert(
        self: &Rc<Self>,
        (run, target): (BlockRun, &Buffers),
        entering: &Missing,
        fill: FillGuard,
        class: ClassId,
    ) {
        let most = self.log.borrow().layout.piece_blocks();
        let mut runs = entering.runs(most);
        while let Some(part) = runs.next() {
            if self.log.borrow().is_scarce() {
                return;
            }
            let is_done =
                self.lends && self.insert_at_once(&wanted((run, target), part, &fill, class)).await;
            if !is_done {
                let left = std::iter::once(part).chain(runs);
                return self.insert_beside((run, target), left, fill, class);
            }
        }
    }

    /// A record of its own; `false`, and nothing has happened, where it would have to wait for its
    /// turn.
    async fn insert_at_once(self: &Rc<Self>, wanted: &Wanted) -> bool {
        let Some(formed) = self.form_alone(wanted) else { return false };
        let busy = self.busy.begin();
        let is_written = match self.start_alone(formed) {
            Ok(is_written) => is_written,
            Err(rest) => rest.await,
        };
        drop(busy);
        self.count_inserted(wanted.run, is_written);
        true
    }

    pub(super) fn count_inserted(&self, run: BlockRun, is_written: bool) {
        self.log.borrow_mut().counters.inserted_blocks += if is_written { run.count } else { 0 };
    }

    /// Inserts runs of what was read, in a task of its own, from memory of their own.
    pub(super) fn insert_beside(
        self: &Rc<Self>,
        (run, target): (BlockRun, &Buffers),
        runs: impl Iterator<Item = BlockRun>,
        fill: FillGuard,
        class: ClassId,
    ) {
        if !memory::has(run.range().len() as usize) {
            return;
        }
        let own = |part| {
            let wanted = wanted((run, target), part, &fill, class);
            Wanted { buffers: self.copied(&wanted.buffers).into(), ..wanted }
        };
        let records: Vec<Wanted> = runs.map(own).collect();
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        drop(self.runtime.spawn(async move {
            let _busy = busy;
            for wanted in records {
                let count = wanted.run.count;
                if engine.log.borrow().is_scarce() {
                    break;
                }
                if let AppendOutcome::Written = engine.append(wanted).await {
                    engine.log.borrow_mut().counters.inserted_blocks += count;
                }
            }
            drop(fill);
        }));
    }

    fn copied(&self, buffers: &Buffers) -> Buffer {
        if buffers.is_payload_free() {
            return Buffer::payload_free(buffers.len_bytes());
        }
        let copy = self.take_memory(buffers.len_bytes());
        Buffers::from(&copy).copy_from_buffers(buffers);
        copy
    }
}

/// Some of the blocks of a read.
fn wanted(
    (run, target): (BlockRun, &Buffers),
    part: BlockRun,
    fill: &FillGuard,
    class: ClassId,
) -> Wanted {
    Wanted {
        run: part,
        purpose: Purpose::ReadInsert,
        buffers: part_of(target, run, part),
        is_promise: false,
        guard: Some(fill.fill()),
        class,
    }
}
