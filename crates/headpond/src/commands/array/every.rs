//! One command about the arrays of all served volumes.

use anyhow::Result;
use headpond_api::answers::{CoreAnswer, Status};
use headpond_api::client::Client;
use headpond_api::operations::{self, Operation};
use headpond_api::outcome::{Exit, told};
use headpond_api::place::Places;
use headpond_raid::Level;
use serde::Serialize;

/// Executes an operation on each array with redundancy of each volume that is served. One that
/// fails keeps no other from it.
pub fn on_each<B: Serialize>(
    places: &Places,
    operation: &Operation<B, Status>,
    body: impl Fn(Option<String>) -> B,
    done: &str,
) -> Result<Exit> {
    let mut exit = Exit::Ok;
    let mut tell = |place: &str, outcome: Result<Status>| match outcome {
        Ok(_) => println!("{place}: {done}"),
        Err(error) => {
            eprintln!("headpond: error: {place}: {}", told(&error));
            exit = Exit::Error;
        }
    };
    for name in places.names() {
        let client = match Client::of(places, &name) {
            Ok(client) if client.is_served() => client,
            Ok(_) => {
                println!("{name}: not served");
                continue;
            }
            Err(error) => {
                tell(&name, Err(error));
                continue;
            }
        };
        let status = match client.call(&operations::STATUS) {
            Ok(status) => status,
            Err(error) => {
                tell(&name, Err(error));
                continue;
            }
        };
        let redundant = |(_, core): &(usize, &CoreAnswer)| core.level != Level::Raid0;
        for (at, core) in status.cores.iter().enumerate().filter(redundant) {
            let (place, core) = match at {
                0 => (name.clone(), None),
                _ => (format!("{name}/{}", core.name), Some(core.name.clone())),
            };
            tell(&place, client.call_with(operation, &body(core)));
        }
    }
    Ok(exit)
}
