//! Queue depth over time, from when requests were issued and when they completed.
//!
//! **Invariants**: time is counted once, at the depth that held then; time without any request in
//! flight is not counted, so the shares describe the stream while it works. That time is what the
//! issuer thinks: from the last completion to the next request.

use serde::{Deserialize, Serialize};

use super::arrivals::{GapSummary, Gaps};
use super::histogram::LogHistogram;
use super::in_flight::InFlight;
use super::reorder::Reorder;

/// Requests followed until they complete; where more are in flight, the next one to complete is
/// taken for complete.
const IN_FLIGHT_MAX: usize = 8192;

/// Depths up to 127 are counted one by one, deeper ones in 64 steps a doubling.
type DepthCounts = LogHistogram<6>;

/// Sweeps over the intervals of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepthSweep {
    held: Reorder,
    completions: InFlight,
    now_ns: u64,
    /// Something has completed since the last issue.
    fell: bool,
    /// Something has completed.
    worked: bool,
    time: TimeAtDepth,
}

/// Nanoseconds spent at each depth, and what came between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimeAtDepth {
    nanos: DepthCounts,
    deepest: u64,
    /// How often the depth had fallen to this, from 0, when the next request came.
    refills: DepthCounts,
    thinks: Gaps,
}

/// How many requests a stream keeps in flight while it works.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Depth {
    /// Held or exceeded during 90 % of the time.
    pub low: u32,
    /// Median over time.
    pub typical: u32,
    /// Held or exceeded during 10 % of the time.
    pub high: u32,
    pub max: u32,
    pub mean: f64,
    /// How far the depth usually falls before the next request comes: one less than the depth where
    /// every completion is followed by a request, lower where requests are issued in batches.
    pub refilled_from: u32,
    /// Share of the time at each depth that holds at least 0.1 % of it.
    pub distribution: Vec<DepthShare>,
}

/// One bar of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DepthShare {
    pub depth: u32,
    pub share: f64,
}

impl DepthSweep {
    /// Adds a request in flight from `issued_ns` to `completed_ns`.
    #[inline]
    pub(crate) fn add(&mut self, issued_ns: u64, completed_ns: u64) {
        if let Some((issued_ns, completed_ns)) = self.held.push((issued_ns, completed_ns)) {
            self.enter(issued_ns, completed_ns);
        }
    }

    /// Changes the time counted so far for one without any; what is in flight stays.
    pub(crate) fn exchange(&mut self, time: &mut TimeAtDepth) {
        assert_eq!(time.total_ns(), 0, "time is counted once");
        std::mem::swap(&mut self.time, time);
    }

    /// Sweeps to the end of all intervals and takes the time.
    pub(crate) fn finish(&mut self) -> TimeAtDepth {
        while let Some((issued_ns, completed_ns)) = self.held.pop() {
            self.enter(issued_ns, completed_ns);
        }
        self.advance(u64::MAX);
        std::mem::take(&mut self.time)
    }

    #[inline]
    fn enter(&mut self, issued_ns: u64, completed_ns: u64) {
        self.advance(issued_ns);
        if self.worked && self.completions.is_empty() {
            self.time.thinks.add(issued_ns.saturating_sub(self.now_ns));
        }
        self.now_ns = self.now_ns.max(issued_ns);
        if self.fell {
            self.fell = false;
            self.time.refill(self.completions.len());
        }
        if completed_ns > self.now_ns {
            if self.completions.len() == IN_FLIGHT_MAX {
                self.completions.pop();
            }
            self.completions.push(completed_ns);
        }
    }

    /// Lets everything complete that does so until `until_ns`.
    #[inline]
    fn advance(&mut self, until_ns: u64) {
        while let Some(completed_ns) = self.completions.earliest()
            && completed_ns <= until_ns
        {
            self.count_until(completed_ns);
            self.completions.pop();
            (self.fell, self.worked) = (true, true);
        }
        if !self.completions.is_empty() {
            self.count_until(until_ns);
        }
    }

    #[inline]
    fn count_until(&mut self, at_ns: u64) {
        let passed = at_ns.saturating_sub(self.now_ns);
        self.time.add(self.completions.len(), passed);
        self.now_ns = self.now_ns.max(at_ns);
    }
}

impl TimeAtDepth {
    #[inline]
    fn add(&mut self, depth: usize, nanos: u64) {
        if nanos > 0 {
            self.nanos.add(depth as u64, nanos);
            self.deepest = self.deepest.max(depth as u64);
        }
    }

    #[inline]
    fn refill(&mut self, depth: usize) {
        self.refills.add(depth as u64, 1);
    }

    /// Forgets everything; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.nanos.clear();
        self.deepest = 0;
        self.refills.clear();
        self.thinks.clear();
    }

    pub(crate) fn merge(&mut self, other: &TimeAtDepth) {
        self.nanos.merge(&other.nanos);
        self.deepest = self.deepest.max(other.deepest);
        self.refills.merge(&other.refills);
        self.thinks.merge(&other.thinks);
    }

    pub(crate) fn total_ns(&self) -> u64 {
        self.nanos.total()
    }

    /// Mean depth while the stream works.
    pub(crate) fn mean(&self) -> Option<f64> {
        let total = self.total_ns() as f64;
        let weighted = |(depth, nanos): (u64, u64)| depth as f64 * nanos as f64;
        (total > 0.0).then(|| self.nanos.counted().map(weighted).sum::<f64>() / total)
    }

    /// Time from the last completion to the next request.
    pub(crate) fn thinks(&self) -> Option<GapSummary> {
        self.thinks.summary()
    }

    /// The summary, or `None` where no time is known.
    pub(crate) fn summary(&self) -> Option<Depth> {
        let mean = self.mean()?;
        let total = self.total_ns() as f64;
        let shares = self.nanos.counted();
        let shares = shares
            .map(|(depth, nanos)| DepthShare { depth: depth as u32, share: nanos as f64 / total });
        let distribution: Vec<_> = shares.collect();
        Some(Depth {
            low: quantile(&distribution, 0.1),
            typical: quantile(&distribution, 0.5),
            high: quantile(&distribution, 0.9),
            max: self.deepest as u32,
            mean,
            refilled_from: self.refills.quantile(0.5).unwrap_or(0) as u32,
            distribution: distribution.into_iter().filter(|bar| bar.share >= 0.001).collect(),
        })
    }
}

impl Depth {
    /// A few words: `depth 8`, `depth 10-16 in batches`.
    pub fn describe(&self) -> String {
        if self.is_batched() {
            return format!("depth {}-{} in batches", self.refilled_from.max(1), self.high);
        }
        if self.low == self.high || f64::from(self.high) <= f64::from(self.typical) * 1.2 {
            return format!("depth {}", self.typical);
        }
        format!("depth {}-{}", self.low, self.high)
    }

    /// True where requests are issued in batches, not one for each that completes.
    pub fn is_batched(&self) -> bool {
        self.high > 2 && self.refilled_from + 2 < self.high
    }
}

/// The depth at or below which the stream is during `share` of its time.
fn quantile(distribution: &[DepthShare], share: f64) -> u32 {
    let mut sum = 0.0;
    for bar in distribution {
        sum += bar.share;
        if sum >= share {
            return bar.depth;
        }
    }
    distribution.last().map_or(0, |bar| bar.depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(intervals: &[(u64, u64)]) -> Depth {
        let mut sweep = DepthSweep::default();
        intervals.iter().for_each(|&(issued, completed)| sweep.add(issued, completed));
        sweep.finish().summary().unwrap()
    }

    #[test]
    fn requests_one_after_another_are_depth_one_whatever_lies_between() {
        let depth = depth(&[(0, 10), (1_000, 1_010), (5_000, 5_010)]);
        assert_eq!((depth.low, depth.typical, depth.max), (1, 1, 1));
        assert_eq!(depth.mean, 1.0);
    }

    #[test]
    fn constant_depth_is_found() {
        let intervals: Vec<_> = (0..1000).map(|n| (n * 10, n * 10 + 80)).collect();
        let depth = depth(&intervals);
        assert_eq!((depth.low, depth.typical, depth.high, depth.max), (8, 8, 8, 8));
        assert_eq!((depth.refilled_from, depth.is_batched()), (7, false));
    }

    #[test]
    fn batches_are_told_from_a_steady_queue() {
        let batch = |n: u64| (0..6).map(move |_| (n * 60, n * 60 + 100));
        let depth = depth(&(0..200).flat_map(batch).collect::<Vec<_>>());
        assert_eq!((depth.refilled_from, depth.max), (6, 12));
        assert!(depth.is_batched());
    }

    #[test]
    fn late_interval_is_counted_where_it_belongs() {
        let sorted = depth(&[(0, 100), (10, 100), (20, 100)]);
        let shuffled = depth(&[(20, 100), (0, 100), (10, 100)]);
        assert_eq!(sorted, shuffled);
        assert_eq!(sorted.max, 3);
    }

    #[test]
    fn think_time_is_from_the_last_completion_to_the_next_request() {
        let mut sweep = DepthSweep::default();
        // Two at a time, both done at 100 after the first; then a pause of 900.
        for n in 0..50 {
            sweep.add(n * 1000, n * 1000 + 60);
            sweep.add(n * 1000 + 10, n * 1000 + 100);
        }
        let thinks = sweep.finish().thinks().unwrap();
        assert_eq!((thinks.mean_ns, thinks.variation), (900, 0.0));
        assert_eq!(TimeAtDepth::default().thinks(), None);
    }

    #[test]
    fn requests_that_never_complete_do_not_pile_up() {
        let mut sweep = DepthSweep::default();
        (0..3 * IN_FLIGHT_MAX as u64).for_each(|n| sweep.add(n, u64::MAX));
        assert_eq!(sweep.completions.len(), IN_FLIGHT_MAX);
        assert_eq!(sweep.finish().summary().unwrap().max, IN_FLIGHT_MAX as u32);
    }

    #[test]
    fn requests_that_take_no_time_have_no_depth() {
        let mut sweep = DepthSweep::default();
        sweep.add(5, 5);
        assert_eq!(sweep.finish().summary(), None);
    }
}
