//! Dirty data per chunk of the core, and the dirtiest chunk without a search.
//!
//! Chunks are in eleven buckets by their share of dirty blocks, 0 %, up to 10 %, up to 20 % and so
//! on; one whose count changes moves to a neighbour of its bucket, to the end of its list where it
//! has become dirtier and to the front where cleaner. Only chunks with dirty blocks take memory.
//!
//! **Invariants**
//! - Each chunk with dirty blocks is in the list of one bucket, as an entry with its newest stamp;
//!   entries with other stamps are left over, and never more than those that count, and some.

use super::policy::Chunk;
use crate::types::{BlockRun, CoreBlock};
use foldhash::fast::FixedState;
use std::collections::{HashMap, VecDeque};

/// Blocks of 100 MiB.
const CHUNK_BLOCKS: u64 = 25_600;
const BUCKETS: usize = 11;
/// Entries that are left over before they are looked for.
const LEFT_OVER_MIN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    dirty: u32,
    bucket: u8,
    stamp: u32,
}

/// Counts of dirty blocks by chunk.
#[derive(Default)]
pub(crate) struct Chunks {
    states: HashMap<Chunk, State, FixedState>,
    /// The first one, of clean chunks, stays empty.
    buckets: [Bucket; BUCKETS],
    stamp: u32,
}

#[derive(Default)]
struct Bucket {
    chunks: VecDeque<(Chunk, u32)>,
    /// Of them, those that count.
    valid: usize,
}

impl Chunks {
    pub fn run_of(chunk: Chunk) -> BlockRun {
        BlockRun { first: CoreBlock(u64::from(chunk.0) * CHUNK_BLOCKS), count: CHUNK_BLOCKS }
    }

    pub fn memory_bytes(&self) -> u64 {
        let entries: usize = self.buckets.iter().map(|bucket| bucket.chunks.capacity() * 8).sum();
        (self.states.capacity() * (size_of::<(Chunk, State)>() + 1) + entries) as u64
    }

    pub fn add(&mut self, block: CoreBlock) {
        let chunk = Chunk((block.0 / CHUNK_BLOCKS) as u32);
        let state = self.states.entry(chunk).or_insert(State { dirty: 0, bucket: 0, stamp: 0 });
        state.dirty += 1;
        let (from, to) = (state.bucket, bucket_of(state.dirty));
        if from != to {
            self.move_to(chunk, from, to);
        }
    }

    pub fn remove(&mut self, block: CoreBlock) {
        let chunk = Chunk((block.0 / CHUNK_BLOCKS) as u32);
        // What is cleaned by the way may have been counted off with its chunk.
        let Some(state) = self.states.get_mut(&chunk) else { return };
        state.dirty -= 1;
        let (from, to) = (state.bucket, bucket_of(state.dirty));
        if from != to {
            self.move_to(chunk, from, to);
        }
    }

    /// Counts nothing in a chunk any more, where `run` is all of it.
    pub fn clear(&mut self, run: BlockRun) {
        let chunk = Chunk((run.first.0 / CHUNK_BLOCKS) as u32);
        if run == Self::run_of(chunk)
            && let Some(state) = self.states.get_mut(&chunk)
        {
            state.dirty = 0;
            let from = state.bucket;
            self.move_to(chunk, from, 0);
        }
    }

    /// The chunk at the front of the dirtiest bucket.
    pub fn dirtiest(&self) -> Option<Chunk> {
        let bucket = self.buckets.iter().rev().find(|bucket| bucket.valid > 0)?;
        let counts = |(chunk, stamp): &&(Chunk, u32)| {
            self.states.get(chunk).is_some_and(|state| state.stamp == *stamp)
        };
        bucket.chunks.iter().find(counts).map(|(chunk, _)| *chunk)
    }

    /// Checks that each chunk is found where its count has it; for tests and simulation.
    ///
    /// # Panics
    /// Where one is not.
    pub fn self_check(&self) {
        let mut valid = [0; BUCKETS];
        for (chunk, state) in &self.states {
            assert_eq!(state.bucket, bucket_of(state.dirty), "{chunk:?} is in another's bucket");
            assert!(state.bucket > 0, "{chunk:?} has nothing dirty");
            let entries = &self.buckets[usize::from(state.bucket)].chunks;
            let is_it = |entry: &&(Chunk, u32)| **entry == (*chunk, state.stamp);
            assert_eq!(entries.iter().filter(is_it).count(), 1, "{chunk:?} has one entry");
            valid[usize::from(state.bucket)] += 1;
        }
        let counted = self.buckets.each_ref().map(|bucket| bucket.valid);
        assert_eq!(counted, valid, "buckets count their chunks");
    }

    fn move_to(&mut self, chunk: Chunk, from: u8, to: u8) {
        self.stamp = self.stamp.wrapping_add(1);
        if from > 0 {
            self.buckets[usize::from(from)].valid -= 1;
        }
        if to == 0 {
            self.states.remove(&chunk);
        } else {
            let state = self.states.get_mut(&chunk).expect("a chunk with dirty blocks");
            (state.bucket, state.stamp) = (to, self.stamp);
            let bucket = &mut self.buckets[usize::from(to)];
            bucket.valid += 1;
            match to > from {
                true => bucket.chunks.push_back((chunk, self.stamp)),
                false => bucket.chunks.push_front((chunk, self.stamp)),
            }
        }
        self.tidy(usize::from(from));
        self.tidy(usize::from(to));
    }

    /// Drops entries that are left over: those in front at once, the others when they are many.
    fn tidy(&mut self, bucket: usize) {
        let (states, bucket) = (&self.states, &mut self.buckets[bucket]);
        let counts = |(chunk, stamp): &(Chunk, u32)| {
            states.get(chunk).is_some_and(|state| state.stamp == *stamp)
        };
        while bucket.chunks.front().is_some_and(|entry| !counts(entry)) {
            bucket.chunks.pop_front();
        }
        if bucket.chunks.len() > 2 * bucket.valid + LEFT_OVER_MIN {
            bucket.chunks.retain(counts);
        }
    }
}

/// Bucket b holds chunks with more than (b - 1) * 10 % and up to b * 10 % of their blocks dirty.
fn bucket_of(dirty: u32) -> u8 {
    let most = (BUCKETS - 1) as u64;
    // An index may name a block twice.
    (u64::from(dirty) * most).div_ceil(CHUNK_BLOCKS).min(most) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn block(chunk: u64, number: u64) -> CoreBlock {
        CoreBlock(chunk * CHUNK_BLOCKS + number)
    }

    #[test]
    fn dirtier_bucket_comes_first_and_within_a_bucket_who_came_first() {
        let mut chunks = Chunks::default();
        for chunk in [7, 3] {
            chunks.add(block(chunk, 0));
        }
        assert_eq!(chunks.dirtiest(), Some(Chunk(7)));
        (1..=CHUNK_BLOCKS / 10).for_each(|number| chunks.add(block(3, number)));
        assert_eq!(chunks.dirtiest(), Some(Chunk(3)));
        chunks.remove(block(3, 1));
        // Cleaner than it was, it goes to the front of its bucket.
        assert_eq!(chunks.dirtiest(), Some(Chunk(3)));
        (0..CHUNK_BLOCKS / 10 + 1).filter(|it| *it != 1).for_each(|it| chunks.remove(block(3, it)));
        assert_eq!(chunks.dirtiest(), Some(Chunk(7)));
    }

    #[test]
    fn check_notices_what_is_wrong_with_chunks() {
        let make = || {
            let mut chunks = Chunks::default();
            [7, 3].into_iter().for_each(|chunk| chunks.add(block(chunk, 0)));
            chunks
        };
        let breaks: [Break<Chunks>; 4] = [
            ("is in another's bucket", |it| it.states.get_mut(&Chunk(3)).unwrap().dirty = 9999),
            ("has one entry", |it| it.states.get_mut(&Chunk(3)).unwrap().stamp += 9),
            ("has one entry", |it| _ = it.buckets[1].chunks.pop_front()),
            ("buckets count their chunks", |it| it.buckets[1].valid += 1),
        ];
        assert_trips(make, Chunks::self_check, &breaks);
    }

    proptest! {
        #[test]
        fn the_dirtiest_is_in_the_bucket_that_a_recount_finds(
            steps in prop::collection::vec((0u64..6, 0u64..3000, prop::bool::weighted(0.7)), 1..400),
        ) {
            let (mut chunks, mut naive) = (Chunks::default(), BTreeMap::<u64, u64>::new());
            for (chunk, count, adds) in steps {
                let now = naive.entry(chunk).or_default();
                for _ in 0..count {
                    if adds {
                        *now += 1;
                        chunks.add(block(chunk, 0));
                    } else if *now > 0 {
                        *now -= 1;
                        chunks.remove(block(chunk, 0));
                    }
                }
                let share = |dirty: u64| (dirty as f64 / CHUNK_BLOCKS as f64 * 10.0).ceil().min(10.0);
                let best = naive.values().map(|dirty| share(*dirty)).fold(0.0, f64::max);
                let found = chunks.dirtiest().map(|chunk| naive[&u64::from(chunk.0)]);
                prop_assert_eq!(found.map_or(0.0, share), best);
                let dirty = naive.values().filter(|dirty| **dirty > 0).count();
                prop_assert_eq!(chunks.states.len(), dirty);
                chunks.self_check();
                for bucket in &chunks.buckets {
                    prop_assert!(bucket.chunks.len() <= 2 * bucket.valid + LEFT_OVER_MIN);
                }
            }
        }
    }
}
