//! One batch: from versions in the log to writes to the core, and their outcome.

use crate::engine::{CacheError, Engine, Pin};
use crate::line_map::{Marks, State, Version};
use crate::log::Log;
use crate::stats::CacheRead;
use crate::types::{BlockRun, Sequence};
use headpond_block::sync::join_all;
use headpond_block::{
    BLOCK_BYTES, Buffer, Buffers, ByteRange, DeviceError, Outcome, Request, RequestFlags,
    Submission, defect,
};
use smallvec::SmallVec;
use std::rc::Rc;
use std::time::Duration;

/// A version that is about to be written.
pub(super) struct Held {
    pub version: Version,
    /// First record of its segment: with another one the segment has been filled anew, perhaps with
    /// a newer version of the same block in the same place.
    first: Sequence,
    /// Until its data is a copy, or at the core.
    pin: Option<Pin>,
}

impl Held {
    pub(super) fn is_dirty(&self) -> bool {
        self.version.state == State::Dirty
    }
}

impl Engine {
    /// Writes what is current of some blocks to the core, or was when their turn came. The caller
    /// holds the lock on them; segments are pinned only now, for reclaim must not wait for whoever
    /// waits for a lock.
    pub(super) async fn clean_batch(self: &Rc<Self>, batch: &[Version]) -> Outcome {
        let mut held = self.hold(batch);
        if let Err(error) = self.stabilise(|| self.are_stable(&held)).await {
            self.note_unwritten(&held, &error);
            return Err(error);
        }
        let (mut all, mut next) = (Ok(()), 0);
        while let Some(group) = self.next_group(&held, next) {
            next = group.end;
            all = all.and(self.clean_group(&mut held[group]).await);
        }
        all
    }

    fn are_stable(&self, held: &[Held]) -> bool {
        let log = self.log.borrow();
        held.iter().all(|held| log.is_stable(&held.version))
    }

    /// What of a batch is for the core, kept in its place from here on. What has been superseded
    /// meanwhile is followed: who waits for the one version waits for no other.
    fn hold(self: &Rc<Self>, batch: &[Version]) -> SmallVec<[Held; 1]> {
        let mut held = SmallVec::new();
        for version in batch {
            let mut log = self.log.borrow_mut();
            let now = still_there(&log, version).or_else(|| follow(&mut log, version));
            let Some(version) = now else { continue };
            let first = log.first_at(version.slot);
            drop(log);
            held.push(Held { version, first, pin: Some(self.pin(version.slot)) });
        }
        held
    }

    /// Writes neighbouring versions; where the cache device fails on one of them, the others are
    /// not to stay dirty for its sake.
    async fn clean_group(self: &Rc<Self>, group: &mut [Held]) -> Outcome {
        let outcome = self.write_group(group).await;
        let is_damaged = |error: &DeviceError| error.device() == self.cache.name();
        // What has been let go was read, and something else may lie there by now.
        let was_read = group[0].pin.is_none();
        if was_read || group.len() == 1 || !outcome.as_ref().is_err_and(is_damaged) {
            self.conclude(group, &outcome);
            return outcome;
        }
        // Apart, so that what mostly goes well is little memory.
        Box::pin(self.write_one_by_one(group)).await
    }

    async fn write_one_by_one(self: &Rc<Self>, group: &mut [Held]) -> Outcome {
        let mut all = Ok(());
        for alone in group.chunks_mut(1).filter(|alone| alone[0].is_dirty()) {
            let outcome = self.write_group(alone).await;
            self.conclude(alone, &outcome);
            all = all.and(outcome);
        }
        all
    }

    /// Writes neighbouring versions. Their segments are let go as soon as the data is a copy: a
    /// write may take long, and reclaim is not to wait for it.
    async fn write_group(self: &Rc<Self>, group: &mut [Held]) -> Outcome {
        let data = self.fetch(group).await?;
        if !self.lends {
            group.iter_mut().for_each(|held| held.pin = None);
        }
        let run = BlockRun { first: group[0].version.block, count: group.len() as u64 };
        let replayed = group.iter().any(|held| held.version.marks.contains(Marks::REPLAYED))
            && !defect!(PatchTornParity);
        let mut flags = RequestFlags::CLEANING;
        flags.set(RequestFlags::RECOMPUTE_PARITY, replayed);
        // The batch is stable in the log, unless the log is memory.
        flags.set(RequestFlags::LOGGED, !self.cache_is_volatile());
        self.count_core_write(run, group);
        let beside = self.cleaning.in_flight();
        let write = Request::write(run.range().start(), data).with_flags(flags);
        let failures = self.core_flushes.failures();
        let outcome = match self.core.submit(write).now_or() {
            Ok(outcome) => {
                self.learn_depth(Duration::ZERO, beside);
                outcome
            }
            Err(submitted) => {
                let begun = self.runtime.now();
                let outcome = submitted.await;
                self.learn_depth(self.runtime.now().since(begun), beside);
                outcome
            }
        };
        // Where a flush has failed meanwhile, the core may have lost what it took.
        outcome.and_then(|()| self.core_flushes.failed_since(failures))
    }

    fn learn_depth(&self, took: Duration, beside: u32) {
        let mut depth = self.cleaning.depth.get();
        depth.learn(took, beside, self.config.borrow().cleaning.in_flight_max);
        self.cleaning.depth.set(depth);
    }

    fn count_core_write(&self, run: BlockRun, group: &[Held]) {
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_writes += 1;
        log.counters.traffic.core.written_by_cleaning += run.range().len();
        log.count_versions(versions_of(group), |part| &mut part.core_written);
        if let Some(stripe) = self.core.geometry().stripe {
            let is_full = run.range().len() >= u64::from(stripe.width_bytes);
            log.counters.full_stripe_writes += u64::from(is_full);
        }
    }

    /// The data of a group: the cache device's own memory, where it lends that.
    async fn fetch(self: &Rc<Self>, group: &[Held]) -> Result<Buffers, DeviceError> {
        let bare = group.iter().filter(|held| held.version.is_payload_free()).count();
        if self.trusts_cache()
            && bare == 0
            && let Some(lent) = self.borrow(group)
        {
            return Ok(lent);
        }
        // Apart, so that what needs no reading is little memory.
        Box::pin(self.read_group(group, bare)).await
    }

    fn borrow(&self, group: &[Held]) -> Option<Buffers> {
        let mut lent = Buffers::new();
        for held in group {
            lent.push(self.cache.lend(self.place_of(held))?);
        }
        self.count_lent(lent.len_bytes() as u64);
        self.count_fetched(group);
        Some(lent)
    }

    fn count_fetched(&self, group: &[Held]) {
        let mut log = self.log.borrow_mut();
        log.count_versions(versions_of(group), |part| &mut part.cache_read);
    }

    fn place_of(&self, held: &Held) -> ByteRange {
        let layout = &self.log.borrow().layout;
        let position = layout.position_of(held.version.slot, held.version.unit);
        layout.range_at(position, BLOCK_BYTES)
    }

    /// The data, read and checked. Where only some versions have payload the others are zeros, so
    /// that an array has something to compute with.
    async fn read_group(
        self: &Rc<Self>,
        group: &[Held],
        bare: usize,
    ) -> Result<Buffers, DeviceError> {
        let (is_bare, len) = (bare == group.len(), group.len() * BLOCK_BYTES as usize);
        let whole = if is_bare { Buffer::payload_free(len) } else { self.take_memory(len) };
        if self.lends && is_bare {
            return Ok(whole.into());
        }
        self.count_fetched(group);
        let block = |index: usize| {
            let start = index * BLOCK_BYTES as usize;
            whole.slice(start..start + BLOCK_BYTES as usize)
        };
        let ranges: Vec<ByteRange> = group.iter().map(|held| self.place_of(held)).collect();
        let mut reads: Vec<(u64, Buffers)> = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            match reads.last_mut() {
                Some((at, to)) if *at + to.len_bytes() as u64 == range.start() => {
                    to.push(block(index));
                }
                _ => reads.push((range.start(), block(index).into())),
            }
        }
        let read = |(at, to)| self.read_to_clean(Request::read(at, to));
        let reads = reads.into_iter().map(|part| Submission::pending(read(part)));
        let outcome = join_all(reads.collect()).await.into_iter().collect::<Outcome>();
        if let Err(error) = &outcome {
            self.note_cache_error(CacheError::Read(error), Some(&group[0].version));
        }
        for (index, (held, range)) in group.iter().zip(&ranges).enumerate() {
            let (offset, data) = (range.start(), Buffers::from(block(index)));
            let found = match &outcome {
                Ok(()) => self.check(offset, &held.version, &data),
                Err(error) => Err(error.clone()),
            };
            if found.is_err()
                && !self.read_right(CacheRead::Cleaning, offset, &held.version, &data).await
            {
                return found.map(|()| whole.into());
            }
        }
        Ok(whole.into())
    }

    /// Accounts for a group whose write has ended.
    fn conclude(self: &Rc<Self>, group: &[Held], outcome: &Outcome) {
        match outcome {
            Ok(()) => self.note_written(group),
            Err(error) => self.note_unwritten(group, error),
        }
    }

    fn note_written(&self, group: &[Held]) {
        let mut log = self.log.borrow_mut();
        for Held { version, first, .. } in group {
            if version.marks.contains(Marks::REPLAYED) {
                // Whichever version it was: the parity fits what the core has of the block now.
                log.map.unmark_replayed(version.block);
            }
            let now = match log.take_carried(version, *first) {
                Some(copy) => {
                    // Where a newer one is on its way to the log, that is what the index names.
                    if copy.waits_for_cleaner() && log.map.newest(copy.block) == Some(copy) {
                        log.choose(&copy);
                    }
                    copy
                }
                None if log.first_at(version.slot) != *first => continue,
                None => {
                    log.written_in_order(version);
                    *version
                }
            };
            if !log.map.end_cleaning(now.slot, now.block) {
                continue;
            }
            if defect!(CleanBeforeCoreFlush) {
                log.map.set_state(now.slot, State::Clean);
                continue;
            }
            self.remember_written(&log, now.block, now.slot);
        }
        let dirty = group.iter().filter(|held| held.is_dirty()).count() as u64;
        log.counters.cleaned_blocks += dirty;
        log.counters.filled_blocks += group.len() as u64 - dirty;
        self.cleaning.cleaned.set(self.cleaning.cleaned.get() + dirty);
    }

    fn note_unwritten(self: &Rc<Self>, group: &[Held], error: &DeviceError) {
        let mut log = self.log.borrow_mut();
        let mut is_passed_over = false;
        for Held { version, first, .. } in group {
            if log.first_at(version.slot) != *first {
                continue;
            }
            if group.len() == 1 && error.device() == self.cache.name() {
                log.note_unreadable(version);
            }
            if group.len() == 1 && self.is_unreadable(error) {
                is_passed_over = log.pass_over(version);
            } else {
                log.choose_again(version);
            }
            log.give_back(version);
        }
        if is_passed_over {
            // Nobody needs what has been superseded.
            return;
        }
        // Of the core, or of what it is made of.
        if error.device() != self.cache.name() {
            log.count_error_of(&group[0].version, |errors| &mut errors.core_write);
        }
        drop(log);
        self.back_off(error.clone());
    }

    /// Whether a block in the log is unreadable, permanently as far as known.
    fn is_unreadable(&self, error: &DeviceError) -> bool {
        error.is_damage() && error.device() == self.cache.name()
    }
}

fn versions_of(group: &[Held]) -> impl Iterator<Item = &Version> {
    group.iter().map(|held| &held.version)
}

/// A version of a batch as it is now, where its contents are still those of the block.
fn still_there(log: &Log, version: &Version) -> Option<Version> {
    let now = log.map.version(version.slot);
    let is_wanted = match version.state {
        State::Dirty => now.state == State::Dirty,
        _ => matches!(now.state, State::Written | State::Clean),
    };
    match now.block == version.block && is_wanted && log.is_whole(&now) {
        true => Some(now),
        // Superseded, and next in order all the same.
        false => log.kept_version(version),
    }
}

/// The dirty version that has superseded one of a batch, chosen as that one was. Where the core is
/// kept in order it has to wait for its own turn.
fn follow(log: &mut Log, version: &Version) -> Option<Version> {
    log.forget_carried(version.block);
    if version.state != State::Dirty || log.order_stats().is_some() {
        return None;
    }
    let now = log.map.published(version.block)?;
    if now.state != State::Dirty || !log.is_whole(&now) {
        return None;
    }
    if now.waits_for_cleaner() {
        log.choose(&now);
    }
    Some(now)
}
