//! Miss-ratio curves: what a cache of each size would not find in it.
//!
//! One LRU cache that takes in whatever is read or written; its misses are told for reads, for
//! writes and for both. An access hits where fewer other blocks were asked for since the last time
//! than the cache holds.
//!
//! **Invariants**: whole numbers until the curve is drawn, so that distances of several traces add
//! up exactly.
//!
//! **Source**: Mattson, Gecsei, Slutz and Traiger, *Evaluation techniques for storage hierarchies*,
//! IBM Syst. J. 9 (1970). The correction for accesses that the sample has too many or too few of is
//! SHARDS-adj (FAST '15, section 4.3).

use serde::{Deserialize, Serialize};

use super::histogram::LogHistogram;
use super::spatial_sample::BLOCK_BYTES;

/// Buckets a doubling of distance; half of them are points of a curve.
const DISTANCE_BITS: u32 = 4;
type DistanceCounts = LogHistogram<DISTANCE_BITS>;

/// How many other blocks were asked for between two accesses to one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Distances {
    again: DistanceCounts,
    /// Accesses to blocks that are new.
    first: u64,
    /// All accesses, whether their block was followed or not.
    accesses: u64,
}

/// A size of the cache and what it would miss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    pub cache_bytes: u64,
    /// Missed part of the blocks read and written, of those read, and of those written.
    pub all: f64,
    pub reads: f64,
    pub writes: f64,
}

impl Distances {
    /// Accesses, followed or not.
    #[inline]
    pub(crate) fn count(&mut self, accesses: u64) {
        self.accesses = self.accesses.saturating_add(accesses);
    }

    /// A followed access, which stands for `one_in`; `distance` in followed blocks.
    #[inline]
    pub(crate) fn add(&mut self, distance: Option<u64>, one_in: u64) {
        match distance {
            Some(distance) => self.again.add(distance.saturating_mul(one_in), one_in),
            None => self.first = self.first.saturating_add(one_in),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.again.merge(&other.again);
        self.first = self.first.saturating_add(other.first);
        self.accesses = self.accesses.saturating_add(other.accesses);
    }

    /// Distances of accesses to blocks that had been asked for before.
    pub(crate) fn again(&self) -> &DistanceCounts {
        &self.again
    }

    /// Part of the followed accesses whose block had been asked for before.
    pub(crate) fn again_share(&self) -> f64 {
        let again = self.again.total();
        again as f64 / again.saturating_add(self.first).max(1) as f64
    }

    /// What the followed accesses stand for.
    pub(crate) fn weight(&self) -> u64 {
        self.again.total().saturating_add(self.first)
    }

    /// Missed part in a cache of so many blocks; nothing is missed where nothing is asked for, and
    /// everything where nobody was followed.
    fn miss_ratio(&self, cache_blocks: u64) -> f64 {
        if self.accesses == 0 || self.weight() == 0 {
            return f64::from(u8::from(self.accesses > 0));
        }
        let missing = i128::from(self.accesses) - i128::from(self.weight());
        let hits = i128::from(self.again.below(cache_blocks)) + missing;
        1.0 - (hits as f64 / self.accesses as f64).clamp(0.0, 1.0)
    }
}

/// The curve: eight sizes a doubling, from one block to where a larger cache gains nothing; where
/// the miss ratio does not change for a while, its first and last size; nothing without accesses.
pub(crate) fn curve(reads: &Distances, writes: &Distances) -> Vec<CurvePoint> {
    let mut both = reads.clone();
    both.merge(writes);
    let largest = both.again.counted().last().map_or(0, |(distance, _)| distance);
    let mut points: Vec<CurvePoint> = Vec::new();
    if both.accesses == 0 {
        return points;
    }
    for bucket in [1].into_iter().chain((2..DistanceCounts::BUCKETS).step_by(2)) {
        let blocks = DistanceCounts::lowest(bucket);
        let point = CurvePoint {
            cache_bytes: blocks.saturating_mul(BLOCK_BYTES),
            all: both.miss_ratio(blocks),
            reads: reads.miss_ratio(blocks),
            writes: writes.miss_ratio(blocks),
        };
        let is_same = |other: &CurvePoint| {
            (other.all, other.reads, other.writes) == (point.all, point.reads, point.writes)
        };
        if points.len() >= 2 && points[points.len() - 2..].iter().all(is_same) {
            points.pop();
        }
        points.push(point);
        if blocks > largest || point.cache_bytes == u64::MAX {
            break;
        }
    }
    points
}

/// The smallest size that hits nine tenths of what the largest does, where that is one in a hundred
/// accesses at least.
pub(crate) fn knee_bytes(curve: &[CurvePoint]) -> Option<u64> {
    const WORTHWHILE: f64 = 0.01;
    let most = 1.0 - curve.last()?.all;
    let enough = |point: &&CurvePoint| 1.0 - point.all >= 0.9 * most;
    let knee = curve.iter().find(enough).filter(|_| most >= WORTHWHILE);
    knee.map(|point| point.cache_bytes)
}

#[cfg(test)]
#[path = "curve_tests.rs"]
mod twins;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_lacks_a_hot_block_is_corrected_for_what_was_counted() {
        let mut reads = Distances::default();
        reads.count(1000);
        (0..40).for_each(|_| reads.add(None, 10));
        let points = curve(&reads, &Distances::default());
        // Six hundred accesses were to a block that is not followed: it would stay in any cache.
        assert!((points[0].all - 0.4).abs() < 1e-9, "{points:?}");
        assert_eq!(points[0].writes, 0.0);
    }

    #[test]
    fn the_knee_is_where_a_larger_cache_gains_little() {
        let mut reads = Distances::default();
        reads.count(1000);
        (0..100).for_each(|_| reads.add(None, 1));
        (0..860).for_each(|_| reads.add(Some(1000), 1));
        (0..40).for_each(|_| reads.add(Some(1 << 24), 1));
        let knee = knee_bytes(&curve(&reads, &Distances::default())).unwrap();
        assert!((1000 * BLOCK_BYTES..1200 * BLOCK_BYTES).contains(&knee), "{knee}");
        assert_eq!(knee_bytes(&curve(&Distances::default(), &Distances::default())), None);
    }

    #[test]
    fn flat_parts_of_a_curve_are_their_ends() {
        let mut reads = Distances::default();
        reads.count(2);
        reads.add(None, 1);
        reads.add(Some(1 << 20), 1);
        let points = curve(&reads, &Distances::default());
        assert_eq!(points.len(), 3, "{points:?}");
        assert_eq!((points[1].all, points[2].all), (1.0, 0.5));
    }
}
