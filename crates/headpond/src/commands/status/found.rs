//! The status of a volume: its daemon's, or what is known without one.

use anyhow::Result;
use headpond_api::answers::{ServiceState, Status};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_daemon::loading::{self, look};
use headpond_report::size;
use headpond_volume::{Alert, Description};

/// From the daemon, if it answers; else from the description and what the last daemon left.
///
/// # Errors
/// Where there is no such volume, or no daemon answers and its description cannot be read.
pub fn status_of(places: &Places, name: &str) -> Result<Status> {
    let client = Client::of(places, name)?;
    if client.is_served() {
        match client.call(&operations::STATUS) {
            Err(error) if Failure::exit_of(&error) != Exit::NotServed => return Err(error),
            // It may have ended meanwhile.
            Err(error) if client.is_served() => {
                return Ok(silent(places, &places.load(name)?, told(&error)));
            }
            Err(_) => {}
            Ok(status) => return Ok(status),
        }
    }
    let description = places.load(name)?;
    let mut status = described(places, &description);
    if let Some(loading) = look(places, name) {
        (status.state, status.loading) = (ServiceState::Loading, Some(loading));
        return Ok(status);
    }
    status.alerts.extend(places.refusal(name));
    let is_known = places.has_left_socket(name) || loading::is_left(places, name);
    let has_cache = description.cache.is_some();
    if is_known || has_cache && places.left_dirty_bytes(name).is_none() {
        status.alerts.push(Alert::of_ended_daemon(name, is_known, has_cache));
    }
    if let Some(cache) = &status.cache {
        status.warnings.extend(warning_of_left(name, cache.dirty_bytes));
    }
    Ok(status)
}

fn described(places: &Places, description: &Description) -> Status {
    let (mut status, left) = (Status::described(description), places.left(&description.name));
    status.size_bytes = left.size_bytes;
    if let Some(cache) = &mut status.cache {
        cache.dirty_bytes = left.dirty_bytes;
    }
    status
}

fn silent(places: &Places, description: &Description, cause: String) -> Status {
    Status {
        state: ServiceState::NotAnswering,
        alerts: vec![Alert::of_silent_daemon(&description.name, cause)],
        ..described(places, description)
    }
}

/// The warning before the cache device is removed; an alert says that the amount is unknown.
fn warning_of_left(name: &str, dirty: Option<u64>) -> Option<String> {
    let bytes = dirty.filter(|bytes| *bytes > 0)?;
    Some(format!(
        "the cache holds {} of dirty data: keep the device, or `headpond serve {name}` and `headpond \
         stop {name} --flush` first",
        size(bytes)
    ))
}
