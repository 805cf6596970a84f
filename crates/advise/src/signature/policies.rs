//! What a cache of each size would miss with each eviction policy, by simulations scaled down.
//!
//! A cache is simulated on one block in so many, by its hash, with as much less room. Sizes double;
//! those that hold only a small part of what has been met are given up, because they would cost the
//! most and tell the least.
//!
//! **Invariants**: no simulated cache holds more than `HELD_MAX` blocks, so the sizes together cost
//! little more than the smallest of them.
//!
//! **Source**: Waldspurger, Saemundsson, Ahmad and Park, *Cache modeling and optimization using
//! miniature simulations*, USENIX ATC '17. Ours takes the misses as a part of all accesses, counted
//! exactly, as SHARDS-adj does: a hot block that is in the sample, or not, does no harm.

use std::collections::BTreeMap;

use headpond_cache::{CoreBlock, EvictionPolicy, MINIATURE_BLOCKS, Miniature};
use serde::{Deserialize, Serialize};

use super::spatial_sample::{BLOCK_BYTES, BlockHash};

const POLICIES: usize = EvictionPolicy::PLAIN.len();

const HELD_MAX: u64 = 1024;

/// A cache of fewer blocks in the simulation says little, unless it is whole.
const HELD_MIN: u64 = 64;

/// Sizes, in blocks: 1 MiB to 64 TiB.
const EXPONENTS: std::ops::RangeInclusive<u32> = 8..=34;

/// A size is given up when so many times as many blocks have been met.
const GIVEN_UP: u64 = 32;

/// All sizes at work.
#[derive(Debug)]
pub(crate) struct PolicySimulation {
    /// The smallest first: of it most blocks are looked at.
    sizes: Vec<Size>,
    /// Blocks asked for, followed or not.
    accesses: u64,
    /// Blocks on their way through the sizes.
    followed: Vec<BlockHash>,
}

#[derive(Debug)]
struct Size {
    blocks: u64,
    one_in: u64,
    threshold: u64,
    caches: [Miniature; POLICIES],
    misses: [u64; POLICIES],
}

/// By size in blocks: the accesses of the traces that this size was simulated for, and what each of
/// the policies missed of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyCounts(BTreeMap<u64, SizeCounts>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SizeCounts {
    accesses: u64,
    misses: [u64; POLICIES],
}

/// What one policy would miss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyCurve {
    pub policy: EvictionPolicy,
    pub points: Vec<PolicyPoint>,
}

/// A size of the cache and the missed part of the blocks read and written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PolicyPoint {
    pub cache_bytes: u64,
    pub misses: f64,
}

impl PolicySimulation {
    /// Follows one block in `one_in_min`, or fewer.
    pub(crate) fn new(one_in_min: u64) -> Self {
        let size = |exponent: u32| {
            let blocks = 1 << exponent;
            let one_in = (blocks / HELD_MAX).max(one_in_min);
            let held = blocks / one_in;
            (one_in == 1 || held >= HELD_MIN).then(|| Size {
                blocks,
                one_in,
                threshold: u64::MAX / one_in,
                caches: EvictionPolicy::PLAIN.map(|policy| Miniature::new(policy, held)),
                misses: [0; POLICIES],
            })
        };
        let sizes: Vec<Size> = EXPONENTS.filter_map(size).collect();
        let is_rarer = |pair: &[Size]| pair[1].threshold <= pair[0].threshold;
        assert!(sizes.windows(2).all(is_rarer), "larger sizes follow no block that smaller do not");
        Self { sizes, accesses: 0, followed: Vec::new() }
    }

    /// So many blocks are asked for, followed or not.
    #[inline]
    pub(crate) fn count(&mut self, accesses: u64) {
        self.accesses = self.accesses.saturating_add(accesses);
    }

    /// Blocks with a higher hash are not followed, now or later.
    #[inline]
    pub(crate) fn threshold(&self) -> u64 {
        self.sizes.first().map_or(0, |size| size.threshold)
    }

    /// Some of them, in order. One cache after the other takes them all, so that it is near. What
    /// one size does not follow, no larger one does: each looks only at what the last has left.
    pub(crate) fn access(&mut self, blocks: impl Iterator<Item = BlockHash>) {
        let followed = &mut self.followed;
        followed.extend(blocks);
        for Size { threshold, caches, misses, .. } in &mut self.sizes {
            followed.retain(|block| block.0 <= *threshold);
            for (cache, misses) in caches.iter_mut().zip(misses) {
                // The upper bits are what the sample is chosen by.
                let numbers = followed.iter().map(|block| CoreBlock(block.0 % MINIATURE_BLOCKS));
                *misses += numbers.filter(|&number| !cache.access(number)).count() as u64;
            }
        }
        followed.clear();
    }

    /// Gives up what is small beside so many blocks that were met.
    #[inline]
    pub(crate) fn give_up(&mut self, met_blocks: u64) {
        while self.sizes.first().is_some_and(|size| size.blocks * GIVEN_UP < met_blocks) {
            self.sizes.remove(0);
        }
    }

    pub(crate) fn finish(self) -> PolicyCounts {
        let accesses = self.accesses;
        let sizes = self.sizes.into_iter().map(|size| {
            let misses = size.misses.map(|misses| misses.saturating_mul(size.one_in));
            (size.blocks, SizeCounts { accesses, misses })
        });
        PolicyCounts(sizes.collect())
    }
}

impl PolicyCounts {
    pub(crate) fn merge(&mut self, other: &Self) {
        for (&blocks, counts) in &other.0 {
            let sum = self.0.entry(blocks).or_default();
            sum.accesses = sum.accesses.saturating_add(counts.accesses);
            for (sum, misses) in sum.misses.iter_mut().zip(counts.misses) {
                *sum = sum.saturating_add(misses);
            }
        }
    }

    /// A curve for each policy, up to the first size that holds everything.
    pub(crate) fn summary(&self, footprint_blocks: u64) -> Vec<PolicyCurve> {
        let below = self.0.range(..footprint_blocks).count();
        let shown = || self.0.iter().take(below + 1).filter(|(_, counts)| counts.accesses > 0);
        let curve = |(at, policy)| PolicyCurve {
            policy,
            points: shown()
                .map(|(&blocks, counts): (_, &SizeCounts)| PolicyPoint {
                    cache_bytes: blocks.saturating_mul(BLOCK_BYTES),
                    misses: (counts.misses[at] as f64 / counts.accesses as f64).min(1.0),
                })
                .collect(),
        };
        let curves = EvictionPolicy::PLAIN.into_iter().enumerate().map(curve);
        curves.filter(|curve| !curve.points.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(blocks: impl Iterator<Item = u64>, footprint_blocks: u64) -> Vec<PolicyCurve> {
        let mut simulation = PolicySimulation::new(1);
        for block in blocks {
            simulation.count(1);
            simulation.access([BlockHash::of(0, block)].into_iter());
        }
        simulation.give_up(footprint_blocks);
        simulation.finish().summary(footprint_blocks)
    }

    fn misses(curves: &[PolicyCurve], policy: EvictionPolicy, cache_bytes: u64) -> f64 {
        let curve = curves.iter().find(|curve| curve.policy == policy).unwrap();
        curve.points.iter().find(|point| point.cache_bytes == cache_bytes).unwrap().misses
    }

    #[test]
    fn what_is_asked_for_once_costs_recency_more_than_two_queues() {
        // Every other request is for one of 40,000 blocks, the others are never repeated.
        let hot = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let block = |n: u64| if n.is_multiple_of(2) { hot(n) % 40_000 } else { (1 << 40) + n };
        let curves = simulated((0..1_200_000).map(block), 640_000);
        let at = |policy| misses(&curves, policy, 256 << 20);
        let (lru, s3_fifo) = (at(EvictionPolicy::Lru), at(EvictionPolicy::S3Fifo));
        assert!((0.5..0.6).contains(&s3_fifo) && lru > s3_fifo + 0.05, "{lru} {s3_fifo}");
        let smallest = curves[0].points[0].cache_bytes;
        assert_eq!(smallest, 128 << 20, "smaller ones hold less than a part in 32");
    }

    #[test]
    fn merging_adds_accesses_and_misses_up() {
        let count = |rounds: u64| {
            let mut simulation = PolicySimulation::new(1);
            let blocks = (0..rounds).flat_map(|_| (0..200).map(|block| BlockHash::of(0, block)));
            simulation.count(rounds * 200);
            simulation.access(blocks);
            simulation.finish()
        };
        let mut merged = count(1);
        merged.merge(&count(4));
        // All of the first trace are missed, a quarter of the other.
        let curves = merged.summary(200);
        assert!(curves.iter().all(|curve| curve.points[0].misses == 0.4), "{curves:?}");
        assert_eq!(PolicyCounts::default().summary(0), []);
    }

    #[test]
    fn blocks_that_come_together_count_as_one_by_one() {
        let block = |n: u64| BlockHash::of(0, n * n % 150_001);
        let (mut together, mut alone) = (PolicySimulation::new(10), PolicySimulation::new(10));
        together.access((0..200_000).map(block));
        (0..200_000).for_each(|n| alone.access([block(n)].into_iter()));
        assert_eq!(together.finish(), alone.finish());
    }
}
