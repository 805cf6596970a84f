//! How long requests took, over time: what was answered in each window, in bins of latency.
//!
//! Two bins for each doubling are what an eye can tell apart on a logarithmic scale, and keep a
//! round of sixty windows at a few kilobytes.

use serde::{Deserialize, Serialize};

/// What was answered in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyWindow {
    /// Its end, from the beginning of the round.
    pub at_s: f64,
    /// Where a bin begins, in nanoseconds, and how many requests fell into it; in rising order.
    pub bins: Vec<(u64, u64)>,
}

/// Bins of 2^n and of 1.5 x 2^n nanoseconds, for each n.
#[derive(Clone, Debug)]
pub(crate) struct Doublings([u64; 2 * u64::BITS as usize]);

impl LatencyWindow {
    /// From latencies in nanoseconds with their counts, in any order.
    pub fn of(at_s: f64, seen: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut bins = Doublings::new();
        seen.into_iter().for_each(|(nanos, count)| bins.note(nanos, count));
        Self { at_s, bins: bins.take() }
    }

    /// Where the bin ends that begins there.
    pub fn bin_end(begin_nanos: u64) -> u64 {
        let doubling = begin_nanos.max(1).ilog2();
        match begin_nanos.is_power_of_two() && doubling > 0 {
            true => begin_nanos + (begin_nanos >> 1),
            false => 2 << doubling,
        }
    }
}

impl Doublings {
    pub fn new() -> Self {
        Self([0; 2 * u64::BITS as usize])
    }

    pub fn note(&mut self, nanos: u64, count: u64) {
        let nanos = nanos.max(1);
        let doubling = nanos.ilog2();
        // The bit behind the highest one says in which half it is.
        let half = if doubling == 0 { 0 } else { (nanos >> (doubling - 1)) & 1 };
        self.0[2 * doubling as usize + half as usize] += count;
    }

    /// What was counted since the last time.
    pub fn take(&mut self) -> Vec<(u64, u64)> {
        let begin = |index: usize| {
            let doubling = 1_u64 << (index / 2);
            doubling + (doubling >> 1) * (index % 2) as u64
        };
        let counts = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let bins = counts.map(|(index, &count)| (begin(index), count)).collect();
        *self = Self::new();
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_lies_in_its_bin_and_bins_follow_each_other() {
        for nanos in [1, 2, 3, 4, 5, 6, 7, 1000, 1535, 1536, 2047, 2048, 3_600_000_000_000] {
            let window = LatencyWindow::of(0.0, [(nanos, 7)]);
            let [(begin, 7)] = window.bins[..] else { panic!("{nanos}: {window:?}") };
            let end = LatencyWindow::bin_end(begin);
            assert!(begin <= nanos && nanos < end, "{nanos} in {begin}..{end}");
            assert_eq!(LatencyWindow::of(0.0, [(end, 1)]).bins, [(end, 1)], "{begin}..{end}");
        }
    }

    #[test]
    fn what_was_taken_is_not_counted_again() {
        let mut bins = Doublings::new();
        bins.note(100, 2);
        assert_eq!((bins.take(), bins.take()), (vec![(96, 2)], Vec::new()));
    }
}
