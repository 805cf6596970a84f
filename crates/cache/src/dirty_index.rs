//! Which blocks are dirty, in address order: what the cleaner sweeps over.
//!
//! The address space is cut into buckets, each an unsorted list that a write only appends to; a
//! bucket is sorted when the sweep enters it. A block that becomes dirty ahead of the sweep is met
//! by it, one behind waits for the next round, as in an elevator.
//!
//! **Invariants**
//! - Every dirty block that is not on its way to the core is in an index at least once. The index
//!   may name blocks that are no longer dirty; the taker asks the line map.
//! - Blocks that owe parity since an unclean stop are in an index of their own, so that they can be
//!   cleaned first, and alone.
//!
//! **Source**: address-ordered destage as in STOW (ATC '09) and WOW (FAST '05); the lazy sorting is
//! ours.

use crate::types::CoreBlock;

const BUCKETS_MAX: u64 = 1 << 16;
/// So many blocks of a full cache fall into one bucket on average.
const BLOCKS_PER_BUCKET: u64 = 1024;

pub struct DirtyIndex {
    /// Core blocks of one bucket.
    span: u64,
    buckets: Vec<Vec<u32>>,
    /// Bit for every bucket that is not empty.
    filled: Vec<u64>,
    /// What is left of the bucket under the sweep, descending.
    current: Vec<CoreBlock>,
    sweep: usize,
    len: usize,
    rounds: u64,
}

impl DirtyIndex {
    /// For a core of `core_blocks` behind a cache of `cache_blocks`.
    pub fn new(core_blocks: u64, cache_blocks: u64) -> Self {
        let wanted = (cache_blocks / BLOCKS_PER_BUCKET).clamp(1, BUCKETS_MAX);
        // The number within a bucket has 32 bits.
        let span = core_blocks.div_ceil(wanted).clamp(1, 1 << 32);
        let buckets = core_blocks.div_ceil(span).max(1) as usize;
        let filled = vec![0; buckets.div_ceil(64)];
        Self {
            span,
            buckets: vec![Vec::new(); buckets],
            filled,
            current: Vec::new(),
            sweep: 0,
            len: 0,
            rounds: 0,
        }
    }

    /// Entries, those that are no longer dirty included.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many rounds there will have been when all that is there now has been met.
    pub fn goal(&self) -> u64 {
        self.rounds + 2
    }

    /// Whether everything has been met that was there when [`DirtyIndex::goal`] was asked.
    pub fn is_swept(&self, goal: u64) -> bool {
        self.is_empty() || self.rounds >= goal
    }

    pub fn memory_bytes(&self) -> u64 {
        let lists: usize = self.buckets.iter().map(|bucket| bucket.capacity() * 4).sum();
        (lists + self.current.capacity() * 8 + self.filled.len() * 8) as u64
    }

    pub fn push(&mut self, block: CoreBlock) {
        let bucket = (block.0 / self.span) as usize;
        self.buckets[bucket].push((block.0 % self.span) as u32);
        self.filled[bucket / 64] |= 1 << (bucket % 64);
        self.len += 1;
    }

    /// The block that `take` would answer.
    pub fn peek(&mut self) -> Option<CoreBlock> {
        while self.current.is_empty() {
            self.enter_next_bucket()?;
        }
        self.current.last().copied()
    }

    /// Takes the next block of the sweep out of the index; after the last comes the first.
    pub fn take(&mut self) -> Option<CoreBlock> {
        self.peek()?;
        self.len -= 1;
        self.current.pop()
    }

    /// All entries, in any order.
    pub fn blocks(&self) -> impl Iterator<Item = CoreBlock> + '_ {
        let buckets = self.buckets.iter().enumerate().flat_map(|(bucket, list)| {
            let start = bucket as u64 * self.span;
            list.iter().map(move |number| CoreBlock(start + u64::from(*number)))
        });
        buckets.chain(self.current.iter().copied())
    }

    fn enter_next_bucket(&mut self) -> Option<()> {
        if self.len == 0 {
            return None;
        }
        let bucket = match self.next_filled(self.sweep) {
            Some(bucket) => bucket,
            None => {
                self.rounds += 1;
                self.next_filled(0)?
            }
        };
        self.sweep = bucket + 1;
        self.filled[bucket / 64] &= !(1 << (bucket % 64));
        let list = std::mem::take(&mut self.buckets[bucket]);
        let before = list.len();
        let start = bucket as u64 * self.span;
        self.current.extend(list.into_iter().map(|number| CoreBlock(start + u64::from(number))));
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        self.current.dedup();
        self.len -= before - self.current.len();
        Some(())
    }

    fn next_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.filled.get(word)? & (!0 << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.filled.get(word)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sweep(index: &mut DirtyIndex) -> Vec<u64> {
        std::iter::from_fn(|| index.take()).map(|block| block.0).collect()
    }

    #[test]
    fn block_behind_the_sweep_waits_for_the_next_round() {
        let mut index = DirtyIndex::new(1 << 20, 64 * 1024);
        for block in [600_000, 10, 400_000] {
            index.push(CoreBlock(block));
        }
        assert_eq!(index.take(), Some(CoreBlock(10)));
        index.push(CoreBlock(5));
        index.push(CoreBlock(500_000));
        assert_eq!(sweep(&mut index), [400_000, 500_000, 600_000, 5]);
    }

    proptest! {
        #[test]
        fn one_sweep_yields_every_block_once_in_order(
            mut blocks in prop::collection::vec(0u64..5_000_000, 0..300),
        ) {
            let mut index = DirtyIndex::new(5_000_000, 100_000);
            blocks.iter().for_each(|&block| index.push(CoreBlock(block)));
            blocks.sort_unstable();
            blocks.dedup();
            prop_assert_eq!(sweep(&mut index), blocks);
            prop_assert!(index.is_empty());
        }
    }
}
