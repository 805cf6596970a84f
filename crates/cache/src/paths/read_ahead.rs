//! Readahead of a sequential stream: from the core into the cache.
//!
//! A read of blocks whose readahead is in flight waits for it instead of reading them again.

use crate::append::{AppendOutcome, Wanted};
use crate::classes::ClassId;
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::log::Purpose;
use crate::stats::CoreRead;
use crate::types::{BlockRun, CoreBlock};
use headpond_block::sync::{Notify, join_all};
use headpond_block::{BLOCK_BYTES, Buffer, Buffers, ByteRange, Request, Submission, memory};
use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;

/// Longest run that arrives as one: its reader waits for all of it.
const BLOCKS_AT_ONCE: u64 = 256;

/// How far a range has come that was read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Coverage {
    /// The cache has all of it, or has lost it and no longer takes it from the core.
    Cached,
    /// Some of it is on its way from the core.
    OnTheWay,
    /// Some of it is neither in the cache nor on its way.
    Missing,
}

/// What is being read ahead.
#[derive(Default)]
pub(crate) struct Ahead {
    runs: RefCell<Vec<BlockRun>>,
    ended: Notify,
}

impl Ahead {
    pub fn touches(&self, run: BlockRun) -> bool {
        self.runs.borrow().iter().any(|other| other.overlaps(run))
    }

    /// Waits until nothing of a run is on its way any more.
    pub async fn until_arrived(&self, run: BlockRun) {
        while self.touches(run) {
            self.ended.wait().await;
        }
    }

    fn begin(&self, run: BlockRun) {
        self.runs.borrow_mut().push(run);
    }

    fn end(&self, run: BlockRun) {
        let mut runs = self.runs.borrow_mut();
        let at = runs.iter().position(|other| *other == run).expect("it was begun");
        runs.swap_remove(at);
        drop(runs);
        self.ended.notify_all();
    }
}

impl Engine {
    pub(crate) fn coverage(&self, range: ByteRange) -> Coverage {
        let run = BlockRun::touching(range);
        if self.ahead.touches(run) {
            return Coverage::OnTheWay;
        }
        let log = self.log.borrow();
        match run.blocks().all(|block| log.knows(block)) {
            true => Coverage::Cached,
            false => Coverage::Missing,
        }
    }

    /// Brings what the cache lacks of `range` into it, in a task of its own, as far as that is in
    /// nobody's way. `is_payload_free` where the reader wants no payload either.
    pub(crate) fn read_ahead(
        self: &Rc<Self>,
        range: ByteRange,
        class: ClassId,
        is_payload_free: bool,
    ) {
        for run in self.runs_to_bring_in(range) {
            let (engine, busy) = (Rc::clone(self), self.busy.begin());
            // Watched from here on: a write to the core may begin before the task does.
            let fill = FillGuard::begin(self, run);
            self.ahead.begin(run);
            drop(self.runtime.spawn(async move {
                let _busy = busy;
                engine.bring_in(run, fill, class, is_payload_free).await;
                engine.ahead.end(run);
            }));
        }
    }

    /// The runs of `range` that are neither known nor on their way; none where reading ahead has
    /// to stand back.
    fn runs_to_bring_in(&self, range: ByteRange) -> Vec<BlockRun> {
        let whole = BlockRun::touching(range);
        let log = self.log.borrow();
        let has_memory = memory::has(range.len() as usize);
        if self.is_closed.get() || !self.mode().inserts_reads() || log.is_scarce() || !has_memory {
            return Vec::new();
        }
        let mut runs: Vec<BlockRun> = Vec::new();
        for block in whole.blocks() {
            let only = BlockRun { first: block, count: 1 };
            if log.knows(block) || self.ahead.touches(only) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end() == block && run.count < BLOCKS_AT_ONCE => run.count += 1,
                _ => runs.push(only),
            }
        }
        runs.retain(|run| self.may_insert(*run));
        runs
    }

    async fn bring_in(
        self: &Rc<Self>,
        run: BlockRun,
        fill: FillGuard,
        class: ClassId,
        is_payload_free: bool,
    ) {
        let len = (run.count * BLOCK_BYTES) as usize;
        let target = Buffers::from(match is_payload_free {
            true => Buffer::payload_free(len),
            false => self.take_memory(len),
        });
        self.log.borrow_mut().counters.readahead_blocks += run.count;
        let read = Request::read(run.range().start(), target.clone());
        if self.read_core(CoreRead::Ahead, class, read).await.is_err() || self.is_closed.get() {
            return;
        }
        let most = self.log.borrow().layout.piece_blocks();
        let pieces = (0..run.count).step_by(most as usize).map(|first| {
            let count = most.min(run.count - first);
            let (start, end) = (first * BLOCK_BYTES, (first + count) * BLOCK_BYTES);
            let wanted = Wanted {
                run: BlockRun { first: CoreBlock(run.first.0 + first), count },
                purpose: Purpose::ReadInsert,
                buffers: target.slice(start as usize..end as usize),
                is_promise: false,
                guard: Some(fill.fill()),
                class,
            };
            Submission::pending(async move {
                if let AppendOutcome::Written = self.append(wanted).await {
                    self.log.borrow_mut().counters.inserted_blocks += count;
                }
                Ok(())
            })
        });
        join_all(pieces.collect()).await;
    }
}
