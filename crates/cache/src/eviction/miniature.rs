//! A miniature simulation: a policy without data, to find the misses of a cache of a given size.
//!
//! Fed with blocks whose hash is below a threshold, it models a cache that is larger by the inverse
//! of the sampling rate.
//!
//! **Source**: Waldspurger, Saemundsson, Ahmad and Park, *Cache modeling and optimization using
//! miniature simulations*, USENIX ATC '17.

use super::shadow::{Sample, access};
use super::{EvictionPolicy, Policy};
use crate::types::{CoreBlock, CoreLine};
use std::fmt;

/// Blocks are numbered below this.
pub const MINIATURE_BLOCKS: u64 = 1 << 40;

/// The cache.
pub struct Miniature {
    policy: EvictionPolicy,
    cache: Box<dyn Policy>,
    residents: Sample,
}

impl Miniature {
    /// For so many blocks.
    ///
    /// # Panics
    /// For `Adaptive`, which is no policy by itself, and for a cache without blocks.
    pub fn new(policy: EvictionPolicy, capacity: u64) -> Self {
        assert!(capacity > 0, "a cache has blocks");
        let cache = policy.make(capacity, MINIATURE_BLOCKS, 1);
        Self { policy, cache, residents: Sample::new(capacity) }
    }

    pub fn policy(&self) -> EvictionPolicy {
        self.policy
    }

    /// A request for a block: whether it was in the cache; it is now.
    ///
    /// # Panics
    /// For a block beyond [`MINIATURE_BLOCKS`].
    #[inline]
    pub fn access(&mut self, block: CoreBlock) -> bool {
        assert!(block.0 < MINIATURE_BLOCKS, "a block of the core");
        access(&mut *self.cache, CoreLine(block.0), &mut self.residents)
    }
}

impl fmt::Debug for Miniature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Miniature").field("policy", &self.policy).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses of two rounds over so many blocks.
    fn misses(policy: EvictionPolicy, blocks: u64) -> usize {
        let mut cache = Miniature::new(policy, 100);
        let mut rounds = (0..blocks).chain(0..blocks);
        rounds.by_ref().filter(|&block| !cache.access(CoreBlock(block))).count()
    }

    #[test]
    fn what_fits_is_missed_once_and_recency_keeps_nothing_of_a_longer_round() {
        for policy in EvictionPolicy::PLAIN {
            assert_eq!(misses(policy, 90), 90, "{policy:?}");
        }
        assert_eq!(misses(EvictionPolicy::Lru, 101), 202);
        assert_eq!(misses(EvictionPolicy::Fifo, 101), 202);
    }
}
