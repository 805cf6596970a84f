//! Request counts of blocks that are not cached.
//!
//! A table of fixed size, hashed into sets of eight. Each set is an LRU list; a block that finds
//! all eight entries in use displaces the last.
//!
//! **Source**: the idea and the size relative to the cache are those of Open CAS's `nhit`, which
//! keeps its counters in chained buckets in one global order of use; here a block is displaced by
//! the least recently used of eight. A promoted block keeps its count as long as its entry:
//! requested again after eviction, it is promoted immediately, where Open CAS counts from zero.

use crate::types::CoreBlock;

const WAYS: usize = 8;
const COUNT_BITS: u32 = 10;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// 32 MiB of counters: the misses that a larger cache sees between two uses are not told apart.
const SETS_MAX: u64 = 1 << 19;

/// Counts of one set: block number and count, the latest first; 0 is empty.
type Set = [u64; WAYS];

pub(super) struct HitCounts {
    sets: Vec<Set>,
}

impl HitCounts {
    /// Room for as many blocks as the cache has.
    pub fn for_blocks(blocks: u64) -> Self {
        let sets = (blocks / WAYS as u64).next_power_of_two().clamp(1, SETS_MAX);
        Self { sets: vec![[0; WAYS]; sets as usize] }
    }

    /// One more request for a block; how many there were, as far as is remembered.
    pub fn count(&mut self, block: CoreBlock) -> u32 {
        assert!(block.0 < 1 << (64 - COUNT_BITS), "block numbers fit beside a count");
        let at = self.set_of(block);
        let set = &mut self.sets[at];
        let known = set.iter().position(|entry| *entry != 0 && entry >> COUNT_BITS == block.0);
        let count = known.map_or(0, |at| set[at] & COUNT_MAX);
        let count = (count + 1).min(COUNT_MAX);
        set[..=known.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = block.0 << COUNT_BITS | count;
        count as u32
    }

    /// Checks that each block is counted once, in its set; for tests and simulation.
    ///
    /// # Panics
    /// Where one is not.
    pub fn self_check(&self) {
        for (index, set) in self.sets.iter().enumerate() {
            let used = set.iter().position(|entry| *entry == 0).unwrap_or(WAYS);
            assert!(set[used..].iter().all(|entry| *entry == 0), "what is empty comes last");
            for (at, entry) in set[..used].iter().enumerate() {
                let block = entry >> COUNT_BITS;
                assert_eq!(self.set_of(CoreBlock(block)), index, "a block in another's set");
                assert_ne!(entry & COUNT_MAX, 0, "a block that nobody asked for");
                let mut before = set[..at].iter();
                assert!(before.all(|other| other >> COUNT_BITS != block), "a block counted twice");
            }
        }
    }

    fn set_of(&self, block: CoreBlock) -> usize {
        let hash = block.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.sets.len() - 1)
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.sets.len() * size_of::<Set>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;

    #[test]
    fn counts_are_exact_while_there_is_room_and_end_at_their_maximum() {
        let mut counts = HitCounts::for_blocks(64);
        assert_eq!([(); 3].map(|()| counts.count(CoreBlock(5))), [1, 2, 3]);
        assert_eq!(counts.count(CoreBlock(0)), 1, "block 0 is a block like others");
        (0..2000).for_each(|_| assert!(counts.count(CoreBlock(5)) > 3));
        assert_eq!(counts.count(CoreBlock(5)), 1023);
    }

    #[test]
    fn check_notices_what_is_wrong_with_counts() {
        let make = || {
            let mut counts = HitCounts::for_blocks(64);
            (0..9).for_each(|block| _ = counts.count(CoreBlock(block)));
            counts
        };
        fn full(counts: &mut HitCounts) -> &mut Set {
            counts.sets.iter_mut().find(|set| set[1] != 0).expect("two of nine blocks share one")
        }
        let breaks: [Break<HitCounts>; 5] = [
            ("what is empty comes last", |it| full(it)[0] = 0),
            ("a block in another's set", |it| it.sets.swap(0, 1)),
            ("nobody asked for", |it| full(it)[0] &= !COUNT_MAX),
            ("a block counted twice", |it| full(it)[1] = full(it)[0]),
            ("a block counted twice", |it| full(it)[0] = full(it)[1] + 1),
        ];
        assert_trips(make, HitCounts::self_check, &breaks);
    }

    #[test]
    fn memory_is_bounded_for_a_cache_of_any_size() {
        assert_eq!(HitCounts::for_blocks(u64::MAX / 8).memory_bytes(), 32 << 20);
        assert_eq!(HitCounts::for_blocks(0).memory_bytes(), 64);
    }

    proptest! {
        /// One set, so that the twin is a plain list in the order of use.
        #[test]
        fn a_set_agrees_with_a_list_in_order_of_use(
            blocks in prop::collection::vec(0u64..14, 0..300),
        ) {
            let mut counts = HitCounts::for_blocks(1);
            let mut twin: Vec<(u64, u32)> = Vec::new();
            for block in blocks {
                let known = twin.iter().position(|(other, _)| *other == block);
                let count = known.map_or(0, |at| twin.remove(at).1) + 1;
                twin.insert(0, (block, count));
                twin.truncate(WAYS);
                prop_assert_eq!(counts.count(CoreBlock(block)), count);
                counts.self_check();
            }
        }
    }
}
