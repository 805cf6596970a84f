//! The cleaner: carries dirty data to the core, in address order, so that it becomes clean.
//!
//! 1. Take neighbouring dirty blocks of one stripe from the index; 2. under the lock on the blocks,
//!    write those that are still current; they are *written*; 3. when enough is written, or long
//!    enough ago, flush the core; they are *clean*. Cleaning goes on while the core flushes.
//!
//! Blocks that were replayed after an unclean stop go first, and are written with their parity
//! recomputed: the stop may have torn it, for nothing else notes which stripes were being written.
//!
//! **Invariants**
//! - A block becomes clean only by a core flush that began after its write was answered.
//! - No two writes of one block are on their way to the core.
//! - What has been cleaned is told from what lies in its place by then.
//! - No version of a replayed block is dropped, and nothing else is written over the block at the
//!   core, before its parity has been recomputed.
//!
//! **Not here**: which block is next, and how hard to work (`cleaning`).

mod batches;
mod core_flush;
mod filling;
mod guide;
mod reads;
mod relief;

pub(crate) use core_flush::Written;

use crate::cleaning::{self, CleaningConfig, Depth, Policy, pace};
use crate::engine::{CacheError, Engine, Pin};
use crate::error::CleanError;
use crate::line_map::{Marks, State, Version};
use crate::types::{BlockRun, CoreBlock, Sequence};
use headpond_block::sync::{Notify, join_all};
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, DeviceError, Instant, Outcome, Request, RequestFlags,
    Submission, defect,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// After a failed write to the core.
const BACK_OFF: Duration = Duration::from_millis(500);

/// How far the cleaner is.
pub(crate) struct Progress {
    /// Decides.
    pub policy: RefCell<Box<dyn Policy>>,
    /// Chosen, and waiting for a write to the core; ascending, marked as being cleaned.
    round: RefCell<VecDeque<Version>>,
    relief: relief::Relief,
    reads: reads::Reads,
    /// The cleaner is woken then, whatever happens.
    alarm: Cell<Option<Instant>>,
    /// Core writes on their way.
    pub in_flight: Cell<u32>,
    /// The task waits for something to do.
    pub is_idle: Cell<bool>,
    /// Reclaim waits for what has to go to the core in its order.
    pub is_space_wanted: Cell<bool>,
    /// Callers that want everything cleaned.
    pub drainers: Cell<u32>,
    /// The index has been looked through as far as the pace allows.
    pub swept: Notify,
    /// The newest failure, and how many there were.
    pub failure: RefCell<Option<DeviceError>>,
    pub failures: Cell<u64>,
    /// Writes of replayed blocks that the requests leave room for.
    leisure: Cell<u32>,
    /// What the core can use at once.
    depth: Cell<Depth>,
    back_off_until: Cell<Option<Instant>>,
    flush_is_due: Cell<bool>,
    is_flushing: Cell<bool>,
    /// The newest flush of the core has failed: what is written there is written again.
    pub is_flush_failing: Cell<bool>,
}

impl Progress {
    pub fn new(config: &CleaningConfig) -> Self {
        Self {
            policy: RefCell::new(cleaning::policy(config)),
            round: RefCell::default(),
            relief: relief::Relief::default(),
            reads: reads::Reads::default(),
            alarm: Cell::default(),
            in_flight: Cell::default(),
            is_idle: Cell::default(),
            is_space_wanted: Cell::default(),
            drainers: Cell::default(),
            swept: Notify::default(),
            failure: RefCell::default(),
            failures: Cell::default(),
            leisure: Cell::default(),
            depth: Cell::default(),
            back_off_until: Cell::default(),
            flush_is_due: Cell::default(),
            is_flushing: Cell::default(),
            is_flush_failing: Cell::default(),
        }
    }

    /// Nothing is on its way to the core, or chosen to go there.
    pub fn is_at_rest(&self) -> bool {
        self.in_flight.get() == 0 && self.round.borrow().is_empty()
    }
}

impl Engine {
    /// The cleaner's task.
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let wake = self.cleaning_wanted.wait();
            self.relieve();
            while let Some(batch) = self.next_batch() {
                self.start_batch(batch, false);
            }
            self.end_written_epoch();
            self.cleaning.swept.notify_all();
            if !self.written.borrow().is_empty() {
                self.schedule_core_flush_later();
            }
            self.cleaning.is_idle.set(self.cleaning.in_flight.get() == 0);
            self.set_alarm();
            wake.await;
        }
    }

    fn start_batch(self: &Rc<Self>, batch: Vec<Version>, is_relief: bool) {
        self.cleaning.in_flight.set(self.cleaning.in_flight.get() + 1);
        let (engine, requests) = (Rc::clone(self), self.requests.get());
        drop(self.runtime.spawn(async move {
            {
                let _lock = engine.core_writes.lock(run_of(&batch)).await;
                // A failure is counted, and the cleaner tries again.
                let _ = engine.clean_batch(&batch).await;
            }
            engine.cleaning.in_flight.set(engine.cleaning.in_flight.get() - 1);
            if is_relief {
                engine.note_relief();
            }
            engine.note_leisure(requests);
            engine.cleaning_wanted.notify_all();
            engine.pump();
        }));
    }

    /// Looks, after a write that began when so many requests had arrived, who was there meanwhile.
    fn note_leisure(&self, requests: u64) {
        let before = self.cleaning.leisure.get();
        let was_quiet =
            self.requests.get() == requests && self.busy.is_idle() && self.reading.is_idle();
        let in_flight_max = self.config.borrow().cleaning.in_flight_max;
        let leisure = pace::leisure(in_flight_max, before, was_quiet);
        self.cleaning.leisure.set(leisure);
    }

    /// Writes what is still current to the core. The caller holds the lock on the blocks; segments
    /// are pinned only now, for reclaim must not wait for whoever waits for a lock.
    async fn clean_batch(self: &Rc<Self>, batch: &[Version]) -> Outcome {
        if let Err(error) = self.stabilise(|| self.are_stable(batch)).await {
            self.cleaned(batch, &self.firsts(batch), &Err(error.clone()));
            return Err(error);
        }
        let pinned = |group: Vec<Version>| {
            let pins: Vec<Pin> = group.iter().map(|version| self.pin(version.slot)).collect();
            let firsts = self.firsts(&group);
            (group, firsts, pins)
        };
        let groups: Vec<_> = self.groups(batch).into_iter().map(pinned).collect();
        let mut all = Ok(());
        for (group, firsts, mut pins) in groups {
            let outcome = self.clean_group(&group, &mut pins).await;
            let is_damaged = |error: &DeviceError| error.device() == self.cache.name();
            if group.len() > 1 && outcome.as_ref().is_err_and(is_damaged) {
                // One of them; the others are not to stay dirty for its sake.
                let versions = group.chunks(1).zip(firsts.chunks(1));
                for (version, first) in versions.filter(|(it, _)| it[0].state == State::Dirty) {
                    let outcome = self.clean_group(version, &mut Vec::new()).await;
                    self.cleaned(version, first, &outcome);
                    all = all.and(outcome);
                }
                continue;
            }
            self.cleaned(&group, &firsts, &outcome);
            all = all.and(outcome);
        }
        all
    }

    /// Whether the log can lose none of what is still to be written. Versions that were superseded,
    /// or carried on by reclaim, have nothing to become stable any more.
    fn are_stable(&self, batch: &[Version]) -> bool {
        let mut current = batch.iter().filter_map(|version| self.current(version));
        current.all(|version| self.log.borrow().is_stable(&version))
    }

    /// What the slot of `version` holds now, where that is still the dirty version of the block.
    fn current(&self, version: &Version) -> Option<Version> {
        let log = self.log.borrow();
        let now = log.map.version(version.slot);
        let is_current = now.state == State::Dirty && now.block == version.block;
        if is_current { Some(now) } else { log.kept_version(version) }
    }

    /// Writes neighbouring versions. Their segments are let go as soon as the data is a copy: a
    /// write may take long, and reclaim is not to wait for it.
    async fn clean_group(self: &Rc<Self>, versions: &[Version], pins: &mut Vec<Pin>) -> Outcome {
        let data = self.fetch(versions).await?;
        if !self.lends {
            pins.clear();
        }
        let run = run_of(versions);
        let replayed = versions.iter().any(|version| version.marks.contains(Marks::REPLAYED))
            && !defect!(PatchTornParity);
        let mut flags = RequestFlags::empty();
        flags.set(RequestFlags::RECOMPUTE_PARITY, replayed);
        // The batch is stable in the log, unless the log is memory.
        flags.set(RequestFlags::LOGGED, !self.cache_is_volatile());
        self.count_core_write(run);
        let write = Request::write(run.range().start(), data).with_flags(flags);
        let (begun, beside) = (self.runtime.now(), self.cleaning.in_flight.get());
        let outcome = self.core.submit(write).await;
        self.learn_depth(self.runtime.now().since(begun), beside);
        outcome
    }

    fn learn_depth(&self, took: Duration, beside: u32) {
        let mut depth = self.cleaning.depth.get();
        depth.learn(took, beside, self.config.borrow().cleaning.in_flight_max);
        self.cleaning.depth.set(depth);
    }

    fn count_core_write(&self, run: BlockRun) {
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_writes += 1;
        log.counters.traffic.core.written_by_cleaning += run.range().len();
        if let Some(stripe) = self.core.geometry().stripe {
            let is_full = run.range().len() >= u64::from(stripe.width_bytes);
            log.counters.full_stripe_writes += u64::from(is_full);
        }
    }

    /// The data of versions whose segments are pinned. Where only some have payload the others are
    /// zeros, so that an array has something to compute with.
    async fn fetch(self: &Rc<Self>, versions: &[Version]) -> Result<Buffers, DeviceError> {
        let ranges: Vec<ByteRange> = {
            let layout = &self.log.borrow().layout;
            let place = |version: &Version| layout.position_of(version.slot, version.unit);
            versions.iter().map(|version| layout.range_at(place(version), BLOCK_BYTES)).collect()
        };
        let bare = versions.iter().filter(|version| version.is_payload_free()).count();
        if self.lends && bare == 0 {
            let lent: Option<Buffers> =
                ranges.iter().map(|range| self.cache.lend(*range)).collect();
            if let Some(lent) = lent {
                self.count_lent(lent.len_bytes() as u64);
                return Ok(lent);
            }
        }
        let (is_bare, len) = (bare == versions.len(), versions.len() * BLOCK_BYTES as usize);
        let whole = if is_bare { Buffer::payload_free(len) } else { Buffer::zeroed(len) };
        if self.lends && is_bare {
            return Ok(whole.into());
        }
        let mut reads: Vec<(u64, Buffers)> = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            let start = index * BLOCK_BYTES as usize;
            let block = whole.slice(start..start + BLOCK_BYTES as usize);
            match reads.last_mut() {
                Some((at, to)) if *at + to.len_bytes() as u64 == range.start() => to.push(block),
                _ => reads.push((range.start(), block.into())),
            }
        }
        let read = |(at, to)| self.read_to_clean(Request::read(at, to));
        let reads = reads.into_iter().map(|part| Submission::pending(read(part)));
        let outcome = join_all(reads.collect()).await.into_iter().collect::<Outcome>();
        if outcome.is_err() {
            self.note_cache_error(CacheError::Read);
        }
        outcome?;
        for (index, (version, range)) in versions.iter().zip(&ranges).enumerate() {
            let start = index * BLOCK_BYTES as usize;
            let block = Buffers::from(whole.slice(start..start + BLOCK_BYTES as usize));
            self.check(range.start(), version, &block)?;
        }
        Ok(whole.into())
    }

    /// The first records of the segments that versions lie in: with another one a segment has been
    /// filled anew, perhaps with a newer version of the same block in the same place.
    fn firsts(&self, versions: &[Version]) -> Vec<Sequence> {
        let log = self.log.borrow();
        versions.iter().map(|version| log.first_at(version.slot)).collect()
    }

    fn cleaned(self: &Rc<Self>, versions: &[Version], firsts: &[Sequence], outcome: &Outcome) {
        let mut log = self.log.borrow_mut();
        let mut is_passed_over = false;
        for (version, first) in versions.iter().zip(firsts) {
            if outcome.is_ok() && version.marks.contains(Marks::REPLAYED) {
                // Whichever version it was: the parity fits what the core has of the block now.
                log.map.unmark_block(version.block, Marks::REPLAYED);
            }
            let is_there = log.first_at(version.slot) == *first;
            match outcome {
                _ if !is_there => {}
                Ok(()) => log.written_in_order(version),
                Err(error) if versions.len() == 1 && self.is_unreadable(error) => {
                    is_passed_over = log.pass_over(version);
                }
                Err(_) => log.choose_again(version),
            }
            let now = log.map.version(version.slot);
            let is_it = now.block == version.block && is_there;
            if now.state != State::Dirty || !is_it {
                continue;
            }
            log.map.unmark(version.slot, Marks::CLEANING);
            if outcome.is_ok() {
                log.map.set_state(version.slot, State::Written);
                if defect!(CleanBeforeCoreFlush) {
                    log.map.set_state(version.slot, State::Clean);
                    continue;
                }
                self.remember_written(&log, version.block, version.slot);
            } else {
                log.map.mark(version.slot, Marks::INDEXED);
                log.index(version.block, now.marks);
            }
        }
        match outcome {
            Ok(()) => {
                let is_dirty = |version: &&Version| version.state == State::Dirty;
                let dirty = versions.iter().filter(is_dirty).count() as u64;
                log.counters.cleaned_blocks += dirty;
                let mut rate = self.cleaned.get();
                rate.add(self.runtime.now(), dirty);
                self.cleaned.set(rate);
                log.counters.filled_blocks += versions.len() as u64 - dirty;
            }
            // Nobody needs what has been superseded.
            Err(_) if is_passed_over => {}
            Err(error) => {
                log.counters.errors.core_write += u64::from(error.device() == self.core.name());
                drop(log);
                self.back_off(error.clone());
            }
        }
    }

    /// Whether a block in the log cannot be had, for good as far as anybody knows.
    fn is_unreadable(&self, error: &DeviceError) -> bool {
        let is_damage = matches!(error, DeviceError::Media { .. } | DeviceError::Corrupt { .. });
        is_damage && error.device() == self.cache.name()
    }

    fn back_off(self: &Rc<Self>, error: DeviceError) {
        self.cleaning.policy.borrow_mut().failed();
        self.cleaning.failure.replace(Some(error));
        self.cleaning.failures.set(self.cleaning.failures.get() + 1);
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

    /// Cleans those of these blocks that are dirty now. The caller holds the lock on them.
    pub(crate) async fn clean_locked(self: &Rc<Self>, blocks: &[CoreBlock]) -> Outcome {
        let most = self.config.borrow().cleaning.in_flight_max.max(1) as usize;
        for batches in self.batches(blocks).chunks(most) {
            let clean = |batch: &Vec<Version>| {
                let (engine, batch) = (Rc::clone(self), batch.clone());
                Submission::pending(async move { engine.clean_batch(&batch).await })
            };
            join_all(batches.iter().map(clean).collect()).await.into_iter().collect::<Outcome>()?;
        }
        self.flush_core().await
    }

    /// Cleans those of these blocks that are dirty now, for whom reclaim has no other place.
    pub(crate) async fn clean_in_place(self: &Rc<Self>, blocks: &[CoreBlock]) -> Outcome {
        let most = self.config.borrow().cleaning.in_flight_max.max(1) as usize;
        for batches in self.batches(blocks).chunks(most) {
            let clean = |batch: &Vec<Version>| {
                let (engine, batch) = (Rc::clone(self), batch.clone());
                Submission::pending(async move {
                    let _lock = engine.core_writes.lock(run_of(&batch)).await;
                    engine.clean_batch(&batch).await
                })
            };
            join_all(batches.iter().map(clean).collect()).await.into_iter().collect::<Outcome>()?;
        }
        self.flush_core().await
    }

    /// Recomputes the parity that blocks of a run owe since an unclean stop. The caller holds the
    /// lock on the run, and is about to change the core by a write that does not.
    pub(crate) async fn settle_parity(self: &Rc<Self>, run: BlockRun) -> Outcome {
        loop {
            let owing = self.log.borrow().replayed_in(run);
            if owing.is_empty() {
                return Ok(());
            }
            self.clean_locked(&owing).await?;
        }
    }

    /// Cleans everything that is dirty now.
    ///
    /// # Errors
    /// The core's, and how much stays dirty.
    pub(crate) async fn clean_all(self: &Rc<Self>) -> Result<(), CleanError> {
        self.settle().await;
        let failures = self.cleaning.failures.get();
        let failed_throughs = self.throughs.failures();
        let drain = Drain::begin(self);
        let (goals, age) = {
            let mut log = self.log.borrow_mut();
            log.walk_again();
            ((log.dirty.goal(), log.replayed.goal()), log.age_now())
        };
        loop {
            // Not for what the cleaner itself waits for: it may find that nothing is left to do.
            let wake = self.cleaning.swept.wait();
            // Whoever else drains is told as well.
            let has_failed = self.cleaning.failures.get() > failures;
            let failure = self.cleaning.failure.borrow().clone().filter(|_| has_failed);
            let (blocks, is_swept) = {
                let log = self.log.borrow();
                let is_swept = match log.order_stats() {
                    Some(_) => log.is_in_core(age),
                    None => log.dirty.is_swept(goals.0),
                } && log.replayed.is_swept(goals.1);
                (log.dirty_now(), is_swept)
            };
            if let Some(source) = failure {
                return Err(CleanError::Core { blocks, source });
            }
            if is_swept && self.cleaning.is_at_rest() {
                break;
            }
            wake.await;
        }
        drop(drain);
        // What was dirty may have been taken over by one of them, and is not found any more.
        let taken_over = self.throughs.end(failed_throughs).await;
        let flushed = match taken_over {
            Ok(()) => self.flush_core().await,
            Err(error) => Err(error),
        };
        flushed.map_err(|source| {
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

/// Of versions without gaps between them.
fn run_of(versions: &[Version]) -> BlockRun {
    BlockRun { first: versions[0].block, count: versions.len() as u64 }
}
