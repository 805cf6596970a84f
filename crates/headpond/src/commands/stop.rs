//! `headpond stop`.

use crate::args::StopArgs;
use crate::client::Client;
use crate::daemon::StopBody;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::Result;
use serde_json::Value;

/// Stops the daemon and waits until the volume is closed.
///
/// # Errors
/// Where it is not served, or cannot be stopped cleanly.
pub fn run(places: &Places, args: &StopArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    // What is in memory is cleaned before the volume is closed: beforehand it can be told how far
    // that is.
    let status: Value = client.get("/v1/status")?;
    let is_memory = |cache: &str| status[cache]["lost_on_power"] == true;
    if args.flush || is_memory("cache") || is_memory("tier") {
        super::flush::flush(&client)?;
    }
    let _: Value = client.post("/v1/stop", &StopBody { flush: false })?;
    println!("stopped {}", args.name);
    Ok(Exit::Ok)
}
