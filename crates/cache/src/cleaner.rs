//! The cleaner: carries dirty data to the core, in address order, so that it becomes clean.
//!
//! 1. Take neighbouring dirty blocks of one stripe from the index; 2. under the lock on the blocks,
//!    write those that are still current; they are *written*; 3. when enough is written, or long
//!    enough ago, flush the core; they are *clean*. Cleaning goes on while the core flushes.
//!
//! **Invariants**
//! - A block becomes clean only by a core flush that began after its write was answered.
//! - No two writes of one block are on their way to the core.
//!
//! **Not here**: which block is next (`dirty_index`), how hard to work (`pace`).

use crate::engine::Engine;
use crate::error::CleanError;
use crate::line_map::{Marks, State, Version};
use crate::pace;
use crate::types::{BlockRun, CoreBlock, SlotIndex};
use headpond_block::sync::join_all;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, DeviceError, Instant, Outcome, Request, RequestFlags,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// After a failed write to the core.
const BACK_OFF: Duration = Duration::from_millis(500);

/// How far the cleaner is.
#[derive(Default)]
pub(crate) struct Progress {
    /// Core writes on their way.
    pub in_flight: Cell<u32>,
    /// The task waits for something to do.
    pub is_idle: Cell<bool>,
    /// Callers that want everything cleaned.
    pub drainers: Cell<u32>,
    /// The newest failure since the drain began.
    pub failure: RefCell<Option<DeviceError>>,
    back_off_until: Cell<Option<Instant>>,
    flush_is_due: Cell<bool>,
    is_flushing: Cell<bool>,
}

impl Engine {
    /// The cleaner's task.
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let wake = self.cleaning_wanted.wait();
            while self.cleaning.in_flight.get() < self.cleaning_target() {
                let Some(batch) = self.next_batch() else { break };
                self.start_batch(batch);
            }
            if !self.written.borrow().is_empty() {
                self.schedule_core_flush_later();
            }
            self.cleaning.is_idle.set(self.cleaning.in_flight.get() == 0);
            wake.await;
        }
    }

    /// Whether the cleaner would start something now.
    pub(crate) fn wants_cleaning(&self) -> bool {
        self.cleaning_target() > 0
    }

    fn cleaning_target(&self) -> u32 {
        if self.cleaning.back_off_until.get().is_some() || self.cleaning.is_flushing.get() {
            return 0;
        }
        let (config, log) = (self.config.borrow(), self.log.borrow());
        pace::writes_in_flight(
            &config.cleaning,
            &pace::Load {
                dirty: log.dirty_now(),
                dirty_max: log.dirty_max(),
                has_waiters: self.queue.len() > 0,
                must_drain: self.cleaning.drainers.get() > 0,
                is_draining_mode: self.mode() != crate::config::Mode::WriteBack,
            },
        )
    }

    fn start_batch(self: &Rc<Self>, batch: Vec<Version>) {
        self.cleaning.in_flight.set(self.cleaning.in_flight.get() + 1);
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            {
                let _lock = engine.core_writes.lock(run_of(&batch)).await;
                engine.clean_batch(&batch).await;
            }
            engine.cleaning.in_flight.set(engine.cleaning.in_flight.get() - 1);
            engine.cleaning_wanted.notify_all();
            engine.pump();
        }));
    }

    /// Takes the next neighbouring dirty blocks out of the index.
    fn next_batch(&self) -> Option<Vec<Version>> {
        let stripe = self.core.geometry().stripe.map(|stripe| u64::from(stripe.width_bytes));
        let write_max = u64::from(self.config.borrow().cleaning.write_bytes_max).max(BLOCK_BYTES);
        let mut log = self.log.borrow_mut();
        let (mut versions, mut deferred) = (Vec::<Version>::new(), Vec::new());
        for _ in 0..log.dirty.len() {
            let Some(next) = log.dirty.peek() else { break };
            if let Some(first) = versions.first()
                && !belongs(first.block, versions.len() as u64, next, stripe, write_max)
            {
                break;
            }
            log.dirty.take();
            match log.map.newest(next) {
                Some(version) if version.state == State::Pending => deferred.push(next),
                Some(version)
                    if version.state == State::Dirty
                        && !version.marks.contains(Marks::CLEANING) =>
                {
                    log.map.unmark(version.slot, Marks::INDEXED);
                    log.map.mark(version.slot, Marks::CLEANING);
                    versions.push(version);
                }
                _ => {}
            }
        }
        deferred.into_iter().for_each(|block| log.dirty.push(block));
        (!versions.is_empty()).then_some(versions)
    }

    /// Writes what is still current to the core. The caller holds the lock on the blocks; segments
    /// are pinned only now, for reclaim must not wait for whoever waits for a lock.
    async fn clean_batch(self: &Rc<Self>, batch: &[Version]) {
        if let Err(error) = self.stabilise(batch).await {
            self.cleaned(batch, &Err(error));
            return;
        }
        let mut groups: Vec<Vec<Version>> = Vec::new();
        let mut pins = Vec::with_capacity(batch.len());
        for version in batch.iter().filter_map(|version| self.current(version)) {
            pins.push(self.pin(version.slot));
            match groups.last_mut() {
                Some(group) if run_of(group).end() == version.block => group.push(version),
                _ => groups.push(vec![version]),
            }
        }
        for group in groups {
            let outcome = self.clean_group(&group).await;
            self.cleaned(&group, &outcome);
        }
    }

    /// What the slot of `version` holds now, where that is still the dirty version of the block.
    fn current(&self, version: &Version) -> Option<Version> {
        let now = self.log.borrow().map.version(version.slot);
        (now.state == State::Dirty && now.block == version.block).then_some(now)
    }

    async fn clean_group(self: &Rc<Self>, versions: &[Version]) -> Outcome {
        let data = self.fetch(versions).await?;
        let run = run_of(versions);
        let replayed = versions.iter().any(|version| version.marks.contains(Marks::REPLAYED));
        let mut flags = RequestFlags::empty();
        flags.set(RequestFlags::RECOMPUTE_PARITY, replayed);
        // The batch is stable in the log, unless the log is memory.
        flags.set(RequestFlags::LOGGED, !self.cache_is_volatile());
        self.count_core_write(run);
        self.core.submit(Request::write(run.range().start(), data).with_flags(flags)).await
    }

    fn count_core_write(&self, run: BlockRun) {
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_writes += 1;
        if let Some(stripe) = self.core.geometry().stripe {
            let is_full = run.range().len() >= u64::from(stripe.width_bytes);
            log.counters.full_stripe_writes += u64::from(is_full);
        }
    }

    /// The data of versions whose segments are pinned.
    async fn fetch(self: &Rc<Self>, versions: &[Version]) -> Result<Buffers, DeviceError> {
        let ranges: Vec<ByteRange> = {
            let layout = &self.log.borrow().layout;
            let place = |version: &Version| layout.position_of(version.slot, version.unit);
            versions.iter().map(|version| layout.range_at(place(version), BLOCK_BYTES)).collect()
        };
        if self.lends {
            let lent: Option<Buffers> =
                ranges.iter().map(|range| self.cache.lend(*range)).collect();
            if let Some(lent) = lent {
                return Ok(lent);
            }
        }
        let whole = Buffer::zeroed(versions.len() * BLOCK_BYTES as usize);
        let mut reads: Vec<(u64, Buffers)> = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let start = index * BLOCK_BYTES as usize;
            let block = whole.slice(start..start + BLOCK_BYTES as usize);
            match reads.last_mut() {
                Some((at, to)) if *at + to.len_bytes() as u64 == range.start() => to.push(block),
                _ => reads.push((range.start(), block.into())),
            }
        }
        let reads = reads.into_iter().map(|(at, to)| self.cache.submit(Request::read(at, to)));
        join_all(reads.collect()).await.into_iter().collect::<Outcome>()?;
        for (index, (version, range)) in versions.iter().zip(&ranges).enumerate() {
            let start = index * BLOCK_BYTES as usize;
            let block = Buffers::from(whole.slice(start..start + BLOCK_BYTES as usize));
            self.check(range.start(), version, &block)?;
        }
        Ok(whole.into())
    }

    fn cleaned(self: &Rc<Self>, versions: &[Version], outcome: &Outcome) {
        let mut log = self.log.borrow_mut();
        for version in versions {
            let now = log.map.version(version.slot);
            if now.state != State::Dirty || now.block != version.block {
                continue;
            }
            log.map.unmark(version.slot, Marks::CLEANING);
            if outcome.is_ok() {
                log.map.unmark(version.slot, Marks::REPLAYED);
                log.map.set_state(version.slot, State::Written);
                self.remember_written(&log, version.block, version.slot);
            } else {
                log.map.mark(version.slot, Marks::INDEXED);
                log.dirty.push(version.block);
            }
        }
        match outcome {
            Ok(()) => log.counters.cleaned_blocks += versions.len() as u64,
            Err(error) => {
                log.counters.errors.core_write += u64::from(error.device() == self.core.name());
                drop(log);
                self.back_off(error.clone());
            }
        }
    }

    fn back_off(self: &Rc<Self>, error: DeviceError) {
        self.cleaning.failure.replace(Some(error));
        let until = self.runtime.now() + BACK_OFF;
        if self.cleaning.back_off_until.replace(Some(until)).is_some() {
            return;
        }
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            engine.runtime.sleep_until(until).await;
            engine.cleaning.back_off_until.set(None);
            engine.cleaning_wanted.notify_all();
        }));
    }

    /// Notes that the core has a block, which counts as clean after its next flush.
    pub(crate) fn remember_written(
        &self,
        log: &crate::log::Log,
        block: CoreBlock,
        slot: SlotIndex,
    ) {
        let first = log.ring.first_record(log.layout.segment_of_slot(slot));
        self.written.borrow_mut().push((block, slot, first));
    }

    /// Flushes the core after the set interval, one flush at a time. Meanwhile no core write is
    /// started: a drive that sorts its writes would keep the oldest waiting behind ever newer ones,
    /// and the flush with them (40 modelled drives: 1,750 blocks a second with the pause, 1,380
    /// without).
    pub(crate) fn schedule_core_flush_later(self: &Rc<Self>) {
        if self.cleaning.flush_is_due.replace(true) {
            return;
        }
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            let interval = engine.config.borrow().cleaning.core_flush_interval;
            engine.runtime.sleep(interval).await;
            if !engine.written.borrow().is_empty() && !engine.is_stopping.get() {
                engine.cleaning.is_flushing.set(true);
                // A failure is counted, and everything is dirty again.
                let _ = engine.flush_core().await;
                engine.cleaning.is_flushing.set(false);
            }
            engine.cleaning.flush_is_due.set(false);
            engine.cleaning_wanted.notify_all();
        }));
    }

    /// Flushes the core: what was written before is clean.
    pub(crate) async fn flush_core(self: &Rc<Self>) -> Outcome {
        let taken = self.written.take();
        let changes = self.core_changes.get();
        let outcome = self.core.submit(Request::flush()).await;
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_flushes += 1;
        if outcome.is_err() {
            log.counters.errors.core_flush += 1;
            self.redo(&mut log, taken);
        } else {
            let flushed = self.core_changes_flushed.get().max(changes);
            self.core_changes_flushed.set(flushed);
            for (block, slot, first) in taken {
                if is_still_written(&log, block, slot, first) {
                    log.map.set_state(slot, State::Clean);
                }
            }
        }
        drop(log);
        self.pump();
        self.cleaning_wanted.notify_all();
        self.reclaim_wanted.notify_all();
        outcome
    }

    /// After a failed flush nobody knows what the core kept: it is all dirty again.
    fn redo(
        &self,
        log: &mut crate::log::Log,
        taken: Vec<(CoreBlock, SlotIndex, crate::types::Sequence)>,
    ) {
        for (block, slot, first) in taken {
            if is_still_written(log, block, slot, first) {
                log.map.set_state(slot, State::Dirty);
                log.map.mark(slot, Marks::INDEXED);
                log.dirty.push(block);
            }
        }
    }

    /// Cleans the dirty blocks of a run now. The caller holds the lock on it.
    pub(crate) async fn clean_locked(self: &Rc<Self>, run: BlockRun) -> Outcome {
        let blocks = self.log.borrow().mapped_in(run);
        for block in blocks {
            let version = self.log.borrow().map.published(block);
            let Some(version) = version.filter(|version| version.state == State::Dirty) else {
                continue;
            };
            let _pin = self.pin(version.slot);
            self.stabilise(&[version]).await?;
            let outcome = self.clean_group(&[version]).await;
            self.cleaned(&[version], &outcome);
            outcome?;
        }
        self.flush_core().await
    }

    /// Cleans everything that is dirty now.
    ///
    /// # Errors
    /// The core's, and how much stays dirty.
    pub(crate) async fn clean_all(self: &Rc<Self>) -> Result<(), CleanError> {
        self.settle().await;
        self.cleaning.failure.replace(None);
        let drain = Drain::begin(self);
        let goal = self.log.borrow().dirty.rounds() + 2;
        loop {
            let wake = self.cleaning_wanted.wait();
            let failure = self.cleaning.failure.borrow_mut().take();
            let (blocks, is_swept) = {
                let log = self.log.borrow();
                let blocks = log.dirty_now();
                (blocks, log.dirty.is_empty() || log.dirty.rounds() >= goal)
            };
            if let Some(source) = failure {
                return Err(CleanError::Core { blocks, source });
            }
            if is_swept && self.cleaning.in_flight.get() == 0 {
                break;
            }
            wake.await;
        }
        drop(drain);
        self.flush_core().await.map_err(|source| {
            let blocks = self.log.borrow().dirty_now();
            CleanError::Core { blocks, source }
        })
    }
}

/// Keeps the cleaner at full speed.
struct Drain<'a>(&'a Engine);

impl<'a> Drain<'a> {
    fn begin(engine: &'a Engine) -> Self {
        engine.cleaning.drainers.set(engine.cleaning.drainers.get() + 1);
        engine.cleaning_wanted.notify_all();
        Self(engine)
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.0.cleaning.drainers.set(self.0.cleaning.drainers.get() - 1);
    }
}

fn is_still_written(
    log: &crate::log::Log,
    block: CoreBlock,
    slot: SlotIndex,
    first: crate::types::Sequence,
) -> bool {
    let now = log.map.version(slot);
    let segment = log.layout.segment_of_slot(slot);
    now.state == State::Written && now.block == block && log.ring.first_record(segment) == first
}

fn run_of(versions: &[Version]) -> BlockRun {
    BlockRun { first: versions[0].block, count: versions.len() as u64 }
}

/// Whether `next` continues a write of `count` blocks that starts at `first`: within one stripe, or
/// within the longest write where there are no stripes or it is shorter.
fn belongs(
    first: CoreBlock,
    count: u64,
    next: CoreBlock,
    stripe: Option<u64>,
    write_max: u64,
) -> bool {
    let end = first.0 + count;
    let Some(stripe_blocks) = stripe.map(|bytes| (bytes / BLOCK_BYTES).max(1)) else {
        return next.0 == end && (count + 1) * BLOCK_BYTES <= write_max;
    };
    next.0 == end && next.0 / stripe_blocks == first.0 / stripe_blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_ends_with_the_stripe_or_at_the_limit() {
        let stripe = Some(8 * BLOCK_BYTES);
        assert!(belongs(CoreBlock(8), 7, CoreBlock(15), stripe, 4096));
        assert!(!belongs(CoreBlock(8), 8, CoreBlock(16), stripe, 1 << 20));
        assert!(!belongs(CoreBlock(8), 1, CoreBlock(10), stripe, 1 << 20));
        assert!(!belongs(CoreBlock(8), 2, CoreBlock(10), None, 2 * BLOCK_BYTES));
    }
}
