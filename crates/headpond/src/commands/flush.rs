//! `headpond flush`.

use crate::args::FlushArgs;
use crate::commands::waiting;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::FlushBody;

/// Writes all dirty data to the array, with a progress bar.
///
/// # Errors
/// How much stays dirty, and why.
pub fn run(places: &Places, args: &FlushArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let answer = waiting::post(&client, &operations::FLUSH, &FlushBody { pace: args.pace })?;
    if args.json {
        print_json(&Versioned::new(answer))?;
    } else {
        println!("{}: {:.1} MB cleaned", args.name, answer.cleaned_bytes as f64 / 1e6);
    }
    Ok(Exit::Ok)
}
