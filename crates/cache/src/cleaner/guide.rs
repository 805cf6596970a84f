//! The cleaner's interface to the policy.

use super::batches::Batch;
use crate::cleaning::pace::{self, Duties, Pace};
use crate::cleaning::{self, Choice, CleaningLoad, CleaningPolicy};
use crate::engine::Engine;
use crate::line_map::{State, Version};
use crate::log::Log;
use crate::types::CoreBlock;
use headpond_block::Instant;
use smallvec::smallvec;
use std::rc::Rc;

/// Most versions of one epoch that are chosen, and sorted, together.
const IN_ORDER_MAX: usize = 8192;

impl Engine {
    /// Whether nothing may go past the log, so that the core stays a consistent past.
    pub(crate) fn keeps_order(&self) -> bool {
        self.config.borrow().cleaning.policy == CleaningPolicy::Ordered
            && self.mode().is_write_back()
            && !self.cache_is_volatile()
    }

    /// The cleaner's settings have changed. What another policy has chosen is given back.
    pub(crate) fn change_cleaning(&self) {
        {
            let mut log = self.log.borrow_mut();
            for version in self.cleaning.round.take() {
                log.give_back(&version);
                log.choose_again(&version);
            }
            log.walk_again();
            // Who is refused from now on has them held back again.
            (log.throttle, log.pool_throttle) = Default::default();
        }
        *self.cleaning.policy.borrow_mut() = cleaning::policy(&self.config.borrow().cleaning);
        self.prepare_index();
    }

    /// Has the index count what the policy asks for.
    pub(crate) fn prepare_index(&self) {
        let policy = self.cleaning.policy.borrow();
        let mut log = self.log.borrow_mut();
        log.count_chunks(policy.counts_chunks());
        log.set_ordered(policy.keeps_order());
    }

    /// Whether the cleaner would start something now.
    pub(crate) fn wants_cleaning(&self) -> bool {
        let is_nop = self.config.borrow().cleaning.policy == CleaningPolicy::Nop;
        if is_nop && self.log.borrow().map.counts().replayed == 0 {
            return self.must_drain();
        }
        // The policy is asked at least once after something has become dirty.
        self.cleaning.alarm.get().is_none() || self.pace().replayed > 0
    }

    pub(super) fn pace(&self) -> Pace {
        if self.is_resting() {
            return Pace::NONE;
        }
        let log = self.log.borrow();
        let speed = self.cleaning.policy.borrow_mut().speed(&self.load(&log));
        pace::pace(&self.duties(&log), speed)
    }

    /// Whether the cleaner's last write failed, and it waits before the next.
    pub(crate) fn is_core_failing(&self) -> bool {
        self.cleaning.back_off_until.get().is_some()
    }

    /// Nothing is started now.
    pub(crate) fn is_resting(&self) -> bool {
        self.cleaning.back_off_until.get().is_some() || self.cleaning.is_flushing()
    }

    /// Has the cleaner woken when the policy wants to be asked again.
    pub(super) fn set_alarm(self: &Rc<Self>) {
        let speed = {
            let log = self.log.borrow();
            self.cleaning.policy.borrow_mut().speed(&self.load(&log))
        };
        let look = self.cleaning.concurrency_limit.borrow().ask_again(self.runtime.now());
        let Some(at) = speed.ask_again.into_iter().chain(look).min() else { return };
        if self.cleaning.alarm.get().is_some_and(|set| set <= at) {
            return;
        }
        self.cleaning.alarm.set(Some(at));
        // It may be far off, and is not to keep a slice that has been closed.
        let (engine, runtime) = (Rc::downgrade(self), self.runtime.clone());
        drop(self.runtime.spawn(async move {
            runtime.sleep_until(at).await;
            if let Some(engine) = engine.upgrade() {
                engine.ring(at);
            }
        }));
    }

    fn ring(&self, at: Instant) {
        if self.cleaning.alarm.get() == Some(at) {
            self.cleaning.alarm.set(None);
            self.cleaning_wanted.notify_all();
        }
    }

    fn load(&self, log: &Log) -> CleaningLoad {
        CleaningLoad {
            now: self.runtime.now(),
            dirty: log.dirty_pressure(),
            dirty_max: log.dirty_max(),
            in_flight: self.cleaning.in_flight() - self.cleaning.relief.in_flight.get(),
            depth: self.depth(),
            chosen: self.cleaning.round.borrow().len(),
            requests: self.requests.get(),
            is_busy: !(self.busy.is_idle() && self.reading.is_idle()),
            has_waiters: self.has_waiters(),
            head: log.age_now(),
            is_rotational: self.core.geometry().rotational,
            blocks_per_write: self.cleaning.blocks_per_write.get(),
        }
    }

    /// Whether writes or reclaim wait for the cleaner, and not for their turn at the cache device.
    pub(super) fn has_waiters(&self) -> bool {
        self.queue.len() > 0 && self.may_start_record() || self.cleaning.is_space_wanted.get()
    }

    /// Core writes that are worth having under way.
    pub(super) fn depth(&self) -> u32 {
        self.cleaning.depth.get().of(self.config.borrow().cleaning.in_flight_max)
    }

    fn duties(&self, log: &Log) -> Duties {
        Duties {
            in_flight_max: self.config.borrow().cleaning.in_flight_max,
            depth: self.depth(),
            must_drain: self.must_drain(),
            beside_readers: self.room_beside_readers(log),
            replayed: log.map.counts().replayed,
            leisure: self.cleaning.leisure.get(),
        }
    }

    /// Somebody asked for everything to be cleaned, or the mode makes no dirty data, so what there
    /// is should go, whatever the policy: there will be no more for it to keep.
    fn must_drain(&self) -> bool {
        self.cleaning.drainers.get() > 0 || !self.mode().is_write_back()
    }

    /// The blocks of the next write that the policy wants.
    pub(super) fn next_wanted(&self) -> Option<Batch> {
        loop {
            if let Some(batch) = self.take_from_round() {
                return Some(batch);
            }
            if self.must_drain() && !self.cleaning.policy.borrow().keeps_order() {
                return self.sweep();
            }
            let load = self.load(&self.log.borrow());
            let choice = {
                let mut log = self.log.borrow_mut();
                self.cleaning.policy.borrow_mut().choose(&load, &mut *log)
            };
            match choice {
                Choice::Nothing => return None,
                Choice::Sweep => return self.sweep(),
                Choice::InOrder => {
                    let chosen = self.log.borrow_mut().choose_in_order(IN_ORDER_MAX);
                    if chosen.is_empty() {
                        return None;
                    }
                    self.cleaning.round.borrow_mut().extend(chosen);
                }
                // Those on their way to the log are met again when they are there.
                Choice::Round(blocks) => {
                    if self.begin_round(&blocks) > 0 && self.cleaning.round.borrow().is_empty() {
                        let sweeps = self.cleaning.policy.borrow().completes_stripes();
                        return sweeps.then(|| self.sweep()).flatten();
                    }
                }
            }
        }
    }

    /// Marks what was chosen; answers how many blocks have to wait for the log.
    fn begin_round(&self, blocks: &[CoreBlock]) -> usize {
        let mut log = self.log.borrow_mut();
        let (mut round, mut pending) = (self.cleaning.round.borrow_mut(), 0);
        for &block in blocks {
            match log.map.newest(block) {
                Some(version) if version.state == State::Pending => {
                    pending += 1;
                    log.dirty.push(block);
                }
                _ => round.extend(choose(&mut log, block)),
            }
        }
        pending
    }

    fn take_from_round(&self) -> Option<Batch> {
        let mut round = self.cleaning.round.borrow_mut();
        let mut versions: Batch = smallvec![round.pop_front()?];
        let reach = self.reach();
        while let Some(next) = round.front()
            && reach.goes_on(&versions, next.block)
        {
            versions.extend(round.pop_front());
        }
        if self.cleaning.policy.borrow().completes_stripes() {
            let mut log = self.log.borrow_mut();
            reach.take_neighbours(&mut log, &mut versions);
            reach.complete_stripe(&log, &mut versions);
        }
        Some(versions)
    }
}

/// Marks the newest version of a block as being cleaned, where it is dirty and not marked yet. The
/// index may still name the block.
pub(super) fn choose(log: &mut Log, block: CoreBlock) -> Option<Version> {
    let version = log.map.newest(block).filter(Version::waits_for_cleaner)?;
    log.choose(&version);
    log.chosen_past_index(block);
    Some(version)
}
