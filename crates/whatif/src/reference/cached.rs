//! The array of forty disks behind a cache that others made, and behind ours.
//!
//! What is known of their cache goes into the run: what serving costs (`opencas-22.06`, from a
//! table that is not scored), its cleaning policy and parameters (from the remarks above the
//! tables), that a cache line of 64 KiB holds one random block of 4 KiB, that requests which
//! find no room go past it at once, and that 32 of the oldest lines are then cleaned in a
//! round. Nothing of that follows from a cell that is scored.
//!
//! Beside each cell stands the same load on our cache with the best of a few settings, and the
//! costs of our own server. It holds as many dirty blocks as theirs.

use super::raid60::{MIXED, RANDOM_WRITE, core, random};
use super::table::{Row, Table};
use super::{AS_IT_COMES, Beside, Figure, Planned, Reference, ReferenceError, Rhythm, Times};
use crate::job::Job;
use crate::stack::{CacheStack, Stack};
use headpond_cache::{CleaningConfig, CleaningPreset, Mode};
use headpond_sim::ssd::State;
use headpond_volume::{ArraySettings, CacheSettings, SeqCutoff, SettingChange, Size};

pub(super) const RANDOM_WRITE_CACHED: &str = "raid60_random_write_cached";

/// The RAM disk, its cache lines, and the blocks that random writes leave in each.
pub(super) const CACHE_BYTES: u64 = 29_200_000_000;
pub(super) const LINE_BYTES: u64 = 64 << 10;
pub(super) const BLOCK_BYTES: u64 = 4 << 10;
/// What memory takes to copy is among the costs of the engine, for each KiB of a request: as a
/// device it takes nothing beside that.
const COPIED_BY_THE_ENGINE: f64 = 1e6;
/// Of our log, so much may be dirty; of theirs all.
const DIRTY_PERCENT: u64 = 86;

impl Reference {
    pub(super) fn plan_random_write_cached(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let strip_kib: u64 = table.number(row, "strip_kib")?;
            let cleaning = table.text(row, "cleaning")?.to_owned();
            let settings = theirs(table, row, Mode::WriteBack, &cleaning)?;
            let bytes = one_block_a_line();
            for column in table.columns.iter().filter(|column| column.starts_with("qd")) {
                let Some(published) = table.figure(row, column)? else { continue };
                let depth = column[2..].parse().map_err(|_| table.damaged(row, "no depth"))?;
                let job = random(depth, 0);
                let without = self.planned(RANDOM_WRITE, &format!("strip {strip_kib}K"), column);
                let (theirs, ours) =
                    self.add_cached(strip_kib, bytes, &settings, (&job, times.random));
                self.cells.push(Planned {
                    table: RANDOM_WRITE_CACHED,
                    row: format!("strip {strip_kib}K, {cleaning}"),
                    column: column.clone(),
                    published,
                    trial: theirs,
                    figure: Figure::WriteIops,
                    beside: Some(Beside { ours, without }),
                });
            }
        }
        Ok(())
    }

    /// One row of the mixed table that has a cache.
    pub(super) fn plan_mixed_cached(
        &mut self,
        table: &Table,
        row: &Row,
        mix: u32,
        times: Times,
    ) -> Result<(), ReferenceError> {
        let (mode, cleaning) = (table.text(row, "mode")?, table.text(row, "cleaning")?.to_owned());
        let parsed = match mode {
            "write-back" => Mode::WriteBack,
            "write-only" => Mode::WriteOnly,
            other => return Err(table.damaged(row, &format!("{other}: no mode that is known"))),
        };
        let settings = theirs(table, row, parsed, &cleaning)?;
        let job = random(32, mix);
        let (theirs, ours) =
            self.add_cached(64, one_block_a_line(), &settings, (&job, times.random));
        for (column, figure) in [("read_iops", Figure::ReadIops), ("write_iops", Figure::WriteIops)]
        {
            let Some(published) = table.figure(row, column)? else { continue };
            let without = self.planned(MIXED, &format!("{mix} % reads, no cache"), column);
            self.cells.push(Planned {
                table: MIXED,
                row: format!("{mix} % reads, {mode}, {cleaning}"),
                column: column.to_owned(),
                published,
                trial: theirs,
                figure,
                beside: Some(Beside { ours: ours.clone(), without }),
            });
        }
        Ok(())
    }

    /// The cell of these names, where it has been planned.
    pub(super) fn planned(&self, table: &str, row: &str, column: &str) -> Option<usize> {
        self.cells
            .iter()
            .position(|cell| cell.table == table && cell.row == row && cell.column == column)
    }

    /// The same trial, where it has been planned: ours is the same for every policy of theirs.
    fn find(&self, stack: &Stack, job: &Job) -> Option<usize> {
        self.trials.iter().position(|it| it.is(stack, job))
    }

    /// Their cache and ours, both of which hold so many dirty bytes, in front of the same array;
    /// ours with each of the settings to try.
    pub(super) fn add_cached(
        &mut self,
        strip_kib: u64,
        dirty_bytes: u64,
        settings: &CacheSettings,
        (job, rhythm): (&Job, Rhythm),
    ) -> (usize, Vec<usize>) {
        let tried = self.ours;
        let mut add = |engine: &str, settings: CacheSettings| {
            let stack = Stack {
                arrays: 1,
                name: format!("strip {strip_kib}K behind {engine}"),
                engine: Some(engine.into()),
                core: core(strip_kib),
                array: ArraySettings::default(),
                cache: Some(ram(dirty_bytes, settings)),
            };
            self.find(&stack, job).unwrap_or_else(|| self.add(stack, job.clone(), rhythm))
        };
        let theirs = add("opencas-22.06", settings.clone());
        let as_it_comes = CacheSettings { mode: settings.mode, ..CacheSettings::default() };
        let ours = tried.iter().map(|change| {
            let changes = change.split_whitespace().filter(|_| *change != AS_IT_COMES);
            let changes: Result<Vec<SettingChange>, _> = changes.map(str::parse).collect();
            let settings = changes.and_then(|changes| as_it_comes.with_all(&changes));
            settings.expect("settings that there are")
        });
        (theirs, ours.map(|settings| add("headpond", settings)).collect())
    }
}

/// The policy that a row names, as the rival works.
pub(super) fn theirs(
    table: &Table,
    row: &Row,
    mode: Mode,
    cleaning: &str,
) -> Result<CacheSettings, ReferenceError> {
    let preset: CleaningPreset = cleaning
        .replace(' ', "-")
        .parse()
        .map_err(|_| table.damaged(row, &format!("{cleaning}: no cleaning that is known")))?;
    // Who finds no room does not wait.
    let cleaning = CleaningConfig { full_wait_ms: 0, ..CleaningConfig::default() };
    let (cleaning, seq_cutoff) = (preset.apply(cleaning), SeqCutoff::NEVER);
    Ok(CacheSettings { mode, cleaning, seq_cutoff, ..CacheSettings::default() })
}

/// What random blocks make dirty in the RAM disk: one in each line.
const fn one_block_a_line() -> u64 {
    CACHE_BYTES / LINE_BYTES * BLOCK_BYTES
}

/// The RAM disk, so large that so much may be dirty.
fn ram(dirty_bytes: u64, settings: CacheSettings) -> CacheStack {
    let bytes = dirty_bytes * 100 / DIRTY_PERCENT;
    CacheStack {
        size: Size(bytes.next_multiple_of(1 << 20)),
        line: Size(BLOCK_BYTES),
        settings,
        model: None,
        state: State::default(),
        read_us: 0.0,
        write_us: 0.0,
        flush_us: 0.0,
        mb_per_s: COPIED_BY_THE_ENGINE,
        endurance: None,
    }
}
