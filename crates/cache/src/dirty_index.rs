//! The index of dirty blocks in address order, which the cleaner sweeps.
//!
//! The address space is split into regions of a line or more, each with a bit that is set if it may
//! have dirty blocks. The sweep enters one marked region after the other and looks up its dirty
//! blocks. A block that becomes dirty ahead of the sweep is found by it, one behind waits for the
//! next round, as in an elevator. Marking a block sets a bit. All memory is allocated at the start,
//! or, for an index that mostly stays empty, with its first block.
//!
//! With a cache that is very much smaller than the core a region has too many blocks to look up
//! each. There the sweep gathers: it scans the line map once and collects the next dirty blocks in
//! address order, tens of thousands at a time.
//!
//! **Invariants**
//! - Every dirty block that is not being written to the core is in a marked region, or is queued
//!   from an entered one. Queued blocks may be clean by now; the caller checks the line map.
//! - Blocks with suspect parity after an unclean shutdown are in an index of their own, so that
//!   they can be cleaned first.
//!
//! **Source**: address-ordered destage as in STOW (ATC '09) and WOW (FAST '05).

mod self_check;

use crate::types::{BlockRun, CoreBlock};
use smallvec::SmallVec;

/// Bits for each line of the cache. Up to a core this much larger than the cache a region is one
/// line.
const REGIONS_PER_LINE: u64 = 4;
/// The same before a core of up to 16 TiB. There the line map leaves memory for it, and half as
/// many blocks are asked for each that is dirty.
const REGIONS_PER_LINE_OF_SMALL: u64 = 8;
const SMALL_CORE_BLOCKS: u64 = 1 << 32;
/// Log2 of the most lines of a region that are all asked for.
const ASKED_LINES_SHIFT: u32 = 5;
/// Most blocks that are named at once where they are not gathered, and that are asked for at once.
const NAMED_MAX: usize = 128;
const ASKED_MAX: u64 = 64;
/// Blocks that are gathered at once.
const GATHERED_MAX: usize = 1 << 15;
const WORD_BITS: u64 = 64;

pub struct DirtyIndex {
    /// Log2 of the blocks of a region.
    shift: u32,
    /// Blocks that are kept in `named` when they are gathered, or named one after the other.
    room: usize,
    core_blocks: u64,
    /// Empty before there is memory.
    marked: Box<[u64]>,
    /// Bit for every word of `marked` that is not zero.
    summary: Box<[u64]>,
    marked_len: u64,
    /// What is still to be named, descending. Where it is gathered, twice the room of what is kept.
    named: Vec<CoreBlock>,
    /// What is still to be asked for, or to be gathered, of the region that was entered.
    entered: BlockRun,
    gathers: bool,
    /// The region behind those.
    sweep: u64,
    rounds: u64,
}

impl DirtyIndex {
    /// For a core of `core_blocks` behind a cache of `cache_blocks`, in lines of `line_blocks`.
    pub fn new(core_blocks: u64, cache_blocks: u64, line_blocks: u64) -> Self {
        let mut index = Self::without_memory(core_blocks, cache_blocks, line_blocks);
        index.take_memory();
        index
    }

    /// The same, for what may never be there: it takes its memory with the first block.
    pub fn without_memory(core_blocks: u64, cache_blocks: u64, line_blocks: u64) -> Self {
        let per_line = match core_blocks <= SMALL_CORE_BLOCKS {
            true => REGIONS_PER_LINE_OF_SMALL,
            false => REGIONS_PER_LINE,
        };
        let most = (cache_blocks / line_blocks * per_line).max(WORD_BITS);
        let smallest = core_blocks.div_ceil(most).next_power_of_two();
        let shift = smallest.max(line_blocks).ilog2();
        let gathers = shift > line_blocks.ilog2() + ASKED_LINES_SHIFT;
        let room = match gathers {
            true => 2 * GATHERED_MAX.min(cache_blocks as usize),
            false => NAMED_MAX,
        };
        Self {
            shift,
            room,
            core_blocks,
            marked: [].into(),
            summary: [].into(),
            marked_len: 0,
            named: Vec::new(),
            entered: BlockRun { first: CoreBlock(0), count: 0 },
            gathers,
            sweep: 0,
            rounds: 0,
        }
    }

    /// The core has so many blocks from now on. Its regions are as long as before.
    pub fn lengthen(&mut self, core_blocks: u64) {
        assert!(core_blocks >= self.core_blocks, "no core shrinks");
        self.core_blocks = core_blocks;
        if !self.marked.is_empty() {
            self.take_memory();
        }
    }

    /// As much as there is to be, beside what is marked.
    #[cold]
    fn take_memory(&mut self) {
        let lengthen = |bits: &mut Box<[u64]>, words: usize| {
            let mut longer = std::mem::take(bits).into_vec();
            longer.reserve_exact(words - longer.len());
            longer.resize(words, 0);
            *bits = longer.into();
        };
        let words = (self.core_blocks >> self.shift) / WORD_BITS + 1;
        lengthen(&mut self.marked, words as usize);
        lengthen(&mut self.summary, words.div_ceil(WORD_BITS) as usize);
        self.named.reserve_exact(self.room.saturating_sub(self.named.len()));
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.may_have_more()
    }

    fn may_have_more(&self) -> bool {
        self.marked_len > 0 || self.entered.count > 0
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
        let words = self.marked.len() + self.summary.len() + self.named.capacity();
        (words * size_of::<u64>()) as u64
    }

    #[inline]
    pub fn push(&mut self, block: CoreBlock) {
        self.push_region(block.0 >> self.shift);
    }

    #[inline]
    pub fn push_run(&mut self, run: BlockRun) {
        let last = (run.end().0 - 1) >> self.shift;
        (run.first.0 >> self.shift..=last).for_each(|region| self.push_region(region));
    }

    /// Whether nothing is named before [`DirtyIndex::enter`], or [`DirtyIndex::gather`].
    #[inline]
    pub fn wants_names(&self) -> bool {
        self.named.is_empty() && self.may_have_more()
    }

    /// Whether names are gathered.
    pub fn gathers(&self) -> bool {
        self.gathers
    }

    /// A block has been chosen by somebody who does not sweep: where nothing else of its region
    /// waits, the sweep need not enter that. `waits` is asked about runs of it.
    pub fn chosen(&mut self, block: CoreBlock, waits: impl Fn(BlockRun) -> bool) {
        if self.gathers || !self.is_marked(block) {
            return;
        }
        let region = block.0 >> self.shift;
        let first = region << self.shift;
        let end = (first + (1 << self.shift)).min(self.core_blocks);
        let mut pieces = (first..end)
            .step_by(ASKED_MAX as usize)
            .map(|start| BlockRun { first: CoreBlock(start), count: ASKED_MAX.min(end - start) });
        if !pieces.any(waits) {
            self.unmark(region);
        }
    }

    /// Enters the next regions of the sweep; `dirty_in` adds the dirty blocks of some runs, which
    /// ascend, in their order.
    pub fn enter(&mut self, mut dirty_in: impl FnMut(&[BlockRun], &mut Vec<CoreBlock>)) {
        assert!(self.named.is_empty() && !self.gathers);
        let mut runs = SmallVec::<[BlockRun; ASKED_MAX as usize]>::new();
        while self.named.len() + ASKED_MAX as usize <= NAMED_MAX {
            let mut room = ASKED_MAX;
            // Not past the end of the round, where something is to be named before.
            while room > 0
                && (self.entered.count > 0
                    || self.enter_next_region(self.named.is_empty() && runs.is_empty()))
            {
                let BlockRun { first, count } = self.entered;
                let asked = count.min(room);
                self.entered = BlockRun { first: CoreBlock(first.0 + asked), count: count - asked };
                room -= asked;
                match runs.last_mut() {
                    Some(last) if last.end() == first => last.count += asked,
                    _ => runs.push(BlockRun { first, count: asked }),
                }
            }
            if runs.is_empty() {
                break;
            }
            dirty_in(&runs, &mut self.named);
            runs.clear();
        }
        self.named.reverse();
    }

    /// After the last region, where the sweep may turn, the first of a new round.
    fn enter_next_region(&mut self, may_turn: bool) -> bool {
        let next = match may_turn {
            true => self.next_region(),
            false => self.next_marked(self.sweep),
        };
        let Some(region) = next else { return false };
        self.sweep = region + 1;
        self.unmark(region);
        let first = region << self.shift;
        let count = (1 << self.shift).min(self.core_blocks - first);
        self.entered = BlockRun { first: CoreBlock(first), count };
        true
    }

    /// Takes the next blocks of the sweep from all dirty ones, which may come in any order.
    pub fn gather(&mut self, dirty: impl Iterator<Item = CoreBlock>) {
        let (rest, most) = (self.entered, self.named.capacity() / 2);
        if rest.count == 0 {
            self.sweep = self.next_region().expect("asked for by `wants_names`");
        }
        let (mut end, mut kept) = (None, std::mem::take(&mut self.named));
        let start = CoreBlock(self.sweep << self.shift);
        let is_wanted =
            |block: &CoreBlock| rest.contains(*block) || *block >= start && self.is_marked(*block);
        for block in dirty.filter(is_wanted) {
            if kept.len() == kept.capacity() {
                kept.select_nth_unstable(most - 1);
                kept.truncate(most);
                end = kept.last().copied();
            }
            // What lies behind the end would take the sweep past what was left out.
            if end.is_none_or(|end| block < end) {
                kept.push(block);
            }
        }
        kept.sort_unstable_by(|a, b| b.cmp(a));
        kept.dedup();
        self.go_behind(end.map(|_| kept[0]));
        self.named = kept;
    }

    /// Everything up to a block has been gathered; up to the end, where it is none.
    fn go_behind(&mut self, last: Option<CoreBlock>) {
        let first = self.sweep;
        (self.sweep, self.entered.count) = match last {
            None => (self.marked.len() as u64 * WORD_BITS, 0),
            Some(last) => {
                // The rest of its region, which may become dirty anew behind that.
                let region = last.0 >> self.shift;
                let end = ((region + 1) << self.shift).min(self.core_blocks);
                self.entered.first = CoreBlock(last.0 + 1);
                (first.max(region + 1), end - self.entered.first.0)
            }
        };
        while let Some(region) = self.next_marked(first).filter(|region| *region < self.sweep) {
            self.unmark(region);
        }
    }

    /// The block that `take` would answer.
    #[inline]
    pub fn peek(&self) -> Option<CoreBlock> {
        self.named.last().copied()
    }

    /// Takes the next block of the sweep out of the index; after the last comes the first.
    #[inline]
    pub fn take(&mut self) -> Option<CoreBlock> {
        self.named.pop()
    }

    /// Whether a block will be named.
    pub fn contains(&self, block: CoreBlock) -> bool {
        self.is_marked(block)
            || self.entered.first <= block && block < self.entered.end()
            || self.named.binary_search_by(|other| block.cmp(other)).is_ok()
    }

    fn is_marked(&self, block: CoreBlock) -> bool {
        let region = block.0 >> self.shift;
        let word = self.marked.get((region / WORD_BITS) as usize).copied().unwrap_or(0);
        word >> (region % WORD_BITS) & 1 == 1
    }

    #[inline]
    fn push_region(&mut self, region: u64) {
        let (word, bit) = ((region / WORD_BITS) as usize, 1 << (region % WORD_BITS));
        if self.marked.is_empty() {
            self.take_memory();
        }
        if self.marked[word] & bit == 0 {
            self.marked[word] |= bit;
            self.summary[word / WORD_BITS as usize] |= 1 << (word as u64 % WORD_BITS);
            self.marked_len += 1;
        }
    }

    /// The next marked region of the sweep; after the last comes the first, in a new round.
    fn next_region(&mut self) -> Option<u64> {
        if self.marked_len == 0 {
            return None;
        }
        self.next_marked(self.sweep).or_else(|| {
            self.rounds += 1;
            self.next_marked(0)
        })
    }

    fn unmark(&mut self, region: u64) {
        let word = (region / WORD_BITS) as usize;
        self.marked_len -= 1;
        self.marked[word] &= !(1 << (region % WORD_BITS));
        if self.marked[word] == 0 {
            self.summary[word / WORD_BITS as usize] &= !(1 << (word as u64 % WORD_BITS));
        }
    }

    fn next_marked(&self, from: u64) -> Option<u64> {
        let word = from / WORD_BITS;
        if let Some(bits) =
            self.marked.get(word as usize).map(|bits| bits & !0 << (from % WORD_BITS))
            && bits != 0
        {
            return Some(word * WORD_BITS + u64::from(bits.trailing_zeros()));
        }
        let word = next_bit(&self.summary, word + 1)?;
        Some(word * WORD_BITS + u64::from(self.marked[word as usize].trailing_zeros()))
    }
}

/// The first bit from `from` on that is set.
fn next_bit(words: &[u64], from: u64) -> Option<u64> {
    let mut word = (from / WORD_BITS) as usize;
    let mut bits = *words.get(word)? & !0 << (from % WORD_BITS);
    while bits == 0 {
        word += 1;
        bits = *words.get(word)?;
    }
    Some(word as u64 * WORD_BITS + u64::from(bits.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Takes all that is there, which stays dirty until it is taken.
    fn sweep_of(index: &mut DirtyIndex, dirty: &mut BTreeSet<u64>) -> Vec<u64> {
        let mut swept = Vec::new();
        while let Some(block) = next(index, dirty) {
            swept.push(block);
        }
        swept
    }

    fn next(index: &mut DirtyIndex, dirty: &mut BTreeSet<u64>) -> Option<u64> {
        while index.wants_names() {
            match index.gathers() {
                true => index.gather(dirty.iter().rev().copied().map(CoreBlock)),
                false => index.enter(|runs, names| {
                    let in_runs =
                        |block: &u64| runs.iter().any(|run| run.contains(CoreBlock(*block)));
                    names.extend(dirty.iter().copied().filter(in_runs).map(CoreBlock));
                }),
            }
        }
        let block = index.take()?;
        dirty.remove(&block.0);
        Some(block.0)
    }

    #[test]
    fn block_behind_the_sweep_waits_for_the_next_round() {
        let mut index = DirtyIndex::new(1 << 20, 1 << 18, 1);
        let mut dirty: BTreeSet<u64> = (0..NAMED_MAX as u64).collect();
        dirty.extend([600_000, 400_000]);
        dirty.iter().for_each(|block| index.push(CoreBlock(*block)));
        assert_eq!(next(&mut index, &mut dirty), Some(0));
        for block in [0, 500_000] {
            index.push(CoreBlock(block));
            dirty.insert(block);
        }
        let swept = sweep_of(&mut index, &mut dirty);
        assert_eq!(swept[NAMED_MAX - 1..], [400_000, 500_000, 600_000, 0]);
    }

    #[test]
    fn region_of_which_all_was_chosen_is_not_entered() {
        for blocks_per_region in [4, 128] {
            let mut index = DirtyIndex::new(1 << 20, 1 << 20, blocks_per_region);
            let mut dirty = BTreeSet::from([0, blocks_per_region - 1, 5 * blocks_per_region]);
            dirty.iter().for_each(|block| index.push(CoreBlock(*block)));
            for block in [blocks_per_region - 1, 0] {
                assert!(index.contains(CoreBlock(0)), "something of it waits");
                dirty.remove(&block);
                index.chosen(CoreBlock(block), |run| {
                    dirty.iter().any(|it| run.contains(CoreBlock(*it)))
                });
            }
            assert!(!index.contains(CoreBlock(0)) && !index.is_empty());
            assert_eq!(sweep_of(&mut index, &mut dirty), [5 * blocks_per_region]);
        }
    }

    #[test]
    fn region_that_was_entered_and_becomes_dirty_again_is_met_in_the_next_round() {
        let mut index = DirtyIndex::new(1 << 10, 1 << 10, 4);
        let mut dirty = BTreeSet::from([8, 9, 11]);
        index.push(CoreBlock(8));
        assert_eq!(next(&mut index, &mut dirty), Some(8));
        index.push(CoreBlock(8));
        dirty.insert(8);
        assert!(index.contains(CoreBlock(8)) && index.contains(CoreBlock(11)));
        let goal = index.goal();
        assert_eq!(sweep_of(&mut index, &mut dirty), [9, 11, 8]);
        assert!(!index.contains(CoreBlock(8)) && index.is_swept(goal));
    }

    #[test]
    fn index_without_memory_takes_it_with_its_first_block_and_is_then_as_any_other() {
        for core in [1 << 10, 1 << 30] {
            let mut index = DirtyIndex::without_memory(core / 2, 1 << 10, 1);
            index.lengthen(core);
            assert!(index.is_empty() && !index.wants_names() && !index.contains(CoreBlock(7)));
            assert_eq!((index.memory_bytes(), index.peek()), (0, None));
            index.push(CoreBlock(7));
            let mut dirty = BTreeSet::from([7]);
            let other = DirtyIndex::new(core / 2, 1 << 10, 1);
            assert!(index.memory_bytes() >= other.memory_bytes());
            assert_eq!(sweep_of(&mut index, &mut dirty), [7]);
        }
    }

    #[test]
    fn memory_does_not_depend_on_the_size_of_the_core() {
        for core in [1, 1 << 24, 1 << 40] {
            let bytes = DirtyIndex::new(core, 1 << 20, 1).memory_bytes();
            let gathered = 2 * 8 * GATHERED_MAX as u64;
            let most =
                if core > SMALL_CORE_BLOCKS { (1 << 20) * 9 / 16 } else { (1 << 20) * 17 / 16 };
            assert!(bytes <= most + gathered, "{bytes} for a core of {core} blocks");
        }
    }

    #[test]
    fn small_cache_before_a_large_core_gathers_piece_by_piece_in_order() {
        let mut index = DirtyIndex::new(1 << 36, 1 << 12, 1);
        let mut dirty: BTreeSet<u64> =
            (0..20_000u64).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28).collect();
        dirty.extend(77..9_000);
        dirty.iter().for_each(|block| index.push(CoreBlock(*block)));
        let expected: Vec<u64> = dirty.iter().copied().collect();
        assert!(index.gathers && expected.len() > 2 * index.named.capacity());
        assert_eq!(sweep_of(&mut index, &mut dirty), expected);
        assert!(index.is_empty());
    }

    /// They may be none that the taker wants now.
    #[test]
    fn region_with_more_than_is_gathered_at_once_is_gone_through_though_all_of_it_stays_dirty() {
        let mut index = DirtyIndex::new(1 << 36, 1 << 12, 1);
        assert!(index.gathers && 20_000 < 1 << index.shift);
        let dirty: Vec<u64> = (0..20_000).chain([5 << index.shift]).collect();
        dirty.iter().for_each(|block| index.push(CoreBlock(*block)));
        let goal = index.goal();
        let mut named = Vec::new();
        while named.len() < dirty.len() {
            if index.wants_names() {
                index.gather(dirty.iter().rev().copied().map(CoreBlock));
            }
            named.extend(index.take());
            if named.len() == 7_000 {
                // Ahead of the sweep, and behind it.
                [10_000, 7].iter().for_each(|block| index.push(CoreBlock(*block)));
            }
            assert!(index.contains(CoreBlock(19_999)) || named.len() >= 20_000);
        }
        let blocks: Vec<u64> = named.iter().map(|block| block.0).collect();
        assert_eq!(blocks, dirty);
        assert!(!index.is_swept(goal) && index.contains(CoreBlock(7)), "it was dirty again");
        while index.wants_names() || index.peek().is_some() {
            if index.wants_names() {
                index.gather(dirty.iter().rev().copied().map(CoreBlock));
            }
            named.extend(index.take());
        }
        assert!(named[dirty.len()..].contains(&CoreBlock(7)) && index.is_empty());
    }

    /// The line map names them in the order of the log.
    #[test]
    fn dirty_blocks_that_come_in_any_order_are_gathered_all_of_them() {
        for order in [0x9e37_79b9_7f4a_7c15u64, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f] {
            let mut index = DirtyIndex::new(1 << 36, 1 << 12, 1);
            let mut blocks: Vec<u64> = (0..40_000u64).map(|n| n * 1_000_003).collect();
            blocks.sort_unstable_by_key(|block| block.wrapping_mul(order));
            blocks.iter().for_each(|block| index.push(CoreBlock(*block)));
            let (mut swept, mut dirty) = (Vec::new(), vec![true; 40_000]);
            while !index.is_empty() {
                if index.wants_names() {
                    let left = |block: &&u64| dirty[(**block / 1_000_003) as usize];
                    index.gather(blocks.iter().filter(left).copied().map(CoreBlock));
                }
                let Some(block) = index.take() else { continue };
                dirty[(block.0 / 1_000_003) as usize] = false;
                swept.push(block.0);
            }
            assert!(swept.is_sorted() && swept.len() == blocks.len(), "{}", swept.len());
        }
    }

    #[test]
    fn marks_that_nothing_stands_behind_end_by_themselves() {
        let mut index = DirtyIndex::new(1 << 36, 1 << 12, 1);
        let goal = index.goal();
        index.push(CoreBlock(5));
        assert!(sweep_of(&mut index, &mut BTreeSet::new()).is_empty());
        assert!(index.is_swept(goal));
    }

    proptest! {
        #[test]
        fn one_sweep_names_every_dirty_block_once_in_order(
            mut blocks in prop::collection::vec(0u64..5_000_001, 0..300),
            cache_blocks in prop::sample::select(&[100_000u64, 700_000, 8_000_000][..]),
            line in prop::sample::select(&[1u64, 16][..]),
        ) {
            let mut index = DirtyIndex::new(5_000_001, cache_blocks, line);
            blocks.iter().for_each(|&block| index.push(CoreBlock(block)));
            prop_assert!(blocks.iter().all(|&block| index.contains(CoreBlock(block))));
            let mut dirty: BTreeSet<u64> = blocks.iter().copied().collect();
            let swept = sweep_of(&mut index, &mut dirty);
            blocks.sort_unstable();
            blocks.dedup();
            prop_assert_eq!(swept, blocks);
            prop_assert!(index.is_empty());
        }
    }

    #[test]
    fn blocks_behind_the_end_that_there_was_are_named_as_any_other_once_it_has_moved() {
        let mut index = DirtyIndex::new(1000, 64, 1);
        index.push(CoreBlock(999));
        index.lengthen(50_000);
        let dirty = [CoreBlock(3), CoreBlock(999), CoreBlock(1000), CoreBlock(49_999)];
        dirty.iter().for_each(|block| index.push(*block));
        assert!(dirty.iter().all(|block| index.contains(*block)));
        let mut named = Vec::new();
        while named.len() < dirty.len() {
            if index.wants_names() {
                match index.gathers() {
                    true => index.gather(dirty.iter().copied()),
                    false => index.enter(|runs, names| {
                        let is_in =
                            |block: &&CoreBlock| runs.iter().any(|run| run.contains(**block));
                        names.extend(dirty.iter().filter(is_in));
                    }),
                }
            }
            named.extend(index.take());
        }
        assert_eq!(named, dirty);
    }
}
