//! `headpond flush`.

use crate::args::FlushArgs;
use crate::client::Client;
use crate::commands::waiting;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::Result;
use serde_json::Value;

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
    waiting::post(client, "/v1/flush", &())
}
