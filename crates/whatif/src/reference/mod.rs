//! Published measurements, run again on the modelled machine.
//!
//! The tables are CSV files in a folder that the caller names; here stands only what each of them
//! is a measurement of. Nothing of a table but its headings goes into the run that is compared with
//! it.

mod arrays;
mod cached;
mod raid60;
mod sequential;
mod settled;
mod syncs;
mod table;
mod taught;

use crate::job::Job;
use crate::parallel::side_by_side;
use crate::progress::Gauge;
use crate::simulate::SimulateError;
use crate::stack::Stack;
use arrays::ARRAYS;
pub use arrays::{ExpectedCell, expected, plan_expected};
use cached::RANDOM_WRITE_CACHED;
use raid60::{MIXED, RANDOM_WRITE};
use serde::Serialize;
pub use settled::{DIRTY_MAX, RATE_MAX, ROUNDS, Rhythm, Settled, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use syncs::SYNCS;
use table::Table;

/// Settings of our own that are tried beside a cell, as changes of what it comes with; the first
/// is that. What the array would answer sooner may go there, and streams may enter however long
/// they are; the published caches let them.
pub const OURS: &[&str] =
    &[AS_IT_COMES, "bypass=adaptive", "seq_cutoff=never", "seq_cutoff=never bypass=adaptive"];
const AS_IT_COMES: &str = "as it comes";

/// What can be compared, and what cannot yet.
#[derive(Default)]
pub struct Reference {
    pub trials: Vec<Trial>,
    /// Those of [`OURS`] that are tried.
    ours: &'static [&'static str],
    cells: Vec<Planned>,
    unscored: Vec<Unscored>,
    /// Tables, or rows of one, that need what is not there yet, and what that is.
    pub waiting: Vec<(String, String)>,
    /// What has to be known beside the figures.
    pub remarks: Vec<String>,
}

/// A cell that is no single number.
struct Unscored {
    table: &'static str,
    row: String,
    column: String,
    published: String,
    trial: usize,
    figure: Figure,
}

struct Planned {
    table: &'static str,
    row: String,
    column: String,
    published: f64,
    trial: usize,
    figure: Figure,
    beside: Option<Beside>,
}

/// What stands beside a cell that is about a cache.
struct Beside {
    /// The trials with our cache, one for each of the settings that are tried.
    ours: Vec<usize>,
    /// The cell of the same load without a cache.
    without: Option<usize>,
}

/// Which figure of an outcome a cell is about.
#[derive(Clone, Copy)]
enum Figure {
    ReadIops,
    WriteIops,
    ReadMbPerS,
    WriteMbPerS,
}

/// A cell that is no single number, beside what the simulation says; it is not scored.
#[derive(Clone, Debug, Serialize)]
pub struct UnscoredCell {
    pub table: &'static str,
    pub row: String,
    pub column: String,
    pub published: String,
    pub simulated: f64,
}

/// A cell that was run again.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub table: &'static str,
    pub row: String,
    pub column: String,
    pub published: f64,
    pub simulated: f64,
    /// What our own cache reaches there with the best of the settings that were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
    /// Whether it had settled when it was measured.
    pub is_settled: bool,
    /// What was chosen with this cell in view; nothing where it only checks.
    pub taught: Option<&'static str>,
    /// Whether the cache is worth it, where that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What our own cache reaches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ours {
    pub figure: f64,
    pub settings: &'static str,
}

/// With a cache against without one: is it faster, as published and as simulated?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub published: bool,
    pub simulated: bool,
}

/// Nearer than this share the published figures with and without a cache are a tie.
const TIE: f64 = 0.10;

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line}: {detail}", path.display())]
    Damaged { path: PathBuf, line: usize, detail: String },
}

/// How long cells run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub random: Rhythm,
    pub streams: Rhythm,
}

impl Default for Times {
    /// In 20 s of random requests queues and drives' caches have filled, and a round is longer than
    /// what `alru` cleans at a time. Streams do in seconds what those do in minutes.
    fn default() -> Self {
        let random =
            Rhythm { ramp: Duration::from_secs(20), round: Duration::from_secs(8), rounds_max: 30 };
        let streams = Rhythm {
            ramp: Duration::from_secs(2),
            round: Duration::from_millis(250),
            rounds_max: 40,
        };
        Self { random, streams }
    }
}

/// Plans a run of every cell that can be run; those about a cache with some of [`OURS`] beside.
///
/// # Errors
/// Where a table is missing or damaged.
pub fn plan(
    folder: &Path,
    times: Times,
    ours: &'static [&'static str],
) -> Result<Reference, ReferenceError> {
    let mut reference = Reference { ours, ..Reference::default() };
    reference.plan_random_write(&Table::read(folder, RANDOM_WRITE)?, times)?;
    reference.plan_random_write_cached(&Table::read(folder, RANDOM_WRITE_CACHED)?, times)?;
    reference.plan_mixed(&Table::read(folder, MIXED)?, times)?;
    reference.plan_sequential_write(&Table::read(folder, sequential::WRITE)?, times)?;
    reference
        .plan_sequential_write_cached(&Table::read(folder, sequential::WRITE_CACHED)?, times)?;
    reference.plan_large_sequential_write(&Table::read(folder, sequential::LARGE_WRITE)?, times)?;
    reference.plan_arrays(&Table::read(folder, ARRAYS)?, times)?;
    reference.plan_syncs(&Table::read(folder, SYNCS)?)?;
    reference.remarks.extend(NOT_SCORED.map(|(table, why)| format!("{table}: not scored: {why}")));
    Ok(reference)
}

/// What is published beside the tables that are run, and where it is used instead.
const NOT_SCORED: [(&str, &str); 4] = [
    ("opencas_limits", "what the costs of the engine opencas-22.06 were calibrated on"),
    (
        "controller_ratings",
        "grades without figures; `headpond lab run array` gives grades on the same scale",
    ),
    (
        "nvme_raid0_cache_modes",
        "a direction and no load that could be repeated; `headpond lab run steady-read-write` asks \
         the same of each cache mode",
    ),
    (
        "ssd_fsync_write, columns with a controller",
        "directions of one controller; `headpond lab run sync-write` has one before the same drives",
    ),
];

impl Reference {
    fn add(&mut self, stack: Stack, job: Job, rhythm: Rhythm) -> usize {
        self.trials.push(Trial { stack, job, rhythm });
        self.trials.len() - 1
    }

    /// Runs all trials, each with its own gauge.
    ///
    /// # Errors
    /// The first that a machine had.
    ///
    /// # Panics
    /// Where there are not as many gauges as trials.
    pub fn run(&self, gauges: &[Arc<Gauge>]) -> Result<Vec<Settled>, SimulateError> {
        assert_eq!(self.trials.len(), gauges.len(), "a gauge for each trial");
        let run = |index: usize| self.trials[index].run(&gauges[index]);
        side_by_side(self.trials.len(), run).into_iter().collect()
    }

    /// The cells beside what `outcomes`, one for each trial, say.
    pub fn compare(&self, outcomes: &[Settled]) -> Vec<Cell> {
        let cell = |cell: &Planned| Cell {
            table: cell.table,
            row: cell.row.clone(),
            column: cell.column.clone(),
            published: cell.published,
            simulated: outcomes[cell.trial].figure(cell.figure),
            ours: self.ours(cell, outcomes),
            is_settled: outcomes[cell.trial].is_settled,
            taught: taught::taught(cell.table, &cell.row, &cell.column),
            decision: self.decision(cell, outcomes),
        };
        self.cells.iter().map(cell).collect()
    }

    /// Of the settings that carry out most requests, reads and writes together.
    fn ours(&self, cell: &Planned, outcomes: &[Settled]) -> Option<Ours> {
        let of = |outcome: &Settled| outcome.read_iops + outcome.write_iops;
        let tried = self.ours.iter().zip(&cell.beside.as_ref()?.ours);
        let tried = tried.map(|(settings, trial)| (settings, &outcomes[*trial]));
        // The first of equals: what it comes with.
        let (settings, outcome) = tried.rev().max_by(|a, b| of(a.1).total_cmp(&of(b.1)))?;
        Some(Ours { figure: outcome.figure(cell.figure), settings })
    }

    fn decision(&self, cell: &Planned, outcomes: &[Settled]) -> Option<Decision> {
        let without = &self.cells[cell.beside.as_ref()?.without?];
        let gain = cell.published / without.published - 1.0;
        let simulated = |cell: &Planned| outcomes[cell.trial].figure(cell.figure);
        (gain.abs() > TIE).then(|| Decision {
            published: gain > 0.0,
            simulated: simulated(cell) > simulated(without),
        })
    }

    /// The same for cells that are no single number.
    pub fn compare_unscored(&self, outcomes: &[Settled]) -> Vec<UnscoredCell> {
        let cell = |cell: &Unscored| UnscoredCell {
            table: cell.table,
            row: cell.row.clone(),
            column: cell.column.clone(),
            published: cell.published.clone(),
            simulated: outcomes[cell.trial].figure(cell.figure),
        };
        self.unscored.iter().map(cell).collect()
    }
}

/// How far simulated figures are from the published ones, as a share of these.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Score {
    pub cells: usize,
    pub median_error: f64,
    pub worst_error: f64,
    /// Share of the cells within 25 %.
    pub within_quarter: f64,
    /// Cells that say whether a cache is worth it, and those of them where the simulation agrees.
    pub decisions: usize,
    pub decisions_right: usize,
}

impl Score {
    /// # Panics
    /// Without cells.
    pub fn of(cells: &[Cell]) -> Self {
        Self::of_some(&cells.iter().collect::<Vec<_>>())
    }

    /// Of the cells that taught nothing, where there are some.
    pub fn of_checks(cells: &[Cell]) -> Option<Self> {
        let checks: Vec<_> = cells.iter().filter(|cell| cell.taught.is_none()).collect();
        (!checks.is_empty()).then(|| Self::of_some(&checks))
    }

    /// Of each table.
    pub fn of_tables(cells: &[Cell]) -> BTreeMap<&'static str, Self> {
        let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::new();
        cells.iter().for_each(|cell| tables.entry(cell.table).or_default().push(cell));
        tables.into_iter().map(|(table, cells)| (table, Self::of_some(&cells))).collect()
    }

    fn of_some(cells: &[&Cell]) -> Self {
        let mut errors: Vec<f64> =
            cells.iter().map(|cell| (cell.simulated / cell.published - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let decisions: Vec<Decision> = cells.iter().filter_map(|cell| cell.decision).collect();
        let is_right = |decision: &&Decision| decision.published == decision.simulated;
        let near = errors.iter().filter(|error| **error <= 0.25).count();
        Self {
            cells: cells.len(),
            median_error: errors[errors.len() / 2],
            worst_error: errors[errors.len() - 1],
            within_quarter: near as f64 / errors.len() as f64,
            decisions: decisions.len(),
            decisions_right: decisions.iter().filter(is_right).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_about_ratios() {
        let cell = |published, simulated| Cell {
            table: "t",
            row: String::new(),
            column: String::new(),
            published,
            simulated,
            ours: None,
            is_settled: true,
            taught: None,
            decision: None,
        };
        let score = Score::of(&[cell(100.0, 110.0), cell(10.0, 10.0), cell(1.0, 2.0)]);
        assert!((score.median_error - 0.1).abs() < 1e-9 && (score.worst_error - 1.0).abs() < 1e-9);
        assert!((score.within_quarter - 2.0 / 3.0).abs() < 1e-9);
    }
}
