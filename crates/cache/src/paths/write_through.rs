//! Write-through: acknowledged when it is on the core and in the cache.
//!
//! It may overwrite dirty data, which is superseded in the map before the new data is on the core.
//! So draining waits for those in flight.

use crate::append::{AppendOutcome, Wanted};
use crate::engine::{Engine, TombstoneOutcome};
use crate::fill::FillGuard;
use crate::line_map::{Marks, State, Version};
use crate::log::{Log, Purpose, id_of};
use crate::paths::Cut;
use crate::types::{BlockRun, CoreBlock, SlotIndex};
use crate::under_way::Attempt;
use headpond_block::{BLOCK_BYTES, DeviceError, Outcome, Request, RequestFlags};
use smallvec::SmallVec;
use std::rc::Rc;

/// What the core has answered to a write, and how many of its flushes had failed when it was asked:
/// where more have by now, it may have lost what it took, and the attempt counts as failed.
pub(super) struct CoreAnswer<'a> {
    pub outcome: Outcome,
    pub failures: u64,
    pub attempt: Attempt<'a>,
}

impl Engine {
    pub(crate) async fn write_through(self: &Rc<Self>, request: &Request) -> Outcome {
        let cut = Cut::new(request.range);
        for end in cut.ends() {
            // Boxed: it is rare, and would make every write larger.
            Box::pin(self.write_part_through(request.part(end, end.start()))).await?;
        }
        let chunk = self.log.borrow().layout.piece_blocks() * BLOCK_BYTES;
        if cut.middle == request.range && cut.middle.len() <= chunk {
            return self.write_blocks_through(request).await;
        }
        if cut.middle.is_empty() {
            return Ok(());
        }
        let middle = request.part(cut.middle, cut.middle.start());
        Box::pin(self.write_long_through(&middle, chunk)).await
    }

    /// Whole blocks that need several records. The core is given them as one: an array writes whole
    /// stripes then, and reads nothing for their parity.
    async fn write_long_through(self: &Rc<Self>, request: &Request, chunk: u64) -> Outcome {
        let run = BlockRun::touching(request.range);
        let write = self.begin_core_write(run).await;
        self.settle_parity(run).await?;
        let failures = self.core_flushes.failures();
        let pieces: Vec<_> = request.range.split_at_multiples(chunk).collect();
        let records = pieces.into_iter().map(|piece| {
            let part = request.part(piece, piece.start());
            let run = BlockRun::touching(piece);
            let (buffers, is_promise) = (part.buffers.clone(), part.is_fua());
            let (purpose, class) = (Purpose::WriteThrough, id_of(&part));
            let wanted = Wanted { run, purpose, buffers, is_promise, guard: None, class };
            (part, run, self.throughs.begin(), self.begin_append(wanted))
        });
        let records: Vec<_> = records.collect();
        let outcome = self.write_core(request.clone()).await;
        let mut all = Ok(());
        for (part, run, attempt, verdict) in records {
            let is_recorded = matches!(verdict.await, Some(AppendOutcome::Written));
            let answer = CoreAnswer { outcome: outcome.clone(), failures, attempt };
            all = all.and(self.conclude_through(&part, run, is_recorded, answer).await);
        }
        all?;
        write.done();
        Ok(())
    }

    /// Whole blocks that fit one record.
    async fn write_blocks_through(self: &Rc<Self>, request: &Request) -> Outcome {
        let run = BlockRun::touching(request.range);
        let write = self.begin_core_write(run).await;
        if self.log.borrow().map.counts().replayed > 0 {
            Box::pin(self.settle_parity(run)).await?;
        }
        self.write_both(request, run, None).await?;
        write.done();
        Ok(())
    }

    /// Part of one block: the whole block goes to both.
    async fn write_part_through(self: &Rc<Self>, request: Request) -> Outcome {
        let run = BlockRun::touching(request.range);
        let write = self.begin_core_write(run).await;
        self.settle_parity(run).await?;
        loop {
            let fill = FillGuard::begin(self, run);
            let whole = self.merged_block(&request).await?;
            let merged = Request::write(run.range().start(), whole)
                .with_flags(request.flags & RequestFlags::FUA)
                .with_hints(request.hints);
            if self.write_both(&merged, run, Some(&fill)).await? {
                self.count_rest_of(&request);
                write.done();
                return Ok(());
            }
        }
    }

    /// Writes to core and log; `false`, and nothing is written, where the fill was spoiled. The
    /// caller holds the lock on the blocks.
    async fn write_both(
        self: &Rc<Self>,
        request: &Request,
        run: BlockRun,
        fill: Option<&FillGuard>,
    ) -> Result<bool, DeviceError> {
        let attempt = self.throughs.begin();
        let failures = self.core_flushes.failures();
        let (buffers, is_promise) = (request.buffers.clone(), request.is_fua());
        let (purpose, guard) = (Purpose::WriteThrough, fill.map(FillGuard::fill));
        let class = id_of(request);
        let wanted = Wanted { run, purpose, buffers, is_promise, guard, class };
        // With a fill to watch over, the log decides first whether the contents are still right.
        let (verdict, outcome) = if fill.is_some() {
            let verdict = Box::pin(self.append(wanted)).await;
            if matches!(verdict, AppendOutcome::Spoiled) {
                return Ok(false);
            }
            (verdict, self.write_core(request.clone()).await)
        } else {
            self.write_both_at_once(wanted, request).await
        };
        let is_recorded = matches!(verdict, AppendOutcome::Written);
        let answer = CoreAnswer { outcome, failures, attempt };
        self.conclude_through(request, run, is_recorded, answer).await.map(|()| true)
    }

    /// Core and log have answered.
    pub(super) async fn conclude_through(
        self: &Rc<Self>,
        request: &Request,
        run: BlockRun,
        is_recorded: bool,
        CoreAnswer { outcome, failures, attempt }: CoreAnswer<'_>,
    ) -> Outcome {
        let kept = outcome.clone().and_then(|()| self.core_flushes.failed_since(failures));
        attempt.note(&kept);
        match is_recorded {
            true if kept.is_ok() => self.move_on(run),
            true => Box::pin(self.keep_refused(request, run)).await,
            false => return Box::pin(self.forget_stale(run, kept, failures)).await,
        }
        outcome
    }

    async fn write_both_at_once(
        self: &Rc<Self>,
        wanted: Wanted,
        request: &Request,
    ) -> (AppendOutcome, Outcome) {
        let Some(formed) = self.form_alone(&wanted) else {
            let verdict = self.begin_append(wanted);
            let outcome = self.write_core(request.clone()).await;
            return (verdict.await.unwrap_or(AppendOutcome::Failed), outcome);
        };
        drop(wanted);
        let record = self.start_alone(formed);
        let outcome = self.write_core(request.clone()).await;
        let is_written = match record {
            Ok(is_written) => is_written,
            Err(rest) => rest.await,
        };
        (if is_written { AppendOutcome::Written } else { AppendOutcome::Failed }, outcome)
    }

    /// The core has the blocks.
    pub(super) fn move_on(self: &Rc<Self>, run: BlockRun) {
        let mut log = self.log.borrow_mut();
        for version in of_write_through(&log, run) {
            log.map.set_state(version.slot, State::Written);
            self.remember_through(&log, BlockRun { first: version.block, count: 1 }, version.slot);
        }
        drop(log);
        self.schedule_core_flush_later();
    }

    /// The same where nobody has had a turn since they were published there.
    pub(super) fn move_on_at(self: &Rc<Self>, run: BlockRun, first: SlotIndex) {
        let mut log = self.log.borrow_mut();
        let places = first.0..first.0 + run.count as u32;
        log.map.move_on(run.first, places, State::Dirty, State::Written);
        self.remember_through(&log, run, first);
        drop(log);
        self.schedule_core_flush_later();
    }

    /// The core failed to take the blocks, or to keep them: the cleaner tries again. What shows of
    /// them from now on must not be gone after a cut, and a record of a write-through says no more
    /// than that the core may have it: so they are recorded again, as dirty, where nothing newer
    /// is.
    async fn keep_refused(self: &Rc<Self>, request: &Request, run: BlockRun) {
        let ours = of_write_through(&self.log.borrow(), run);
        for version in &ours {
            let mut log = self.log.borrow_mut();
            log.choose_again(version);
            log.give_back(version);
        }
        let run_of = |version: &Version| BlockRun { first: version.block, count: 1 };
        let fills: Vec<(BlockRun, FillGuard)> =
            ours.iter().map(run_of).map(|run| (run, FillGuard::begin(self, run))).collect();
        for (run, fill) in fills {
            let range = run.range();
            let buffers = request.part(range, range.start()).buffers;
            let (purpose, guard) = (Purpose::Refused, Some(fill.fill()));
            let class = id_of(request);
            let wanted = Wanted { run, purpose, buffers, is_promise: false, guard, class };
            if !matches!(self.append(wanted).await, AppendOutcome::Written) {
                self.note_unrecorded(&self.log.borrow(), run.first);
            }
        }
        self.schedule_core_flush_later();
    }

    /// The core has the data, or may have it, and the log does not: what it has instead must not
    /// come back where the core had it for good, and stays where the write failed and only the log
    /// has it.
    async fn forget_stale(
        self: &Rc<Self>,
        run: BlockRun,
        outcome: Outcome,
        failures: u64,
    ) -> Outcome {
        self.settle_ends(run).await?;
        let blocks = self.log.borrow().known_in(run);
        let is_clean = |block: &CoreBlock| self.log.borrow().is_settled(*block);
        let (clean, others): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_clean);
        self.distrust_written(run);
        self.end_mappings(&self.pending_in(run), false).await?;
        self.end_mappings(&clean, false).await?;
        outcome?;
        self.flush_core().await?;
        self.core_flushes.failed_since(failures)?;
        self.end_mappings(&others, true).await
    }

    /// Who has written a block meanwhile keeps it.
    async fn end_mappings(self: &Rc<Self>, blocks: &[CoreBlock], over_dirty: bool) -> Outcome {
        match self.write_tombstones(blocks, over_dirty).await {
            TombstoneOutcome::Failed(error) => Err(error),
            TombstoneOutcome::Done | TombstoneOutcome::Spoiled => Ok(()),
        }
    }
}

/// The versions that a write-through has recorded, and nobody has looked at since.
fn of_write_through(log: &Log, run: BlockRun) -> SmallVec<[Version; 1]> {
    let mut ours = SmallVec::new();
    log.map.each_published(run, |_, version| {
        ours.extend(version.filter(|version| {
            version.state == State::Dirty
                && !version.marks.contains(Marks::INDEXED)
                && !version.marks.contains(Marks::CLEANING)
                && log.is_whole(version)
        }));
    });
    ours
}
