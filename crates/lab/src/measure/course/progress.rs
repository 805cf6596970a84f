//! How many rounds there were, and whether that is enough.

use super::allowance::Allowance;
use crate::plan::{Cell, Plan, RoundPlan};
use crate::results::{Ending, iops};
use crate::statistics::{Drift, drift};
use headpond_whatif::rounds::Round;

/// Counts the rounds of cells that are measured together, and knows when it is enough or too much.
pub(super) struct Progress<'a> {
    plan: &'a RoundPlan,
    batch: &'a [Cell],
    /// Why there are fewer rounds than were asked for.
    cut: Option<String>,
    cells: Vec<CellProgress>,
}

/// What was seen of a cell.
struct CellProgress {
    /// Whether its steady state is waited for.
    is_tracked: bool,
    rounds: u32,
    /// Of the rounds after the warm-up.
    iops: Vec<f64>,
}

/// What becomes of a round.
pub(super) struct Taken {
    pub number: u32,
    /// Whether it is no warm-up.
    pub counts: bool,
    /// Whether there is to be another one.
    pub goes_on: bool,
}

impl<'a> Progress<'a> {
    pub fn new(plan: &'a Plan, batch: &'a [Cell]) -> Self {
        let is_tracked =
            |cell: &Cell| plan.sweep.as_ref().is_none_or(|sweep| sweep.tracks(&cell.load));
        let seen =
            |cell| CellProgress { is_tracked: is_tracked(cell), rounds: 0, iops: Vec::new() };
        let rounds = plan.rounds_of(&plan.targets[batch[0].target]);
        Self { plan: rounds, batch, cut: None, cells: batch.iter().map(seen).collect() }
    }

    /// Takes a round of a cell, and notes what it cost; all cells take turns.
    pub fn take(&mut self, index: usize, round: &Round, allowance: &mut Allowance<'_>) -> Taken {
        let is_last = index + 1 == self.cells.len();
        let cell = &mut self.cells[index];
        let number = cell.rounds;
        cell.rounds += 1;
        let counts = number >= self.plan.warm_up;
        if counts {
            cell.iops.push(iops(round));
        }
        let cut = allowance.take(&self.batch[index], counts, round);
        let is_enough = is_last && self.is_enough(number + 1);
        self.cut = cut.filter(|_| !is_enough);
        Taken { number, counts, goes_on: !is_enough && self.cut.is_none() }
    }

    fn is_enough(&self, rounds: u32) -> bool {
        match self.plan.steady {
            None => rounds >= self.plan.warm_up + self.plan.count,
            Some(_) => rounds >= self.plan.most() || self.is_steady(),
        }
    }

    fn is_steady(&self) -> bool {
        let Some(rule) = self.plan.steady else { return false };
        self.cells.iter().filter(|cell| cell.is_tracked).all(|cell| {
            let enough = cell.iops.len() >= rule.rounds as usize;
            enough && self.last_drift(cell).is_some_and(|drift| drift.is_within(&rule))
        })
    }

    fn last_drift(&self, cell: &CellProgress) -> Option<Drift> {
        let window = self.plan.steady.map_or(usize::MAX, |rule| rule.rounds as usize);
        drift(&cell.iops[cell.iops.len().saturating_sub(window)..])
    }

    /// How each cell ended, once there is to be no other round.
    pub fn endings(&self) -> Vec<Ending> {
        if let Some(why) = &self.cut {
            return self.cells.iter().map(|_| Ending::Cut { why: why.clone() }).collect();
        }
        let is_steady = self.is_steady();
        let ending = |cell| match (self.plan.steady, self.last_drift(cell)) {
            (None, _) => Ending::Complete,
            (Some(_), Some(drift)) if is_steady => Ending::Steady { drift },
            (Some(_), drift) => Ending::NotSteady { drift },
        };
        self.cells.iter().map(ending).collect()
    }
}
