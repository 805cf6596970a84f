//! How large the requests of a stream are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Sizes counted exactly; beyond that many different ones a size counts as the power of two below.
const EXACT_SIZES: usize = 64;

/// Places remembered, each for the sizes of one hash.
const RECENT: usize = 32;

/// Counts per size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct SizeCounts {
    /// Sizes in order, and how many requests have each.
    counts: Vec<(u64, u64)>,
    /// Where a size was found last; it may have moved since.
    recent: [u8; RECENT],
}

#[derive(Serialize, Deserialize)]
struct Stored {
    counts: BTreeMap<u64, u64>,
}

/// Request sizes of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    /// The most frequent size.
    pub dominant_bytes: u64,
    /// Share of the requests that have it.
    pub dominant_share: f64,
    pub mean_bytes: f64,
    pub smallest_bytes: u64,
    pub largest_bytes: u64,
    /// Every size with at least 0.1 % of the requests.
    pub distribution: Vec<SizeShare>,
}

/// One bar of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeShare {
    pub bytes: u64,
    pub share: f64,
}

impl SizeCounts {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64, count: u64) {
        let recent = hash(bytes);
        match self.counts.get_mut(usize::from(self.recent[recent])) {
            Some((size, sum)) if *size == bytes => *sum += count,
            _ => self.recent[recent] = self.find_and_add(bytes, count) as u8,
        }
    }

    /// Where it is now.
    fn find_and_add(&mut self, bytes: u64, count: u64) -> usize {
        let place = |bytes| self.counts.binary_search_by_key(&bytes, |&(size, _)| size);
        let mut size = bytes;
        let mut found = place(size);
        if found.is_err() && self.counts.len() >= EXACT_SIZES {
            size = power_of_two_below(bytes);
            found = place(size);
        }
        match found {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (size, count)),
        }
        found.unwrap_or_else(|at| at)
    }

    /// Forgets everything; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }

    pub(crate) fn merge(&mut self, other: &SizeCounts) {
        other.counts.iter().for_each(|&(bytes, count)| self.add(bytes, count));
    }

    /// Mean of the logarithm to base 2: what phases are told apart by.
    pub(crate) fn mean_log2(&self) -> f64 {
        let total: u64 = self.counts.iter().map(|&(_, count)| count).sum();
        let log = |&(bytes, count): &(u64, u64)| (bytes.max(1) as f64).log2() * count as f64;
        self.counts.iter().map(log).sum::<f64>() / (total.max(1) as f64)
    }

    /// The summary, or `None` where there are no requests with a size.
    pub(crate) fn summary(&self) -> Option<Sizes> {
        let total: u64 = self.counts.iter().map(|&(_, count)| count).sum();
        let &(dominant_bytes, dominant) = self.counts.iter().max_by_key(|&(_, count)| count)?;
        let share = |count: u64| count as f64 / total as f64;
        let bytes: f64 = self.counts.iter().map(|&(b, n)| b as f64 * n as f64).sum();
        let bars = self.counts.iter().map(|&(bytes, n)| SizeShare { bytes, share: share(n) });
        Some(Sizes {
            dominant_bytes,
            dominant_share: share(dominant),
            mean_bytes: bytes / total as f64,
            smallest_bytes: self.counts.first()?.0,
            largest_bytes: self.counts.last()?.0,
            distribution: bars.filter(|bar| bar.share >= 0.001).collect(),
        })
    }
}

impl PartialEq for SizeCounts {
    fn eq(&self, other: &Self) -> bool {
        self.counts == other.counts
    }
}

impl From<Stored> for SizeCounts {
    fn from(stored: Stored) -> Self {
        Self { counts: stored.counts.into_iter().collect(), ..Self::default() }
    }
}

impl From<SizeCounts> for Stored {
    fn from(sizes: SizeCounts) -> Self {
        Self { counts: sizes.counts.into_iter().collect() }
    }
}

#[inline]
fn hash(bytes: u64) -> usize {
    (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.ilog2())) as usize
}

fn power_of_two_below(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |exponent| 1 << exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dominant_size_is_the_most_frequent_and_not_the_largest() {
        let mut counts = SizeCounts::default();
        counts.add(4096, 90);
        counts.add(1 << 20, 10);
        let sizes = counts.summary().unwrap();
        assert_eq!((sizes.dominant_bytes, sizes.dominant_share), (4096, 0.9));
        assert_eq!((sizes.smallest_bytes, sizes.largest_bytes), (4096, 1 << 20));
    }

    #[test]
    fn many_different_sizes_stay_bounded() {
        let mut counts = SizeCounts::default();
        (1..100_000).for_each(|bytes| counts.add(bytes, 1));
        assert!(counts.counts.len() <= EXACT_SIZES + 64);
        assert_eq!(counts.counts.iter().map(|&(_, count)| count).sum::<u64>(), 99_999);
    }

    #[test]
    fn sizes_that_move_aside_for_others_are_found_again() {
        let (mut counts, mut naive) = (SizeCounts::default(), BTreeMap::new());
        for n in 0..4000u64 {
            let bytes = 512 * (1 + (n * n + n / 7) % 60);
            counts.add(bytes, 1);
            *naive.entry(bytes).or_insert(0) += 1;
        }
        assert_eq!(Stored::from(counts).counts, naive);
    }
}
