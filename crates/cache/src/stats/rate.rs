//! Rates over the last seconds.

use headpond_block::Instant;

/// Whole seconds that are looked at.
const SECONDS: usize = 10;

/// Counts by the second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    counts: [u64; SECONDS],
    /// The second that is being counted.
    second: u64,
}

impl Rate {
    pub fn add(&mut self, now: Instant, count: u64) {
        self.move_to(now);
        self.counts[self.second as usize % SECONDS] += count;
    }

    /// For each second, over the last ones and what has gone by of this one.
    pub fn per_second(mut self, now: Instant) -> f64 {
        self.move_to(now);
        let nanos = (SECONDS as u64 - 1) * NANOS + now.as_nanos() % NANOS;
        self.counts.iter().sum::<u64>() as f64 * NANOS as f64 / nanos as f64
    }

    /// Forgets the seconds that are too long ago.
    fn move_to(&mut self, now: Instant) {
        let second = now.as_nanos() / NANOS;
        let gone = (second - self.second).min(SECONDS as u64);
        for passed in 1..=gone {
            self.counts[(second - gone + passed) as usize % SECONDS] = 0;
        }
        self.second = second;
    }
}

const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::from_nanos((seconds * 1e9) as u64)
    }

    #[test]
    fn rate_is_that_of_the_last_seconds_and_falls_to_zero() {
        let mut rate = Rate::default();
        (0..200).for_each(|tenth| rate.add(at(f64::from(tenth) / 10.0), 5));
        let around = |rate: f64, right: f64| (rate - right).abs() < 0.05 * right;
        assert!(around(rate.per_second(at(19.99)), 50.0));
        assert!(around(rate.per_second(at(25.0)), 50.0 * 4.0 / 9.0));
        assert_eq!(rate.per_second(at(40.0)), 0.0);
    }
}
