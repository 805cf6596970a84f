//! Cells that are measured together, and what of them depends on what was measured before.

use crate::plan::{Cell, Order, Plan};
use headpond_sim::Random;
use std::collections::{BTreeMap, BTreeSet};

/// One cell; in a sweep, all cells of a target with the same settings, in the order of a round.
pub(in crate::measure) type Batch = Vec<Cell>;

/// What is left of a plan, in the order in which it is measured. A batch of which anything is left
/// is measured as a whole.
pub(in crate::measure) fn batches(plan: &Plan, done: &BTreeSet<usize>) -> Vec<Batch> {
    let mut cells = plan.cells();
    if plan.order == Order::Random {
        Random::new(plan.seed).shuffle(&mut cells);
        if plan.limits.mean_ms.is_some() {
            shallow_first(&mut cells);
        }
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

/// Batches of which none can keep one of another lane from being measured.
pub(super) fn lanes(plan: &Plan, batches: Vec<Batch>) -> Vec<Vec<Batch>> {
    let limits = &plan.limits;
    let lane = |batch: &Batch| match (limits.written, limits.mean_ms) {
        (Some(_), _) => batch[0].target.to_string(),
        (None, Some(_)) => row(&batch[0]),
        (None, None) => batch[0].number.to_string(),
    };
    let mut lanes: Vec<(String, Vec<Batch>)> = Vec::new();
    for batch in batches {
        let name = lane(&batch);
        match lanes.iter_mut().find(|lane| lane.0 == name) {
            Some(lane) => lane.1.push(batch),
            None => lanes.push((name, vec![batch])),
        }
    }
    lanes.into_iter().map(|lane| lane.1).collect()
}

/// Cells that differ in nothing but how much is in flight.
pub(super) fn row(cell: &Cell) -> String {
    format!("{} {} {}", cell.target, cell.settings_text(), cell.load.request())
}

/// Rows stay where the draw has put them, but the cells of each rise: what is left out is what
/// comes behind one that is too slow.
fn shallow_first(cells: &mut [Cell]) {
    let mut rows: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, cell) in cells.iter().enumerate() {
        rows.entry(row(cell)).or_default().push(place);
    }
    for places in rows.values() {
        let mut rising: Vec<_> = places.iter().map(|&place| cells[place].clone()).collect();
        rising.sort_by(|one, other| one.load.how_much().total_cmp(&other.load.how_much()));
        for (&place, cell) in places.iter().zip(rising) {
            cells[place] = cell;
        }
    }
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
