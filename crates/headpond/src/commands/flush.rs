//! `headpond flush`.

use crate::args::FlushArgs;
use crate::commands::waiting;
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::FlushBody;

/// Writes all dirty data to the array, with a bar that follows it on its way down.
///
/// # Errors
/// What stays dirty and why.
pub fn run(places: &Places, args: &FlushArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let answer = waiting::post(&client, "/v1/flush", &FlushBody { pace: args.pace })?;
    if args.json {
        println!("{answer}");
    } else {
        let bytes = answer["cleaned_bytes"].as_u64().unwrap_or(0);
        println!("{}: {:.1} MB cleaned", args.name, bytes as f64 / 1e6);
    }
    Ok(Exit::Ok)
}
