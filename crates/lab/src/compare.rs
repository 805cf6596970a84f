//! Two folders of results side by side: what has changed between them.

use crate::plan::Cell;
use crate::results::{CellResult, Results};
use crate::statistics::{RankComparison, adjust, differ};
use serde::Serialize;

/// A cell that is in both.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub title: String,
    pub first_iops: f64,
    pub second_iops: f64,
    pub first_mean_ms: f64,
    pub second_mean_ms: f64,
    pub verdict: Option<RankComparison>,
}

/// Every cell that both have, by target, settings and load. Where each has one target, these are
/// compared whatever they are called.
pub fn compare(first: &Results, second: &Results) -> Vec<Compared> {
    let is_alone = first.plan.targets.len() == 1 && second.plan.targets.len() == 1;
    let is_same = |a: &Cell, b: &Cell| {
        let names = [&first.plan.targets[a.target].name, &second.plan.targets[b.target].name];
        (is_alone || names[0] == names[1]) && a.settings == b.settings && a.load == b.load
    };
    let seconds: Vec<_> = second.measured().collect();
    let compared = first.measured().filter_map(|(cell, summary)| {
        let (other, other_summary) =
            seconds.iter().find(|(it, _)| is_same(&cell.cell, &it.cell))?;
        Some(Compared {
            title: cell.cell.title(&first.plan),
            first_iops: summary.iops.median,
            second_iops: other_summary.iops.median,
            first_mean_ms: summary.mean_ms.median,
            second_mean_ms: other_summary.mean_ms.median,
            verdict: verdict(first, cell, second, other),
        })
    });
    let mut compared: Vec<_> = compared.collect();
    adjust(&mut compared.iter_mut().filter_map(|it| it.verdict.as_mut()).collect::<Vec<_>>());
    compared
}

fn verdict(
    first: &Results,
    cell: &CellResult,
    second: &Results,
    other: &CellResult,
) -> Option<RankComparison> {
    differ(&cell.merits(&first.plan), &other.merits(&second.plan))
}
