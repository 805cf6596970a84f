//! The blocks that are followed: all of them, or those whose hash is low.
//!
//! Whether a block is followed depends on its hash alone, so it is followed through the whole
//! trace. When there are too many, half of them are let go, and each one that stays stands for
//! twice as many.
//!
//! **Invariants**: at most `blocks_max` blocks are followed, each stands for `one_in` blocks.
//!
//! **Source**: Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC construction with SHARDS*,
//! FAST '15, section 4 (fixed size). Theirs lets the block with the highest hash go, one at a
//! time; ours halves the threshold, which needs no queue and keeps every weight a whole number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::recency::Recency;

/// Bytes in the block that reuse is counted by.
pub const BLOCK_BYTES: u64 = 4096;

/// A block of a device, spread evenly over 64 bits, and so that no two blocks are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockHash(pub u64);

/// What is known of a followed block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Followed {
    /// When it was last written, in the time of the trace.
    pub written_ns: Option<u64>,
    hash: BlockHash,
    slot: u32,
}

/// The sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    index: HashMap<BlockHash, u32, BuildHasherDefault<Spread>>,
    blocks: Vec<Followed>,
    recency: Recency,
    threshold: u64,
    one_in: u64,
    blocks_max: usize,
}

/// What asking for a followed block has found.
pub(crate) struct Touched<'a> {
    /// Other followed blocks asked for since it was asked for last; `None` for the first time.
    pub distance: Option<u64>,
    pub block: &'a mut Followed,
}

/// How much of a trace is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// One block in so many, to begin with; 1 follows all.
    pub one_in: u64,
    /// Blocks followed at most.
    pub blocks_max: usize,
}

impl Default for Sampling {
    /// All blocks of a footprint up to 512 MiB; of a larger one at least half as many.
    fn default() -> Self {
        Self { one_in: 1, blocks_max: 128 * 1024 }
    }
}

impl BlockHash {
    /// The finisher of MurmurHash3, which can be undone.
    #[inline]
    pub(crate) fn of(device: u16, block: u64) -> Self {
        let mut value = block ^ (u64::from(device) << 48);
        value ^= value >> 33;
        value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
        value ^= value >> 33;
        value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Self(value ^ (value >> 33))
    }

    /// The block of one among several traces that have blocks of the same numbers.
    #[inline]
    pub(crate) fn of_source(self, source: u64) -> Self {
        let mixed = (self.0 ^ source).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 32))
    }
}

impl Sample {
    /// # Panics
    /// When nothing would be followed.
    pub(crate) fn new(sampling: Sampling) -> Self {
        let Sampling { one_in, blocks_max } = sampling;
        assert!(one_in >= 1 && blocks_max >= 2, "some blocks are followed: {sampling:?}");
        Self {
            index: HashMap::default(),
            blocks: Vec::new(),
            recency: Recency::new(),
            threshold: u64::MAX / one_in,
            one_in,
            blocks_max,
        }
    }

    /// Blocks that each followed one stands for.
    #[inline]
    pub(crate) fn one_in(&self) -> u64 {
        self.one_in
    }

    /// Different blocks met, as far as the sample tells.
    pub(crate) fn distinct(&self) -> u64 {
        (self.blocks.len() as u64).saturating_mul(self.one_in)
    }

    /// Blocks with a higher hash are not followed, now or later.
    #[inline]
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold
    }

    #[inline]
    pub(crate) fn follows(&self, hash: BlockHash) -> bool {
        hash.0 <= self.threshold
    }

    /// A followed block is asked for.
    pub(crate) fn touch(&mut self, hash: BlockHash) -> Touched<'_> {
        assert!(self.follows(hash), "only blocks of the sample are touched");
        if self.recency.is_full() {
            let blocks = &mut self.blocks;
            self.recency.make_room(|at, slot| blocks[at as usize].slot = slot);
        }
        let (at, distance) = match self.index.get(&hash) {
            Some(&at) => (at, Some(self.renew(at))),
            None => (self.enter(hash), None),
        };
        Touched { distance, block: &mut self.blocks[at as usize] }
    }

    /// Lets blocks go where there are too many.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        while self.blocks.len() > self.blocks_max && self.threshold > 0 {
            self.halve();
        }
    }

    fn renew(&mut self, at: u32) -> u64 {
        let slot = self.blocks[at as usize].slot;
        let distance = self.recency.newer_than(slot);
        if distance > 0 {
            self.recency.remove(slot);
            self.blocks[at as usize].slot = self.recency.push(at);
        }
        distance
    }

    fn enter(&mut self, hash: BlockHash) -> u32 {
        let at = self.blocks.len() as u32;
        let slot = self.recency.push(at);
        self.blocks.push(Followed { written_ns: None, hash, slot });
        self.index.insert(hash, at);
        at
    }

    fn halve(&mut self) {
        self.threshold /= 2;
        self.one_in = self.one_in.saturating_mul(2);
        for block in self.blocks.iter().filter(|block| block.hash.0 > self.threshold) {
            self.recency.remove(block.slot);
        }
        let mut places = vec![u32::MAX; self.blocks.len()];
        let mut kept = Vec::with_capacity(self.blocks.len() / 2);
        for (at, block) in self.blocks.iter().enumerate() {
            if block.hash.0 <= self.threshold {
                places[at] = kept.len() as u32;
                kept.push(*block);
            }
        }
        self.blocks = kept;
        self.index.retain(|_, at| {
            *at = places[*at as usize];
            *at != u32::MAX
        });
        self.recency.rename(|holder| places[holder as usize]);
    }
}

/// The keys are hashes already, but all low: their bits go up again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are 64 bits");
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_stays_bounded_and_stands_for_all() {
        let mut sample = Sample::new(Sampling { one_in: 1, blocks_max: 4096 });
        let blocks = 300_000;
        for block in 0..blocks {
            let hash = BlockHash::of(0, block);
            if sample.follows(hash) {
                sample.touch(hash);
                sample.make_room();
            }
        }
        assert!((2000..=4096).contains(&sample.blocks.len()), "{}", sample.blocks.len());
        assert_eq!(sample.index.len(), sample.blocks.len());
        let error = sample.distinct() as f64 / blocks as f64 - 1.0;
        assert!(error.abs() < 0.05, "{error}");
    }

    #[test]
    fn the_order_of_those_that_stay_is_kept_when_half_are_let_go() {
        let mut sample = Sample::new(Sampling { one_in: 1, blocks_max: 64 });
        let hashes: Vec<_> = (0..100).map(|block| BlockHash::of(0, block)).collect();
        for &hash in hashes.iter().filter(|hash| hash.0 <= u64::MAX / 4) {
            sample.touch(hash);
        }
        for &hash in hashes.iter().filter(|hash| hash.0 > u64::MAX / 4) {
            sample.touch(hash);
        }
        sample.make_room();
        assert_eq!(sample.one_in(), 2);
        let first = hashes.iter().find(|hash| sample.follows(**hash) && hash.0 <= u64::MAX / 4);
        let others = sample.blocks.len() as u64 - 1;
        assert_eq!(sample.touch(*first.unwrap()).distance, Some(others));
    }
}
