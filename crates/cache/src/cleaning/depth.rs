//! The write queue depth of the core: no more than it completes within a target latency.
//!
//! Four disks are no faster with a thousand writes queued than with a hundred, but each then takes
//! seconds, and so does everything that waits for one of them: reclaim, a flush, a reader. Forty
//! disks need several hundred. The latency of writes measures the queue length, so nothing has to
//! be known of the array.
//!
//! **Source**: Little's law; the step is proportional to the error, as in FAST TCP (Jin, Wei and
//! Low, INFOCOM '04), which controls delay instead of provoking losses.

use std::time::Duration;

/// So long a write may take before more of them are too many: with the modelled drives there are
/// about 25 for each disk in the queues then, and 95 in a hundred of the most that they do.
const PATIENCE: Duration = Duration::from_millis(250);
const WRITES_MIN: f64 = 16.0;
/// Share of the error that each write takes back. Answers are late by the patience itself: with
/// more than about one the number would swing.
const GAIN: f64 = 0.5;

/// Learns from each write that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    writes: f64,
}

impl Default for Depth {
    fn default() -> Self {
        Self { writes: 64.0 }
    }
}

impl Depth {
    /// Writes that should be under way at most, of so many that are allowed.
    pub fn of(self, allowed: u32) -> u32 {
        (self.writes as u32).min(allowed).max(1)
    }

    /// A write took so long, which began beside so many others, of so many that are allowed. Who
    /// was kept to fewer than there could have been has learnt nothing of more.
    pub fn learn(&mut self, took: Duration, beside: u32, allowed: u32) {
        let error = 1.0 - took.as_secs_f64() / PATIENCE.as_secs_f64();
        if error > 0.0 && f64::from(beside) < self.writes * 0.75 {
            return;
        }
        let most = f64::from(allowed).max(WRITES_MIN);
        self.writes = (self.writes + GAIN * error.max(-1.0)).clamp(WRITES_MIN, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Keeps as many writes under way as it is told at an array that answers so many a second in
    /// their order; how many those were, second by second.
    fn under_way(per_s: u64, seconds: u64) -> Vec<u32> {
        let (mut depth, mut begun) = (Depth::default(), VecDeque::new());
        let step = Duration::from_secs(1) / per_s as u32;
        let ended = |tick: u64| {
            let now = step * tick as u32;
            while (begun.len() as u32) < depth.of(1024) {
                begun.push_back((now, begun.len() as u32));
            }
            let (at, beside) = begun.pop_front().expect("at least one");
            depth.learn(now + step - at, beside, 1024);
            depth.of(1024)
        };
        let all: Vec<u32> = (0..per_s * seconds).map(ended).collect();
        all.into_iter().step_by(per_s as usize).collect()
    }

    #[test]
    fn an_array_gets_what_it_answers_within_the_patience() {
        for (per_s, least, most) in [(100, 16, 32), (400, 80, 120), (2000, 450, 550)] {
            let depths = under_way(per_s, 20);
            let is_right = |depth: &u32| (least..=most).contains(depth);
            assert!(depths[8..].iter().all(is_right), "{per_s}/s: {depths:?}");
        }
        assert!(under_way(1_000_000, 1).iter().all(|depth| *depth <= 1024));
    }

    #[test]
    fn who_needs_few_learns_nothing_of_many() {
        let mut depth = Depth::default();
        (0..10_000).for_each(|_| depth.learn(Duration::from_millis(10), 3, 1024));
        assert_eq!(depth.of(1024), 64);
        (0..10_000).for_each(|_| depth.learn(Duration::from_millis(10), 60, 1024));
        assert_eq!((depth.of(1024), depth.of(10)), (80, 10), "as far as it is used");
    }
}
