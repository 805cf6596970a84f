//! `headpond set`.

use crate::args::SetArgs;
use crate::client::Client;
use crate::daemon::SetBody;
use crate::outcome::{Exit, Failure};
use crate::place::Places;
use anyhow::Result;
use headpond_volume::SettingChange;
use serde_json::Value;

/// Changes settings of a served volume; the description is changed with them.
///
/// # Errors
/// What the daemon refuses.
pub fn run(places: &Places, args: &SetArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let changes = super::class::read_named_files(&args.changes)?;
    check(places, &args.name, &changes)?;
    let changes = changes.iter().map(ToString::to_string).collect();
    let status: Value = client.post("/v1/settings", &SetBody { changes, flush: args.flush })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        super::status::print_settings(&status);
    }
    Ok(Exit::Ok)
}

/// Finds what can never be set before anything is asked of the daemon.
fn check(places: &Places, name: &str, changes: &[SettingChange]) -> Result<()> {
    let Some(cache) = places.load(name)?.cache else { return Ok(()) };
    let possible = cache.settings.with_all(changes);
    possible.map(drop).map_err(|error| Failure::usage(error.to_string()))
}
