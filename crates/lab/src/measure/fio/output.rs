//! What fio's JSON and its logs say of a round.

mod histograms;

pub(super) use histograms::log_of as histograms_of;

use super::bins;
use crate::plan::RoundPlan;
use headpond_whatif::rounds::{JobRound, Round};
use headpond_whatif::{Bins, Latency, Measured, Side, Window};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Output that is none of fio's.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("it has no {0}")]
    Lacks(&'static str),
}

/// The round that fio tells of; its logs are beside `stem`.
pub(super) fn round(text: &str, stem: &Path, plan: &RoundPlan) -> Result<Round, OutputError> {
    // Warnings may stand before it.
    let from = text.find('{').ok_or(OutputError::Lacks("JSON"))?;
    let said: Value = serde_json::from_str(&text[from..])?;
    let jobs = said["jobs"].as_array().ok_or(OutputError::Lacks("jobs"))?;
    let jobs = jobs.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    let (mut windows, mut latencies) = (Vec::new(), Vec::new());
    let mut begun = 0.0;
    for phase in 0.. {
        let Ok(text) = std::fs::read_to_string(log_of(stem, phase)) else { break };
        windows.extend(windows_of(&text, begun, plan));
        let histograms = std::fs::read_to_string(histograms_of(stem, phase)).unwrap_or_default();
        latencies.extend(histograms::windows_of(&histograms, begun, plan));
        begun += plan.seconds;
    }
    Ok(Round { jobs, windows, latencies, machine: None })
}

/// The log that fio writes of a phase.
pub(super) fn log_of(stem: &Path, phase: usize) -> PathBuf {
    let stem_name = stem.file_name().unwrap_or_default().to_string_lossy();
    stem.with_file_name(format!("{stem_name}-phase-{phase}_iops.log"))
}

fn job(said: &Value) -> Result<JobRound, OutputError> {
    let name = said["jobname"].as_str().ok_or(OutputError::Lacks("jobname"))?;
    let read = side(&said["read"]).ok_or(OutputError::Lacks("read"))?;
    let write = side(&said["write"]).ok_or(OutputError::Lacks("write"))?;
    let seconds = read.1.max(write.1);
    let flush = flush(&said["sync"], seconds);
    let errors = said["total_err"].as_u64().or(said["error"].as_u64()).unwrap_or(0);
    let measured =
        Measured { seconds, read: read.0, write: write.0, flush, errors: u64::from(errors > 0) };
    let bins = ["read", "write", "sync"].map(|side| bins(said[side]["lat_ns"].get("bins")));
    // It measures both, and never a write with its own flush.
    let stable = Bins::default();
    Ok(JobRound { name: name.to_owned(), measured, bins, stable })
}

/// One side, and the seconds that it ran.
fn side(said: &Value) -> Option<(Side, f64)> {
    let seconds = said["runtime"].as_f64()? / 1e3;
    let side = Side {
        requests: said["total_ios"].as_u64()?,
        iops: said["iops"].as_f64()?,
        mb_per_s: said["bw_bytes"].as_f64()? / 1e6,
        latency: latency(&said["lat_ns"]),
    };
    Some((side, seconds))
}

/// What fio measured of flushes. Their number is that of the latencies: `total_ios` knows fsync
/// alone, and is 0 where each write has an fdatasync.
fn flush(said: &Value, seconds: f64) -> Side {
    let measured = said["lat_ns"]["N"].as_u64();
    let requests = measured.or(said["total_ios"].as_u64()).unwrap_or(0);
    let iops = requests as f64 / seconds.max(1e-9);
    Side { requests, iops, mb_per_s: 0.0, latency: latency(&said["lat_ns"]) }
}

fn latency(said: &Value) -> Latency {
    let us = |nanos: Option<f64>| nanos.unwrap_or(0.0) / 1e3;
    let at = |name: &str| us(said["percentile"][name].as_f64());
    Latency {
        mean_us: us(said["mean"].as_f64()),
        deviation_us: us(said["stddev"].as_f64()),
        p50_us: at("50.000000"),
        p90_us: at("90.000000"),
        p99_us: at("99.000000"),
        p99_9_us: at("99.900000"),
        p99_99_us: at("99.990000"),
        max_us: us(said["max"].as_f64()),
    }
}

/// The windows of a phase: lines of "milliseconds, requests a second, 0 read or 1 write, ...", of
/// each process one after the other.
fn windows_of(log: &str, begun: f64, plan: &RoundPlan) -> Vec<Window> {
    let length = plan.seconds / f64::from(plan.windows);
    let window = |number: u32| Window {
        at_s: begun + f64::from(number + 1) * length,
        read_iops: 0.0,
        write_iops: 0.0,
        dirty_ratio: 0.0,
    };
    let mut windows: Vec<_> = (0..plan.windows).map(window).collect();
    let mut is_told = vec![false; windows.len()];
    for line in log.lines() {
        let mut fields = line.split(',').map(str::trim);
        let mut number = || fields.next().and_then(|field| field.parse::<f64>().ok());
        let (Some(millis), Some(iops), Some(direction)) = (number(), number(), number()) else {
            continue;
        };
        // A line is written at the end of what it averages.
        let index = ((millis / 1e3 / length).round() as usize).saturating_sub(1);
        let Some(window) = windows.get_mut(index) else { continue };
        is_told[index] = true;
        if direction == 0.0 { window.read_iops += iops } else { window.write_iops += iops }
    }
    // Of the end of a round fio often says nothing: that is not the same as no answers.
    let told = windows.into_iter().zip(is_told).filter(|(_, is_told)| *is_told);
    told.map(|(window, _)| window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"fio: a warning
{"jobs": [{"jobname": "randrw", "error": 0, "total_err": 0,
  "read": {"total_ios": 300, "io_bytes": 1228800, "iops": 150.0, "bw_bytes": 614400, "runtime": 2000,
    "lat_ns": {"mean": 2500.0, "stddev": 10.0, "max": 9000, "percentile": {"50.000000": 2400,
      "99.990000": 8900}, "bins": {"2400": 200, "2700": 100}}},
  "write": {"total_ios": 100, "io_bytes": 409600, "iops": 50.0, "bw_bytes": 204800, "runtime": 2000,
    "lat_ns": {"mean": 5000.0, "max": 6000, "bins": {"5000": 100}}},
  "sync": {"total_ios": 100, "lat_ns": {"mean": 100000.0, "bins": {"100000": 100}}}}]}"#;

    #[test]
    fn every_figure_of_fio_finds_its_place() {
        let plan = RoundPlan::default();
        let round = round(SAID, Path::new("/nonexistent/stem"), &plan).unwrap();
        let JobRound { name, measured, bins, .. } = &round.jobs[0];
        assert_eq!(
            (name.as_str(), measured.read.requests, measured.write.iops),
            ("randrw", 300, 50.0)
        );
        assert_eq!((measured.read.latency.mean_us, measured.read.latency.p99_99_us), (2.5, 8.9));
        assert_eq!((measured.flush.iops, measured.flush.latency.mean_us), (50.0, 100.0));
        assert_eq!(bins[0], Bins(vec![(2400, 200), (2700, 100)]));
        assert_eq!(measured.errors, 0);
    }

    /// Of fio 3.33: randwrite 4K 1x8 with a sync after each write, on a file. With
    /// `fdatasync=1` it says total_ios 0, and with `fsync=1` their number.
    const STABLE: &str = r#"{"jobs": [{"jobname": "own-0", "error": 0,
  "read": {"total_ios": 0, "iops": 0.0, "bw_bytes": 0, "runtime": 0, "lat_ns": {"min": 0, "max": 0,
    "mean": 0.0, "stddev": 0.0, "N": 0}},
  "write": {"total_ios": 4233, "iops": 8466.0, "bw_bytes": 34676736, "runtime": 500, "lat_ns":
    {"min": 42381, "max": 12200219, "mean": 355493.274982, "stddev": 861028.6, "N": 4233}},
  "sync": {"total_ios": TOTAL, "lat_ns": {"min": 531, "max": 12136658, "mean": 570027.613497,
    "stddev": 1241717.950254, "N": 4238, "percentile": {"50.000000": 261120, "90.000000": 493568,
    "99.000000": 6324224, "99.900000": 10289152, "99.990000": 12124160}}}}]}"#;

    #[test]
    fn flushes_are_as_many_as_have_a_latency_whatever_fio_calls_their_total() {
        let mean_ms = |total: &str| {
            let said = STABLE.replace("TOTAL", total);
            let round = round(&said, Path::new("/none/stem"), &RoundPlan::default()).unwrap();
            let flush = round.jobs[0].measured.flush;
            assert_eq!((flush.requests, flush.iops), (4238, 8476.0), "total_ios {total}");
            crate::results::mean_ms(&round.jobs).unwrap()
        };
        let (fdatasync, fsync) = (mean_ms("0"), mean_ms("4238"));
        // 0.355 ms for the write and 0.570 for what makes it stable.
        assert!((fdatasync - 0.9262).abs() < 0.0005 && fdatasync == fsync, "{fdatasync} {fsync}");
    }

    #[test]
    fn the_lines_of_several_processes_are_one_window() {
        let plan = RoundPlan { seconds: 2.0, windows: 2, ..RoundPlan::default() };
        let log = "1000, 50, 0, 4096, 0\n2001, 60, 0, 4096, 0\n1000, 5, 1, 4096, 0\n999, 7, 0, 1\n";
        let windows = windows_of(log, 10.0, &plan);
        let figures = windows.iter().map(|w| (w.at_s, w.read_iops, w.write_iops));
        assert_eq!(figures.collect::<Vec<_>>(), [(11.0, 57.0, 5.0), (12.0, 60.0, 0.0)]);
    }

    #[test]
    fn what_is_not_of_fio_is_an_error() {
        let plan = RoundPlan::default();
        for (text, says) in [("", "no JSON"), ("{\"jobs\":3}", "no jobs"), ("{", "EOF")] {
            let error = round(text, Path::new("x"), &plan).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
