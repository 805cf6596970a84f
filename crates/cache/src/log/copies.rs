//! The budget of clean copies: which clean blocks are carried on.
//!
//! Reclaim copies what is dirty in the oldest segment, and what is resident. A log that is full of
//! residents writes several bytes for each that enters. So there is a budget of clean copies. It
//! gains with every block that enters, and more with every block that clients read, hit or not:
//! reads are what residents are kept for, and where there are some, what is resident is for the
//! eviction policy to say. It pays for each copy. With little left, blocks that no request has hit
//! since they entered are dropped first, and without any all are.
//!
//! **Source**: the write cost of a log is set by the live share of the segments that are cleaned
//! (LFS, SOSP '91, section 3.4). A budget by what enters and what is read is original.

use super::Log;
use crate::eviction::Heat;

/// Clean copies for so many blocks that enter, in percent, where nothing is read.
const ENTERED_PERCENT: u64 = 10;
/// Copies for each block that is read: a log that is four fifths live copies four blocks for each
/// that enters, and half of those that are read may be hits.
const COPIES_PER_READ: u64 = 8;
/// What can be saved up, in copies of the whole log.
const LOGS_SAVED: u64 = 4;
/// With less left than this share of what can be saved up, nothing cold is copied.
const HOT_SHARE: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct CopyBudget {
    /// Copies that may be made, at most so many.
    left: u64,
    most: u64,
    /// Since the last segment was opened: blocks that have entered, and copies.
    entered: u64,
    copied: u64,
    /// Blocks that clients had read then.
    read: u64,
}

impl CopyBudget {
    /// Of a log with so many slots.
    pub fn new(slots: u64) -> Self {
        let most = slots * LOGS_SAVED;
        Self { left: most, most, entered: 0, copied: 0, read: 0 }
    }

    #[inline]
    pub fn note_entered(&mut self, blocks: u32) {
        self.entered += u64::from(blocks);
    }

    pub fn note_copied(&mut self, clean: u64) {
        self.copied += clean;
    }

    /// A segment is opened, and clients have read so many blocks in all.
    pub fn renew(&mut self, read: u64) {
        let entered = std::mem::take(&mut self.entered);
        // Less, where the counters were reset.
        let news = read.checked_sub(std::mem::replace(&mut self.read, read)).unwrap_or(read);
        let gained = entered * ENTERED_PERCENT / 100 + news * COPIES_PER_READ;
        let spent = std::mem::take(&mut self.copied);
        self.left = (self.left + gained).min(self.most).saturating_sub(spent);
    }
}

impl Log {
    /// Whether a clean block of a line with this mark is carried on, where residents are.
    pub(crate) fn is_worth_a_copy(&self, heat: Heat) -> bool {
        let CopyBudget { left, most, .. } = self.eviction.copies;
        let is_cold = heat.frequency() == 0;
        heat.is_resident() && left > if is_cold { most / HOT_SHARE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(entered: u32, copied: u64, segments: u64) -> CopyBudget {
        let mut budget = CopyBudget::new(1000);
        for _ in 0..segments {
            budget.note_entered(entered);
            budget.note_copied(copied);
            budget.renew(0);
        }
        budget
    }

    #[test]
    fn clean_blocks_are_carried_on_as_long_as_there_is_a_budget_for_them() {
        assert!(full(100, 10, 10_000).left > 0);
        assert_eq!(full(100, 100, 200).left, 0);
        let mut read = full(100, 100, 200);
        read.renew(30);
        assert_eq!(read.left, 240, "what is read is worth copies");
        read.renew(10);
        assert_eq!(read.left, 320, "the counters were reset");
    }
}
