//! `headpond flush`.

use crate::args::FlushArgs;
use crate::client::Client;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Writes all dirty data to the array.
///
/// # Errors
/// What stays dirty and why.
pub fn run(places: &Places, args: &FlushArgs) -> Result<Exit> {
    let answer = flush(&Client::of(places, &args.name)?)?;
    if args.json {
        println!("{answer}");
    } else {
        let bytes = answer["cleaned_bytes"].as_u64().unwrap_or(0);
        println!("{}: {:.1} MB cleaned", args.name, bytes as f64 / 1e6);
    }
    Ok(Exit::Ok)
}

/// Flushes with a bar that follows the dirty data on its way down.
///
/// # Errors
/// As [`run`].
pub fn flush(client: &Client) -> Result<Value> {
    let dirty = || -> Result<u64> {
        let status: Value = client.get("/v1/status")?;
        Ok(status["cache"]["dirty_bytes"].as_u64().unwrap_or(0))
    };
    let total = dirty()?;
    let bar = ProgressBar::new(total);
    let template = "{bar:30} {bytes} of {total_bytes} cleaned, {eta} left";
    bar.set_style(ProgressStyle::with_template(template)?);
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| client.post::<Value>("/v1/flush", &()));
        while !flushing.is_finished() {
            std::thread::sleep(LOOK_EVERY.min(Duration::from_millis(50)));
            if bar.elapsed() > LOOK_EVERY {
                bar.set_position(total.saturating_sub(dirty().unwrap_or(0)));
            }
        }
        bar.finish_and_clear();
        flushing.join().map_err(|_| anyhow!("the flush was interrupted"))?
    })
}
