//! Completion: partial blocks in the log become whole blocks, in the background.
//!
//! 1. Part of a block is written; 2. after a short delay, because the next write may bring more of
//!    it, the rest is read from the core; 3. the whole block is appended, and supersedes the part.
//!
//! Where a block must be on the core now, completion does not wait for space in the log: under the
//! lock on the block the whole of it is written to the core, and the part is clean after the core's
//! next flush.
//!
//! **Invariants**
//! - A whole block is appended only if neither it, nor the core below it, was written since the
//!   read of its rest began.
//! - A part is superseded when the whole block is in the log; it is clean when the core has flushed
//!   it.
//!
//! **Not here**: writing parts (`paths`), the table of them (`log`).

use crate::append::{AppendOutcome, Wanted};
use crate::engine::Engine;
use crate::fill::FillGuard;
use crate::line_map::{State, Version};
use crate::log::{Part, Purpose};
use crate::stats::{CacheRead, CoreRead};
use crate::types::{BlockRun, CoreBlock};
use headpond_block::defect;
use headpond_block::sync::join_all;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, Cause, DeviceError, Outcome, Request, Submission,
};
use std::rc::Rc;
use std::time::Duration;

/// From the first write of a part to when all that there are then are completed: somebody who
/// writes sector after sector brings a whole block meanwhile.
const DELAY: Duration = Duration::from_millis(100);
/// After a failure.
const BACK_OFF: Duration = Duration::from_millis(500);
/// Blocks that are completed at once.
const TOGETHER: usize = 16;
/// Reads of the rest of a block that somebody writes to meanwhile.
const ATTEMPTS: u32 = 3;

impl Engine {
    /// There may be parts of blocks: they are completed before long.
    pub(crate) fn complete_soon(self: &Rc<Self>) {
        if self.log.borrow().may_have_parts() {
            self.complete_after(DELAY);
        }
    }

    fn complete_after(self: &Rc<Self>, delay: Duration) {
        if self.is_completion_due.replace(true) {
            return;
        }
        self.later(delay, async |engine| {
            let outcome = engine.complete_all().await;
            engine.is_completion_due.set(false);
            engine.log.borrow_mut().forget_ended_parts();
            if !engine.is_closed.get() && engine.log.borrow().has_parts_to_complete() {
                engine.complete_after(if outcome.is_ok() { DELAY } else { BACK_OFF });
            }
        });
    }

    /// Reads what another life has left of blocks, as far as that has not been read yet.
    pub(crate) async fn read_parts(self: &Rc<Self>) {
        let blocks = self.log.borrow().part_blocks();
        for block in blocks {
            let version = self.log.borrow().part_to_read(block);
            let Some(version) = version else { continue };
            if let Some(data) = self.read_part(&version).await {
                self.log.borrow_mut().note_part_read(&version, data);
                self.complete_soon();
            }
        }
    }

    async fn read_part(self: &Rc<Self>, version: &Version) -> Option<Buffer> {
        let _pin = self.pin(version.slot);
        let place = self.log.borrow().place_of(*version);
        let data = Buffer::zeroed(BLOCK_BYTES as usize);
        let buffers = Buffers::from(&data);
        let request = Request::read(place.start(), &data);
        let read = self.read_cache(CacheRead::Request, request).await;
        let is_sound = read.is_ok() && self.check(place.start(), version, &buffers).is_ok()
            || self.read_right(CacheRead::Request, place.start(), version, &buffers).await;
        match is_sound {
            true => self.log.borrow_mut().note_readable(version),
            false => self.log.borrow_mut().note_unreadable(version),
        }
        is_sound.then_some(data)
    }

    /// Completes all parts that there are, at the core where the log does not take them.
    ///
    /// # Errors
    /// Where the rest of a block cannot be read, or neither takes the whole.
    pub(crate) async fn complete_all(self: &Rc<Self>) -> Outcome {
        let blocks = self.log.borrow().part_blocks();
        let mut all = Ok(());
        for group in blocks.chunks(TOGETHER) {
            let each = group.iter().map(|block| Submission::pending(self.complete(*block)));
            let outcomes = join_all(each.collect()).await;
            all = all.and(outcomes.into_iter().collect::<Outcome>());
        }
        all
    }

    async fn complete(self: &Rc<Self>, block: CoreBlock) -> Outcome {
        match self.complete_in_log(block).await {
            Ok(true) => return Ok(()),
            Err(error) if !error.is_damage() => return Err(error),
            Ok(false) | Err(_) => {}
        }
        if self.is_closed.get() {
            return Err(DeviceError::new(&self.name, Cause::Gone));
        }
        let _busy = self.busy.begin();
        let outcome = self.complete_at_core(block).await;
        self.schedule_core_flush_later();
        outcome
    }

    /// Gives the core what the log has of a block in part; its next flush makes that clean.
    ///
    /// # Errors
    /// Where the core fails.
    pub(crate) async fn complete_at_core(self: &Rc<Self>, block: CoreBlock) -> Outcome {
        let _write = self.begin_core_write(BlockRun { first: block, count: 1 }).await;
        self.complete_locked(&[block]).await
    }

    /// Makes a part a whole block in the log, or finds that it has ended; `false` where the log
    /// does not take it, or others write to the block again and again.
    ///
    /// # Errors
    /// Where the rest cannot be read.
    async fn complete_in_log(self: &Rc<Self>, block: CoreBlock) -> Result<bool, DeviceError> {
        let run = BlockRun { first: block, count: 1 };
        for _ in 0..ATTEMPTS {
            if self.is_mistrusted() {
                break;
            }
            if self.core_writes.is_changing(run) {
                drop(self.core_writes.lock(run).await);
            }
            let fill = FillGuard::begin(self, run);
            let Some((version, part)) = self.newest_part(run).await else { return Ok(true) };
            let class = self.log.borrow().class_of_slot(version.slot);
            let whole = self.whole_of(&version, &part).await?;
            if self.is_closed.get() {
                return Err(DeviceError::new(&self.name, Cause::Gone));
            }
            let _busy = self.busy.begin();
            let (purpose, buffers, guard) = (Purpose::WriteBack, whole.into(), Some(fill.fill()));
            let wanted = Wanted { run, purpose, buffers, is_promise: false, guard, class };
            match self.append(wanted).await {
                AppendOutcome::Written => {
                    let mut log = self.log.borrow_mut();
                    log.counters.parts_completed += 1;
                    log.counters.traffic.cache.written_completions += BLOCK_BYTES;
                    // It was written before what is older in the log now.
                    log.mix();
                    drop(log);
                    self.note_dirty();
                    return Ok(true);
                }
                AppendOutcome::Spoiled => {}
                _ => break,
            }
        }
        Ok(false)
    }

    /// Gives the core what the log has in part of some blocks; its next flush makes that clean. The
    /// caller holds the lock on them.
    ///
    /// # Errors
    /// Where the core fails.
    pub(crate) async fn complete_locked(self: &Rc<Self>, blocks: &[CoreBlock]) -> Outcome {
        let parts = self.log.borrow().parts_of(blocks);
        for block in parts {
            let run = BlockRun { first: block, count: 1 };
            let Some((version, part)) = self.newest_part(run).await else { continue };
            let failures = self.core_flushes.failures();
            self.give_to_core(&version, &part).await?;
            self.core_flushes.failed_since(failures)?;
            self.log.borrow_mut().overtake_kept(run);
            // Nobody else writes parts meanwhile; reclaim may have carried this one on.
            let log = self.log.borrow();
            let now = log.part_at(block).filter(|(now, _)| now.state == State::Dirty);
            let Some((now, _)) = now else { continue };
            drop(log);
            self.log.borrow_mut().map.set_state(now.slot, State::Written);
            self.remember_written(&self.log.borrow(), block, now.slot);
            self.log.borrow_mut().counters.parts_completed += 1;
        }
        Ok(())
    }

    /// Writes the whole block to the core; where the rest of it cannot be read there, the sectors
    /// alone.
    async fn give_to_core(self: &Rc<Self>, version: &Version, part: &Part) -> Outcome {
        let start = version.block.range(1).start();
        let error = match self.whole_of(version, part).await {
            Ok(whole) => return self.write_core(Request::write(start, whole)).await,
            Err(error) => error,
        };
        let Some(data) = part.data.as_ref().filter(|_| error.is_damage()) else {
            return Err(error);
        };
        for place in part.sectors.places() {
            let request = Request::write(start + place.start as u64, data.slice(place));
            self.write_core(request).await?;
        }
        Ok(())
    }

    /// The newest version of a block, where that is a part; the watch over it has begun, so that
    /// what follows it is known.
    async fn newest_part(&self, run: BlockRun) -> Option<(Version, Part)> {
        if self.log.borrow().survey(run).pending > 0 {
            self.settle().await;
        }
        self.log.borrow().part_at(run.first)
    }

    async fn whole_of(&self, version: &Version, part: &Part) -> Result<Buffer, DeviceError> {
        let run = BlockRun { first: version.block, count: 1 };
        let whole = match &part.data {
            Some(data) if data.is_payload_free() => Buffer::payload_free(BLOCK_BYTES as usize),
            Some(_) => Buffer::zeroed(BLOCK_BYTES as usize),
            None => return Err(self.not_given(run)),
        };
        let class = self.log.borrow().class_of_slot(version.slot);
        let request = Request::read(run.range().start(), &whole);
        if !defect!(CompleteWithZeros) {
            self.read_core(CoreRead::Rest, class, request).await?;
        }
        self.lay_over(part, run, &Buffers::from(&whole))?;
        Ok(whole)
    }

    /// Puts what the log has of a block over what the core has.
    ///
    /// # Errors
    /// Where the cache device did not give it.
    pub(crate) fn lay_over(&self, part: &Part, run: BlockRun, whole: &Buffers) -> Outcome {
        match part.lay_over(whole) {
            true => Ok(()),
            false => Err(self.not_given(run)),
        }
    }

    fn not_given(&self, run: BlockRun) -> DeviceError {
        DeviceError::new(self.cache.name(), Cause::Media { range: run.range() })
    }
}
