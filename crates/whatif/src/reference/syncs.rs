//! Solid state drives that are asked to make each write durable.
//!
//! Fio's libaio engine carries fdatasync out in the thread that submits, so with a drive that is
//! sent flushes one write and its flush go one after the other, whatever the depth. A drive that
//! reports no write cache is sent none, fdatasync returns at once, and as many writes as the depth
//! says are under way.
//!
//! A cell `a>b` settles at b, which is scored; `a/b` has no single value and is printed beside the
//! simulation. The columns with a controller are qualitative and not run.

use super::table::{Row, Table};
use super::{Figure, Planned, Reference, ReferenceError, Rhythm, Unscored};
use crate::condition::Condition;
use crate::job::{Job, Rw};
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, Size};
use std::time::Duration;

pub(super) const SYNCS: &str = "ssd_fsync_write";

/// Which model stands for which drive.
const DRIVES: [(&str, &str); 2] =
    [("Intel DC S3500 80GB", "ssd-dc-s3500-80g"), ("Intel X25-M G2 160GB", "ssd-x25m-g2-160g")];

/// Columns that are run: drive write cache, whether each write is synced.
const COLUMNS: [(&str, Option<bool>, bool); 3] =
    [("sata_d-", Some(false), true), ("sata_d+", Some(true), true), ("no_sync", None, false)];
/// Of all of them.
const DEPTH: u32 = 16;

/// Such a test writes a few gigabytes; how long it took is not published. A minute would end before
/// the spare space of the drives does.
const RHYTHM: Rhythm =
    Rhythm { ramp: Duration::from_secs(2), round: Duration::from_secs(1), rounds_max: 10 };

impl Reference {
    pub(super) fn plan_syncs(&mut self, table: &Table) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let name = table.text(row, "drive")?;
            let Some((_, model)) = DRIVES.iter().find(|(drive, _)| *drive == name) else {
                self.waiting.push((format!("{SYNCS}, {name}"), "a model of that drive".into()));
                continue;
            };
            for (column, write_cache, is_synced) in COLUMNS {
                if table.columns.iter().any(|found| found == column) {
                    let stack = stack(name, model, write_cache);
                    self.plan_cell(table, row, column, (stack, job(is_synced)))?;
                }
            }
        }
        self.remarks.push(format!(
            "{SYNCS}: the X25-M G2 is modelled as ignoring flushes, because it was shown to lose \
             flushed data (evanjones.ca, 2010); by physics its 900 us of programming would allow \
             1,000 synced writes a second, and no explanation of the published rate is known that \
             keeps the data"
        ));
        Ok(())
    }

    fn plan_cell(
        &mut self,
        table: &Table,
        row: &Row,
        column: &str,
        (stack, job): (Stack, Job),
    ) -> Result<(), ReferenceError> {
        let text = table.text(row, column)?.to_owned();
        if text.is_empty() {
            return Ok(());
        }
        let trial = self.add(stack, job, RHYTHM);
        let (name, column) = (table.text(row, "drive")?.to_owned(), column.to_owned());
        let figure = Figure::WriteIops;
        if text.contains('/') {
            let (table, row, published) = (SYNCS, name, text);
            self.unscored.push(Unscored { table, row, column, published, trial, figure });
            return Ok(());
        }
        let settled = text.rsplit('>').next().unwrap_or_default();
        let published = settled.trim().parse();
        let published = published
            .map_err(|_| table.damaged(row, &format!("{column}: {text:?} is no figure")))?;
        let (table, row) = (SYNCS, name);
        let beside = None;
        self.cells.push(Planned { table, row, column, published, trial, figure, beside });
        Ok(())
    }
}

fn job(is_synced: bool) -> Job {
    Job {
        name: format!("depth {DEPTH}"),
        rw: Rw { is_random: true, reads: false, writes: true },
        depth: DEPTH,
        flush_every: u32::from(is_synced),
        flushes_in_turn: true,
        is_time_based: true,
        ..Job::default()
    }
}

fn stack(name: &str, model: &str, write_cache: Option<bool>) -> Stack {
    let core = CoreStack {
        raid: Level::Raid0,
        groups: 1,
        declustered: None,
        strip: Size(64 << 10),
        drive: model.to_owned(),
        drives: 1,
        drive_write_cache: write_cache,
        drive_state: State::Full,
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
