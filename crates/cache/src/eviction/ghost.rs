//! Ghosts: exactly the last N evicted lines, usually found by reading one bucket, which is one line
//! of the processor's cache.
//!
//! A line's number is hashed reversibly, so that a bucket and the lower bits identify it exactly.
//! Each entry has a sequence number of its eviction: after N further evictions it is expired, and
//! the next entry in its bucket replaces it. So no search for expired entries is needed. Where a
//! bucket is full the entry goes to the next one, and its sequence number is recorded: as long as
//! it is valid, the next bucket is searched as well.
//!
//! **Source**: hashing into buckets with linear probing (Knuth, *The Art of Computer Programming*,
//! volume 3, 6.4); expiry by the number of later evictions is from the implementation notes of
//! S3-FIFO (Yang et al., SOSP '23, section 4.2). These ghosts are exact.

use crate::types::{CoreLine, number_bits};
use headpond_block::prefetch;
use std::ops::Range;

/// Entries of a bucket.
const ENTRIES: usize = 7;
/// So many entries for each hundred lines. That a line is not there more than half of the buckets
/// tell by themselves then.
const ROOM_PERCENT: u64 = 150;
/// How many buckets there are to be put into. With as much room the last of them is never needed.
const TRIED_BITS: u32 = 6;
const TRIED_MAX: usize = 1 << TRIED_BITS;
/// The lower bits of a number that are kept.
const KEPT_BITS_MAX: u32 = u32::BITS;
/// Turns are counted in so many bits. Before one comes again, everything that is as old as half of
/// them has been made no older than that.
const OLD: u32 = 1 << (u32::BITS - 1);

/// Of each entry what is kept of a number, then of each its turn, then that of the last one that
/// found no place here, and one that says nothing.
type Bucket = [u32; WORDS];
const WORDS: usize = 16;
const TURNS: Range<usize> = ENTRIES..2 * ENTRIES;
const PASSED: usize = 2 * ENTRIES;
const SPARE: usize = PASSED + 1;
/// What is written to before it is read is in large pages, where there are such: kernels before
/// 6.13 leave what has only been read to small ones.
const LARGE_PAGE_BYTES: usize = 2 << 20;

pub struct Ghosts {
    /// The buckets, and one more: so they can begin where a line of the processor's cache does.
    words: Box<[u32]>,
    start: usize,
    count: usize,
    is_empty: bool,
    capacity: u32,
    /// Of the next one that leaves. What has never been written to is zero, and had its turn too
    /// long ago.
    turn: u32,
    /// Of a line's number, and of them those that are kept.
    bits: u32,
    kept_mask: u32,
    /// Which bucket is looked through for old turns next, and one less than how many lines leave
    /// between that and the next, a power of two.
    aged: usize,
    between: u32,
}

impl Ghosts {
    /// For so many lines of a core of `core_lines`.
    pub fn new(capacity: u64, core_lines: u64) -> Self {
        let capacity = capacity.clamp(1, u64::from(OLD) - 1);
        let bits = number_bits(core_lines).max(2);
        // Of consecutive numbers the lower bits differ, of all those that one bucket may have.
        let least = 1 << (bits + TRIED_BITS).saturating_sub(KEPT_BITS_MAX);
        let count = (capacity * ROOM_PERCENT / 100).div_ceil(ENTRIES as u64).max(least);
        let numbers = (1_u64 << bits).div_ceil(count).next_power_of_two().ilog2();
        let kept = (numbers + TRIED_BITS).min(bits);
        let words: Box<[u32]> = vec![0; (count as usize + 1) * WORDS].into();
        let start = words.as_ptr().align_offset(size_of::<Bucket>()).min(WORDS);
        let mut ghosts = Self {
            words,
            start,
            count: count as usize,
            is_empty: true,
            capacity: capacity as u32,
            turn: capacity as u32 + 1,
            bits,
            kept_mask: ((1_u64 << kept) - 1) as u32,
            aged: 0,
            between: (1 << (u64::from(OLD) / 2 / count).max(1).ilog2()) - 1,
        };
        for at in (0..ghosts.count).step_by(LARGE_PAGE_BYTES / size_of::<Bucket>()) {
            ghosts.bucket_mut(at)[SPARE] = 1;
        }
        ghosts
    }

    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    pub fn contains(&self, line: CoreLine) -> bool {
        if self.is_empty {
            // Without a look at memory: a policy that begins takes in all that is mapped.
            return false;
        }
        let (mut at, kept) = self.split(line);
        for _ in 0..TRIED_MAX.min(self.count) {
            let bucket = self.bucket(at);
            let mut entries = bucket.iter().zip(&bucket[TURNS]);
            if entries.any(|(other, turn)| *other == kept && self.counts(*turn)) {
                return true;
            }
            if !self.counts(bucket[PASSED]) {
                return false;
            }
            at = self.behind(at);
        }
        false
    }

    /// Brings near what will be looked at when it is asked for a line, or the line is remembered:
    /// its bucket, and what lies behind that.
    #[inline]
    pub fn prefetch(&self, line: CoreLine) {
        let bucket: *const Bucket = self.bucket(self.split(line).0);
        prefetch(bucket);
        prefetch(bucket.wrapping_add(1));
    }

    /// Remembers a line; the oldest is forgotten where there are too many.
    pub fn insert(&mut self, line: CoreLine) {
        let ((mut at, kept), turn) = (self.split(line), self.turn);
        (self.turn, self.is_empty) = (turn.wrapping_add(1), false);
        for _ in 0..TRIED_MAX.min(self.count) {
            let free = self.bucket(at)[TURNS].iter().position(|turn| !self.counts(*turn));
            let bucket = self.bucket_mut(at);
            if let Some(free) = free {
                (bucket[free], bucket[ENTRIES + free]) = (kept, turn);
                break;
            }
            bucket[PASSED] = turn;
            at = self.behind(at);
        }
        if turn & self.between == 0 {
            self.age();
        }
    }

    /// Checks that what is remembered left one after the other; for tests and simulation.
    ///
    /// # Panics
    /// Where it did not.
    pub fn self_check(&self) {
        let turns = (0..self.count).flat_map(|at| &self.bucket(at)[TURNS]);
        let mut turns: Vec<u32> = turns.copied().filter(|turn| self.counts(*turn)).collect();
        assert!(!self.is_empty || turns.is_empty(), "what is empty remembers nothing");
        turns.sort_unstable();
        assert!(turns.is_sorted_by(|one, next| one < next), "two left at once");
        assert!(!turns.contains(&self.turn), "one is remembered that has not left");
    }

    /// Whether who had this turn is still one of the last.
    #[inline]
    fn counts(&self, turn: u32) -> bool {
        self.turn.wrapping_sub(turn) <= self.capacity
    }

    #[inline]
    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.count { 0 } else { at + 1 }
    }

    #[inline]
    fn bucket(&self, at: usize) -> &Bucket {
        self.words[self.start + at * WORDS..].first_chunk().expect("one of those that there are")
    }

    #[inline]
    fn bucket_mut(&mut self, at: usize) -> &mut Bucket {
        let from_there = &mut self.words[self.start + at * WORDS..];
        from_there.first_chunk_mut().expect("one of those that there are")
    }

    /// Makes what is very old in the next bucket less so.
    #[cold]
    fn age(&mut self) {
        let (now, bucket) = (self.turn, self.bucket_mut(self.aged));
        for turn in &mut bucket[TURNS.start..=PASSED] {
            if now.wrapping_sub(*turn) > OLD {
                *turn = now.wrapping_sub(OLD);
            }
        }
        self.aged = self.behind(self.aged);
    }

    /// The bucket of a line, and what is kept of its number, mixed by steps that can be undone.
    ///
    /// Source: fast range reduction by a multiplication instead of a remainder (Lemire, 2019).
    #[inline]
    fn split(&self, line: CoreLine) -> (usize, u32) {
        let mask = (1 << self.bits) - 1;
        assert!(line.0 <= mask, "a line of the core");
        let mixed = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        let mixed = mixed ^ mixed >> (self.bits / 2);
        let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
        let bucket = (u128::from(mixed) * self.count as u128) >> self.bits;
        (bucket as usize, mixed as u32 & self.kept_mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn ghosts_are_the_last_so_many(
            capacity in 1u64..40,
            core_bits in 7u32..40,
            before in prop_oneof![Just(0), Just(u32::MAX - 90), any::<u32>()],
            steps in prop::collection::vec((0u64..100, 0u32..40), 1..400),
        ) {
            let core_lines = 1u64 << core_bits;
            let mut ghosts = Ghosts::new(capacity, core_lines);
            // As after so many others.
            ghosts.turn = ghosts.turn.max(before);
            (0..ghosts.count).for_each(|_| ghosts.age());
            let mut twin = VecDeque::new();
            for (low, shift) in steps {
                let line = CoreLine((low << shift) % core_lines);
                ghosts.prefetch(line);
                prop_assert_eq!(ghosts.contains(line), twin.contains(&line));
                ghosts.insert(line);
                twin.push_front(line);
                twin.truncate(capacity as usize);
                prop_assert!(twin.iter().all(|line| ghosts.contains(*line)));
                ghosts.self_check();
            }
        }
    }

    #[test]
    fn check_notices_what_is_wrong_with_ghosts() {
        let make = || {
            let mut ghosts = Ghosts::new(8, 1 << 20);
            (0..30).for_each(|line| ghosts.insert(CoreLine(line)));
            ghosts
        };
        fn newest(ghosts: &mut Ghosts) -> &mut u32 {
            let newest = ghosts.turn - 1;
            ghosts.words.iter_mut().find(|word| **word == newest).expect("the last one that left")
        }
        let breaks: [Break<Ghosts>; 4] = [
            ("what is empty remembers nothing", |it| it.is_empty = true),
            ("two left at once", |it| *newest(it) -= 1),
            ("one is remembered that has not left", |it| it.turn -= 1),
            ("one is remembered that has not left", |it| *newest(it) += 1),
        ];
        assert_trips(make, Ghosts::self_check, &breaks);
    }

    #[test]
    fn few_buckets_are_looked_at_and_none_of_many_is_lost() {
        let capacity = 100_000;
        let mut ghosts = Ghosts::new(capacity, 1 << 32);
        (0..3 * capacity).for_each(|line| ghosts.insert(CoreLine(line * 77)));
        let is_there = |line: u64| ghosts.contains(CoreLine(line * 77));
        assert!((2 * capacity..3 * capacity).all(is_there));
        assert!(!(0..2 * capacity).any(is_there));
        let (passes, all) = (|at: &usize| ghosts.counts(ghosts.bucket(*at)[PASSED]), ghosts.count);
        let passed = (0..all).filter(passes).count();
        assert!(passed * 2 < all, "{passed} of {all} buckets have the next one looked at as well");
    }

    /// Turns come again after four billion lines have left.
    #[test]
    fn what_left_a_whole_round_ago_is_not_remembered() {
        let mut ghosts = Ghosts::new(40, 1 << 30);
        (0..40).for_each(|line| ghosts.insert(CoreLine(line)));
        let (begun, every) = (ghosts.turn, ghosts.between + 1);
        // As many leave, to places elsewhere.
        for _ in 0..u64::from(u32::MAX) / u64::from(every) {
            ghosts.turn = ghosts.turn.wrapping_add(every);
            ghosts.age();
        }
        ghosts.turn = begun;
        assert!(!(0..40).any(|line| ghosts.contains(CoreLine(line))));
    }

    #[test]
    fn a_ghost_takes_at_most_fourteen_bytes() {
        for capacity in [1 << 20, (1 << 20) - 1] {
            let each = Ghosts::new(capacity, 1 << 34).memory_bytes() as f64 / capacity as f64;
            assert!((13.0..=14.0).contains(&each), "{each}");
        }
    }
}
