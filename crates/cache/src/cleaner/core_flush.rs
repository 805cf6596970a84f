//! From written to clean: flushes of the core.

use crate::engine::Engine;
use crate::line_map::State;
use crate::log::{Formed, Log};
use crate::types::{BlockRun, CoreBlock, SegmentIndex, Sequence, SlotIndex};
use headpond_block::{Outcome, Request};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Neighbouring blocks that lie in a row in the log, that the core has, and where in the log they
/// were then: in a segment that began with record `first`.
pub(crate) struct Written {
    block: CoreBlock,
    slot: SlotIndex,
    count: u32,
    first: Sequence,
}

const _: () = assert!(size_of::<Written>() == 24);

impl Written {
    fn is_followed_by(&self, block: CoreBlock, slot: SlotIndex, first: Sequence) -> bool {
        block.0 == self.block.0 + u64::from(self.count)
            && slot.0 == self.slot.0 + self.count
            && first == self.first
    }

    fn blocks(&self) -> impl Iterator<Item = (CoreBlock, SlotIndex, Sequence)> + use<> {
        let Self { block, slot, count, first } = *self;
        (0..count).map(move |index| {
            (CoreBlock(block.0 + u64::from(index)), SlotIndex(slot.0 + index), first)
        })
    }
}

impl Engine {
    /// Notes that the core has a block, which counts as clean after its next flush.
    pub(crate) fn remember_written(&self, log: &Log, block: CoreBlock, slot: SlotIndex) {
        self.remember_written_run(log, BlockRun { first: block, count: 1 }, slot);
    }

    /// The same of blocks that lie in a row in the log, of one record.
    pub(crate) fn remember_written_run(&self, log: &Log, run: BlockRun, slot: SlotIndex) {
        let (first, block, count) = (log.first_at(slot), run.first, run.count as u32);
        let mut written = self.written.borrow_mut();
        match written.last_mut() {
            Some(row) if row.is_followed_by(block, slot, first) => row.count += count,
            _ => written.push(Written { block, slot, count, first }),
        }
    }

    /// Notes that the core has what has been carried on, after its next flush: the one on its way
    /// looks for the originals. Where flushes have failed since there were so many such failures,
    /// nobody knows what the core kept of it.
    pub(crate) fn remember_copies(&self, formed: &Formed, failures: u64) {
        let mut log = self.log.borrow_mut();
        let copies = log.written_in(formed);
        if self.cleaning.redone.get() == failures {
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
    pub(crate) fn schedule_core_flush_later(self: &Rc<Self>) {
        if self.cleaning.flush_is_due.replace(true) {
            return;
        }
        let interval = self.config.borrow().cleaning.core_flush_interval_ms;
        self.later(Duration::from_millis(u64::from(interval)), async |engine| {
            if !engine.written.borrow().is_empty() && !engine.is_stopping.get() {
                engine.cleaning.is_flushing.set(true);
                // After a failure everything is dirty again.
                if let Err(error) = engine.flush_core().await {
                    engine.back_off(error);
                }
                engine.cleaning.is_flushing.set(false);
                engine.reclaim_wanted.notify_all();
            }
            engine.cleaning.flush_is_due.set(false);
            engine.cleaning_wanted.notify_all();
        });
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
        self.cleaning.is_flushing.set(true);
        let engine = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            match engine.flush_core().await {
                Ok(()) => engine.log.borrow_mut().epoch_done(),
                // Everything is dirty again.
                Err(error) => engine.back_off(error),
            }
            engine.cleaning.is_flushing.set(false);
            engine.cleaning_wanted.notify_all();
            engine.reclaim_wanted.notify_all();
        }));
    }

    /// Flushes the core: what was written before is clean.
    ///
    /// # Errors
    /// Where this flush has failed, or one beside it: who has taken blocks along says what became
    /// of them, and a later flush that succeeds knows nothing of what an earlier one lost.
    pub(crate) async fn flush_core(self: &Rc<Self>) -> Outcome {
        let failures = self.cleaning.core_flushes.failures();
        let flush = self.cleaning.core_flushes.begin();
        let outcome = self.flush_core_alone(failures).await;
        flush.note(&outcome);
        outcome?;
        // Asked at once again it would have nothing to do, and never let them end.
        flush.end_of_earlier(failures).await
    }

    /// Has the core flushed, so that nothing of a segment has to be carried on, and waits for that:
    /// the core may stand still for long. Where writes find no room meanwhile, and what is carried
    /// on takes less than that gives back, it goes on without. Not with the shortest lines: small
    /// and long writes mixed came a tenth more slowly so.
    pub(crate) async fn flush_core_for(self: &Rc<Self>, segment: SegmentIndex) {
        if !self.log.borrow().map.has_pool() {
            drop(self.flush_core().await);
            return;
        }
        let first = self.log.borrow().ring.first_record(segment);
        let is_newer = |row: &Written| row.first == first;
        let is_covered = !self.written.borrow().iter().any(is_newer);
        let is_cleaners = self.cleaning.is_flushing.get() && is_covered;
        let is_answered = Rc::new(Cell::new(is_cleaners));
        if !is_cleaners {
            let (engine, is_answered) = (Rc::clone(self), Rc::clone(&is_answered));
            drop(self.runtime.spawn(async move {
                drop(engine.flush_core().await);
                is_answered.set(true);
                engine.reclaim_wanted.notify_all();
            }));
        }
        let waits = || !is_answered.get() || is_cleaners && self.cleaning.is_flushing.get();
        loop {
            let wake = self.reclaim_wanted.wait();
            if !waits() || self.lacks_space() && self.log.borrow().is_cheap(segment) {
                break;
            }
            wake.await;
        }
    }

    /// What nobody else is flushing is clean then, unless a flush has failed since there were so
    /// many failures: the core may have lost in it whatever was written before.
    async fn flush_core_alone(self: &Rc<Self>, failures: u64) -> Outcome {
        let mut taken = self.written.take();
        let changes = self.core_changes.get();
        let distrusts = self.cleaning.distrusts.get();
        let outcome = self.core.submit(Request::flush()).await;
        self.cleaning.is_flush_failing.set(outcome.is_err());
        let mut log = self.log.borrow_mut();
        log.counters.cleaning_flushes += 1;
        log.counters.errors.core_flush += u64::from(outcome.is_err());
        if outcome.is_err() || self.cleaning.core_flushes.failures() != failures {
            // What came there later was there before this flush failed as well, and copies of what
            // was taken have come there.
            taken.append(&mut self.written.borrow_mut());
            self.redo(&mut log, &taken);
        } else {
            let flushed = self.core_changes_flushed.get().max(changes);
            self.core_changes_flushed.set(flushed);
            // One that was distrusted meanwhile may have been written a second time since, which
            // only the next flush covers; and which one it was is not kept.
            let is_sure = self.cleaning.distrusts.get() == distrusts;
            let is_scattered = log.is_scattered();
            for row in &taken {
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
        drop(log);
        self.pump();
        self.cleaning_wanted.notify_all();
        self.reclaim_wanted.notify_all();
        self.thinning.wake();
        outcome
    }

    /// Only a later flush covers what of a row is still there.
    fn remember_again(&self, log: &Log, row: &Written) {
        still_written(log, row)
            .for_each(|(block, slot, _)| self.remember_written(log, block, slot));
    }

    /// What of a row is still there will be clean in a moment, and is perhaps in the way.
    fn note_thinnable(&self, log: &Log, row: &Written) {
        still_written(log, row)
            .for_each(|(block, slot, first)| self.thinning.note_clean(log, block, slot, first));
    }

    /// After a failed flush nobody knows what the core kept: it is all dirty again.
    fn redo(&self, log: &mut Log, taken: &[Written]) {
        self.cleaning.redone.set(self.cleaning.redone.get() + 1);
        self.cleaning.policy.borrow_mut().failed();
        log.epoch_failed();
        for (block, slot, first) in taken.iter().flat_map(Written::blocks) {
            if is_still_written(log, block, slot, first) {
                make_dirty(log, slot);
            }
        }
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
            self.cleaning.distrusts.set(self.cleaning.distrusts.get() + 1);
        }
        written.into_iter().for_each(|version| make_dirty(&mut log, version.slot));
        drop(log);
        self.cleaning_wanted.notify_all();
    }
}

/// What of a row is still there is clean.
fn make_clean(log: &mut Log, row: &Written) {
    let Written { block, slot, count, first } = *row;
    if log.first_at(slot) == first {
        log.map.move_on(block, slot.0..slot.0 + count, State::Written, State::Clean);
    }
}

/// What was written to the core is to be written again.
fn make_dirty(log: &mut Log, slot: SlotIndex) {
    log.map.set_state(slot, State::Dirty);
    let version = log.map.version(slot);
    log.give_back(&version);
}

fn still_written(
    log: &Log,
    row: &Written,
) -> impl Iterator<Item = (CoreBlock, SlotIndex, Sequence)> {
    row.blocks().filter(move |&(block, slot, first)| is_still_written(log, block, slot, first))
}

fn is_still_written(log: &Log, block: CoreBlock, slot: SlotIndex, first: Sequence) -> bool {
    log.map.state_of(slot, block) == State::Written && log.first_at(slot) == first
}
