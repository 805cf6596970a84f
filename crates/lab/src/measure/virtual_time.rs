//! Rounds of a cell on a machine that is only described.

use super::Next;
use crate::plan::{Cell, Plan, PlanError, RoundPlan};
use headpond_whatif::SimulateError;
use headpond_whatif::rounds::{Length, Rounds, simulate_rounds};
use std::time::Duration;

/// A machine that cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum VirtualError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Measures a cell of a target that is a machine.
///
/// # Errors
/// Where the machine cannot be put together.
pub(super) fn measure(plan: &Plan, cell: &Cell, next: Next<'_>) -> Result<(), VirtualError> {
    let target = &plan.targets[cell.target];
    let stack = target.stack(&cell.settings)?;
    let rounds = rounds(plan, cell, plan.rounds_of(target));
    simulate_rounds(&stack, &rounds, plan.seed.wrapping_add(cell.number as u64), next)?;
    Ok(())
}

/// What the generator is asked for.
pub(super) fn rounds(plan: &Plan, cell: &Cell, round: &RoundPlan) -> Rounds {
    let length = match round.pass {
        true => Length::Pass,
        false => Length::Time(Duration::from_secs_f64(round.seconds)),
    };
    Rounds { phases: cell.phases(plan), length, windows: round.windows }
}
