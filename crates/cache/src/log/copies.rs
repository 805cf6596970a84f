//! The budget of copies: how much may be dirty, and which clean blocks are carried on.
//!
//! Reclaim copies what is dirty in the oldest segment, and what is resident. A log that is full of
//! either writes several bytes for each that enters. So there are two budgets, one of dirty copies
//! and one of clean ones. Each gains with every block that enters, and pays for each copy. That of
//! clean copies gains more with every block that clients read, hit or not: reads are what they are
//! kept for, and where there are some, what is resident is for the eviction policy to say.
//!
//! While dirty copies cost more than comes in, their budget shrinks, and with it the dirty limit,
//! until the cleaner is so far ahead of reclaim that they cost no more. What has been saved up lets
//! a burst have the whole log. With little left for clean copies, blocks that no request has hit
//! since they entered are dropped first, and without any all are.
//!
//! **Invariants**
//! - The limit is at most what the log has room for, and at least a quarter of that.
//! - It changes when a segment is opened, a little at a time: writers are slowed, and never stopped.
//!
//! **Source**: the write cost of a log is set by the live share of the segments that are cleaned
//! (LFS, SOSP '91, section 3.4). A budget that moves the limit, instead of a fixed limit for every
//! load, is original.

use super::Log;
use crate::eviction::Heat;

/// Dirty copies for so many blocks that enter, in percent: what a full cache settles at.
const DIRTY_PERCENT: u64 = 30;
/// The same of clean copies, where nothing is read.
const CLEAN_PERCENT: u64 = 10;
/// Clean copies for each block that is read: a log that is four fifths live copies four blocks for
/// each that enters, and half of those that are read may be hits.
const COPIES_PER_READ: u64 = 8;
/// What can be saved up, in copies of the whole log.
const LOGS_SAVED: u64 = 4;
/// From this share of the budget on nothing is held back.
const PLENTY_PERCENT: u64 = 75;
/// With less left than this share of what can be saved up, nothing cold is copied.
const HOT_SHARE: u64 = 4;
/// The limit with no budget left, as a share of what the log has room for.
const LEAST_SHARE: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct CopyBudget {
    /// Copies that may be made, at most so many.
    dirty: u64,
    clean: u64,
    most: u64,
    /// Since the last segment was opened: blocks that have entered, and copies.
    entered: u64,
    dirty_copied: u64,
    clean_copied: u64,
    /// Blocks that clients had read then.
    read: u64,
    /// The dirty limit where nothing is held back, and in force.
    pub(super) room: u64,
    limit: u64,
    is_bounded: bool,
}

impl CopyBudget {
    /// Of a log with so many slots, and room for so many dirty blocks.
    pub fn new(slots: u64, room: u64) -> Self {
        let most = slots * LOGS_SAVED;
        Self {
            dirty: most,
            clean: most,
            most,
            entered: 0,
            dirty_copied: 0,
            clean_copied: 0,
            read: 0,
            room,
            limit: room,
            is_bounded: true,
        }
    }

    #[inline]
    pub fn note_entered(&mut self, blocks: u32) {
        self.entered += u64::from(blocks);
    }

    pub fn note_copied(&mut self, dirty: u64, clean: u64) {
        self.dirty_copied += dirty;
        self.clean_copied += clean;
    }

    /// Nothing is dirty, and no request waits.
    fn end_burst(&mut self) {
        (self.dirty, self.limit) = (self.most, self.room);
    }

    /// Without a cleaner a lower limit makes nothing clean.
    pub fn set_bounded(&mut self, is_bounded: bool) {
        self.is_bounded = is_bounded;
        self.renew(self.read);
    }

    /// A segment is opened, and clients have read so many blocks in all.
    pub fn renew(&mut self, read: u64) {
        let entered = std::mem::take(&mut self.entered);
        // Less, where the counters were reset.
        let news = read.checked_sub(std::mem::replace(&mut self.read, read)).unwrap_or(read);
        let after = |left: u64, gained: u64, spent: u64| {
            (left + gained).min(self.most).saturating_sub(spent)
        };
        let clean_gain = entered * CLEAN_PERCENT / 100 + news * COPIES_PER_READ;
        self.clean = after(self.clean, clean_gain, self.clean_copied);
        self.dirty = match self.is_bounded {
            true => after(self.dirty, entered * DIRTY_PERCENT / 100, self.dirty_copied),
            false => self.most,
        };
        (self.dirty_copied, self.clean_copied) = (0, 0);
        let (plenty, least) = (self.most * PLENTY_PERCENT / 100, self.room / LEAST_SHARE);
        let share = u128::from(self.room - least) * u128::from(self.dirty.min(plenty));
        self.limit = least + (share / u128::from(plenty.max(1))) as u64;
    }

    fn self_check(&self) {
        assert!(self.dirty.max(self.clean) <= self.most, "more copies than can be saved up");
        let limits = self.room / LEAST_SHARE..=self.room;
        assert!(limits.contains(&self.limit), "a dirty limit beyond its bounds");
    }
}

impl Log {
    /// Dirty blocks that there may be now.
    pub fn dirty_limit(&self) -> u64 {
        self.copies.limit
    }

    /// How much less that is than the log has room for.
    pub(super) fn dirty_withheld(&self) -> u64 {
        self.copies.room - self.copies.limit
    }

    /// Whether what is dirty will be cleaned, so that a lower limit spares copies.
    pub fn bound_copies(&mut self, is_bounded: bool) {
        self.copies.set_bounded(is_bounded);
    }

    /// Nothing is dirty, and no request waits: the next burst has the whole log again.
    pub fn end_burst(&mut self) {
        self.copies.end_burst();
    }

    /// Whether a clean block of a line with this mark is carried on, where residents are.
    pub(crate) fn is_worth_a_copy(&self, heat: Heat) -> bool {
        let CopyBudget { clean, most, .. } = self.copies;
        let is_cold = heat.frequency() == 0;
        heat.is_resident() && clean > if is_cold { most / HOT_SHARE } else { 0 }
    }

    pub(super) fn check_copies(&self) {
        self.copies.self_check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    fn full(entered: u32, copied: u64, segments: u64) -> CopyBudget {
        let mut budget = CopyBudget::new(1000, 800);
        for _ in 0..segments {
            budget.note_entered(entered);
            budget.note_copied(copied, copied);
            budget.renew(0);
        }
        budget
    }

    #[test]
    fn burst_has_the_whole_log() {
        assert_eq!(full(100, 100, 13).limit, 800);
        assert_eq!(full(100, 30, 10_000).limit, 800);
    }

    #[test]
    fn limit_sinks_little_by_little_while_copies_cost_too_much() {
        let limits: Vec<u64> = (0..200).map(|segments| full(100, 100, segments).limit).collect();
        assert!(limits.is_sorted_by(|before, after| before >= after), "{limits:?}");
        assert!(limits.windows(2).all(|pair| pair[0] - pair[1] <= 14), "{limits:?}");
        assert_eq!((limits[0], limits[199]), (800, 200));
    }

    #[test]
    fn budget_is_whole_again_when_a_burst_is_over() {
        let mut budget = full(100, 100, 200);
        budget.note_entered(40);
        budget.renew(0);
        assert_eq!(budget.limit, 202, "what enters is worth some");
        budget.end_burst();
        assert_eq!(budget.limit, 800);
        budget.renew(0);
        assert_eq!(budget.limit, 800);
    }

    #[test]
    fn clean_blocks_are_carried_on_as_long_as_there_is_a_budget_for_them() {
        assert!(full(100, 10, 10_000).clean > 0);
        assert_eq!(full(100, 100, 200).clean, 0);
        let mut read = full(100, 100, 200);
        read.renew(30);
        assert_eq!(read.clean, 240, "what is read is worth copies");
        read.renew(10);
        assert_eq!(read.clean, 320, "the counters were reset");
        let mut without_cleaner = full(100, 100, 200);
        without_cleaner.set_bounded(false);
        assert_eq!((without_cleaner.clean, without_cleaner.limit), (0, 800));
    }

    #[test]
    fn check_notices_what_is_wrong_with_a_budget() {
        let breaks: [Break<CopyBudget>; 4] = [
            ("more copies than can be saved up", |it| it.dirty = it.most + 1),
            ("more copies than can be saved up", |it| it.clean = it.most + 1),
            ("beyond its bounds", |it| it.limit = it.room + 1),
            ("beyond its bounds", |it| it.limit = it.room / 4 - 1),
        ];
        assert_trips(|| full(1, 0, 1), CopyBudget::self_check, &breaks);
    }
}
