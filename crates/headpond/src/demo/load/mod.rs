//! The load: four workloads, made by fio's NBD engine or by our own client.

mod fio;
mod own;

pub use fio::Fio;
pub use own::OwnLoad;

use anyhow::Result;
use headpond_block::ByteRange;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// What a row of the table does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    pub name: &'static str,
    pub pattern: Pattern,
    pub block_bytes: u32,
    pub depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    RandomWrite,
    /// Reads and writes in equal shares.
    RandomMixed,
    SequentialWrite,
}

pub const WORKLOADS: [Workload; 4] = [
    workload("4 KiB random write, depth 1", Pattern::RandomWrite, 4 << 10, 1),
    workload("4 KiB random write, depth 32", Pattern::RandomWrite, 4 << 10, 32),
    workload("4 KiB random 50/50, depth 32", Pattern::RandomMixed, 4 << 10, 32),
    workload("64 KiB sequential write, depth 1", Pattern::SequentialWrite, 64 << 10, 1),
];

const fn workload(name: &'static str, pattern: Pattern, block_bytes: u32, depth: u32) -> Workload {
    Workload { name, pattern, block_bytes, depth }
}

/// When a run ends, whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub time: Duration,
    pub bytes: Option<u64>,
}

/// One measured run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub read_iops: f64,
    pub write_iops: f64,
    pub mb_per_s: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    pub seconds: f64,
}

impl Measured {
    pub fn iops(&self) -> f64 {
        self.read_iops + self.write_iops
    }
}

/// Where the load goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub socket: &'a Path,
    pub size_bytes: u64,
    /// Distinguishes runs, so that no run repeats the addresses of another.
    pub run: u64,
}

impl Target<'_> {
    /// Where sequential writes go, round and round: many times the cache, so that nothing is met
    /// there again, and small enough for a sparse file to hold.
    pub fn sequential_region(&self) -> ByteRange {
        let start = self.size_bytes / 10;
        ByteRange::at(start - start % SEQUENTIAL_BYTES, SEQUENTIAL_BYTES)
    }
}

const SEQUENTIAL_BYTES: u64 = 1 << 30;

/// A load generator.
pub trait LoadMaker {
    /// Its name, for the output.
    fn name(&self) -> String;

    /// Runs a workload to its limit.
    ///
    /// # Errors
    /// As of the load generator.
    fn run(&self, workload: &Workload, target: &Target, limit: Limit) -> Result<Measured>;
}
