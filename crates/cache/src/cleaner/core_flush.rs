//! From written to clean: flushes of the core.

use crate::engine::{CacheError, Engine};
use crate::line_map::State;
use crate::log::{Formed, Log};
use crate::types::{BlockRun, CoreBlock, SegmentIndex, Sequence, SlotIndex};
use headpond_block::{Buffer, DeviceError, Outcome, Request, RequestFlags};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Beyond so many unrecorded blocks, and twice what is dirty, those that no longer are so are
/// looked for.
const SWEEP_FROM: u64 = 1024;
/// Unless operations wait for them, flushes take no more than this part of the time.
const FLUSH_ONE_IN: u32 = 8;

/// Neighbouring blocks that are contiguous in the log, that the core has, and where in the log they
/// were then: in a segment that began with record `first`.
struct WrittenRun {
    block: CoreBlock,
    slot: SlotIndex,
    count: u16,
    /// Their records say that the core may have them, and nothing else.
    is_through: bool,
    first: Sequence,
}

const _: () = assert!(size_of::<WrittenRun>() == 24);

impl WrittenRun {
    /// Takes in another row that follows this one; `false`, and nothing has happened, where that
    /// is one of its own.
    fn takes(&mut self, next: &Self) -> bool {
        let follows = next.block.0 == self.block.0 + u64::from(self.count)
            && next.slot.0 == self.slot.0 + u32::from(self.count)
            && (next.first, next.is_through) == (self.first, self.is_through);
        match self.count.checked_add(next.count).filter(|_| follows) {
            Some(count) => self.count = count,
            None => return false,
        }
        true
    }

    fn blocks(&self) -> impl Iterator<Item = (CoreBlock, SlotIndex)> + use<> {
        let Self { block, slot, count, .. } = *self;
        (0..count).map(move |index| {
            (CoreBlock(block.0 + u64::from(index)), SlotIndex(slot.0 + u32::from(index)))
        })
    }
}

/// What the core has and has not flushed.
#[derive(Default)]
pub(crate) struct Unflushed {
    /// What the next flush will cover.
    rows: Vec<WrittenRun>,
    /// By flush in flight, what it covers. Where one fails, all of it is suspect.
    covered: BTreeMap<u64, Vec<WrittenRun>>,
    begun: u64,
    /// The newest that has succeeded.
    flushed: u64,
}

impl Unflushed {
    /// Whether a flush would have nothing to cover.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn memory_bytes(&self) -> u64 {
        let rows = self.covered.values().fold(self.rows.len(), |sum, rows| sum + rows.len());
        (rows * size_of::<WrittenRun>()) as u64
    }

    /// Flushes that have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Whatever was written before that flush had begun is flushed.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    fn note(&mut self, row: WrittenRun) {
        if !self.rows.last_mut().is_some_and(|last| last.takes(&row)) {
            self.rows.push(row);
        }
    }

    fn covers(&self, first: Sequence) -> bool {
        self.rows.iter().any(|row| row.first == first)
    }

    fn begin_flush(&mut self) -> u64 {
        self.begun += 1;
        self.covered.insert(self.begun, std::mem::take(&mut self.rows));
        self.begun
    }

    fn end_flush(&mut self, flush: u64) -> Vec<WrittenRun> {
        self.flushed = self.flushed.max(flush);
        self.covered.remove(&flush).unwrap_or_default()
    }

    /// Checks that whatever the core has and has not flushed is known here, so that it becomes
    /// clean; for tests and simulation.
    ///
    /// # Panics
    /// Where something is not.
    pub fn self_check(&self, log: &Log) {
        assert!(self.flushed <= self.begun, "a flush ends that has begun");
        let is_under_way = |flush: &u64| *flush <= self.begun;
        assert!(self.covered.keys().all(is_under_way), "a flush covers what has begun");
        let rows = self.covered.values().flatten().chain(&self.rows);
        let known: BTreeSet<_> = rows.flat_map(|row| still_written(log, row)).collect();
        for version in log.map.iter().filter(|version| version.state == State::Written) {
            let is_known = known.contains(&(version.block, version.slot));
            assert!(is_known, "{:?} is written, and never clean", version.block);
        }
    }

    fn take_all(&mut self) -> impl Iterator<Item = WrittenRun> + use<> {
        let covered = std::mem::take(&mut self.covered);
        covered.into_values().flatten().chain(std::mem::take(&mut self.rows))
    }
}

/// Blocks whose records say no more than that the core may have them, and the how manieth each was
/// when it was last noted.
#[derive(Default)]
pub(super) struct Unrecorded {
    blocks: BTreeMap<CoreBlock, u64>,
    noted: u64,
}

/// Changes of the core, and those that a flush of it has covered.
#[derive(Default)]
pub(crate) struct CoreChanges {
    made: Cell<u64>,
    flushed: Cell<u64>,
}

impl CoreChanges {
    pub fn note(&self) {
        self.made.set(self.made.get() + 1);
    }

    pub fn are_flushed(&self) -> bool {
        self.flushed.get() >= self.made.get()
    }

    fn cover(&self, made: u64) {
        self.flushed.set(self.flushed.get().max(made));
    }

    /// # Panics
    /// Where more is flushed than was made.
    pub fn self_check(&self) {
        assert!(self.flushed.get() <= self.made.get(), "flushed is what was made");
    }
}

impl Engine {
    /// Notes that the core has a block, which counts as clean after its next flush.
    pub(crate) fn remember_written(&self, log: &Log, block: CoreBlock, slot: SlotIndex) {
        let first = log.first_at(slot);
        self.remember_row(WrittenRun { block, slot, count: 1, is_through: false, first });
    }

    /// The same of blocks that were written through, and lie in a row in the log, of one record.
    pub(crate) fn remember_through(&self, log: &Log, run: BlockRun, slot: SlotIndex) {
        let count = u16::try_from(run.count).expect("a record has fewer blocks");
        let first = log.first_at(slot);
        self.remember_row(WrittenRun { block: run.first, slot, count, is_through: true, first });
    }

    fn remember_row(&self, row: WrittenRun) {
        self.written.borrow_mut().note(row);
    }

    /// Notes that the core has what has been carried on, after its next flush: the one on its way
    /// looks for the originals. Where doubts have come up since there were so many, nobody knows
    /// what the core has of it.
    pub(crate) fn remember_copies(&self, formed: &Formed, suspect_parity: u64) {
        let mut log = self.log.borrow_mut();
        let copies = log.written_in(formed);
        if self.cleaning.suspect_parity.get() == suspect_parity {
            copies.iter().for_each(|copy| self.remember_written(&log, copy.block, copy.slot));
            return;
        }
        copies.iter().for_each(|copy| make_dirty(&mut log, copy.slot));
        self.cleaning_wanted.notify_all();
    }

    /// Flushes the core after the set interval, one flush at a time. Meanwhile no core write is
    /// started: a drive that sorts its writes would keep the oldest waiting behind ever newer ones,
    /// and the flush with them (40 modelled drives: 1,750 blocks a second with the pause, 1,380
    /// without).
    ///
    /// Where nobody waits for what it gives, the next one comes after eight times what the last one
    /// took: disks that are flushed all the time write their caches back before they read, and
    /// small writes, which wait for reads of parity, get a third of what they have without.
    pub(crate) fn schedule_core_flush_later(self: &Rc<Self>) {
        if self.cleaning.flush_is_due.replace(true) {
            return;
        }
        let interval = self.config.borrow().cleaning.core_flush_interval_ms;
        let interval = Duration::from_millis(u64::from(interval));
        // A policy that works in small gos gains nothing by more flushes than work.
        let interval = match self.cleaning.policy.borrow().wants_relief() {
            true => interval.max(self.cleaning.flush_took.get()),
            false => interval,
        };
        self.later(interval, async move |engine| {
            let rest = engine.cleaning.flush_took.get() * FLUSH_ONE_IN;
            let until = engine.runtime.now() + rest.saturating_sub(interval);
            while engine.runtime.now() < until && !engine.wants_flush() {
                engine.runtime.sleep(interval.max(Duration::from_millis(1))).await;
            }
            if !engine.written.borrow().is_empty() && !engine.is_stopping.get() {
                engine.cleaning.begin_flushing();
                // After a failure everything is dirty again.
                if let Err(error) = engine.flush_core().await {
                    engine.back_off(error);
                }
                engine.cleaning.end_flushing();
                engine.reclaim_wanted.notify_all();
            }
            engine.cleaning.flush_is_due.set(false);
            engine.cleaning_wanted.notify_all();
        });
    }

    /// Whether operations wait for a flush of the core.
    fn wants_flush(&self) -> bool {
        self.cleaning.drainers.get() > 0
            || self.has_waiters()
            || self.is_short_of_room()
            || self.is_stopping.get()
    }

    /// Where the oldest epoch has been written, and nothing is on its way, has the core flushed and
    /// begins with the next.
    pub(super) fn end_written_epoch(self: &Rc<Self>) {
        while self.cleaning.is_at_rest() && !self.is_resting() {
            match self.log.borrow().is_epoch_written() {
                None => return,
                Some(true) => break,
                Some(false) => {}
            }
            self.log.borrow_mut().epoch_done();
            self.cleaning_wanted.notify_all();
        }
        if !self.cleaning.is_at_rest() || self.is_resting() || self.is_stopping.get() {
            return;
        }
        self.cleaning.begin_flushing();
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            match engine.flush_core().await {
                Ok(()) => {
                    engine.log.borrow_mut().epoch_done();
                    engine.save_mark().await;
                }
                // Everything is dirty again.
                Err(error) => engine.back_off(error),
            }
            engine.cleaning.end_flushing();
            engine.cleaning_wanted.notify_all();
            engine.reclaim_wanted.notify_all();
        }));
    }

    /// Has it stable how far the core has come, before the next epoch begins. Where that cannot be,
    /// the order does not outlive a stop until the core has everything.
    async fn save_mark(&self) {
        if self.cache_is_volatile() {
            return;
        }
        let (mark, offset) = {
            let mut log = self.log.borrow_mut();
            let Some(mark) = log.next_mark() else { return };
            (mark, log.layout.order_mark_offset((mark.sequence % 2) as usize))
        };
        let write = Request::write(offset, Buffer::from_slice(&mark.encode()));
        let bytes = write.range.len();
        self.log.borrow_mut().counters.traffic.cache.written_checkpoints += bytes;
        if let Err(error) = self.cache.submit(write.with_flags(RequestFlags::FUA)).await {
            self.note_cache_error(CacheError::Write(&error), None);
            self.log.borrow_mut().mix();
        }
    }

    /// Flushes the core: what was written before is clean.
    ///
    /// # Errors
    /// Where this flush has failed, or the one before it meanwhile: a flush that succeeds knows
    /// nothing of what an earlier one lost.
    pub(crate) async fn flush_core(self: &Rc<Self>) -> Outcome {
        self.heed_failures();
        let covered = self.written.borrow_mut().begin_flush();
        let (changes, past) = (self.core_changes.made.get(), self.past_changes.made.get());
        let suspect_parity = self.cleaning.suspect_parity.get();
        let count = |outcome: &Outcome| self.count_core_flush(outcome);
        let begun = self.runtime.now();
        let outcome = self.core_flushes.flush(&*self.core, count).await;
        self.cleaning.flush_took.set(self.runtime.now().since(begun));
        self.cleaning.is_flush_failing.set(outcome.is_err());
        match outcome {
            Ok(()) => {
                self.core_changes.cover(changes);
                self.past_changes.cover(past);
                self.make_clean(covered, suspect_parity);
            }
            Err(_) => self.heed_failures(),
        }
        self.pump();
        self.cleaning_wanted.notify_all();
        self.reclaim_wanted.notify_all();
        self.thinning.wake();
        outcome
    }

    fn count_core_flush(&self, outcome: &Outcome) {
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_flushes += 1;
        log.counters.errors.core_flush += u64::from(outcome.is_err());
    }

    /// Where a flush of the core has failed, of any slice, what this one has there may be lost.
    fn heed_failures(&self) {
        if let Err(error) = self.core_flushes.failed_since(self.heeded.get()) {
            self.make_dirty_again(&error);
        }
    }

    /// Has the core flushed, so that nothing of a segment has to be carried on, and waits for that:
    /// the core may stand still for long. Where writes find no room meanwhile, and what is carried
    /// on takes less than that gives back, it goes on without.
    pub(crate) async fn flush_core_for(self: &Rc<Self>, segment: SegmentIndex) {
        let first = self.log.borrow().ring.first_record(segment);
        let is_covered = !self.written.borrow().covers(first);
        let is_cleaners = self.cleaning.is_flushing() && is_covered;
        let is_answered = Rc::new(Cell::new(is_cleaners));
        if !is_cleaners {
            let (engine, is_answered) = (Rc::clone(self), Rc::clone(&is_answered));
            drop(self.runtime.spawn(async move {
                drop(engine.flush_core().await);
                is_answered.set(true);
                engine.reclaim_wanted.notify_all();
            }));
        }
        let waits = || !is_answered.get() || is_cleaners && self.cleaning.is_flushing();
        loop {
            let wake = self.reclaim_wanted.wait();
            if !waits() || self.lacks_space() && self.log.borrow().is_cheap(segment) {
                break;
            }
            wake.await;
        }
    }

    /// What a flush has covered is clean, unless the core is about to have something else of it.
    fn make_clean(&self, flush: u64, suspect_parity: u64) {
        let covered = self.written.borrow_mut().end_flush(flush);
        let mut log = self.log.borrow_mut();
        // One that came into doubt meanwhile may have been written a second time since, which only
        // the next flush covers; and which one it was is not kept.
        let is_sure = self.cleaning.suspect_parity.get() == suspect_parity;
        let is_scattered = log.is_scattered();
        for row in &covered {
            if !is_sure {
                self.remember_again(&log, row);
                continue;
            }
            if is_scattered {
                self.note_thinnable(&log, row);
            }
            make_clean(&mut log, row);
        }
    }

    /// Only a later flush covers what of a row is still there.
    fn remember_again(&self, log: &Log, row: &WrittenRun) {
        let WrittenRun { is_through, first, .. } = *row;
        still_written(log, row).for_each(|(block, slot)| {
            self.remember_row(WrittenRun { block, slot, count: 1, is_through, first });
        });
    }

    /// What of a row is still there will be clean in a moment, and is perhaps in the way.
    fn note_thinnable(&self, log: &Log, row: &WrittenRun) {
        still_written(log, row)
            .for_each(|(block, slot)| self.thinning.note_clean(log, block, slot, row.first));
    }

    /// After a failed flush nobody knows what the core kept of anything: of what that covered, of
    /// what came later, copies among it, and of what other flushes cover, which would be copied as
    /// if the core had it. It is all dirty again.
    fn make_dirty_again(&self, error: &DeviceError) {
        self.heeded.set(self.core_flushes.failures());
        if !self.past_changes.are_flushed() {
            self.past_loss.replace(Some(error.clone()));
        }
        self.mark_suspect();
        self.cleaning.policy.borrow_mut().failed();
        let mut log = self.log.borrow_mut();
        log.epoch_failed();
        let is_uncertain = self.written.borrow_mut().take_all();
        for row in is_uncertain {
            for (block, slot) in row.blocks() {
                if is_still_written(&log, block, slot, row.first) {
                    make_dirty(&mut log, slot);
                    if row.is_through {
                        self.note_unrecorded(&log, block);
                    }
                }
            }
        }
    }

    /// Notes that the record of a dirty block says no more than that the core may have it.
    pub(crate) fn note_unrecorded(&self, log: &Log, block: CoreBlock) {
        let Unrecorded { blocks, noted } = &mut *self.cleaning.unrecorded.borrow_mut();
        *noted += 1;
        blocks.insert(block, *noted);
        if blocks.len() as u64 > SWEEP_FROM + 2 * log.dirty_now() {
            blocks.retain(|block, _| is_pending(log, *block));
        }
    }

    fn mark_suspect(&self) {
        self.cleaning.suspect_parity.set(self.cleaning.suspect_parity.get() + 1);
    }

    /// Has the core take, and flush, what only it would have after a cut.
    ///
    /// # Errors
    /// The core's; and the cache device's once, for what cannot be read is lost.
    pub(crate) async fn clean_unrecorded(self: &Rc<Self>) -> Outcome {
        // They stay among them meanwhile, for whoever else flushes.
        let noted = self.cleaning.unrecorded.borrow().noted;
        let blocks = self.unrecorded_until(noted);
        if blocks.is_empty() {
            return Ok(());
        }
        let failures = self.core_flushes.failures();
        let cleaned = self.clean_in_place(&blocks).await;
        // Some may have been cleaned before, by a flush that has failed since.
        let cleaned = cleaned.and_then(|()| self.core_flushes.failed_since(failures));
        let (log, is_cleaned) = (self.log.borrow(), cleaned.is_ok());
        let mut unrecorded = self.cleaning.unrecorded.borrow_mut();
        let is_over = |block, at| at <= noted && (is_cleaned || log.is_unreadable(block));
        unrecorded.blocks.retain(|block, at| !is_over(*block, *at));
        cleaned
    }

    /// Those that are still owed, of the first so many.
    fn unrecorded_until(&self, noted: u64) -> Vec<CoreBlock> {
        let log = self.log.borrow();
        let mut unrecorded = self.cleaning.unrecorded.borrow_mut();
        unrecorded.blocks.retain(|block, _| is_pending(&log, *block));
        let blocks = unrecorded.blocks.iter().filter(|(_, at)| **at <= noted);
        blocks.map(|(block, _)| *block).collect()
    }

    /// What a failed flush may have cost of writes past the cache, which nobody has been told yet.
    pub(crate) fn tell_of_loss(&self) -> Outcome {
        self.past_loss.take().map_or(Ok(()), Err)
    }

    /// What the core has of some blocks is about to be written over, and they are still mapped: no
    /// flush that is under way makes them clean, and should they stay they are written again.
    pub(crate) fn distrust_written(&self, run: BlockRun) {
        let mut log = self.log.borrow_mut();
        let mut written = Vec::new();
        log.map.each_published(run, |_, version| {
            written.extend(version.filter(|version| version.state == State::Written));
        });
        if !written.is_empty() {
            self.mark_suspect();
        }
        for version in written {
            make_dirty(&mut log, version.slot);
            // It may have been written through.
            self.note_unrecorded(&log, version.block);
        }
        drop(log);
        self.cleaning_wanted.notify_all();
    }
}

/// What of a row is still there is clean.
fn make_clean(log: &mut Log, row: &WrittenRun) {
    let WrittenRun { block, slot, count, first, .. } = *row;
    if log.first_at(slot) == first {
        let places = slot.0..slot.0 + u32::from(count);
        log.map.move_on(block, places, State::Written, State::Clean);
    }
}

/// Whether the core lacks what is current of a block, or has not flushed it.
fn is_pending(log: &Log, block: CoreBlock) -> bool {
    let version = log.map.published(block);
    version.is_some_and(|version| matches!(version.state, State::Dirty | State::Written))
}

/// What was written to the core is to be written again.
fn make_dirty(log: &mut Log, slot: SlotIndex) {
    log.map.set_state(slot, State::Dirty);
    let version = log.map.version(slot);
    log.give_back(&version);
}

fn still_written(log: &Log, row: &WrittenRun) -> impl Iterator<Item = (CoreBlock, SlotIndex)> {
    let first = row.first;
    row.blocks().filter(move |&(block, slot)| is_still_written(log, block, slot, first))
}

fn is_still_written(log: &Log, block: CoreBlock, slot: SlotIndex, first: Sequence) -> bool {
    log.map.state_of(slot, block) == State::Written && log.first_at(slot) == first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::lived;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_what_was_written_and_never_becomes_clean() {
        let check = |it: &Rc<Engine>| {
            it.written.borrow().self_check(&it.log.borrow());
            it.core_changes.self_check();
        };
        let breaks: [Break<Rc<Engine>>; 5] = [
            ("is written, and never clean", |it| {
                let mut log = it.log.borrow_mut();
                let slot = log.map.published(CoreBlock(0)).expect("it was written").slot;
                log.map.set_state(slot, State::Written);
            }),
            ("is written, and never clean", |it| {
                let mut log = it.log.borrow_mut();
                let slot = log.map.published(CoreBlock(0)).expect("it was written").slot;
                log.map.set_state(slot, State::Written);
                // What lay there before.
                let (block, first) = (CoreBlock(0), Sequence(0));
                it.remember_row(WrittenRun { block, slot, count: 1, is_through: false, first });
            }),
            ("a flush ends that has begun", |it| _ = it.written.borrow_mut().end_flush(1)),
            ("a flush covers what has begun", |it| {
                it.written.borrow_mut().covered.insert(1, Vec::new());
            }),
            ("flushed is what was made", |it| it.core_changes.cover(1)),
        ];
        assert_trips(lived, check, &breaks);
    }
}
