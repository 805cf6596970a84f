//! The array of forty disks under sequential writes: with merge, without a cache and behind one.
//!
//! One rule for all cells: merge is adaptive, where the source searched the best wait for each.
//! Without a cache the load costs its core what fio's costs (engine `fio`); behind a cache, what
//! serving costs with that (`opencas-22.06`).
//!
//! Sequential writes fill whole lines of the cache, so that its size is what it holds. How large
//! it is decides only how long it takes to settle: it is a thirty-sixth of theirs.

use super::cached::{BLOCK_BYTES, CACHE_BYTES, LINE_BYTES, theirs};
use super::raid60::core;
use super::table::{Row, Table};
use super::{Beside, Figure, Planned, Reference, ReferenceError, Times};
use crate::job::{Job, Rw};
use crate::stack::Stack;
use headpond_cache::Mode;
use headpond_volume::{ArraySettings, CacheSettings};

pub(super) const WRITE: &str = "raid60_sequential_write";
pub(super) const WRITE_CACHED: &str = "raid60_sequential_write_cached";
pub(super) const LARGE_WRITE: &str = "raid60_large_sequential_write";

/// Streams are even: what takes minutes is to fill the original's cache. A smaller one settles
/// sooner.
const SHORTER: u64 = 36;

/// The cleaning of all cells that are behind a cache, and how many lines a round of it has in the
/// row of the smallest blocks, from the remarks above the tables.
const CLEANING: &str = "acp very aggressive";
const SMALLEST_KIB: u64 = 4;
const SMALLEST_LINES: u32 = 32;
/// Of our rounds, in blocks. What theirs have more changes the number of pauses, of 1 ms each.
const ROUND_MAX: u32 = 10_000;

impl Reference {
    pub(super) fn plan_sequential_write(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let block_kib = table.number(row, "block_kib")?;
            let of = Streams { name: WRITE, strip_kib: 64, block_kib, cache: None };
            self.plan_streams(table, row, &of, times)?;
        }
        Ok(())
    }

    pub(super) fn plan_sequential_write_cached(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let block_kib = table.number(row, "block_kib")?;
            let mut settings = theirs(table, row, Mode::WriteBack, CLEANING)?;
            if block_kib == SMALLEST_KIB {
                settings.cleaning.acp.flush_max_buffers = SMALLEST_LINES;
            }
            let settings = of_full_lines(settings);
            let cache = Some(settings);
            let of = Streams { name: WRITE_CACHED, strip_kib: 64, block_kib, cache };
            self.plan_streams(table, row, &of, times)?;
        }
        Ok(())
    }

    pub(super) fn plan_large_sequential_write(
        &mut self,
        table: &Table,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for row in &table.rows {
            let strip_kib = table.number(row, "strip_kib")?;
            let block_kib = table.number(row, "block_kib")?;
            let cache = match table.text(row, "cached")? {
                "no" => None,
                "yes" => Some(of_full_lines(theirs(table, row, Mode::WriteBack, CLEANING)?)),
                other => return Err(table.damaged(row, &format!("{other}: neither yes nor no"))),
            };
            let of = Streams { name: LARGE_WRITE, strip_kib, block_kib, cache };
            self.plan_streams(table, row, &of, times)?;
        }
        Ok(())
    }

    /// The cells of one row.
    fn plan_streams(
        &mut self,
        table: &Table,
        row: &Row,
        of: &Streams,
        times: Times,
    ) -> Result<(), ReferenceError> {
        for column in table.columns.iter().filter(|column| column.starts_with("qd")) {
            let Some(published) = table.figure(row, column)? else { continue };
            let depth = column[2..].parse().map_err(|_| table.damaged(row, "no depth"))?;
            let job = sequential(depth, of.block_kib << 10);
            let (trial, beside) = match &of.cache {
                None => (self.add_alone(of.strip_kib, job, times), None),
                Some(settings) => {
                    let bytes = CACHE_BYTES / SHORTER;
                    let (theirs, ours) =
                        self.add_cached(of.strip_kib, bytes, settings, (&job, times.streams));
                    let without = self.planned(of.without(), &of.row_without(), column);
                    (theirs, Some(Beside { ours, without }))
                }
            };
            self.cells.push(Planned {
                table: of.name,
                row: of.row(),
                column: column.clone(),
                published,
                trial,
                figure: Figure::WriteMbPerS,
                beside,
            });
        }
        Ok(())
    }

    fn add_alone(&mut self, strip_kib: u64, job: Job, times: Times) -> usize {
        let stack = Stack {
            name: format!("strip {strip_kib}K"),
            engine: Some("fio".into()),
            arrays: 1,
            core: core(strip_kib),
            array: ArraySettings::default(),
            cache: None,
        };
        self.add(stack, job, times.streams)
    }
}

/// What a row is about.
struct Streams {
    name: &'static str,
    strip_kib: u64,
    block_kib: u64,
    cache: Option<CacheSettings>,
}

impl Streams {
    fn row(&self) -> String {
        match self.cache {
            None => self.row_without(),
            Some(_) => format!("{}, {CLEANING}", self.row_without()),
        }
    }

    fn row_without(&self) -> String {
        format!("strip {}K, block {}K", self.strip_kib, self.block_kib)
    }

    /// The table that has the same without a cache.
    fn without(&self) -> &'static str {
        if self.name == WRITE_CACHED { WRITE } else { self.name }
    }
}

/// What a round of so many lines writes where streams have filled them: a line has 16 blocks, and a
/// round of ours is counted in blocks. Random blocks are alone in their lines.
fn of_full_lines(mut settings: CacheSettings) -> CacheSettings {
    let acp = &mut settings.cleaning.acp;
    let blocks = acp.flush_max_buffers * (LINE_BYTES / BLOCK_BYTES) as u32;
    acp.flush_max_buffers = blocks.min(ROUND_MAX);
    settings
}

fn sequential(depth: u32, block_bytes: u64) -> Job {
    Job {
        name: format!("depth {depth}"),
        rw: Rw { is_random: false, reads: false, writes: true },
        read_percent: 0,
        block_bytes,
        depth,
        // What a full cache holds was written before that.
        offset: (CACHE_BYTES / SHORTER).next_multiple_of(1 << 30),
        is_time_based: true,
        ..Job::default()
    }
}
