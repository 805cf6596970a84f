//! Arrays of a few 14 TB disks, as an engineer expects them to be from the figures of one disk.
//!
//! Each cell is run on our array above modelled disks. The row `single` is the disk itself.

use super::table::Table;
use super::{Figure, Planned, Reference, ReferenceError, Times};
use crate::condition::Condition;
use crate::job::{Job, Rw};
use crate::plan::{Assumptions, DriveFigures, Plan, Shape};
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, BackgroundRate, Size};
use serde::Serialize;
use std::path::Path;

pub(super) const ARRAYS: &str = "hdd_raid_expected";

/// Requests in flight for each drive.
const DEPTH: u32 = 32;

impl Reference {
    pub(super) fn plan_arrays(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let metric = table.text(row, "metric")?;
            for column in table.columns.iter().skip(2) {
                let Some(published) = table.figure(row, column)? else { continue };
                let Some((level, drives)) = array(column) else {
                    let needs = "an array of that kind".into();
                    self.waiting.push((format!("{ARRAYS}, column {column}"), needs));
                    continue;
                };
                let Some((mut job, figure)) = job(metric) else {
                    return Err(table.damaged(row, &format!("{metric}: no metric that is known")));
                };
                job.depth *= u32::from(drives);
                let rhythm = if job.rw.is_random { times.random } else { times.streams };
                let trial = self.add(stack(column, level, drives), job, rhythm);
                let (row, column) = (metric.to_owned(), column.clone());
                let table = ARRAYS;
                let beside = None;
                self.cells.push(Planned { table, row, column, published, trial, figure, beside });
            }
        }
        self.remarks.push(format!(
            "{ARRAYS}: published are expectations (n times one disk), simulated is our array with 64 \
             KiB strips"
        ));
        Ok(())
    }
}

/// A cell of the table beside what the formulas say.
#[derive(Clone, Debug, Serialize)]
pub struct ExpectedCell {
    pub metric: String,
    pub array: String,
    pub published: f64,
    pub formula: f64,
    /// Of the array of modelled drives, where it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<f64>,
}

/// The table in `folder`, beside the formulas of [`crate::plan`] for the drive that it was made
/// from.
///
/// # Errors
/// Where the table is missing or damaged.
pub fn expected(folder: &Path) -> Result<Vec<ExpectedCell>, ReferenceError> {
    let table = Table::read(folder, ARRAYS)?;
    let drive = DriveFigures::find(PUBLISHED_DRIVE).expect("it comes with the program");
    let mut cells = Vec::new();
    for row in &table.rows {
        let metric = table.text(row, "metric")?;
        for column in table.columns.iter().skip(2) {
            let Some(published) = table.figure(row, column)? else { continue };
            let formula = formula(&drive, metric, column);
            let formula = formula
                .ok_or_else(|| table.damaged(row, &format!("{metric} of {column}: not known")))?;
            let (metric, array) = (metric.to_owned(), column.clone());
            cells.push(ExpectedCell { metric, array, published, formula, simulated: None });
        }
    }
    Ok(cells)
}

/// Plans a run of the cells of that table alone.
///
/// # Errors
/// Where the table is missing or damaged.
pub fn plan_expected(folder: &Path, times: Times) -> Result<Reference, ReferenceError> {
    let mut reference = Reference::default();
    reference.plan_arrays(&Table::read(folder, ARRAYS)?, times)?;
    Ok(reference)
}

/// The drive of the table, as its figures are given there.
const PUBLISHED_DRIVE: &str = "hdd-14t";

fn formula(drive: &DriveFigures, metric: &str, column: &str) -> Option<f64> {
    let (level, members) = array(column)?;
    let groups = level.usual_groups(members);
    let shape = Shape { level, members, groups, spread: None, strip_bytes: 64 << 10 };
    let given = Assumptions {
        depths: Vec::new(),
        pace: BackgroundRate::default(),
        replace_hours: 0.0,
        cache: None,
    };
    let speeds = Plan::of(drive, shape, &given).ok()?.when(Condition::Healthy)?.full;
    match metric {
        "random_read" => Some(speeds.random_read_iops),
        "random_write" => Some(speeds.random_write_iops),
        "sequential_read" => Some(speeds.sequential_read_mb_per_s),
        "sequential_write" => Some(speeds.sequential_write_mb_per_s),
        _ => None,
    }
}

/// `raid10_8` is RAID 10 of eight drives, `single` one drive.
fn array(column: &str) -> Option<(Level, u16)> {
    if column == "single" {
        return Some((Level::Raid0, 1));
    }
    let (level, drives) = column.strip_prefix("raid")?.split_once('_')?;
    let level = match level {
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "10" => Level::Raid10,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        _ => return None,
    };
    Some((level, drives.parse().ok()?))
}

fn job(metric: &str) -> Option<(Job, Figure)> {
    let (is_random, reads, figure) = match metric {
        "random_read" => (true, true, Figure::ReadIops),
        "random_write" => (true, false, Figure::WriteIops),
        "sequential_read" => (false, true, Figure::ReadMbPerS),
        "sequential_write" => (false, false, Figure::WriteMbPerS),
        _ => return None,
    };
    let job = Job {
        name: metric.to_owned(),
        rw: Rw { is_random, reads, writes: !reads },
        read_percent: if reads { 100 } else { 0 },
        block_bytes: if is_random { 4096 } else { 1 << 20 },
        depth: DEPTH,
        is_time_based: true,
        ..Job::default()
    };
    Some((job, figure))
}

fn stack(name: &str, raid: Level, drives: u16) -> Stack {
    // Mirrors of two.
    let groups = if raid == Level::Raid10 { drives / 2 } else { 1 };
    let core = CoreStack {
        raid,
        groups,
        declustered: None,
        strip: Size(64 << 10),
        drive: "hdd-7k2-14t".into(),
        drives,
        drive_write_cache: None,
        drive_state: State::default(),
        controller: None,
        network: None,
        intent: false,
        condition: Condition::Healthy,
    };
    Stack {
        name: name.to_owned(),
        engine: None,
        arrays: 1,
        core,
        array: ArraySettings::default(),
        cache: None,
    }
}
