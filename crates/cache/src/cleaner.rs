//! The cleaner: writes dirty data to the core, in address order or as the policy decides.
//!
//! 1. Take neighbouring dirty blocks of one stripe from the index; 2. under the lock on the blocks,
//!    write those that are still current; they are *written*; 3. after enough writes, or enough
//!    time, flush the core; they are *clean*. Cleaning continues while the core flushes.
//!
//! Blocks replayed after an unclean shutdown go first, and are written with their parity
//! recomputed: it is suspect, and no other record names the stripes that were being written. Where
//! the core is kept in flush order, that is done separately (`parity`).
//!
//! **Invariants**
//! - A block becomes clean only by a core flush that began after its write completed.
//! - No two writes of one block to the core are in flight.
//! - A cleaned version is distinguished from a later one in the same place.
//! - No version of a replayed block is dropped, and nothing else is written over the block at the
//!   core, before its parity has been recomputed.
//!
//! **Not here**: which block is next, and how many writes (`cleaning`).

mod batches;
mod core_flush;
mod draining;
mod filling;
mod guide;
mod parity;
mod readers;
mod reads;
mod relief;
mod writing;

pub(crate) use core_flush::{CoreChanges, Unflushed};

use crate::cleaning::{self, CleaningConfig, ConcurrencyLimit, Depth, Policy, pace};
use crate::engine::Engine;
use crate::error::CleanError;
use crate::line_map::{Marks, State, Version};
use crate::log::Log;
use crate::types::{BlockRun, CoreBlock};
use crate::under_way::{Failures, UnderWay};
use batches::{Batch, Begun, Task};
use headpond_block::sync::{Notify, join_all};
use headpond_block::{Cause, DeviceError, Instant, Outcome, Submission};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// After a failed write to the core.
const BACK_OFF: Duration = Duration::from_millis(500);
/// So many writes are the mean of how much one carries; it begins high.
const MEAN_OF_WRITES: u16 = 256;

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
    under_way: RefCell<UnderWay>,
    /// Those of them that settle parity, after which their blocks are dirty still.
    settling: Cell<u32>,
    /// What they write.
    blocks_under_way: Cell<u64>,
    /// Recent average of their size.
    blocks_per_write: Cell<f64>,
    /// The task waits for something to do.
    pub is_idle: Cell<bool>,
    /// Reclaim waits for what has to go to the core in its order.
    pub is_space_wanted: Cell<bool>,
    /// Blocks that have been cleaned since the rate of it was last noted.
    cleaned: Cell<u64>,
    /// Callers that want everything cleaned.
    pub drainers: Cell<u32>,
    /// Of them, those that do not wait for readers.
    at_full_rate: Cell<u32>,
    /// Commands do not wait for it any more.
    are_commands_ended: Cell<bool>,
    /// The index has been looked through as far as the pace allows.
    pub swept: Notify,
    failures: Failures,
    /// Writes of replayed blocks that the requests leave room for.
    leisure: Cell<u32>,
    /// What the core can use at once.
    depth: Cell<Depth>,
    /// What of that those leave who read it.
    concurrency_limit: RefCell<ConcurrencyLimit>,
    back_off_until: Cell<Option<Instant>>,
    flush_is_due: Cell<bool>,
    /// The last flush of the core took so long.
    pub flush_took: Cell<Duration>,
    /// Who has the core flushed, and no writes begun meanwhile.
    flushing: Cell<u32>,
    /// How often blocks on the core became suspect: a flush failed, or they were about to be
    /// written over past the log.
    pub suspect_parity: Cell<u64>,
    /// Written through, and dirty since a flush failed: after a cut their records say no more than
    /// that the core may have them.
    unrecorded: RefCell<core_flush::Unrecorded>,
    /// The newest flush of the core has failed: what is written there is written again.
    pub is_flush_failing: Cell<bool>,
    draining: Cell<draining::Draining>,
}

impl Progress {
    pub fn new(config: &CleaningConfig) -> Self {
        Self {
            policy: RefCell::new(cleaning::policy(config)),
            round: RefCell::default(),
            relief: relief::Relief::default(),
            reads: reads::Reads::default(),
            alarm: Cell::default(),
            under_way: RefCell::default(),
            settling: Cell::default(),
            blocks_under_way: Cell::default(),
            blocks_per_write: Cell::new(f64::from(MEAN_OF_WRITES)),
            is_idle: Cell::default(),
            is_space_wanted: Cell::default(),
            cleaned: Cell::default(),
            drainers: Cell::default(),
            at_full_rate: Cell::default(),
            are_commands_ended: Cell::default(),
            swept: Notify::default(),
            failures: Failures::default(),
            leisure: Cell::default(),
            depth: Cell::default(),
            concurrency_limit: RefCell::default(),
            back_off_until: Cell::default(),
            flush_is_due: Cell::default(),
            flush_took: Cell::default(),
            flushing: Cell::default(),
            suspect_parity: Cell::default(),
            unrecorded: RefCell::default(),
            is_flush_failing: Cell::default(),
            draining: Cell::default(),
        }
    }

    /// Nothing is on its way to the core, or chosen to go there.
    pub fn is_at_rest(&self) -> bool {
        self.in_flight() == 0 && self.round.borrow().is_empty()
    }

    /// Nothing of the cleaner is on its way to either device.
    pub fn is_over(&self) -> bool {
        self.in_flight() == 0 && !self.is_flushing()
    }

    fn is_flushing(&self) -> bool {
        self.flushing.get() > 0
    }

    fn begin_flushing(&self) {
        self.flushing.set(self.flushing.get() + 1);
    }

    fn end_flushing(&self) {
        self.flushing.set(self.flushing.get() - 1);
    }

    /// Writes that have begun and not ended.
    pub fn in_flight(&self) -> u32 {
        self.under_way.borrow().count()
    }

    /// Of these blocks; its number.
    fn note_begun(&self, batch: &Batch) -> u64 {
        self.blocks_under_way.set(self.blocks_under_way.get() + batch.len() as u64);
        let mean = self.blocks_per_write.get();
        self.blocks_per_write.set(mean + (batch.len() as f64 - mean) / f64::from(MEAN_OF_WRITES));
        self.under_way.borrow_mut().begin()
    }

    fn note_ended(&self, number: u64, batch: &Batch) {
        self.blocks_under_way.set(self.blocks_under_way.get() - batch.len() as u64);
        self.under_way.borrow_mut().end(number);
    }

    /// Checks the counts, and that whatever counts as chosen is; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self, log: &Log) {
        self.under_way.borrow().self_check();
        let (in_flight, blocks) = (self.in_flight(), self.blocks_under_way.get());
        assert!(blocks >= in_flight.into(), "each write carries a block");
        assert_eq!(blocks == 0, in_flight == 0, "blocks are under way with writes");
        let of_them = self.settling.get().max(self.relief.in_flight.get());
        assert!(of_them <= in_flight, "each is one of the writes");
        let is_in_order = self.round.borrow().iter().is_sorted_by_key(|version| version.block);
        assert!(is_in_order, "a round ascends");
        let is_chosen = |version: &Version| {
            version.state == State::Dirty && version.marks.contains(Marks::CLEANING)
        };
        // In order, what cannot be read stays chosen until everything is walked again.
        if self.is_at_rest() && !log.is_in_order() {
            let chosen = log.map.iter().find(is_chosen).map(|version| version.block);
            assert_eq!(chosen, None, "chosen, and nobody cleans it");
        }
    }
}

impl Engine {
    /// The cleaner's task.
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let wake = self.cleaning_wanted.wait();
            self.note_rate();
            self.relieve();
            let batches = self.next_batches();
            let has_begun = !batches.is_empty();
            self.begin(batches);
            self.end_written_epoch();
            if self.log.borrow().has_lost_order() {
                self.seal_when_idle();
            }
            self.cleaning.swept.notify_all();
            if !self.written.borrow().is_empty() {
                self.schedule_core_flush_later();
            }
            self.cleaning.is_idle.set(!has_begun && self.cleaning.in_flight() == 0);
            self.set_alarm();
            if has_begun {
                // There may be more; first let other ready tasks run.
                self.runtime.yield_now().await;
            } else {
                wake.await;
            }
        }
    }

    /// Whether commands that wait for everything to be clean end; what is dirty stays so.
    pub(crate) fn end_commands(&self, are_ended: bool) {
        self.cleaning.are_commands_ended.set(are_ended);
        self.cleaning.swept.notify_all();
    }

    fn note_rate(&self) {
        let cleaned = self.cleaning.cleaned.take();
        if cleaned > 0 {
            self.cleaned.borrow_mut().add(self.runtime.now(), cleaned);
        }
    }

    /// Begins writes that were chosen together. Those that the core answers at once end here.
    fn begin(self: &Rc<Self>, batches: Vec<Begun>) {
        let mut starter = self.runtime.starter();
        for begun in batches {
            starter.start(|| Rc::clone(self).clean_chosen(begun));
        }
    }

    async fn clean_chosen(self: Rc<Self>, Begun { number, task, batch }: Begun) {
        let requests = self.requests.get();
        {
            let _lock = self.core_writes.lock(run_of(&batch)).await;
            // A failure is counted, and the cleaner tries again.
            match task {
                Task::Settle => {
                    Box::pin(self.settle_in_place(&batch)).await;
                    self.cleaning.settling.set(self.cleaning.settling.get() - 1);
                }
                Task::Clean | Task::Relieve => _ = self.clean_batch(&batch).await,
            }
        }
        self.cleaning.note_ended(number, &batch);
        if task == Task::Relieve {
            self.note_relief();
        }
        self.note_leisure(requests);
        self.cleaning_wanted.notify_all();
        self.pump();
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

    fn back_off(self: &Rc<Self>, error: DeviceError) {
        self.cleaning.policy.borrow_mut().failed();
        self.cleaning.failures.note(&Err(error));
        let until = self.runtime.now() + BACK_OFF;
        if self.cleaning.back_off_until.replace(Some(until)).is_some() {
            return;
        }
        self.later(BACK_OFF, async |engine| {
            engine.cleaning.back_off_until.set(None);
            engine.cleaning_wanted.notify_all();
        });
    }

    /// Cleans those of these blocks that are dirty now. The caller holds the lock on them.
    pub(crate) async fn clean_locked(self: &Rc<Self>, blocks: &[CoreBlock]) -> Outcome {
        if self.log.borrow().may_have_parts() {
            Box::pin(self.complete_locked(blocks)).await?;
        }
        let most = self.config.borrow().cleaning.in_flight_max.max(1) as usize;
        for batches in self.batches(blocks).chunks(most) {
            let clean = |batch: &Batch| {
                let (engine, batch) = (Rc::clone(self), batch.clone());
                Submission::pending(async move { engine.clean_batch(&batch).await })
            };
            join_all(batches.iter().map(clean).collect()).await.into_iter().collect::<Outcome>()?;
        }
        self.flush_core().await
    }

    /// Cleans those of these blocks that are dirty now, for whom reclaim has no other place.
    pub(crate) async fn clean_in_place(self: &Rc<Self>, blocks: &[CoreBlock]) -> Outcome {
        let parts = self.log.borrow().parts_of(blocks);
        for block in parts {
            self.complete_at_core(block).await?;
        }
        let most = self.config.borrow().cleaning.in_flight_max.max(1) as usize;
        for batches in self.batches(blocks).chunks(most) {
            let clean = |batch: &Batch| {
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

    /// Cleans everything that is dirty now.
    ///
    /// # Errors
    /// The core's, and how much stays dirty; and the end of a command.
    pub(crate) async fn clean_all(self: &Rc<Self>, drainer: Drainer) -> Result<(), CleanError> {
        let _at_full_rate = (drainer == Drainer::Client).then(|| FullRateFlush::begin(self));
        self.settle().await;
        let failures = self.cleaning.failures.count();
        let failed_throughs = self.throughs.failures();
        let failed_flushes = self.core_flushes.failures();
        let drain = Drain::begin(self);
        self.read_parts().await;
        // The others are cleaned all the same.
        let completed = self.complete_all().await;
        let mut chosen = None;
        let (goals, age) = {
            let mut log = self.log.borrow_mut();
            log.walk_again();
            ((log.dirty.goal(), log.replayed.goal()), log.age_now())
        };
        loop {
            // Not for what the cleaner itself waits for: it may find that nothing is left to do.
            let wake = self.cleaning.swept.wait();
            // Other flushes of dirty data are notified as well.
            let failed = self.cleaning.failures.since(failures);
            let (blocks, is_chosen) = {
                let log = self.log.borrow();
                let is_chosen = match log.order_stats() {
                    Some(_) => log.is_in_core(age),
                    None => log.dirty.is_swept(goals.0) && self.cleaning.round.borrow().is_empty(),
                } && log.replayed.is_swept(goals.1)
                    && self.cleaning.settling.get() == 0;
                (log.dirty_now(), is_chosen)
            };
            if is_chosen && chosen.is_none() {
                // Not for what is chosen later: there may always be more.
                chosen = Some(self.cleaning.under_way.borrow().next());
            }
            if let Err(source) = failed {
                return Err(CleanError::Core { blocks, source });
            }
            if chosen.is_some_and(|end| self.cleaning.under_way.borrow().oldest() >= end) {
                break;
            }
            if drainer == Drainer::Command && self.cleaning.are_commands_ended.get() {
                return Err(CleanError::Ended { blocks });
            }
            if self.is_stopping.get() {
                // Nobody cleans any more: it was given up with the cache.
                let source = DeviceError::new(self.cache.name(), Cause::Gone);
                return Err(CleanError::Core { blocks, source });
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
        // Blocks cleaned before one failed are dirty again, for every caller of that flush.
        let flushed = flushed.and(self.core_flushes.failed_since(failed_flushes)).and(completed);
        flushed.map_err(|source| {
            let blocks = self.log.borrow().dirty_now();
            CleanError::Core { blocks, source }
        })
    }
}

/// Who wants everything cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drainer {
    /// A client that has flushed memory.
    Client,
    /// Leaves readers way, and may be told to end.
    Command,
}

/// While it is there, cleaning everything does not leave readers way.
pub struct FullRateFlush(Rc<Engine>);

impl FullRateFlush {
    pub(crate) fn begin(engine: &Rc<Engine>) -> Self {
        engine.cleaning.at_full_rate.set(engine.cleaning.at_full_rate.get() + 1);
        engine.cleaning_wanted.notify_all();
        Self(Rc::clone(engine))
    }
}

impl Drop for FullRateFlush {
    fn drop(&mut self) {
        self.0.cleaning.at_full_rate.set(self.0.cleaning.at_full_rate.get() - 1);
    }
}

/// Has the cleaner work for it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::tests::lived;
    use headpond_testkit::{Break, assert_trips};

    fn some(engine: &Engine) -> Version {
        engine.log.borrow().map.published(CoreBlock(0)).expect("it was written")
    }

    #[test]
    fn check_notices_what_is_wrong_with_the_progress() {
        let breaks: [Break<Rc<Engine>>; 6] = [
            ("blocks are under way with writes", |it| it.cleaning.blocks_under_way.set(1)),
            ("each write carries a block", |it| _ = it.cleaning.under_way.borrow_mut().begin()),
            ("each is one of the writes", |it| it.cleaning.settling.set(1)),
            ("each is one of the writes", |it| it.cleaning.relief.in_flight.set(1)),
            ("a round ascends", |it| {
                let later = Version { block: CoreBlock(7), ..some(it) };
                it.cleaning.round.borrow_mut().extend([later, some(it)]);
            }),
            ("chosen, and nobody cleans it", |it| {
                let version = some(it);
                it.log.borrow_mut().choose(&version);
            }),
        ];
        assert_trips(lived, |it| it.cleaning.self_check(&it.log.borrow()), &breaks);
    }
}
