//! Rounds of cells on a machine that is only described.

use crate::plan::{Cell, Plan, PlanError};
use headpond_whatif::SimulateError;
use headpond_whatif::rounds::{Length, Next, Rounds, simulate_rounds};
use std::time::Duration;

/// A machine that cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum VirtualError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Measures cells of a target that is a machine, a round of each in turn.
///
/// # Errors
/// Where the machine cannot be put together.
pub(super) fn measure(plan: &Plan, cells: &[Cell], next: Next<'_>) -> Result<(), VirtualError> {
    let first = &cells[0];
    let stack = plan.targets[first.target].stack(&first.settings)?;
    simulate_rounds(&stack, &rounds(plan, cells), seed(plan, first), next)?;
    Ok(())
}

/// What is drawn for cells, by the first of them.
pub(super) fn seed(plan: &Plan, first: &Cell) -> u64 {
    plan.seed.wrapping_add(first.number as u64)
}

/// What the generator is asked for.
pub(super) fn rounds(plan: &Plan, cells: &[Cell]) -> Vec<Rounds> {
    let of = |cell: &Cell| {
        let round = plan.rounds_of(&plan.targets[cell.target]);
        let length = match round.pass {
            true => Length::Pass,
            false => Length::Time(Duration::from_secs_f64(round.seconds)),
        };
        Rounds { phases: cell.phases(plan), length, windows: round.windows }
    };
    cells.iter().map(of).collect()
}
