//! fio's histograms over time: a line for each process, direction and stretch of time, with how
//! many requests fell into each of its bins of completion latency.
//!
//! **Source**: fio's documentation, "Log File Formats", and `plat_idx_to_val` in its `stat.c`: bins
//! are as wide as 1/64 of the doubling that they are in.

use super::super::jobfile::HISTOGRAM_COARSENESS;
use crate::plan::RoundPlan;
use headpond_whatif::LatencyWindow;
use std::path::{Path, PathBuf};

/// Bins of each doubling, as a power of two.
const BITS: u32 = 6;

/// The log that fio writes of a phase.
pub(in super::super) fn log_of(stem: &Path, phase: usize) -> PathBuf {
    let stem_name = stem.file_name().unwrap_or_default().to_string_lossy();
    stem.with_file_name(format!("{stem_name}-phase-{phase}_clat_hist.log"))
}

/// The windows of a phase: lines of "milliseconds, 0 read or 1 write, block size, counts ...".
pub(super) fn windows_of(log: &str, begun: f64, plan: &RoundPlan) -> Vec<LatencyWindow> {
    let length = plan.seconds / f64::from(plan.windows);
    let mut seen = vec![Vec::new(); plan.windows as usize];
    for line in log.lines() {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
        let (Some(Some(millis)), Some(Some(0 | 1)), Some(Some(_))) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // A line is written at the end of what it counts.
        let index = ((millis as f64 / 1e3 / length).round() as usize).saturating_sub(1);
        let Some(window) = seen.get_mut(index) else { continue };
        let counts = fields.enumerate().filter_map(|(bin, count)| Some((nanos(bin), count?)));
        window.extend(counts.filter(|(_, count)| *count > 0));
    }
    let told = seen.into_iter().enumerate().filter(|(_, seen)| !seen.is_empty());
    told.map(|(index, seen)| LatencyWindow::of(begun + (index + 1) as f64 * length, seen)).collect()
}

/// Where a coarse bin begins.
fn nanos(bin: usize) -> u64 {
    let bin = (bin as u64) << HISTOGRAM_COARSENESS;
    match (bin >> BITS).checked_sub(1) {
        None => bin,
        Some(shift) => ((1 << BITS) + bin % (1 << BITS)) << shift.min(u64::from(63 - BITS) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_where_fio_has_them() {
        // Of the fine bins, number 64 is 64 ns, and number 128 begins the next doubling.
        assert_eq!((nanos(0), nanos(3), nanos(4), nanos(5)), (0, 48, 64, 80));
        assert_eq!((nanos(8), nanos(12), nanos(13)), (128, 256, 320));
    }

    #[test]
    fn lines_of_both_directions_and_all_processes_are_one_window() {
        let plan = RoundPlan { seconds: 2.0, windows: 2, ..RoundPlan::default() };
        let log = "1001, 0, 4096, 0, 0, 0, 0, 5\n1000, 1, 4096, 0, 0, 0, 0, 2, 1\nnonsense\n\
                   2000, 0, 4096, 0, 0, 0, 0, 0, 0, 0, 0, 9\n";
        let windows = windows_of(log, 10.0, &plan);
        let first = LatencyWindow { at_s: 11.0, bins: vec![(64, 8)] };
        let second = LatencyWindow { at_s: 12.0, bins: vec![(128, 9)] };
        assert_eq!(windows, [first, second]);
    }
}
