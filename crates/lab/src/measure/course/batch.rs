//! Cells that are measured together.

use crate::plan::{Cell, Order, Plan};
use headpond_sim::Random;
use std::collections::BTreeSet;

/// One cell; in a sweep, all cells of a target with the same settings, in the order of a round.
pub(in crate::measure) type Batch = Vec<Cell>;

/// What is left of a plan, in the order in which it is measured. A batch of which anything is left
/// is measured as a whole.
pub(in crate::measure) fn batches(plan: &Plan, done: &BTreeSet<usize>) -> Vec<Batch> {
    let mut cells = plan.cells();
    if plan.order == Order::Random {
        Random::new(plan.seed).shuffle(&mut cells);
    }
    let mut batches: Vec<Batch> = Vec::new();
    for cell in cells {
        let is_with = |batch: &&mut Batch| plan.sweep.is_some() && go_together(&batch[0], &cell);
        match batches.iter_mut().find(is_with) {
            Some(batch) => batch.push(cell),
            None => batches.push(vec![cell]),
        }
    }
    batches.retain(|batch| !batch.iter().all(|cell| done.contains(&cell.number)));
    batches
}

fn go_together(one: &Cell, other: &Cell) -> bool {
    one.target == other.target && one.settings == other.settings
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "name = \"t\"\n[[target]]\nname = \"it\"\n\
        machine = { core = { raid = 0, drives = 1, drive = \"ssd-dc-960g\" } }\n\
        [matrix]\nrw = [\"randread\"]\nbs = [\"4K\", \"8K\", \"16K\"]\n\
        settings = { \"core.drive_write_cache\" = [true, false] }\n";

    #[test]
    fn a_sweep_keeps_what_has_the_same_settings_together_and_goes_on_with_whole_ones() {
        let plan = Plan::parse(&format!("{PLAN}[sweep]\n")).unwrap();
        let all = batches(&plan, &BTreeSet::new());
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        for batch in &all {
            assert!(batch.iter().all(|cell| cell.settings == batch[0].settings));
        }
        let whole: BTreeSet<_> = all[0].iter().map(|cell| cell.number).collect();
        let left = batches(&plan, &whole.iter().copied().chain([all[1][0].number]).collect());
        assert_eq!(left, all[1..]);
    }

    #[test]
    fn without_a_sweep_a_cell_stands_for_itself() {
        let plan = Plan::parse(PLAN).unwrap();
        let left = batches(&plan, &BTreeSet::from([2, 4]));
        let mut numbers: Vec<_> = left.iter().map(|batch| (batch.len(), batch[0].number)).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [(1, 0), (1, 1), (1, 3), (1, 5)]);
    }
}
