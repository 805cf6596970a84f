//! `headpond trace record` and `headpond trace stats`.

use crate::args::{RecordArgs, TraceStatsArgs};
use crate::client::Client;
use crate::daemon::RecordBody;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::Result;
use headpond_advise::render::render_stats;
use headpond_trace::TraceStats;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Records for a while, or until Ctrl-C.
///
/// # Errors
/// Where the volume is not served, or the file cannot be written.
pub fn record(places: &Places, args: &RecordArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let output =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.hptrace", args.name)));
    let output = std::path::absolute(output)?;
    client.post::<Value>("/v1/recording/start", &RecordBody { output: output.clone() })?;
    wait(args.seconds)?;
    let summary: Value = client.post("/v1/recording/stop", &())?;
    if args.json {
        println!("{summary}");
    } else {
        println!(
            "{}: {} requests recorded, {} dropped; look at it with `headpond analyze {}`",
            output.display(),
            summary["records"],
            summary["dropped"],
            output.display()
        );
    }
    Ok(Exit::Ok)
}

/// Counts what is in a trace.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where.
pub fn stats(args: &TraceStatsArgs) -> Result<Exit> {
    let mut reader = super::analyze::open(Path::new(&args.file), args.lenient)?;
    let stats = TraceStats::collect(std::iter::from_fn(|| reader.next_record().transpose()))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&stats)?);
    } else {
        print!("{}", render_stats(reader.format(), &stats, &reader.tally()));
    }
    Ok(Exit::Ok)
}

fn wait(seconds: u64) -> Result<()> {
    let bar = ProgressBar::new(seconds);
    bar.set_style(ProgressStyle::with_template(
        "recording {bar:30} {pos} of {len} s, Ctrl-C ends",
    )?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..seconds {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => bar.inc(1),
                _ = tokio::signal::ctrl_c() => break,
            }
        }
    });
    bar.finish_and_clear();
    Ok(())
}
