//! What a plan may cost: how much is written to a target, and how long requests may wait.
//!
//! **Invariants**
//! - What is left out follows from the plan and the rounds alone: on models it is the same again.
//! - A target is written at most a round beyond its limit: how much a round writes is known when it
//!   is over.

use super::batch::row;
use crate::plan::{Cell, Plan};
use crate::results::{Ending, Line, mean_ms, own_jobs};
use headpond_report::{duration, size};
use headpond_whatif::rounds::Round;
use std::collections::{BTreeMap, BTreeSet};

/// What has been spent of a plan's limits.
#[derive(Clone)]
pub(super) struct Allowance<'a> {
    plan: &'a Plan,
    /// From how much at once on a request to a target waited too long.
    slow: BTreeMap<String, f64>,
    /// Bytes, by target.
    written: BTreeMap<usize, u64>,
}

impl<'a> Allowance<'a> {
    /// With what an earlier run has spent.
    pub fn after(plan: &'a Plan, lines: &[Line], done: &BTreeSet<usize>) -> Self {
        let mut allowance = Self { plan, slow: BTreeMap::new(), written: BTreeMap::new() };
        let cells = plan.cells();
        for line in lines {
            let Line::Round { cell, counts, round, .. } = line else { continue };
            let Some(cell) = cells.get(*cell) else { continue };
            allowance.note_written(cell.target, written_bytes(round));
            // A cell that is measured anew does not keep itself from it.
            if *counts && done.contains(&cell.number) {
                allowance.note_wait(cell, round);
            }
        }
        allowance
    }

    pub fn note_written(&mut self, target: usize, bytes: u64) {
        *self.written.entry(target).or_default() += bytes;
    }

    /// Notes a round; why there is to be no other one of the same.
    pub fn take(&mut self, cell: &Cell, counts: bool, round: &Round) -> Option<String> {
        let written = written_bytes(round);
        self.note_written(cell.target, written);
        let waits = if counts { self.note_wait(cell, round) } else { None };
        waits.or_else(|| self.why_no_more(cell.target, written))
    }

    /// A limit that keeps a cell from being measured.
    pub fn why_left_out(&self, cell: &Cell) -> Option<String> {
        if let Some(most) = self.plan.limits.written
            && self.written_to(cell.target) >= most.bytes()
            && self.writes(cell)
        {
            return Some(format!("{most} have been written to the target"));
        }
        let (from, limit) = (*self.slow.get(&row(cell))?, self.plan.limits.mean_ms?);
        let is_more = cell.load.how_much() >= from;
        is_more.then(|| format!("less of the same waited longer than {limit} ms already"))
    }

    fn note_wait(&mut self, cell: &Cell, round: &Round) -> Option<String> {
        let (limit, mean) = (self.plan.limits.mean_ms?, mean_ms(&own_jobs(round))?);
        if mean <= limit {
            return None;
        }
        let least = self.slow.entry(row(cell)).or_insert(f64::MAX);
        *least = least.min(cell.load.how_much());
        let mean = duration((mean * 1e6) as u64);
        Some(format!("requests waited {mean} in the mean, and the limit is {limit} ms"))
    }

    /// Another round is taken to write as much as the last one.
    fn why_no_more(&self, target: usize, next: u64) -> Option<String> {
        let (most, written) = (self.plan.limits.written?, self.written_to(target));
        let is_over = next > 0 && written + next > most.bytes();
        is_over.then(|| {
            let written = size(written);
            format!("{written} have been written to the target, and the limit is {most}")
        })
    }

    fn written_to(&self, target: usize) -> u64 {
        self.written.get(&target).copied().unwrap_or(0)
    }

    /// Whether a cell writes, or what runs beside it.
    fn writes(&self, cell: &Cell) -> bool {
        cell.load.writes() || self.plan.beside.iter().any(|beside| beside.job().rw.writes)
    }
}

/// How the cells end that a limit keeps from being measured.
pub(super) fn left_out(batch: &[Cell], why: &str) -> Vec<Ending> {
    batch.iter().map(|_| Ending::LeftOut { why: why.to_owned() }).collect()
}

fn written_bytes(round: &Round) -> u64 {
    let written = |write: headpond_whatif::Side, seconds: f64| write.mb_per_s * 1e6 * seconds;
    let jobs = round.jobs.iter().map(|job| written(job.measured.write, job.measured.seconds));
    jobs.sum::<f64>() as u64
}
