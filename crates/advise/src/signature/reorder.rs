//! Holds a few intervals back, so that those that come late are put in order.
//!
//! **Invariants**: what is held is in order; of what is held and what comes, the earliest goes.

use std::mem;

/// Intervals held back.
const HELD: usize = 16;

/// From when to when.
pub(crate) type Interval = (u64, u64);

/// The intervals held back: a ring, the earliest at `first`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reorder {
    ring: [Interval; HELD],
    first: usize,
    len: usize,
}

impl Reorder {
    /// Takes an interval in; gives the earliest out where that is one too many.
    #[inline]
    pub(crate) fn push(&mut self, interval: Interval) -> Option<Interval> {
        if self.len < HELD {
            self.insert(interval);
            return None;
        }
        if interval >= self.ring[(self.first + HELD - 1) % HELD] {
            // The place of the earliest is also that behind the last.
            let earliest = mem::replace(&mut self.ring[self.first % HELD], interval);
            self.first = (self.first + 1) % HELD;
            return Some(earliest);
        }
        self.push_late(interval)
    }

    fn push_late(&mut self, interval: Interval) -> Option<Interval> {
        if interval <= self.ring[self.first % HELD] {
            return Some(interval);
        }
        let earliest = self.pop();
        self.insert(interval);
        earliest
    }

    #[inline]
    fn insert(&mut self, interval: Interval) {
        let mut at = self.first + self.len;
        while at > self.first && self.ring[(at - 1) % HELD] > interval {
            self.ring[at % HELD] = self.ring[(at - 1) % HELD];
            at -= 1;
        }
        self.ring[at % HELD] = interval;
        self.len += 1;
    }

    /// Gives the earliest out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Interval> {
        let earliest = (self.len > 0).then(|| self.ring[self.first % HELD])?;
        self.first = (self.first + 1) % HELD;
        self.len -= 1;
        Some(earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    proptest! {
        #[test]
        fn the_earliest_goes_first_as_from_a_heap(
            intervals in prop::collection::vec((0u64..40, 0u64..3), 0..300),
        ) {
            let (mut ours, mut heap) = (Reorder::default(), BinaryHeap::new());
            for interval in intervals {
                heap.push(Reverse(interval));
                let out = if heap.len() > HELD { heap.pop() } else { None };
                prop_assert_eq!(ours.push(interval), out.map(|Reverse(earliest)| earliest));
            }
            while let Some(Reverse(earliest)) = heap.pop() {
                prop_assert_eq!(ours.pop(), Some(earliest));
            }
            prop_assert_eq!(ours.pop(), None);
        }
    }
}
