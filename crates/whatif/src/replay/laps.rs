//! The requests of a replay in a few parts of equal number, so that two machines can be compared
//! part by part.

use headpond_block::Instant;
use serde::Serialize;
use std::time::Duration;

/// Parts of a replay.
pub const LAPS: usize = 8;

/// What one part of the requests experienced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lap {
    pub requests: u64,
    /// From the last answer of the lap before to the last one of this.
    pub seconds: f64,
    /// From when requests were due to their answers, in microseconds.
    pub mean_us: f64,
    pub p99_us: f64,
}

/// Laps under way.
#[derive(Debug)]
pub(super) struct Laps {
    per_lap: u64,
    begun: Instant,
    laps: [LapTally; LAPS],
}

#[derive(Clone, Debug, Default)]
struct LapTally {
    took_us: Vec<f32>,
    last_answer: Instant,
}

impl Laps {
    /// For so many requests.
    pub fn of(requests: u64, begun: Instant) -> Self {
        Self { per_lap: requests.div_ceil(LAPS as u64).max(1), begun, laps: Default::default() }
    }

    /// The lap of a request, by its number from 0.
    pub fn lap_of(&self, number: u64) -> usize {
        ((number / self.per_lap) as usize).min(LAPS - 1)
    }

    pub fn note(&mut self, lap: usize, took: Duration, now: Instant) {
        let lap = &mut self.laps[lap];
        lap.took_us.push(took.as_secs_f32() * 1e6);
        lap.last_answer = lap.last_answer.max(now);
    }

    /// The laps that had requests.
    pub fn summary(&mut self) -> Vec<Lap> {
        let mut before = self.begun;
        let mut laps = Vec::new();
        for lap in self.laps.iter_mut().filter(|lap| !lap.took_us.is_empty()) {
            let ended = lap.last_answer.max(before);
            laps.push(lap.summary(ended.since(before).as_secs_f64()));
            before = ended;
        }
        laps
    }
}

impl LapTally {
    fn summary(&mut self, seconds: f64) -> Lap {
        let count = self.took_us.len();
        let sum: f64 = self.took_us.iter().map(|&us| f64::from(us)).sum();
        let rank = (count * 99).div_ceil(100) - 1;
        let (_, p99, _) = self.took_us.select_nth_unstable_by(rank, f32::total_cmp);
        Lap {
            requests: count as u64,
            seconds,
            mean_us: sum / count as f64,
            p99_us: f64::from(*p99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lap_has_its_own_figures() {
        let at = |millis| Instant::START + Duration::from_millis(millis);
        let mut laps = Laps::of(800, at(10));
        for number in 0..800 {
            let took = Duration::from_micros(if number < 100 { 100 } else { number });
            laps.note(laps.lap_of(number), took, at(10 + number));
        }
        let laps = laps.summary();
        assert_eq!(laps.len(), LAPS);
        assert!((laps[0].mean_us - 100.0).abs() < 0.01 && laps[0].requests == 100);
        assert!((laps[1].mean_us - 149.5).abs() < 0.01 && (laps[1].p99_us - 198.0).abs() < 0.01);
        assert!((laps[0].seconds - 0.099).abs() < 1e-9 && (laps[1].seconds - 0.1).abs() < 1e-9);
    }

    #[test]
    fn few_requests_have_few_laps() {
        let mut laps = Laps::of(3, Instant::START);
        for number in 0..3 {
            laps.note(laps.lap_of(number), Duration::from_micros(5), Instant::START);
        }
        assert_eq!(laps.summary().len(), 3);
    }
}
