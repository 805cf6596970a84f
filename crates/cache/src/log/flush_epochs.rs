//! Flush epochs: the writes between two flushes, for a core that is never more than one epoch away
//! from its state at a flush.
//!
//! An epoch ends where a flush begins, or with a FUA write. Its versions go to the core before any
//! of a later one, and the core is flushed in between; so the core holds what a disk might hold
//! after a power cut in that epoch. A version that is superseded by one of a later epoch before it
//! is on the core is *kept*: it is written to the core all the same, and its segment is not reused
//! before.
//!
//! **Invariants**
//! - The ends ascend, and everything older than the first has been flushed at the core.
//! - An epoch has at most one version of a block for the core, current or kept.
//! - A block on the core is never overwritten with an older version.
//!
//! **Not here**: I/O, and its rate (`cleaning/ordered`).

use super::Log;
use crate::cleaning::{Age, DirtyData, Walk};
use crate::line_map::{Marks, State, Version};
use crate::stats::OrderStats;
use crate::types::{BlockRun, CoreBlock, SegmentIndex, Sequence, SlotIndex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where the epochs of a log are.
#[derive(Default)]
pub struct FlushEpochs {
    /// Of epochs that have ended and are not at the core, oldest first.
    ends: VecDeque<Age>,
    kept: BTreeMap<(Age, CoreBlock), KeptVersion>,
    /// The same, by block.
    kept_blocks: BTreeSet<(CoreBlock, Age)>,
    /// The core has everything older for good.
    mark: Age,
    /// Everything older has been chosen.
    walked: Age,
    /// Something has become dirty since the last end.
    is_open: bool,
    /// One has ended since the last record was formed.
    has_ended: bool,
    /// Something has gone to the core since an epoch ended there.
    is_flush_due: bool,
    /// Something has gone there out of order; it is a mixture until all that was older has.
    mixed_until: Option<Age>,
    /// How often that has happened.
    mixtures: u64,
}

pub(super) struct KeptVersion {
    version: Version,
    progress: Progress,
}

impl KeptVersion {
    pub fn new(version: Version) -> Self {
        Self { version, progress: Progress::Waiting }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    Chosen,
    Written,
}

impl Log {
    /// Keeps epochs apart from now on, or no longer.
    pub fn set_ordered(&mut self, wanted: bool) {
        if wanted == self.epochs.is_some() {
            return;
        }
        let (is_open, mark) = (self.dirty_now() > 0, self.age_now());
        self.epochs = wanted.then(|| FlushEpochs { is_open, mark, ..FlushEpochs::default() });
        self.mix();
    }

    pub fn order_stats(&self) -> Option<OrderStats> {
        let epochs = self.epochs.as_ref()?;
        Some(OrderStats {
            is_consistent: self.part_blocks().is_empty()
                && (epochs.mixed_until.is_none() || !self.lacks_core_any()),
            epochs_waiting: epochs.ends.len() as u64,
            kept_blocks: epochs.kept.len() as u64,
        })
    }

    /// Something goes to the core, or went there, that is not next in order.
    pub fn mix(&mut self) {
        if self.epochs.is_none() || !self.lacks_core_any() {
            return;
        }
        let now = self.age_now();
        let epochs = self.epochs.as_mut().expect("there are");
        epochs.mixed_until = Some(now);
        epochs.mixtures += 1;
    }

    /// Whether there is anything that the core lacks, or has not flushed.
    pub(super) fn lacks_core_any(&self) -> bool {
        self.dirty_now() + self.map.counts().written + self.kept() > 0
    }

    /// An epoch ends here.
    pub fn end_epoch(&mut self) {
        if self.epochs.as_ref().is_some_and(|epochs| epochs.is_open) {
            let now = self.age_now();
            self.epochs.as_mut().expect("one is open").end(now);
        }
    }

    pub(super) fn note_open(&mut self) {
        if let Some(epochs) = &mut self.epochs {
            epochs.is_open = true;
        }
    }

    /// Superseded versions that wait for the core.
    pub fn kept(&self) -> u64 {
        self.epochs.as_ref().map_or(0, |epochs| epochs.kept.len() as u64)
    }

    /// Whether an epoch has ended since the last record was formed.
    pub(super) fn take_end(&mut self) -> bool {
        let is_told = self.identity.keeps_order;
        self.epochs.as_mut().is_some_and(|it| std::mem::take(&mut it.has_ended)) && is_told
    }

    pub(super) fn age_of(&self, slot: SlotIndex) -> Age {
        let segment = self.layout.segment_of_slot(slot);
        let first = self.layout.slots_of(segment).next().expect("a segment has slots");
        Age { segment: self.ring.first_record(segment), slot: slot.0 - first.0 }
    }

    /// The versions at these places, no copies, are about to be published: keeps what they
    /// supersede that is of an earlier epoch.
    pub(super) fn keep_superseded(&mut self, slot: SlotIndex, blocks: u32) {
        let is_needless = |epochs: &FlushEpochs| epochs.ends.is_empty() && epochs.kept.is_empty();
        if self.epochs.as_ref().is_none_or(is_needless) {
            return;
        }
        for place in slot.0..slot.0 + blocks {
            let new = self.map.version(SlotIndex(place));
            if new.state != State::Pending {
                continue;
            }
            let to = self.age_of(new.slot);
            if !new.marks.contains(Marks::INDEXED) {
                // Written through: the core has it by now, and nothing older may come after it.
                self.epochs.as_mut().expect("looked at").drop_kept(new.block, to);
                continue;
            }
            let old = self.map.published(new.block);
            let old = old.filter(|old| old.is_unsafe_at_core() && self.is_whole(old));
            let Some(old) = old else { continue };
            let from = self.age_of(old.slot);
            let epochs = self.epochs.as_mut().expect("looked at");
            if epochs.is_end_between(from, to) {
                let version = Version { state: State::Dirty, target: State::Dirty, ..old };
                epochs.keep(from, KeptVersion::new(version));
            }
        }
    }

    /// What goes to the core next, up to so many versions in the order of their addresses, marked
    /// as being cleaned.
    pub fn choose_in_order(&mut self, most: usize) -> Vec<Version> {
        if self.map.counts().replayed > 0 && !self.is_in_order() {
            // They go first, whenever they were written.
            self.mix();
        }
        let now = self.age_now();
        let Some(epochs) = &mut self.epochs else { return Vec::new() };
        let end = epochs.ends.front().copied().unwrap_or(now);
        let mut walked = epochs.walked;
        let mut chosen: Vec<Version> = epochs
            .kept_before(end)
            .map(|(_, kept)| {
                kept.progress = Progress::Chosen;
                kept.version
            })
            .collect();
        let blocks = self.next_oldest(&mut walked, end, most.saturating_sub(chosen.len()));
        for block in blocks {
            let is_older = |version: &Version| self.age_of(version.slot) < end;
            let Some(version) = self.map.published(block).filter(is_older) else { continue };
            self.choose(&version);
            chosen.push(version);
        }
        let epochs = self.epochs.as_mut().expect("there are");
        epochs.walked = walked;
        epochs.is_flush_due |= !chosen.is_empty();
        chosen.sort_unstable_by_key(|version| version.block);
        chosen
    }

    /// Whether the core has everything of the oldest epoch that has ended; those on their way
    /// count. And whether it has to be flushed for it.
    pub fn is_epoch_written(&self) -> Option<bool> {
        let epochs = self.epochs.as_ref()?;
        let end = *epochs.ends.front()?;
        let is_written = epochs.walked >= end && !epochs.waits_before(end);
        is_written.then_some(epochs.is_flush_due)
    }

    /// The core has flushed everything of the oldest epoch.
    pub fn epoch_done(&mut self) {
        let Some(epochs) = &mut self.epochs else { return };
        let Some(end) = epochs.ends.pop_front() else { return };
        let later = epochs.kept.split_off(&(end, CoreBlock(0)));
        epochs.forget(later);
        epochs.mark = end;
        epochs.is_flush_due = false;
        if epochs.mixed_until.is_some_and(|until| until <= end) && self.has_passed_all(end) {
            self.epochs.as_mut().expect("there are").mixed_until = None;
        }
    }

    /// Whether the core lacks nothing from before `end`, not even what cannot be read.
    fn has_passed_all(&mut self, end: Age) -> bool {
        self.next_oldest(&mut Age::default(), end, 1).is_empty()
    }

    /// The oldest from `walked` on, however far that is.
    fn next_oldest(&mut self, walked: &mut Age, end: Age, most: usize) -> Vec<CoreBlock> {
        loop {
            let before = *walked;
            let blocks = self.oldest(walked, end, Walk::of(most));
            if !blocks.is_empty() || *walked >= end || *walked == before {
                return blocks;
            }
        }
    }

    /// A flush of the core has failed: everything of the epoch has to go there again.
    pub fn epoch_failed(&mut self) {
        if let Some(epochs) = &mut self.epochs {
            epochs.walked = Age::default();
            epochs.kept.values_mut().for_each(|kept| kept.progress = Progress::Waiting);
        }
    }

    /// What was passed over is tried once more.
    pub fn walk_again(&mut self) {
        if let Some(epochs) = &mut self.epochs {
            epochs.walked = Age::default();
        }
    }

    /// A version that nobody could choose for a while has to be met again.
    pub fn walk_back_to(&mut self, version: &Version) {
        let age = self.age_of(version.slot);
        if let Some(epochs) = &mut self.epochs {
            epochs.walked = epochs.walked.min(age);
        }
    }

    /// A version that was chosen has not come to the core, and is to be chosen again.
    pub fn choose_again(&mut self, version: &Version) {
        self.forget_carried(version.block);
        self.walk_again();
        if self.kept() > 0 {
            let at = (self.age_of(version.slot), version.block);
            let epochs = self.epochs.as_mut().expect("looked at");
            if let Some(kept) = epochs.kept.get_mut(&at) {
                kept.progress = Progress::Waiting;
            }
        }
    }

    /// A version that was chosen cannot be read: what follows goes to the core without it. One that
    /// is current stays dirty, and is tried again by the next who wants everything cleaned, or when
    /// reclaim has carried it on. Answers whether it was kept only.
    pub fn pass_over(&mut self, version: &Version) -> bool {
        self.forget_carried(version.block);
        self.mix();
        if self.kept() == 0 {
            return false;
        }
        let age = self.age_of(version.slot);
        let epochs = self.epochs.as_mut().expect("something is kept");
        epochs.kept_blocks.remove(&(version.block, age));
        epochs.kept.remove(&(age, version.block)).is_some()
    }

    /// A version, as the core is to get it, where it is kept.
    pub fn kept_version(&self, version: &Version) -> Option<Version> {
        let epochs = self.epochs.as_ref()?;
        let kept = epochs.kept.get(&(self.age_of(version.slot), version.block))?;
        Some(kept.version)
    }

    /// The core has this version: those before it must never come after it.
    pub fn written_in_order(&mut self, version: &Version) {
        if self.kept() == 0 {
            return;
        }
        let age = self.age_of(version.slot);
        let Some(epochs) = &mut self.epochs else { return };
        epochs.drop_kept(version.block, age);
        if let Some(kept) = epochs.kept.get_mut(&(age, version.block)) {
            kept.progress = Progress::Written;
        }
    }

    /// The blocks are about to be written past the log: whatever is kept of them must not come
    /// after that. The caller holds the lock on them.
    pub fn overtake_kept(&mut self, run: BlockRun) {
        let Some(epochs) = self.epochs.as_mut().filter(|epochs| !epochs.kept.is_empty()) else {
            return;
        };
        let (first, end) = ((run.first, Age::default()), (run.end(), Age::default()));
        let blocks: Vec<CoreBlock> =
            epochs.kept_blocks.range(first..end).map(|(block, _)| *block).collect();
        for block in blocks {
            epochs.drop_kept(block, Age { segment: Sequence(u64::MAX), slot: 0 });
        }
    }

    /// Whether everything that was dirty when the log was here has been chosen; the caller sees
    /// that nothing is on its way any more.
    pub fn is_in_core(&self, goal: Age) -> bool {
        let is_done = |epochs: &FlushEpochs| epochs.walked >= goal && !epochs.waits_before(goal);
        self.epochs.as_ref().is_none_or(is_done)
    }

    /// The oldest segment is freed though the core lacks something of it, which no longer comes in
    /// its order.
    pub fn give_up_order(&mut self, segment: SegmentIndex) {
        self.mix();
        let end = Age { segment: self.ring.first_record(segment), slot: u32::MAX };
        if let Some(epochs) = &mut self.epochs {
            let later = epochs.kept.split_off(&(end, CoreBlock(0)));
            epochs.forget(later);
        }
    }

    /// Checks what is kept; for tests and simulation.
    ///
    /// # Panics
    /// Where it does not hold.
    pub fn check_epochs(&self) {
        let Some(epochs) = &self.epochs else { return };
        let by_block = epochs.kept.keys().map(|(age, block)| (*block, *age));
        let is_found = by_block.collect::<BTreeSet<_>>() == epochs.kept_blocks;
        assert!(is_found, "what is kept is found by block");
        assert!(epochs.ends.iter().is_sorted(), "epochs end one after the other");
        let first = epochs.ends.front().copied().unwrap_or(self.age_now());
        assert!(epochs.mark <= first, "the core has all before the first end");
        assert!(epochs.ends.back().is_none_or(|last| *last <= self.age_now()), "no end is to come");
        let oldest = self.ring.first_record(self.ring.tail());
        for ((age, block), kept) in &epochs.kept {
            assert!(age.segment >= oldest, "{block:?} is kept in a segment that is free");
            let is_of = (kept.version.block, self.age_of(kept.version.slot));
            assert_eq!(is_of, (*block, *age), "what is kept lies where it did");
        }
    }

    /// Whether everything in a segment has been chosen, and what it still owes comes no more: none
    /// of it waits for the core to be flushed.
    pub fn is_passed(&self, segment: SegmentIndex) -> bool {
        let end = Age { segment: self.ring.first_record(segment), slot: u32::MAX };
        let is_written = |kept: &KeptVersion| kept.progress == Progress::Written;
        let mut slots = self.layout.slots_of(segment);
        self.is_in_core(end)
            && slots.all(|slot| self.map.state(slot) != State::Written)
            && !self.kept_in(segment).any(is_written)
    }

    /// Whether a segment holds something that has to go to the core in its order.
    pub fn has_pending_in_order(&self, segment: SegmentIndex) -> bool {
        if self.epochs.is_none() {
            return false;
        }
        let is_unsafe = |slot| matches!(self.map.state(slot), State::Dirty | State::Written);
        self.kept_in(segment).next().is_some() || self.layout.slots_of(segment).any(is_unsafe)
    }

    /// What is kept in a segment.
    fn kept_in(&self, segment: SegmentIndex) -> impl Iterator<Item = &KeptVersion> {
        let first = Age { segment: self.ring.first_record(segment), slot: 0 };
        let end = Age { slot: u32::MAX, ..first };
        let inside = (first, CoreBlock(0))..(end, CoreBlock(0));
        let kept = self.epochs.iter().flat_map(move |epochs| epochs.kept.range(inside.clone()));
        kept.map(|(_, kept)| kept)
    }
}

impl FlushEpochs {
    /// What another life has left: the core has everything older than the mark.
    pub(super) fn resumed(mark: Age, ends: Vec<Age>) -> Self {
        Self { mark, ends: ends.into(), ..Self::default() }
    }

    pub(super) fn mark(&self) -> Age {
        self.mark
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = Age> {
        self.ends.iter().copied()
    }

    pub(super) fn mixtures(&self) -> u64 {
        self.mixtures
    }

    pub(super) fn is_mixed(&self) -> bool {
        self.mixed_until.is_some()
    }

    pub(super) fn keeps_any(&self) -> bool {
        !self.kept.is_empty()
    }

    /// What is kept between two ages, by age.
    pub(super) fn kept_between(&self, from: Age, to: Age) -> impl Iterator<Item = &Version> {
        let between = self.kept.range((from, CoreBlock(0))..(to, CoreBlock(0)));
        between.map(|(_, kept)| &kept.version)
    }

    /// A version of that age is superseded, and for the core all the same.
    pub(super) fn keep(&mut self, age: Age, kept: KeptVersion) {
        let block = kept.version.block;
        self.kept.insert((age, block), kept);
        self.kept_blocks.insert((block, age));
    }

    /// Keeps `later` alone.
    fn forget(&mut self, later: BTreeMap<(Age, CoreBlock), KeptVersion>) {
        for (age, block) in std::mem::replace(&mut self.kept, later).into_keys() {
            self.kept_blocks.remove(&(block, age));
        }
    }

    /// Drops what is kept of a block from before `age`.
    fn drop_kept(&mut self, block: CoreBlock, age: Age) {
        let older = self.kept_blocks.range((block, Age::default())..(block, age));
        let older: Vec<Age> = older.map(|(_, age)| *age).collect();
        for age in older {
            self.kept_blocks.remove(&(block, age));
            self.kept.remove(&(age, block));
        }
    }

    pub(super) fn end(&mut self, now: Age) {
        self.is_open = false;
        self.has_ended = true;
        if self.ends.back() != Some(&now) {
            self.ends.push_back(now);
        }
    }

    pub(super) fn is_end_between(&self, from: Age, to: Age) -> bool {
        let next = self.ends.partition_point(|end| *end <= from);
        self.ends.get(next).is_some_and(|end| *end <= to)
    }

    fn kept_before(
        &mut self,
        end: Age,
    ) -> impl Iterator<Item = (&(Age, CoreBlock), &mut KeptVersion)> {
        let before = self.kept.range_mut(..(end, CoreBlock(0)));
        before.filter(|(_, kept)| kept.progress == Progress::Waiting)
    }

    fn waits_before(&self, end: Age) -> bool {
        let mut before = self.kept.range(..(end, CoreBlock(0)));
        before.any(|(_, kept)| kept.progress == Progress::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::self_check::tests::lived;
    use headpond_testkit::{Break, assert_trips};

    fn of(log: &mut Log) -> &mut FlushEpochs {
        log.epochs.as_mut().expect("they are kept apart")
    }

    #[test]
    fn check_notices_what_is_wrong_with_epochs() {
        let breaks: [Break<Log>; 6] = [
            ("what is kept is found by block", |log| _ = of(log).kept_blocks.pop_first()),
            ("what is kept is found by block", |log| _ = of(log).kept.pop_last()),
            ("one after the other", |log| of(log).ends.push_back(Age::default())),
            ("all before the first end", |log| of(log).mark.slot = 99),
            ("no end is to come", |log| of(log).ends.back_mut().unwrap().slot += 99),
            ("lies where it did", |log| {
                let kept = of(log).kept.values_mut().next().expect("something was superseded");
                kept.version.slot.0 += 1;
            }),
        ];
        assert_trips(lived, Log::check_epochs, &breaks);
    }
}
