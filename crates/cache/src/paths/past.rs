//! Past the cache: the core has the truth afterwards, and nothing in the log contradicts it.
//!
//! **Source**: law 4. Over a clean block: tombstone, then core. Over a dirty one: core, core flush,
//! tombstone; part of a dirty block is cleaned first, and so is what owes parity: such a write
//! patches the parity as it finds it, and a discard may leave it alone.

use crate::engine::{Engine, Entombed};
use crate::types::{BlockRun, CoreBlock};
use headpond_block::{BLOCK_BYTES, Outcome, Request, defect};
use std::rc::Rc;

/// What to do next with a write past the cache.
enum Step {
    Write,
    EntombThenWrite(Vec<CoreBlock>),
    WriteThenEntomb(Vec<CoreBlock>),
    CleanFirst(Vec<CoreBlock>),
}

impl Engine {
    /// Changes the core by `request` (a write, discard or write of zeros), and ends the mappings of
    /// the blocks it touches.
    pub(crate) async fn change_core(self: &Rc<Self>, request: Request) -> Outcome {
        let run = BlockRun::touching(request.range);
        let _write = self.begin_core_write(run).await;
        self.settle_parity(run).await?;
        loop {
            match self.next_step(&request, run).await {
                Step::Write => return self.write_core(request).await,
                Step::CleanFirst(blocks) => self.clean_locked(&blocks).await?,
                Step::EntombThenWrite(blocks) => match self.entomb(&blocks, false).await {
                    Entombed::Done => return self.write_core(request).await,
                    Entombed::Spoiled => {}
                    Entombed::Failed(error) => return Err(error),
                },
                Step::WriteThenEntomb(blocks) => {
                    self.write_core(request).await?;
                    if !defect!(TombstoneBeforeCoreFlush) {
                        self.flush_core().await?;
                    }
                    return match self.entomb(&blocks, true).await {
                        Entombed::Failed(error) => Err(error),
                        Entombed::Done | Entombed::Spoiled => Ok(()),
                    };
                }
            }
        }
    }

    async fn next_step(&self, request: &Request, run: BlockRun) -> Step {
        let has_pending = || {
            let log = self.log.borrow();
            run.count <= u64::from(log.layout.slots()) && log.survey(run).pending > 0
        };
        if has_pending() || run.count > u64::from(self.log.borrow().layout.slots()) {
            self.settle().await;
        }
        let log = self.log.borrow();
        let blocks = log.mapped_in(run);
        if blocks.is_empty() && !log.is_lost_in(run) || defect!(ForgetTombstone) {
            return Step::Write;
        }
        let lacks = |block: &CoreBlock| {
            log.map.newest(*block).is_some_and(|version| version.is_unsafe_at_core())
        };
        let is_unsafe = blocks.iter().any(lacks);
        // A damaged block ends with a tombstone as well, so that it can be read again.
        let lost = log.lost.iter().filter(|block| run.first <= **block && **block < run.end());
        let mut blocks: Vec<CoreBlock> = blocks.iter().chain(lost).copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        match (is_unsafe, request.range.is_aligned(BLOCK_BYTES)) {
            (false, _) => Step::EntombThenWrite(blocks),
            (true, true) => Step::WriteThenEntomb(blocks),
            (true, false) => Step::CleanFirst(blocks),
        }
    }
}
