//! Past the cache: afterwards the core has the current data, and nothing in the log contradicts it.
//!
//! **Source**: law 4. Over a clean block: tombstone, then core, also where others of the same write
//! are dirty: if the core fails half-way, no clean block differs from the core. Over a dirty one:
//! core, core flush, tombstone; part of a dirty block is cleaned first, and so are blocks with
//! suspect parity: such a write updates the parity from its old contents, and a discard may not
//! touch it. Lost blocks are treated as dirty: only a whole block on the core replaces them. A
//! discard invalidates neither, as the core may keep its data.

use crate::engine::{Engine, TombstoneOutcome};
use crate::paths::Cut;
use crate::types::{BlockRun, CoreBlock};
use headpond_block::{DeviceError, Outcome, Request, RequestKind, defect};
use std::rc::Rc;

/// What to do next with a write past the cache.
enum Step {
    Write,
    /// The core has what they hold.
    WriteTombstones(Vec<CoreBlock>),
    WriteThenTombstone(Vec<CoreBlock>),
    CleanFirst(Vec<CoreBlock>),
}

impl Engine {
    /// Changes the core by `request` (a write, discard or write of zeros), and ends the mappings of
    /// the blocks it touches.
    pub(crate) async fn change_core(self: &Rc<Self>, request: Request) -> Outcome {
        let run = BlockRun::touching(request.range);
        let write = self.begin_core_write(run).await;
        self.settle_parity(run).await?;
        let is_discard = request.kind == RequestKind::Discard;
        self.change_locked(request, run).await?;
        // The core may keep what is discarded, and what is flushed meanwhile goes there first.
        if !is_discard {
            write.done();
        }
        Ok(())
    }

    async fn change_locked(self: &Rc<Self>, request: Request, run: BlockRun) -> Outcome {
        loop {
            match self.next_step(&request, run).await? {
                Step::Write => return self.write_past(request).await,
                Step::CleanFirst(blocks) => self.clean_locked(&blocks).await?,
                Step::WriteTombstones(blocks) => {
                    if let TombstoneOutcome::Failed(error) =
                        self.write_tombstones(&blocks, false).await
                    {
                        return Err(error);
                    }
                }
                Step::WriteThenTombstone(blocks) => {
                    // Ends this halfway, the core may have something else than they hold.
                    self.distrust_written(run);
                    let failures = self.core_flushes.failures();
                    self.write_core(request).await?;
                    if !defect!(TombstoneBeforeCoreFlush) {
                        self.flush_core().await?;
                        self.core_flushes.failed_since(failures)?;
                    }
                    return match self.write_tombstones(&blocks, true).await {
                        TombstoneOutcome::Failed(error) => Err(error),
                        TombstoneOutcome::Done | TombstoneOutcome::Spoiled => Ok(()),
                    };
                }
            }
        }
    }

    /// What is not stable by itself is, once a flush has covered it; should one fail before that,
    /// or has it meanwhile, the core may have lost it, and only the next caller who flushes can be
    /// told.
    async fn write_past(&self, request: Request) -> Outcome {
        let (is_fua, flushes) = (request.is_fua(), &self.core_flushes);
        let failures = flushes.failures();
        self.write_core(request).await?;
        if !is_fua {
            self.past_changes.note();
            if let Err(error) = flushes.failed_since(failures) {
                self.past_loss.replace(Some(error));
            }
        }
        Ok(())
    }

    async fn next_step(&self, request: &Request, run: BlockRun) -> Result<Step, DeviceError> {
        let has_pending = || {
            let log = self.log.borrow();
            run.count <= u64::from(log.layout.slots()) && log.survey(run).pending > 0
        };
        if has_pending() || run.count > u64::from(self.log.borrow().layout.slots()) {
            self.settle().await;
        }
        self.settle_ends(run).await?;
        let pending = self.pending_in(run);
        if !pending.is_empty() {
            return Ok(Step::WriteTombstones(pending));
        }
        let log = self.log.borrow();
        let blocks = log.known_in(run);
        if blocks.is_empty() || defect!(ForgetTombstone) {
            return Ok(Step::Write);
        }
        let cut = Cut::new(request.range);
        for end in cut.ends() {
            log.loss_in(BlockRun::touching(end), &*self.cache)?;
        }
        let is_whole = cut.ends().next().is_none();
        if !is_whole && blocks.iter().any(|block| log.is_unsafe_at_core(*block)) {
            return Ok(Step::CleanFirst(blocks));
        }
        let (clean, mut others): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| log.is_settled(*block));
        if request.kind == RequestKind::Discard && !defect!(DiscardDirtyAtCore) {
            // These have been overwritten, or are newer than the discard.
            others.retain(|block| !log.is_lacking(*block));
        }
        Ok(match (clean.is_empty(), others.is_empty()) {
            (false, _) => Step::WriteTombstones(clean),
            (true, false) => Step::WriteThenTombstone(others),
            (true, true) => Step::Write,
        })
    }
}
