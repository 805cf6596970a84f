//! `headpond set`.

use crate::args::SetArgs;
use crate::client::Client;
use crate::daemon::SetBody;
use crate::outcome::{Exit, Failure};
use crate::place::Places;
use anyhow::Result;
use headpond_volume::{Description, SettingChange, SettingError};
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
    let Description { cache, tier, .. } = places.load(name)?;
    let (of_cache, of_tier) = SettingChange::by_owner(changes);
    let usage = |error: SettingError| Failure::usage(error.to_string());
    if let Some(cache) = cache {
        cache.settings.with_all(&of_cache).map_err(usage)?;
    }
    if let Some(tier) = tier {
        tier.settings.with_all(&of_tier).map_err(usage)?;
    }
    Ok(())
}
