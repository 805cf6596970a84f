//! A cell measured when it is settled.
//!
//! 1. The machine begins with a cache that is full of dirty data.
//! 2. Rounds of one length follow each other without a pause; the first are the ramp, in which the
//!    drives' own caches fill.
//! 3. What follows is *settled* when over [`ROUNDS`] of them neither the rate nor the dirty level
//!    moves: their first half differs from the second by [`RATE_MAX`] and [`DIRTY_MAX`] at most.
//!    These rounds are the measurement.
//! 4. What never settles is measured at the end of its time, and says so.

use super::Figure;
use crate::job::Job;
use crate::progress::Gauge;
use crate::rounds::{Length, Round, Rounds, simulate_rounds_when_full};
use crate::simulate::SimulateError;
use crate::stack::Stack;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Rounds that are looked at, and measured.
pub const ROUNDS: usize = 6;
/// By so much of the first the rate of their second half may differ.
pub const RATE_MAX: f64 = 0.05;
/// And their dirty level, as a share of what may be dirty.
pub const DIRTY_MAX: f64 = 0.02;

/// What is run for a cell, or for several.
#[derive(Clone, Debug)]
pub struct Trial {
    pub stack: Stack,
    /// Without times of its own.
    pub job: Job,
    pub rhythm: Rhythm,
}

/// How long it is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rhythm {
    /// Never measured.
    pub ramp: Duration,
    pub round: Duration,
    /// Rounds after the ramp until it is measured, settled or not.
    pub rounds_max: u32,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Settled {
    pub read_iops: f64,
    pub write_iops: f64,
    pub read_mb_per_s: f64,
    pub write_mb_per_s: f64,
    pub dirty_ratio: f64,
    /// Whether it had settled.
    pub is_settled: bool,
}

impl Trial {
    /// Runs it on a machine of its own.
    ///
    /// # Errors
    /// Where the machine cannot be put together, or nothing happens.
    pub fn run(&self, gauge: &Arc<Gauge>) -> Result<Settled, SimulateError> {
        let Rhythm { ramp, round, rounds_max } = self.rhythm;
        let phases = vec![vec![self.job.clone()]];
        let rounds = Rounds { phases, length: Length::Time(round), windows: 1 };
        let ramp_rounds = (ramp.as_secs_f64() / round.as_secs_f64()).ceil() as u32;
        let (mut seen, mut settled) = (0, None);
        let mut last = VecDeque::with_capacity(ROUNDS);
        let run = simulate_rounds_when_full(&self.stack, &[rounds], 1, &mut |_, round_seen| {
            seen += 1;
            gauge.set_virtual_time(round * seen);
            gauge.set_share(f64::from(seen) / f64::from(ramp_rounds + rounds_max));
            if seen > ramp_rounds {
                last.truncate(ROUNDS - 1);
                last.push_front(Settled::of(&round_seen));
            }
            let is_over = seen >= ramp_rounds + rounds_max.max(ROUNDS as u32);
            settled = Settled::over(last.make_contiguous()).filter(|it| it.is_settled || is_over);
            settled.is_none()
        });
        gauge.end();
        run?;
        Ok(settled.expect("rounds end when there is something to measure"))
    }

    pub(super) fn is(&self, stack: &Stack, job: &Job) -> bool {
        self.stack == *stack && self.job == *job
    }
}

impl Settled {
    /// Of one round.
    fn of(round: &Round) -> Self {
        let measured = &round.jobs[0].measured;
        Self {
            read_iops: measured.read.iops,
            write_iops: measured.write.iops,
            read_mb_per_s: measured.read.mb_per_s,
            write_mb_per_s: measured.write.mb_per_s,
            dirty_ratio: round.windows.last().map_or(0.0, |window| window.dirty_ratio),
            is_settled: false,
        }
    }

    /// Of the rounds that are looked at, where there are enough.
    fn over(rounds: &[Self]) -> Option<Self> {
        if rounds.len() < ROUNDS {
            return None;
        }
        let (one, other) = rounds.split_at(ROUNDS / 2);
        let (one, other) = (Self::mean(one), Self::mean(other));
        let rate = |it: Self| it.read_iops + it.write_iops;
        let is_even = (rate(one) - rate(other)).abs() <= RATE_MAX * rate(other);
        let is_level = (one.dirty_ratio - other.dirty_ratio).abs() <= DIRTY_MAX;
        Some(Self { is_settled: is_even && is_level, ..Self::mean(rounds) })
    }

    fn mean(rounds: &[Self]) -> Self {
        let mean =
            |pick: fn(&Self) -> f64| rounds.iter().map(pick).sum::<f64>() / rounds.len() as f64;
        Self {
            read_iops: mean(|it| it.read_iops),
            write_iops: mean(|it| it.write_iops),
            read_mb_per_s: mean(|it| it.read_mb_per_s),
            write_mb_per_s: mean(|it| it.write_mb_per_s),
            dirty_ratio: mean(|it| it.dirty_ratio),
            is_settled: false,
        }
    }

    pub(super) fn figure(&self, figure: Figure) -> f64 {
        match figure {
            Figure::ReadIops => self.read_iops,
            Figure::WriteIops => self.write_iops,
            Figure::ReadMbPerS => self.read_mb_per_s,
            Figure::WriteMbPerS => self.write_mb_per_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(of: impl Fn(usize) -> (f64, f64)) -> Vec<Settled> {
        let round = |at| {
            let (write_iops, dirty_ratio) = of(at);
            Settled {
                read_iops: 0.0,
                write_iops,
                read_mb_per_s: 0.0,
                write_mb_per_s: 0.0,
                dirty_ratio,
                is_settled: false,
            }
        };
        (0..ROUNDS).map(round).collect()
    }

    #[test]
    fn settled_is_what_moves_neither_in_its_rate_nor_in_its_dirty_level() {
        let is_settled =
            |of: fn(usize) -> (f64, f64)| Settled::over(&rounds(of)).unwrap().is_settled;
        assert!(is_settled(|at| ([90.0, 100.0, 110.0][at % 3], 1.0)));
        // A cache that fills takes everything at once until it is full.
        assert!(!is_settled(|at| (100.0, 0.1 * at as f64)));
        assert!(!is_settled(|at| (100.0 - 5.0 * at as f64, 1.0)));
        assert!(Settled::over(&rounds(|_| (1.0, 1.0))[1..]).is_none(), "too few to tell");
    }
}
