//! `headpond set`.

mod explained;
mod stopped;

use crate::args::{SetArgs, SetWord};
use crate::commands::waiting;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::SetBody;
use headpond_volume::SettingChange;

/// Changes settings of a volume and in its description, or shows them.
///
/// # Errors
/// What is refused; of a served volume by its daemon.
pub fn run(places: &Places, args: &SetArgs) -> Result<Exit> {
    let (mut changes, mut keys) = (Vec::new(), Vec::new());
    for word in &args.changes {
        match word {
            SetWord::Change(change) => changes.push(change.clone()),
            SetWord::Key(key) => keys.push(key.as_str()),
        }
    }
    match (changes.is_empty(), keys.first()) {
        (true, Some(key)) if args.flush => {
            Err(Failure::usage(format!("--flush goes with a change: write {key}=VALUE")))
        }
        (true, _) => explained::show(places, &args.name, &keys, args.json),
        (false, None) => change(places, args, &changes),
        (false, Some(key)) => Err(Failure::usage(format!(
            "{key} has no value: write {key}=VALUE; alone it is explained"
        ))),
    }
}

fn change(places: &Places, args: &SetArgs, changes: &[SettingChange]) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let changes = super::class::read_named_files(changes)?;
    if !client.is_served() {
        return stopped::set(places, args, &changes);
    }
    let body = SetBody { changes, flush: args.flush, pace: args.pace };
    let status = waiting::post(&client, &operations::SET, &body)?;
    if args.json {
        print_json(&Versioned::new(status))?;
    } else {
        super::status::print_settings(&status);
    }
    Ok(Exit::Ok)
}
