//! When what is in flight completes, the earliest first.
//!
//! The next completions lie in order in an array: most requests complete after those that were
//! issued before them, and so go to its end. What does not fit there waits in a heap.
//!
//! **Invariants**: nothing in the heap completes before anything in the array, and the array is
//! empty only where the heap is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Completions in order: more would cost more to move than the heap does.
const NEAR_MAX: usize = 64;

/// Taken from the heap at once when the array is empty.
const REFILLED: usize = NEAR_MAX / 2;

/// Completions that are to come.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    /// A ring, the next one at `first`.
    near: [u64; NEAR_MAX],
    first: usize,
    count: usize,
    far: BinaryHeap<Reverse<u64>>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { near: [0; NEAR_MAX], first: 0, count: 0, far: BinaryHeap::new() }
    }
}

impl InFlight {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count + self.far.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The next completion.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        (self.count > 0).then(|| self.near[self.first % NEAR_MAX])
    }

    #[inline]
    pub(crate) fn push(&mut self, completes_ns: u64) {
        if self.count == NEAR_MAX || !self.far.is_empty() {
            return self.push_among_many(completes_ns);
        }
        self.insert(completes_ns);
    }

    /// Takes the next completion out.
    ///
    /// # Panics
    /// When nothing is in flight.
    #[inline]
    pub(crate) fn pop(&mut self) {
        assert!(self.count > 0, "something is in flight");
        self.first = (self.first + 1) % NEAR_MAX;
        self.count -= 1;
        if self.count == 0 && !self.far.is_empty() {
            self.refill();
        }
    }

    fn push_among_many(&mut self, completes_ns: u64) {
        let last = self.near[(self.first + self.count - 1) % NEAR_MAX];
        if completes_ns >= last {
            return self.far.push(Reverse(completes_ns));
        }
        if self.count == NEAR_MAX {
            self.count -= 1;
            self.far.push(Reverse(last));
        }
        self.insert(completes_ns);
    }

    #[inline]
    fn insert(&mut self, completes_ns: u64) {
        let mut at = self.first + self.count;
        while at > self.first && self.near[(at - 1) % NEAR_MAX] > completes_ns {
            self.near[at % NEAR_MAX] = self.near[(at - 1) % NEAR_MAX];
            at -= 1;
        }
        self.near[at % NEAR_MAX] = completes_ns;
        self.count += 1;
    }

    fn refill(&mut self) {
        while self.count < REFILLED
            && let Some(Reverse(completes_ns)) = self.far.pop()
        {
            self.insert(completes_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn completions_come_in_the_order_of_a_heap(
            steps in prop::collection::vec(prop::option::weighted(0.7, 0u64..500), 0..2000),
        ) {
            let (mut ours, mut heap) = (InFlight::default(), BinaryHeap::new());
            for step in steps {
                match step {
                    Some(completes_ns) => {
                        ours.push(completes_ns);
                        heap.push(Reverse(completes_ns));
                    }
                    None if !heap.is_empty() => {
                        ours.pop();
                        heap.pop();
                    }
                    None => {}
                }
                prop_assert_eq!(ours.earliest(), heap.peek().map(|&Reverse(next)| next));
                prop_assert_eq!((ours.len(), ours.is_empty()), (heap.len(), heap.is_empty()));
            }
        }
    }
}
