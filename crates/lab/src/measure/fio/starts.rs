//! Where the sequential jobs of a round begin: where those of the round before it ended.
//!
//! **Invariants**: a job that begins within its region has room for as much as its last round
//! moved. fio comes back to where it began and not to the beginning of the region, so that a job
//! that would come to the end begins at the beginning instead.

use super::Ground;
use crate::plan::{Cell, Plan};
use headpond_whatif::Job;
use headpond_whatif::rounds::Round;
use std::collections::BTreeMap;

/// Offsets of the sequential jobs of a cell, by their names in results; the others begin at 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Starts(BTreeMap<String, u64>);

impl Starts {
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Goes on behind what a round has moved.
    pub fn go_on(&mut self, plan: &Plan, cell: &Cell, grounds: &[Ground<'_>], round: &Round) {
        if plan.rounds_of(&plan.targets[cell.target]).pass {
            return;
        }
        let jobs = cell.phases(plan).into_iter().flatten();
        for job in jobs.filter(|job| !job.rw.is_random) {
            let done = round.jobs.iter().find(|round| round.name == job.name);
            let (Some(done), Some(region)) = (done, region(plan, cell, grounds, &job)) else {
                continue;
            };
            // fio has a place for reads and one for writes, and each process its own.
            let requests = done.measured.read.requests.max(done.measured.write.requests);
            let processes = u64::from(job.jobs) * grounds.len() as u64;
            let moved = requests / processes * job.block_bytes;
            let next = next(self.of(&job.name), moved, region);
            self.0.insert(job.name, next);
        }
    }
}

/// What fio may touch of each array of a target, where that is known.
fn region(plan: &Plan, cell: &Cell, grounds: &[Ground<'_>], job: &Job) -> Option<u64> {
    let target = &plan.targets[cell.target];
    let named = job.size.or(plan.matrix.size.or(target.size).map(|size| size.bytes()));
    let held = || grounds.iter().map(|ground| ground.bytes).collect::<Option<Vec<_>>>();
    named.or_else(|| held()?.into_iter().min())
}

fn next(start: u64, moved: u64, region: u64) -> u64 {
    let at = start.saturating_add(moved);
    match at.saturating_add(moved) <= region {
        true => at,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_where_the_last_one_ended_or_anew_where_it_would_not_fit() {
        let rounds = (0..5).scan(0, |at, _| {
            let begun = *at;
            *at = next(begun, 30, 100);
            Some(begun)
        });
        assert_eq!(rounds.collect::<Vec<_>>(), [0, 30, 60, 0, 30]);
        // What goes round the region within a round has no end to go on from.
        assert_eq!(next(0, 250, 100), 0);
        assert_eq!(next(50, 0, 100), 50);
    }
}
