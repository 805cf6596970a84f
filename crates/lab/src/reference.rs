//! Published measurements, run again on the modelled machine.
//!
//! The tables are CSV files in a folder that the caller names; here stands only what each of them
//! is a measurement of. Nothing of a table but its headings goes into the run that is compared with
//! it.

use crate::job::{Job, Rw};
use crate::outcome::Outcome;
use crate::simulate::Experiment;
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::ssd::State;
use headpond_volume::Size;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can be compared, and what cannot yet.
pub struct Reference {
    pub experiments: Vec<Experiment>,
    cells: Vec<Planned>,
    /// Tables, or rows of one, that need what is not there yet, and what that is.
    pub waiting: &'static [(&'static str, &'static str)],
}

struct Planned {
    table: &'static str,
    row: String,
    column: String,
    published: f64,
    experiment: usize,
    figure: Figure,
}

/// Which figure of an outcome a cell is about.
#[derive(Clone, Copy)]
enum Figure {
    ReadIops,
    WriteIops,
}

/// A cell that was run again.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub table: &'static str,
    pub row: String,
    pub column: String,
    pub published: f64,
    pub simulated: f64,
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line}: {detail}", path.display())]
    Damaged { path: PathBuf, line: usize, detail: String },
}

const RANDOM_WRITE: &str = "raid60_random_write";
const MIXED: &str = "raid60_mixed_cached";

/// What is not run yet.
const WAITING: [(&str, &str); 7] = [
    ("raid60_mixed_cached, rows with a cache", "cleaning policy acp, mode write-only"),
    ("raid60_random_write_cached", "cleaning policies acp and alru"),
    ("raid60_sequential_write", "merge of sequential writes"),
    ("raid60_sequential_write_cached", "merge of sequential writes, cleaning policy acp"),
    ("raid60_large_sequential_write", "merge of sequential writes, cleaning policy acp"),
    ("hdd_raid_expected", "a model of the 14 TB drive, and the planner"),
    ("ssd_fsync_write", "models of SSDs and controllers"),
];

/// How long a cell runs.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub ramp: Duration,
    pub runtime: Duration,
}

impl Default for Times {
    /// The queues are full and the drives' caches have settled after a minute; three minutes were
    /// measured.
    fn default() -> Self {
        Self { ramp: Duration::from_secs(60), runtime: Duration::from_secs(180) }
    }
}

/// Plans a run of every cell that can be run.
///
/// # Errors
/// Where a table is missing or damaged.
pub fn plan(folder: &Path, times: Times) -> Result<Reference, ReferenceError> {
    let mut reference = Reference { experiments: Vec::new(), cells: Vec::new(), waiting: &WAITING };
    reference.plan_random_write(&Table::read(folder, RANDOM_WRITE)?, times)?;
    reference.plan_mixed(&Table::read(folder, MIXED)?, times)?;
    Ok(reference)
}

impl Reference {
    fn plan_random_write(&mut self, table: &Table, times: Times) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let strip_kib: u64 = table.number(row, "strip_kib")?;
            for column in table.columns.iter().filter(|column| column.starts_with("qd")) {
                let Some(published) = table.figure(row, column)? else { continue };
                let depth = column[2..].parse().map_err(|_| table.damaged(row, "no depth"))?;
                let job = random(depth, 0, times);
                let experiment = self.add(strip_kib, job);
                self.cells.push(Planned {
                    table: RANDOM_WRITE,
                    row: format!("strip {strip_kib}K"),
                    column: column.clone(),
                    published,
                    experiment,
                    figure: Figure::WriteIops,
                });
            }
        }
        Ok(())
    }

    fn plan_mixed(&mut self, table: &Table, times: Times) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let mix: u32 = table.number(row, "mix_read_pct")?;
            if table.text(row, "mode")? != "none" {
                continue;
            }
            let experiment = self.add(64, random(32, mix, times));
            let figures = [("read_iops", Figure::ReadIops), ("write_iops", Figure::WriteIops)];
            for (column, figure) in figures {
                let Some(published) = table.figure(row, column)? else { continue };
                let (row, column) = (format!("{mix} % reads, no cache"), column.to_owned());
                let table = MIXED;
                self.cells.push(Planned { table, row, column, published, experiment, figure });
            }
        }
        Ok(())
    }

    fn add(&mut self, strip_kib: u64, job: Job) -> usize {
        let core = CoreStack {
            raid: Level::Raid60,
            groups: 4,
            strip: Size(strip_kib << 10),
            drive: "hdd-7k2-4t".into(),
            drives: 40,
            drive_write_cache: None,
            drive_state: State::default(),
            controller: None,
            network: None,
            intent: false,
        };
        let stack = Stack { name: format!("strip {strip_kib}K"), core, cache: None };
        self.experiments.push(Experiment { stack, jobs: vec![job], seed: 1 });
        self.experiments.len() - 1
    }

    /// The cells beside what `outcomes`, one for each experiment, say.
    pub fn compare(&self, outcomes: &[Outcome]) -> Vec<Cell> {
        let simulated = |cell: &Planned| {
            let measured = &outcomes[cell.experiment].jobs[0].measured;
            match cell.figure {
                Figure::ReadIops => measured.read.iops,
                Figure::WriteIops => measured.write.iops,
            }
        };
        self.cells
            .iter()
            .map(|cell| Cell {
                table: cell.table,
                row: cell.row.clone(),
                column: cell.column.clone(),
                published: cell.published,
                simulated: simulated(cell),
            })
            .collect()
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
}

impl Score {
    /// # Panics
    /// Without cells.
    pub fn of(cells: &[Cell]) -> Self {
        let mut errors: Vec<f64> =
            cells.iter().map(|cell| (cell.simulated / cell.published - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let near = errors.iter().filter(|error| **error <= 0.25).count();
        Self {
            cells: cells.len(),
            median_error: errors[errors.len() / 2],
            worst_error: errors[errors.len() - 1],
            within_quarter: near as f64 / errors.len() as f64,
        }
    }
}

fn random(depth: u32, read_percent: u32, times: Times) -> Job {
    Job {
        name: format!("depth {depth}"),
        rw: Rw { is_random: true, reads: read_percent > 0, writes: true },
        read_percent,
        depth,
        ramp: times.ramp,
        runtime: Some(times.runtime),
        is_time_based: true,
        ..Job::default()
    }
}

/// A CSV file with a heading; lines that start with # are remarks.
struct Table {
    path: PathBuf,
    columns: Vec<String>,
    /// With the numbers of their lines.
    rows: Vec<(usize, Vec<String>)>,
}

type Row = (usize, Vec<String>);

impl Table {
    fn read(folder: &Path, name: &str) -> Result<Self, ReferenceError> {
        let path = folder.join(format!("{name}.csv"));
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ReferenceError::Read { path: path.clone(), source })?;
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, ReferenceError> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let split = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect();
        let columns: Vec<String> = lines.next().map(|(_, line)| split(line)).unwrap_or_default();
        let rows: Vec<Row> = lines.map(|(number, line)| (number, split(line))).collect();
        let table = Self { path, columns, rows };
        match table.rows.iter().find(|(_, cells)| cells.len() != table.columns.len()) {
            Some(row) => Err(table.damaged(row, "another number of cells than the heading")),
            None => Ok(table),
        }
    }

    fn text<'a>(&self, row: &'a Row, column: &str) -> Result<&'a str, ReferenceError> {
        let at = self.columns.iter().position(|name| name == column);
        at.map(|at| row.1[at].as_str()).ok_or_else(|| self.damaged(row, "a column is missing"))
    }

    fn number<T: std::str::FromStr>(&self, row: &Row, column: &str) -> Result<T, ReferenceError> {
        let text = self.text(row, column)?;
        text.parse().map_err(|_| self.damaged(row, &format!("{column}: {text:?} is no number")))
    }

    /// A measurement; nothing where none was made.
    fn figure(&self, row: &Row, column: &str) -> Result<Option<f64>, ReferenceError> {
        if self.text(row, column)?.is_empty() {
            Ok(None)
        } else {
            self.number(row, column).map(Some)
        }
    }

    fn damaged(&self, row: &Row, detail: &str) -> ReferenceError {
        let (path, detail) = (self.path.clone(), detail.to_owned());
        ReferenceError::Damaged { path, line: row.0, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_and_damage_is_named() {
        let parse = |text: &str| Table::parse("t.csv".into(), text);
        let table = parse("# remark\nstrip_kib,qd1\n64,5.5\n32,\n").unwrap();
        assert_eq!(table.figure(&table.rows[0], "qd1").unwrap(), Some(5.5));
        assert_eq!(table.figure(&table.rows[1], "qd1").unwrap(), None);
        let error = parse("a,b\n1\n").err().unwrap().to_string();
        assert!(error.contains("t.csv: line 2"), "{error}");
        let error = table.number::<u32>(&table.rows[0], "qd1").unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("5.5"), "{error}");
    }

    #[test]
    fn the_score_is_about_ratios() {
        let cell = |published, simulated| Cell {
            table: "t",
            row: String::new(),
            column: String::new(),
            published,
            simulated,
        };
        let score = Score::of(&[cell(100.0, 110.0), cell(10.0, 10.0), cell(1.0, 2.0)]);
        assert!((score.median_error - 0.1).abs() < 1e-9 && (score.worst_error - 1.0).abs() < 1e-9);
        assert!((score.within_quarter - 2.0 / 3.0).abs() < 1e-9);
    }
}
