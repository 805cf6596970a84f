//! From a read miss to the log.

use crate::append::{Verdict, Wanted};
use crate::classes::ClassId;
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::Purpose;
use crate::types::{BlockRun, CoreBlock};
use headpond_block::{BLOCK_BYTES, Buffer, Buffers};
use std::rc::Rc;

impl Engine {
    /// Inserts what was read from the core: from where it was read to, where the cache device takes
    /// it at once; otherwise nobody waits for it.
    pub(super) async fn insert(
        self: &Rc<Self>,
        (run, target): (BlockRun, &Buffers),
        missing: &[u64],
        fill: FillGuard,
        class: ClassId,
    ) {
        let runs = self.runs_of(missing);
        for (index, part) in runs.iter().enumerate() {
            if self.log.borrow().is_scarce() {
                return;
            }
            let is_done = self.lends
                && self.insert_at_once(&wanted((run, target), *part, &fill, class)).await;
            if !is_done {
                return self.insert_beside((run, target), &runs[index..], fill, class);
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
        if is_written {
            self.log.borrow_mut().counters.inserted_blocks += wanted.run.count;
        }
        true
    }

    /// Inserts runs of what was read, in a task of its own, from memory of their own.
    fn insert_beside(
        self: &Rc<Self>,
        (run, target): (BlockRun, &Buffers),
        runs: &[(u64, u64)],
        fill: FillGuard,
        class: ClassId,
    ) {
        let copied = |&part| {
            let wanted = wanted((run, target), part, &fill, class);
            Wanted { buffers: copy_of(&wanted.buffers).into(), ..wanted }
        };
        let records: Vec<Wanted> = runs.iter().map(copied).collect();
        let (engine, busy) = (Rc::clone(self), self.busy.begin());
        drop(self.runtime.spawn(async move {
            let _busy = busy;
            for wanted in records {
                let count = wanted.run.count;
                if engine.log.borrow().is_scarce() {
                    break;
                }
                if let Verdict::Written = engine.append(wanted).await {
                    engine.log.borrow_mut().counters.inserted_blocks += count;
                }
            }
            drop(fill);
        }));
    }

    /// The missing blocks as runs that fit a record: their first one, counted from the start of the
    /// read, and how many they are.
    fn runs_of(&self, missing: &[u64]) -> Vec<(u64, u64)> {
        let most = self.log.borrow().layout.piece_blocks();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &index in missing {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == index && *count < most => *count += 1,
                _ => runs.push((index, 1)),
            }
        }
        runs
    }
}

/// Some of the blocks of a read.
fn wanted(
    (run, target): (BlockRun, &Buffers),
    (first, count): (u64, u64),
    fill: &FillGuard,
    class: ClassId,
) -> Wanted {
    let (start, end) = (first * BLOCK_BYTES, (first + count) * BLOCK_BYTES);
    Wanted {
        run: BlockRun { first: CoreBlock(run.first.0 + first), count },
        purpose: Purpose::ReadInsert,
        buffers: target.slice(start as usize..end as usize),
        is_promise: false,
        guard: Some(fill.fill()),
        class,
    }
}

fn copy_of(buffers: &Buffers) -> Buffer {
    if buffers.is_payload_free() {
        return Buffer::payload_free(buffers.len_bytes());
    }
    let copy = Buffer::zeroed(buffers.len_bytes());
    Buffers::from(&copy).copy_from_buffers(buffers);
    copy
}
