//! `headpond trace record` of a volume.

use super::args::RecordArgs;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::RecordBody;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::time::Duration;

/// Records for a given time, or until Ctrl-C.
///
/// # Errors
/// Where the volume is not served, or the file cannot be written.
pub fn record(places: &Places, args: &RecordArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let output =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.hptrace", args.name)));
    let output = std::path::absolute(output)?;
    client.call_with(&operations::START_RECORDING, &RecordBody { output: output.clone() })?;
    wait(args.seconds)?;
    let recorded = client.call(&operations::STOP_RECORDING)?;
    if args.json {
        print_json(&Versioned::new(recorded))?;
    } else {
        println!(
            "{}: {} requests recorded, {} dropped; look at it with `headpond analyze {}`",
            output.display(),
            recorded.records,
            recorded.dropped,
            output.display()
        );
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
