//! Data that the drive has acknowledged and not yet written: contiguous runs, ordered by address.
//!
//! A write belongs to the interval between two flushes in which it came. A flush waits for what is
//! of an interval before it, and for nothing that comes later, though it lies in the same run.
//!
//! **Invariants**: runs do not overlap each other, nor touch where the cache merges them; `sectors`
//! is their sum. The parts of a run follow
//! each other without gaps, and neighbours are of different intervals. What was written over
//! something that a flush waits for is waited for in its place.

use super::layout::Sector;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Part of a run that was written in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    end: Sector,
    interval: u64,
}

/// The parts of a run, ascending; the first begins where the run does.
type Run = SmallVec<[Part; 2]>;

#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    runs: BTreeMap<Sector, Run>,
    sectors: u64,
    sectors_max: u64,
    runs_max: usize,
    /// Of runs that touch each other one is made.
    merges: bool,
}

fn end_of(run: &Run) -> Sector {
    run.last().expect("a run has parts").end
}

fn oldest_of(run: &Run) -> u64 {
    run.iter().map(|part| part.interval).min().expect("a run has parts")
}

fn push(run: &mut Run, part: Part) {
    match run.last_mut() {
        Some(last) if last.interval == part.interval => last.end = part.end,
        _ => run.push(part),
    }
}

impl WriteCache {
    pub(super) fn new(sectors_max: u64, runs_max: usize, merges: bool) -> Self {
        Self { runs: BTreeMap::new(), sectors: 0, sectors_max, runs_max, merges }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn has_run_at(&self, start: Sector) -> bool {
        self.runs.contains_key(&start)
    }

    /// Sectors of the runs that the range continues, or that continue it.
    pub(super) fn sectors_touching(&self, range: &Range<Sector>) -> u64 {
        let near = self.runs.range(..=range.end).rev();
        let touching = near.take_while(|(_, run)| end_of(run) >= range.start);
        touching.map(|(start, run)| end_of(run) - start).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn has_room(&self, range: &Range<Sector>) -> bool {
        self.runs.len() < self.runs_max
            && self.sectors + (range.end - range.start) <= self.sectors_max
    }

    /// Whether a range of this size could ever be held.
    pub(super) fn may_hold(&self, sectors: u64) -> bool {
        sectors <= self.sectors_max
    }

    /// Takes in a write of this interval, which is none before the last, over and next to what is
    /// there.
    pub(super) fn insert(&mut self, range: Range<Sector>, interval: u64) {
        let mut merged = range;
        let mut before: SmallVec<[(Sector, Run); 2]> = SmallVec::new();
        while let Some(start) = self.joining(&merged) {
            let run = self.remove_run(start);
            merged = merged.start.min(start)..merged.end.max(end_of(&run));
            before.push((start, run));
        }
        before.sort_unstable_by_key(|(start, _)| *start);
        let (mut run, mut at) = (Run::new(), merged.start);
        for (start, parts) in before {
            if at < start {
                push(&mut run, Part { end: start, interval });
            }
            at = end_of(&parts);
            parts.into_iter().for_each(|part| push(&mut run, part));
        }
        if at < merged.end {
            push(&mut run, Part { end: merged.end, interval });
        }
        self.add_run(merged.start, run);
    }

    pub(super) fn contains(&self, range: &Range<Sector>) -> bool {
        let before = self.runs.range(..=range.start).next_back();
        before.is_some_and(|(_, run)| range.end <= end_of(run))
    }

    /// Drops what a write past the cache replaces.
    pub(super) fn remove(&mut self, range: &Range<Sector>) {
        while let Some(start) = self.overlapping(range) {
            let run = self.remove_run(start);
            let (before, rest) = split(start, run, range.start);
            let (_, after) = split(range.start.max(start), rest, range.end);
            self.add_run(start, before);
            self.add_run(range.end, after);
        }
    }

    /// Takes up to `sectors_max` sectors out of the run at `start`, for writing; with the oldest
    /// interval of which they are.
    pub(super) fn take(&mut self, start: Sector, sectors_max: u64) -> (Range<Sector>, u64) {
        let run = self.remove_run(start);
        let end = end_of(&run).min(start + sectors_max);
        let (taken, left) = split(start, run, end);
        self.add_run(end, left);
        (start..end, oldest_of(&taken))
    }

    /// Starts of the runs nearest to `around` in address, at most `count` on either side; with
    /// `before`, of those that have something of an earlier interval.
    pub(super) fn near(
        &self,
        around: Sector,
        count: usize,
        before: Option<u64>,
    ) -> impl Iterator<Item = Sector> {
        let is_due =
            move |(_, run): &(&Sector, &Run)| before.is_none_or(|before| oldest_of(run) < before);
        let behind = self.runs.range(around..).filter(is_due).take(count);
        let ahead = self.runs.range(..around).rev().filter(is_due).take(count);
        behind.chain(ahead).map(|(start, _)| *start)
    }

    /// The oldest interval of which something is not on the medium.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.runs.values().map(oldest_of).min()
    }

    fn joining(&self, range: &Range<Sector>) -> Option<Sector> {
        if self.merges { self.touching(range) } else { self.overlapping(range) }
    }

    fn touching(&self, range: &Range<Sector>) -> Option<Sector> {
        let (start, run) = self.runs.range(..=range.end).next_back()?;
        (end_of(run) >= range.start).then_some(*start)
    }

    fn overlapping(&self, range: &Range<Sector>) -> Option<Sector> {
        let (start, run) = self.runs.range(..range.end).next_back()?;
        (end_of(run) > range.start).then_some(*start)
    }

    fn add_run(&mut self, start: Sector, run: Run) {
        if let Some(last) = run.last() {
            self.sectors += last.end - start;
            self.runs.insert(start, run);
        }
    }

    fn remove_run(&mut self, start: Sector) -> Run {
        let run = self.runs.remove(&start).expect("a run starts there");
        self.sectors -= end_of(&run) - start;
        run
    }
}

/// What of a run that begins at `start` lies before `at`, and what from there on; either may be
/// nothing.
fn split(start: Sector, run: Run, at: Sector) -> (Run, Run) {
    let (mut before, mut after) = (Run::new(), Run::new());
    let mut from = start;
    for part in run {
        if from < at {
            push(&mut before, Part { end: part.end.min(at), ..part });
        }
        if part.end > at {
            push(&mut after, part);
        }
        from = part.end;
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_merge_and_keep_their_intervals() {
        let mut cache = WriteCache::new(1000, 10, true);
        cache.insert(8..16, 3);
        cache.insert(24..32, 3);
        cache.insert(16..24, 5);
        assert_eq!(cache.near(0, 9, None).collect::<Vec<_>>(), [8]);
        assert_eq!(cache.take(8, 10), (8..18, 3));
        assert_eq!(cache.take(18, 6), (18..24, 5));
        assert_eq!(cache.take(24, 100), (24..32, 3));
        assert!(cache.is_empty());
    }

    /// A stream that goes on behind what a flush waits for: that is over when it is written.
    #[test]
    fn what_comes_after_a_flush_is_not_waited_for() {
        let mut cache = WriteCache::new(1000, 10, true);
        cache.insert(0..8, 0);
        cache.insert(8..16, 1);
        // Over what is waited for: the new contents are waited for in its place.
        cache.insert(4..6, 1);
        assert_eq!(cache.oldest(), Some(0));
        assert_eq!(cache.near(0, 9, Some(1)).collect::<Vec<_>>(), [0]);
        assert_eq!(cache.take(0, 8), (0..8, 0));
        assert_eq!(cache.oldest(), Some(1));
        assert_eq!(cache.near(0, 9, Some(1)).count(), 0);
    }

    proptest! {
        #[test]
        fn runs_are_the_set_of_their_sectors(
            steps in prop::collection::vec((0u64..200, 1u64..30, any::<bool>()), 1..60),
            merges in any::<bool>(),
        ) {
            let mut cache = WriteCache::new(10_000, 1000, merges);
            let mut set = BTreeSet::new();
            for (number, (start, len, insert)) in steps.into_iter().enumerate() {
                let range = start..start + len;
                if insert {
                    cache.insert(range.clone(), number as u64);
                    set.extend(range);
                } else {
                    cache.remove(&range);
                    set.retain(|sector| !range.contains(sector));
                }
                prop_assert_eq!(cache.sectors, set.len() as u64);
                for sector in 0..240 {
                    prop_assert_eq!(cache.contains(&(sector..sector + 1)), set.contains(&sector));
                }
            }
        }
    }
}
