//! Data that the drive has acknowledged and not yet written: contiguous runs, ordered by address.
//!
//! **Invariants**: runs do not touch each other; `sectors` is their sum. A run's number is that of
//! the oldest write in it, so that a flush waits for everything that came before it.

use super::layout::Sector;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct Run {
    end: Sector,
    oldest: u64,
}

#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    runs: BTreeMap<Sector, Run>,
    sectors: u64,
    sectors_max: u64,
    runs_max: usize,
}

impl WriteCache {
    pub(super) fn new(sectors_max: u64, runs_max: usize) -> Self {
        Self { runs: BTreeMap::new(), sectors: 0, sectors_max, runs_max }
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

    /// Takes in the write numbered `number`, over and next to what is there.
    pub(super) fn insert(&mut self, range: Range<Sector>, number: u64) {
        let mut merged = range;
        let mut oldest = number;
        while let Some((start, run)) = self.touching(&merged) {
            self.remove_run(start);
            merged = merged.start.min(start)..merged.end.max(run.end);
            oldest = oldest.min(run.oldest);
        }
        self.add_run(merged, oldest);
    }

    pub(super) fn contains(&self, range: &Range<Sector>) -> bool {
        let before = self.runs.range(..=range.start).next_back();
        before.is_some_and(|(_, run)| range.end <= run.end)
    }

    /// Drops what a write past the cache replaces.
    pub(super) fn remove(&mut self, range: &Range<Sector>) {
        while let Some((start, run)) = self.overlapping(range) {
            self.remove_run(start);
            self.add_run(start..range.start, run.oldest);
            self.add_run(range.end..run.end, run.oldest);
        }
    }

    /// Takes up to `sectors_max` sectors out of the run at `start`, for writing.
    pub(super) fn take(&mut self, start: Sector, sectors_max: u64) -> (Range<Sector>, u64) {
        let run = self.runs[&start];
        let end = run.end.min(start + sectors_max);
        self.remove_run(start);
        self.add_run(end..run.end, run.oldest);
        (start..end, run.oldest)
    }

    /// Starts of the runs nearest to `around` in address, at most `count` on either side.
    pub(super) fn near(&self, around: Sector, count: usize) -> impl Iterator<Item = Sector> {
        let after = self.runs.range(around..).take(count);
        let before = self.runs.range(..around).rev().take(count);
        after.chain(before).map(|(start, _)| *start)
    }

    /// The number of the oldest write that is not on the medium.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.runs.values().map(|run| run.oldest).min()
    }

    fn touching(&self, range: &Range<Sector>) -> Option<(Sector, Run)> {
        let (start, run) = self.runs.range(..=range.end).next_back()?;
        (run.end >= range.start).then_some((*start, *run))
    }

    fn overlapping(&self, range: &Range<Sector>) -> Option<(Sector, Run)> {
        let (start, run) = self.runs.range(..range.end).next_back()?;
        (run.end > range.start).then_some((*start, *run))
    }

    fn add_run(&mut self, range: Range<Sector>, oldest: u64) {
        if range.start < range.end {
            self.sectors += range.end - range.start;
            self.runs.insert(range.start, Run { end: range.end, oldest });
        }
    }

    fn remove_run(&mut self, start: Sector) {
        let run = self.runs.remove(&start).expect("a run starts there");
        self.sectors -= run.end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_merge_and_keep_the_oldest_number() {
        let mut cache = WriteCache::new(1000, 10);
        cache.insert(8..16, 5);
        cache.insert(24..32, 3);
        cache.insert(16..24, 9);
        assert_eq!(cache.near(0, 9).collect::<Vec<_>>(), [8]);
        assert_eq!(cache.take(8, 100), (8..32, 3));
        assert!(cache.is_empty());
    }

    proptest! {
        #[test]
        fn runs_are_the_set_of_their_sectors(
            steps in prop::collection::vec((0u64..200, 1u64..30, any::<bool>()), 1..60),
        ) {
            let mut cache = WriteCache::new(10_000, 1000);
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
