//! Loads of fio.

use std::process::Command;

use anyhow::{Context, Result};

use super::host::said;

/// Requests per second of a load.
///
/// # Errors
/// What fio says.
pub fn iops(load: &mut Command, seconds: u32) -> Result<f64> {
    load.args(["--name=load", "--output-format=json", "--time_based", "--randrepeat=0"]);
    load.arg(format!("--runtime={seconds}"));
    let told = said(&load.output().context("starting fio")?)?;
    // Notes may come before it.
    let start = told.find('{').context("fio tells no result")?;
    let told: serde_json::Value = serde_json::from_str(&told[start..])?;
    let write = &told["jobs"][0]["write"];
    let iops = write["iops"].as_f64().filter(|iops| *iops > 0.0);
    iops.with_context(|| format!("fio has written nothing: {write}"))
}
