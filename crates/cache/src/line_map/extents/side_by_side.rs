//! Look-up of many blocks in one pass, with lines of one block.

use super::{Extents, NONE, TAG_SHIFT, Tag};
use crate::types::BlockRun;

/// Most blocks that are looked for side by side.
const ASIDE: usize = 64;

/// How far one of them has been looked for.
#[derive(Clone, Copy)]
struct Chain {
    at: u32,
    /// Of the block.
    bit: u32,
}

impl Extents {
    /// Of which of some blocks the newest version has such a tag, a bit for each in their order;
    /// with lines of one block.
    ///
    /// Most have none, and which ones no processor can guess: so all chains are followed side by
    /// side, brought near step by step, and nothing is decided between one and the next.
    pub fn newest_with(&self, runs: &[BlockRun], wanted: impl Fn(Tag) -> bool) -> u64 {
        assert!(self.shift == 0 && runs.iter().map(|run| run.count).sum::<u64>() <= ASIDE as u64);
        let (mut blocks, mut chains) = ([0; ASIDE], [Chain { at: NONE, bit: 0 }; ASIDE]);
        let (mut bit, mut len) = (0, 0);
        for run in runs {
            self.buckets.prefetch(self.buckets.of(run.first.0));
        }
        for run in runs {
            let mut block = run.first.0;
            while block < run.end().0 {
                for first in self.buckets.firsts(block, run.end().0 - block) {
                    // Never as many as that: so the compiler knows it as well.
                    blocks[bit % ASIDE] = block;
                    chains[len % ASIDE] = Chain { at: first, bit: bit as u32 };
                    len += usize::from(first != NONE);
                    (bit, block) = (bit + 1, block + 1);
                }
            }
        }
        let mut found = 0;
        while len > 0 {
            let mut left = 0;
            for chain in &chains[..len] {
                self.extents.prefetch(chain.at);
            }
            for index in 0..len {
                let Chain { at, bit } = chains[index % ASIDE];
                let (word, next) = self.extents.both(at);
                let tag = Tag((word >> TAG_SHIFT) as u8);
                let is_block = word >> self.block_shift == blocks[bit as usize % ASIDE];
                let is_newest = is_block & tag.is_mapped();
                found |= u64::from(is_newest & wanted(tag)) << bit;
                chains[left % ASIDE] = Chain { at: next, bit };
                left += usize::from((next != NONE) & !is_newest);
            }
            len = left;
        }
        found
    }
}
