//! `headpond set`.

use crate::args::SetArgs;
use crate::client::Client;
use crate::daemon::SetBody;
use crate::outcome::Exit;
use crate::place::Places;
use anyhow::Result;
use serde_json::Value;

/// Changes settings of a served volume; the description is changed with them.
///
/// # Errors
/// What the daemon refuses.
pub fn run(places: &Places, args: &SetArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let changes = args.changes.iter().map(ToString::to_string).collect();
    let status: Value = client.post("/v1/settings", &SetBody { changes })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        super::status::print_settings(&status);
    }
    Ok(Exit::Ok)
}
