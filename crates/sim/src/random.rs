//! The draws of a simulation, all from one seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// A seeded generator with the draws that simulations need.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A generator of its own for another user, so that the draws of one do not shift the other's.
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }

    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// Where `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw from nothing");
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time between both, the longer one excluded unless they are equal.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let spread = longest.saturating_sub(shortest).as_nanos() as u64;
        shortest + Duration::from_nanos(self.below(spread.max(1)))
    }

    /// One of several.
    ///
    /// # Panics
    /// Where there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn draws_reach_every_value_below_the_bound() {
        let mut random = Random::new(2);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[random.below(10) as usize] = true);
        assert_eq!(seen, [true; 10]);
    }
}
