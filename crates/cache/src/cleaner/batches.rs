//! Batches of dirty blocks that are written to the core together.

use crate::cleaning::pace::Pace;
use crate::dirty_index::DirtyIndex;
use crate::engine::Engine;
use crate::line_map::{Marks, State, Version};
use crate::log::Log;
use crate::types::CoreBlock;
use headpond_block::{BLOCK_BYTES, memory};
use smallvec::{SmallVec, smallvec};

/// Neighbouring versions that are written together. One, where dirty blocks are fragmented, needs
/// no allocation.
pub(super) type Batch = SmallVec<[Version; 1]>;

/// What is done with chosen versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Clean,
    /// Cleaned as well, for those who wait for room.
    Relieve,
    /// Their parity is settled, and they are chosen again.
    Settle,
}

/// Versions that were chosen together, and count as being in flight.
pub(super) struct Begun {
    pub number: u64,
    pub task: Task,
    pub batch: Batch,
}

/// Most writes that are chosen and started before other ready tasks run.
const TOGETHER_MAX: usize = 64;

/// So much under way is enough, however many writes it is: 16 MiB keep forty disks streaming. More
/// of long ones would go into the drives' own caches, which answer at once until they are full, and
/// then a flush waits for all of it, and everything that waits for that comes in bursts.
const BLOCKS_UNDER_WAY_MAX: u64 = 4096;

impl Engine {
    /// Takes the blocks of the next writes out of an index, as far as the pace allows more; they
    /// count as being in flight.
    pub(super) fn next_batches(&self) -> Vec<Begun> {
        let (pace, mut batches) = (self.pace(), Vec::new());
        // Where memory is short, one write after the other.
        let all_bytes = (BLOCKS_UNDER_WAY_MAX * BLOCK_BYTES) as usize;
        let has_memory = !memory::is_short() || memory::has(all_bytes);
        let most = if has_memory { BLOCKS_UNDER_WAY_MAX } else { 1 };
        while batches.len() < TOGETHER_MAX
            && self.cleaning.blocks_under_way.get() < most
            && let Some((task, batch)) = self.next_batch(pace)
        {
            batches.push(self.begun(task, batch));
        }
        if !batches.is_empty() {
            // The policy sees them under way, though the core may answer at once.
            self.pace();
        }
        batches
    }

    /// These versions count as being in flight.
    pub(super) fn begun(&self, task: Task, batch: Batch) -> Begun {
        Begun { number: self.cleaning.note_begun(&batch), task, batch }
    }

    fn next_batch(&self, pace: Pace) -> Option<(Task, Batch)> {
        let in_flight = self.cleaning.in_flight();
        let is_any_due = in_flight < pace.any;
        if self.log.borrow().is_in_order() {
            // The oldest, which go first, are those that came back: their parity goes with them.
            let wanted = is_any_due.then(|| self.next_wanted()).flatten();
            let clean = wanted.map(|batch| (Task::Clean, batch));
            return clean.or_else(|| self.next_to_settle(in_flight < pace.replayed));
        }
        let is_due = |version: &Version| is_any_due || version.marks.contains(Marks::REPLAYED);
        let mut batch = None;
        if in_flight < pace.replayed && !self.log.borrow().replayed.is_empty() {
            batch = self.take_batch(|log| &mut log.replayed, is_due);
        }
        if batch.is_none() && is_any_due {
            batch = self.next_wanted();
        }
        batch.map(|batch| (Task::Clean, batch))
    }

    /// Blocks whose parity is to be settled in place, where it is their turn.
    fn next_to_settle(&self, is_due: bool) -> Option<(Task, Batch)> {
        let is_ending = || {
            // The end of an epoch waits for whatever is on its way.
            self.log.borrow().is_epoch_written().is_some()
                && self.cleaning.round.borrow().is_empty()
        };
        if !is_due || self.log.borrow().replayed.is_empty() || is_ending() {
            return None;
        }
        let has_pending = |version: &Version| version.marks.contains(Marks::REPLAYED);
        let batch = self.take_batch(|log| &mut log.replayed, has_pending)?;
        self.cleaning.settling.set(self.cleaning.settling.get() + 1);
        Some((Task::Settle, batch))
    }

    /// What the sweep over all dirty blocks meets next.
    pub(super) fn sweep(&self) -> Option<Batch> {
        self.take_batch(|log| &mut log.dirty, |_| true)
    }

    /// Takes the next neighbouring dirty blocks out of an index; those that are not due go back to
    /// the index of all.
    fn take_batch(
        &self,
        index: fn(&mut Log) -> &mut DirtyIndex,
        is_due: impl Fn(&Version) -> bool,
    ) -> Option<Batch> {
        let is_draining = self.cleaning.drainers.get() > 0;
        let fills = self.cleaning.policy.borrow().completes_stripes();
        let reach = self.reach();
        let mut log = self.log.borrow_mut();
        let (mut versions, mut pending, mut idle) = (Batch::new(), vec![], vec![]);
        loop {
            log.name_dirty();
            let Some(next) = index(&mut log).peek() else { break };
            let goes_on = versions.is_empty()
                || reach.goes_on(&versions, next)
                || fills && reach.close_gap(&log, &mut versions, next);
            if !goes_on {
                break;
            }
            index(&mut log).take();
            match log.map.newest(next) {
                Some(version) if version.state == State::Pending => {
                    pending.push(next);
                    // Who drains was promised the version before, and a block that is written over
                    // and over would always have a newer one on its way.
                    let older = log.map.published(next).filter(Version::waits_for_cleaner);
                    if let Some(older) = older.filter(|older| is_draining && is_due(older)) {
                        log.map.mark(older.slot, Marks::CLEANING);
                        versions.push(older);
                    }
                }
                Some(version) if !version.waits_for_cleaner() => {}
                Some(version) if is_due(&version) => {
                    log.choose(&version);
                    versions.push(version);
                }
                Some(_) => idle.push(next),
                None => {}
            }
        }
        pending.into_iter().for_each(|block| index(&mut log).push(block));
        idle.into_iter().for_each(|block| log.dirty.push(block));
        if fills && !versions.is_empty() {
            reach.complete_stripe(&log, &mut versions);
        }
        (!versions.is_empty()).then_some(versions)
    }

    /// How far one write may reach.
    pub(super) fn reach(&self) -> WriteReach {
        let stripe = self.core.geometry().stripe;
        let write_bytes_max = u64::from(self.config.borrow().cleaning.write_bytes_max);
        WriteReach {
            stripe_blocks: stripe.map(|it| (u64::from(it.width_bytes) / BLOCK_BYTES).max(1)),
            blocks_max: (write_bytes_max / BLOCK_BYTES).max(1),
        }
    }

    /// The dirty ones of some blocks, which ascend, as they are written to the core; out of order,
    /// where there is one.
    pub(super) fn batches(&self, blocks: &[CoreBlock]) -> Vec<Batch> {
        let (reach, mut log) = (self.reach(), self.log.borrow_mut());
        let dirty = blocks.iter().filter_map(|block| log.map.published(*block));
        let batches = reach.join(dirty.filter(|it| it.state == State::Dirty && log.is_whole(it)));
        if !batches.is_empty() {
            log.mix();
        }
        batches
    }
}

/// How far one write may reach: within one stripe, or as far as the longest write where there are
/// no stripes.
pub(super) struct WriteReach {
    pub stripe_blocks: Option<u64>,
    blocks_max: u64,
}

impl WriteReach {
    /// Versions, which ascend, as they are written.
    pub fn join(&self, versions: impl Iterator<Item = Version>) -> Vec<Batch> {
        let mut batches = Vec::<Batch>::new();
        for version in versions {
            match batches.last_mut() {
                Some(batch) if self.goes_on(batch, version.block) => batch.push(version),
                _ => batches.push(smallvec![version]),
            }
        }
        batches
    }

    /// Whether `next` follows a batch, and is written with it.
    pub fn goes_on(&self, batch: &[Version], next: CoreBlock) -> bool {
        let first = batch[0].block;
        next.0 == first.0 + batch.len() as u64 && self.spans(first, next)
    }

    /// Whether one write may go from one block to the other.
    pub fn spans(&self, first: CoreBlock, last: CoreBlock) -> bool {
        match self.stripe_blocks {
            Some(blocks) => first.0 / blocks == last.0 / blocks,
            None => last.0 - first.0 < self.blocks_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_ends_with_the_stripe_or_at_the_limit() {
        let in_stripes = WriteReach { stripe_blocks: Some(8), blocks_max: 1 };
        assert!(in_stripes.spans(CoreBlock(8), CoreBlock(15)));
        assert!(!in_stripes.spans(CoreBlock(8), CoreBlock(16)));
        let without = WriteReach { stripe_blocks: None, blocks_max: 2 };
        assert!(without.spans(CoreBlock(8), CoreBlock(9)));
        assert!(!without.spans(CoreBlock(8), CoreBlock(10)));
    }
}
