//! What only writing can tell.

use super::FitError;
use super::disk::MeasuredDiskWrites;
use super::probe::{BLOCK, MIB, Probe, ProbeLoad, median};
use super::ssd::MeasuredSsdWrites;

/// Scattered writes after which a disk's cache is taken to be without bounds.
const RUNS_MAX: u64 = 16_384;

/// Windows of sequential writing that are timed, and their size.
const WINDOWS: u64 = 64;
const WINDOW: u64 = 64 * MIB;

pub(super) async fn of_disk(
    probe: &Probe<'_>,
    revolution_s: f64,
) -> Result<MeasuredDiskWrites, FitError> {
    probe.flush().await?;
    let mut first = Vec::new();
    for runs in 0..RUNS_MAX {
        let took = probe.write(probe.anywhere(), BLOCK).await?;
        if first.len() < 8 {
            first.push(took);
            continue;
        }
        let cached_s = median(first.clone());
        if cached_s > revolution_s / 4.0 {
            return Ok(MeasuredDiskWrites { cache_enabled: false, runs: 1 });
        }
        if took > cached_s * 4.0 + revolution_s / 10.0 {
            return Ok(MeasuredDiskWrites { cache_enabled: true, runs });
        }
    }
    Ok(MeasuredDiskWrites { cache_enabled: true, runs: RUNS_MAX })
}

pub(super) async fn of_ssd(probe: &Probe<'_>) -> Result<MeasuredSsdWrites, FitError> {
    probe.tell("write latency and flushes");
    let (mut writes, mut flushes) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        writes.push(probe.write(probe.anywhere(), BLOCK).await?);
        flushes.push(probe.flush().await?);
    }
    probe.tell("random writes at depth");
    let count = 20_000;
    let load = ProbeLoad { is_write: true, bytes: BLOCK, depth: 32, count, from: None };
    let iops = count as f64 / probe.carry_out(load).await?;
    probe.tell("sequential writes");
    let windows = WINDOWS.min(probe.size_bytes() / WINDOW);
    let mut rates = Vec::new();
    for window in 0..windows {
        let from = Some(window * WINDOW);
        let count = WINDOW / MIB * 10 / 11;
        let load = ProbeLoad { is_write: true, bytes: MIB, depth: 8, count, from };
        rates.push((count * MIB) as f64 / 1e6 / probe.carry_out(load).await?);
    }
    let burst = rates[0];
    let last = &rates[rates.len() - rates.len().div_ceil(4)..];
    let sustained = median(last.to_vec());
    let fast = rates.iter().take_while(|rate| **rate > (burst + sustained) / 2.0).count() as u64;
    Ok(MeasuredSsdWrites {
        write_s: median(writes),
        flush_s: median(flushes),
        iops,
        burst_mb_per_s: burst,
        sustained_mb_per_s: sustained,
        // Less than a tenth apart is noise.
        burst_bytes: (burst > 1.1 * sustained).then_some(fast * WINDOW),
    })
}
