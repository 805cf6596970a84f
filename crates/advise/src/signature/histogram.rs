//! Counts of values of any magnitude, in buckets that grow with the value.
//!
//! `2^BITS` buckets a doubling; values below `2^(BITS + 1)` have a bucket each. So a bucket is
//! never wider than a `2^BITS`-th of its values.
//!
//! **Invariants**: merging two gives what counting all their values in one would give.

use serde::{Deserialize, Serialize};

/// The counts, those of the highest values left out where they are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u64)>", into = "Vec<(u32, u64)>")]
pub(crate) struct LogHistogram<const BITS: u32> {
    counts: Vec<u64>,
}

/// One bucket of a histogram, for people and programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// Lowest value counted here; the bucket ends where the next one begins.
    pub from: u64,
    /// Part of all that is counted.
    pub share: f64,
}

impl<const BITS: u32> LogHistogram<BITS> {
    /// Buckets that any value can need.
    pub(crate) const BUCKETS: usize = Self::bucket(u64::MAX) + 1;

    #[inline]
    pub(crate) fn add(&mut self, value: u64, weight: u64) {
        if weight == 0 {
            return;
        }
        let bucket = Self::bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(weight);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (sum, &count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Forgets everything; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Counts of the values below `limit`, where that is the lowest of a bucket; else of those in
    /// the buckets below its own.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let end = Self::bucket(limit).min(self.counts.len());
        self.counts[..end].iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The lowest value of the bucket in which this share of the counts is reached.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = (self.total() as f64 * share).max(1.0);
        let mut sum = 0.0;
        let reaches = |&count: &u64| {
            sum += count as f64;
            sum >= wanted
        };
        self.counts.iter().position(reaches).map(Self::lowest)
    }

    /// Every bucket with something in it: its lowest value and its count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        counts.map(|(bucket, &count)| (Self::lowest(bucket), count))
    }

    /// Shares by doubling.
    pub(crate) fn doublings(&self) -> Vec<Bucket> {
        let total = self.total().max(1) as f64;
        let mut buckets: Vec<Bucket> = Vec::new();
        for (value, count) in self.counted() {
            let from = value.checked_ilog2().map_or(0, |exponent| 1 << exponent);
            let share = count as f64 / total;
            match buckets.last_mut().filter(|last| last.from == from) {
                Some(last) => last.share += share,
                None => buckets.push(Bucket { from, share }),
            }
        }
        buckets
    }

    #[inline]
    pub(crate) const fn bucket(value: u64) -> usize {
        if value < 1 << BITS {
            return value as usize;
        }
        let shift = value.ilog2() - BITS;
        ((shift as usize) << BITS) + (value >> shift) as usize
    }

    /// The lowest value of a bucket.
    pub(crate) const fn lowest(bucket: usize) -> u64 {
        if bucket < 2 << BITS {
            return bucket as u64;
        }
        let shift = (bucket >> BITS) - 1;
        ((bucket - (shift << BITS)) as u64) << shift
    }
}

impl<const BITS: u32> From<Vec<(u32, u64)>> for LogHistogram<BITS> {
    /// Buckets that no value has, as damage may bring them, are left out.
    fn from(counted: Vec<(u32, u64)>) -> Self {
        let mut histogram = Self::default();
        for (bucket, count) in counted {
            if (bucket as usize) < Self::BUCKETS {
                histogram.add(Self::lowest(bucket as usize), count);
            }
        }
        histogram
    }
}

impl<const BITS: u32> From<LogHistogram<BITS>> for Vec<(u32, u64)> {
    fn from(histogram: LogHistogram<BITS>) -> Self {
        let counts = (0..).zip(histogram.counts);
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_buckets_are_narrow(value: u64) {
            let bucket = LogHistogram::<4>::bucket(value);
            let lowest = LogHistogram::<4>::lowest(bucket);
            prop_assert!(lowest <= value);
            prop_assert!(value - lowest <= lowest / 16);
            if bucket + 1 < LogHistogram::<4>::BUCKETS {
                prop_assert!(value < LogHistogram::<4>::lowest(bucket + 1));
            }
        }

        #[test]
        fn merging_is_counting_all_in_one(
            one in prop::collection::vec(any::<u64>(), 0..50),
            other in prop::collection::vec(0u64..100, 0..50),
        ) {
            let count = |values: &[u64]| {
                let mut histogram = LogHistogram::<2>::default();
                values.iter().for_each(|&value| histogram.add(value, 3));
                histogram
            };
            let mut merged = count(&one);
            merged.merge(&count(&other));
            prop_assert_eq!(merged, count(&[one, other].concat()));
        }
    }

    #[test]
    fn quantiles_and_doublings_describe_what_was_counted() {
        let mut histogram = LogHistogram::<4>::default();
        (0..90).for_each(|_| histogram.add(5, 1));
        (0..10).for_each(|_| histogram.add(1000, 1));
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.99)), (Some(5), Some(992)));
        assert_eq!(histogram.below(992), 90);
        let shares: Vec<_> = histogram.doublings().iter().map(|b| (b.from, b.share)).collect();
        assert_eq!(shares, [(4, 0.9), (512, 0.1)]);
        assert_eq!(LogHistogram::<4>::default().quantile(0.5), None);
    }
}
