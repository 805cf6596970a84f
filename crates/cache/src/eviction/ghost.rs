//! The last so many lines that left: exactly them, in eight bytes each and a head for each bucket.
//!
//! A line's number is mixed, which can be undone, so that the bucket and what is left of the
//! number name it without doubt. Entries are a ring; each bucket's are a list, newest first. So the
//! oldest of all is the last of its list, where the bucket stands in place of a next one.

use crate::types::{CoreLine, number_bits};
use headpond_block::prefetch;

/// An empty bucket; any other head, like any `next`, is one more than the place of an entry. So
/// memory begins as zeros, which take no pages before they are written to.
const NONE: u32 = 0;
/// In front of the number of a bucket, at the end of its list.
const END: u32 = 1 << 31;
/// How many steps before it is forgotten the way to an entry is first looked at.
const FORESEEN: u32 = 3;
/// What is left of the number has to fit so many bits.
const REST_BITS: u32 = 32;

/// Indices of the two halves of an entry: what is left of the number, and the next one.
const REST: usize = 0;
const NEXT: usize = 1;

pub struct Ghosts {
    ring: Box<[[u32; 2]]>,
    heads: Box<[u32]>,
    /// Where the next one goes, and how many there are.
    at: u32,
    len: u32,
    /// Of a line's number, and of them those that name the bucket.
    bits: u32,
    bucket_bits: u32,
}

impl Ghosts {
    /// For so many lines of a core of `core_lines`.
    pub fn new(capacity: u64, core_lines: u64) -> Self {
        let capacity = capacity.clamp(1, u64::from(END) - 1) as u32;
        let needed = number_bits(core_lines);
        let bucket_bits = (capacity / 2).max(1).ilog2().max(needed.saturating_sub(REST_BITS));
        let bits = needed.max(bucket_bits + 1);
        Self {
            ring: vec![[0; 2]; capacity as usize].into(),
            heads: vec![NONE; 1 << bucket_bits].into(),
            at: 0,
            len: 0,
            bits,
            bucket_bits,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.ring) + size_of_val(&*self.heads)) as u64
    }

    pub fn contains(&self, line: CoreLine) -> bool {
        if self.len == 0 {
            // Without a look at memory: a policy that begins takes in all that is mapped.
            return false;
        }
        let (bucket, rest) = self.split(line);
        let mut at = self.heads[bucket as usize];
        while at != NONE && at < END {
            let entry = self.ring[at as usize - 1];
            if entry[REST] == rest {
                return true;
            }
            at = entry[NEXT];
        }
        false
    }

    /// Brings near what will be looked at when it is asked for a line, or the line is remembered:
    /// the bucket's head, and with each further step, for which the one before has to have been
    /// taken some time ago, an entry of its list.
    #[inline]
    pub fn foresee(&self, line: CoreLine, step: u32) {
        if self.len > 0 {
            self.foresee_bucket(self.split(line).0, step);
        }
    }

    #[inline]
    fn foresee_bucket(&self, bucket: u32, step: u32) {
        let head = &self.heads[bucket as usize];
        if step == 0 {
            return prefetch(head);
        }
        let mut at = *head;
        for _ in 1..step {
            if at == NONE || at >= END {
                return;
            }
            at = self.ring[at as usize - 1][NEXT];
        }
        if at != NONE && at < END {
            prefetch(&self.ring[at as usize - 1]);
        }
    }

    /// Brings near what stands in front of those that are forgotten next.
    #[inline]
    fn foresee_oldest(&self) {
        if (self.len as usize) < self.ring.len() {
            return;
        }
        for step in 0..FORESEEN {
            let place = (self.at + FORESEEN - step) as usize;
            let next = self.ring.get(place).map_or(NONE, |entry| entry[NEXT]);
            if next >= END {
                self.foresee_bucket(next - END, step);
            }
        }
    }

    /// Remembers a line; the oldest is forgotten where there are too many.
    pub fn insert(&mut self, line: CoreLine) {
        if self.len as usize == self.ring.len() {
            self.foresee_oldest();
            self.forget(self.at);
        } else {
            self.len += 1;
        }
        let (bucket, rest) = self.split(line);
        let next = match self.heads[bucket as usize] {
            NONE => END | bucket,
            first => first,
        };
        self.ring[self.at as usize] = [rest, next];
        self.heads[bucket as usize] = self.at + 1;
        self.at = if self.at as usize + 1 == self.ring.len() { 0 } else { self.at + 1 };
    }

    fn forget(&mut self, oldest: u32) {
        let end = self.ring[oldest as usize][NEXT];
        assert!(end >= END, "the oldest is the last of its list");
        let (head, link) = (&mut self.heads[(end - END) as usize], oldest + 1);
        if *head == link {
            *head = NONE;
            return;
        }
        let mut at = *head;
        while self.ring[at as usize - 1][NEXT] != link {
            at = self.ring[at as usize - 1][NEXT];
        }
        self.ring[at as usize - 1][NEXT] = end;
    }

    /// Bucket and rest of a line's number, by steps that can be undone.
    #[inline]
    fn split(&self, line: CoreLine) -> (u32, u32) {
        let mask = (1 << self.bits) - 1;
        assert!(line.0 <= mask, "a line of the core");
        let mixed = line.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        let mixed = mixed ^ mixed >> (self.bits / 2).max(1);
        let mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) & mask;
        let rest_bits = self.bits - self.bucket_bits;
        ((mixed >> rest_bits) as u32, (mixed & ((1 << rest_bits) - 1)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn ghosts_are_the_last_so_many(
            capacity in 1u64..40,
            core_bits in 7u32..40,
            steps in prop::collection::vec((0u64..100, 0u32..40), 1..400),
        ) {
            let core_lines = 1u64 << core_bits;
            let mut ghosts = Ghosts::new(capacity, core_lines);
            let mut twin = VecDeque::new();
            for (low, shift) in steps {
                let line = CoreLine((low << shift) % core_lines);
                // However far it looks, it changes nothing.
                (0..5).for_each(|step| ghosts.foresee(line, step));
                prop_assert_eq!(ghosts.contains(line), twin.contains(&line));
                ghosts.insert(line);
                twin.push_front(line);
                twin.truncate(capacity as usize);
                prop_assert!(twin.iter().all(|line| ghosts.contains(*line)));
            }
        }
    }

    #[test]
    fn a_ghost_takes_at_most_twelve_bytes() {
        for capacity in [1 << 20, (1 << 20) - 1] {
            let each = Ghosts::new(capacity, 1 << 34).memory_bytes() as f64 / capacity as f64;
            assert!((9.0..=12.0).contains(&each), "{each}");
        }
    }
}
