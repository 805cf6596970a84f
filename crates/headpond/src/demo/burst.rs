//! The second half of a row: the burst, and the long run with a full cache.

use super::load::{Limit, LoadMaker, Measured, Pattern, Target, Workload};
use super::machine::Machine;
use anyhow::{Context, Result};
use headpond_volume::CacheStatus;
use std::time::{Duration, Instant};

/// The maximum length of a burst: enough to measure.
const BURST_SECONDS: u64 = 5;
/// Share of the cache that a burst may fill, so that it never meets a full one.
const BURST_SHARE: f64 = 0.5;
const FILL_SECONDS_MAX: u64 = 45;

/// Measures while the cache absorbs everything. The cache has no dirty data before.
///
/// # Errors
/// As of the load generator or the daemon.
pub fn burst(
    machine: &Machine,
    load: &dyn LoadMaker,
    workload: &Workload,
    target: &Target,
) -> Result<Measured> {
    machine.flush()?;
    let room = dirty_bytes_max(machine)? as f64 * BURST_SHARE;
    let time = Duration::from_secs(BURST_SECONDS);
    load.run(workload, target, Limit { time, bytes: Some(room as u64) })
}

/// Fills the cache with dirty data of this workload's kind, then measures for `time`. Also tells
/// the dirty ratio when the measurement began.
///
/// # Errors
/// As [`burst`].
pub fn sustained(
    machine: &Machine,
    load: &dyn LoadMaker,
    workload: &Workload,
    target: &Target,
    time: Duration,
) -> Result<(Measured, f64)> {
    fill(machine, load, workload, target)?;
    let dirty_ratio = dirty_ratio(machine)?;
    // Other addresses than those that filled it.
    let target = Target { run: target.run + 1, ..*target };
    let measured = load.run(workload, &target, Limit { time, bytes: None })?;
    Ok((measured, dirty_ratio))
}

/// Blocks a second of `flush`, on a cache full of this workload's dirty data and without other
/// work.
///
/// # Errors
/// As [`burst`].
pub fn offline_cleaning(
    machine: &Machine,
    load: &dyn LoadMaker,
    workload: &Workload,
    target: &Target,
) -> Result<f64> {
    fill(machine, load, workload, target)?;
    let blocks = dirty_bytes(machine)? as f64 / 4096.0;
    let begun = Instant::now();
    machine.flush()?;
    Ok(blocks / begun.elapsed().as_secs_f64())
}

/// Fills without cleaning, so that the cache is full regardless of the array.
fn fill(
    machine: &Machine,
    load: &dyn LoadMaker,
    workload: &Workload,
    target: &Target,
) -> Result<()> {
    let cache = machine.status()?.cache.context("the volume has no cache")?;
    let cleaning = cache.settings.cleaning.policy;
    machine.set(&["cleaning=nop".to_owned()])?;
    let depth = if workload.pattern == Pattern::SequentialWrite { workload.depth } else { 32 };
    let pattern = match workload.pattern {
        Pattern::RandomMixed => Pattern::RandomWrite,
        pattern => pattern,
    };
    let filler = Workload { depth, pattern, ..*workload };
    let bytes = dirty_bytes_max(machine)?;
    let time = Duration::from_secs(FILL_SECONDS_MAX);
    load.run(&filler, target, Limit { time, bytes: Some(bytes) })?;
    machine.set(&[format!("cleaning={cleaning}")])?;
    Ok(())
}

fn dirty_ratio(machine: &Machine) -> Result<f64> {
    let cache = live_cache(machine)?;
    Ok(cache.dirty_bytes as f64 / cache.dirty_bytes_max as f64)
}

fn dirty_bytes(machine: &Machine) -> Result<u64> {
    Ok(live_cache(machine)?.dirty_bytes)
}

fn dirty_bytes_max(machine: &Machine) -> Result<u64> {
    Ok(live_cache(machine)?.dirty_bytes_max)
}

fn live_cache(machine: &Machine) -> Result<CacheStatus> {
    machine.status()?.live_cache().cloned().context("the volume has no cache")
}
