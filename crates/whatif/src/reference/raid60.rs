//! The array of forty disks.

use super::table::Table;
use super::{Figure, Planned, Reference, ReferenceError, Times};
use crate::condition::Condition;
use crate::job::{Job, Rw};
use crate::stack::{CoreStack, Stack};
use headpond_raid::Level;
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, Size};

pub(super) const RANDOM_WRITE: &str = "raid60_random_write";
pub(super) const MIXED: &str = "raid60_mixed_cached";

impl Reference {
    pub(super) fn plan_random_write(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let strip_kib: u64 = table.number(row, "strip_kib")?;
            for column in table.columns.iter().filter(|column| column.starts_with("qd")) {
                let Some(published) = table.figure(row, column)? else { continue };
                let depth = column[2..].parse().map_err(|_| table.damaged(row, "no depth"))?;
                let trial = self.add_raid60(strip_kib, random(depth, 0), times);
                self.cells.push(Planned {
                    table: RANDOM_WRITE,
                    row: format!("strip {strip_kib}K"),
                    column: column.clone(),
                    published,
                    trial,
                    figure: Figure::WriteIops,
                    beside: None,
                });
            }
        }
        Ok(())
    }

    pub(super) fn plan_mixed(&mut self, table: &Table, times: Times) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let mix: u32 = table.number(row, "mix_read_pct")?;
            if table.text(row, "mode")? != "none" {
                self.plan_mixed_cached(table, row, mix, times)?;
                continue;
            }
            let trial = self.add_raid60(64, random(32, mix), times);
            let figures = [("read_iops", Figure::ReadIops), ("write_iops", Figure::WriteIops)];
            for (column, figure) in figures {
                let Some(published) = table.figure(row, column)? else { continue };
                let (row, column) = (format!("{mix} % reads, no cache"), column.to_owned());
                let (table, beside) = (MIXED, None);
                self.cells.push(Planned { table, row, column, published, trial, figure, beside });
            }
        }
        Ok(())
    }

    fn add_raid60(&mut self, strip_kib: u64, job: Job, times: Times) -> usize {
        let core = core(strip_kib);
        let stack = Stack {
            name: format!("strip {strip_kib}K"),
            engine: None,
            arrays: 1,
            core,
            array: ArraySettings::default(),
            cache: None,
        };
        self.add(stack, job, times.random)
    }
}

pub(super) fn core(strip_kib: u64) -> CoreStack {
    CoreStack {
        raid: Level::Raid60,
        groups: 4,
        declustered: None,
        strip: Size(strip_kib << 10),
        drive: "hdd-7k2-4t".into(),
        drives: 40,
        drive_write_cache: None,
        drive_state: State::default(),
        controller: None,
        network: None,
        intent: false,
        condition: Condition::Healthy,
    }
}

pub(super) fn random(depth: u32, read_percent: u32) -> Job {
    Job {
        name: format!("depth {depth}"),
        rw: Rw { is_random: true, reads: read_percent > 0, writes: true },
        read_percent,
        depth,
        is_time_based: true,
        ..Job::default()
    }
}
