//! The list of all volumes.

use super::{exit_of, status_of};
use crate::telling::{print_json, word};
use anyhow::Result;
use headpond_api::answers::{ServiceState, Status, Versioned};
use headpond_api::outcome::{Exit, told};
use headpond_api::place::Places;
use headpond_report::{Align, Table, size};
use serde::Serialize;

/// A volume in the list.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Known(Box<Status>),
    /// A description that cannot be read does not hide the others.
    Unknown {
        name: String,
        error: String,
    },
}

/// A line for each volume, and the worst alert of each below.
///
/// # Errors
/// Where the output cannot be written.
pub fn all(places: &Places, as_json: bool) -> Result<Exit> {
    let list = |name: String| match status_of(places, &name) {
        Ok(status) => Listed::Known(Box::new(status)),
        Err(error) => Listed::Unknown { name, error: told(&error) },
    };
    let listed: Vec<Listed> = places.names().into_iter().map(list).collect();
    if as_json {
        print_json(&listed.iter().map(Versioned::new).collect::<Vec<_>>())?;
    } else if listed.is_empty() {
        println!("no volumes; make one with `headpond create`");
    } else {
        print(&listed);
    }
    Ok(worst(listed.iter().map(exit)))
}

/// A volume that was stopped is well.
fn exit(listed: &Listed) -> Exit {
    match listed {
        Listed::Unknown { .. } => Exit::Error,
        Listed::Known(status) if status.state == ServiceState::NotAnswering => Exit::NotServed,
        Listed::Known(status) => exit_of(status),
    }
}

fn worst(exits: impl Iterator<Item = Exit>) -> Exit {
    const WORST_FIRST: [Exit; 3] = [Exit::Error, Exit::NotServed, Exit::Degraded];
    let found: Vec<Exit> = exits.collect();
    WORST_FIRST.into_iter().find(|exit| found.contains(exit)).unwrap_or(Exit::Ok)
}

fn print(listed: &[Listed]) {
    let columns = [
        ("volume", Align::Left),
        ("state", Align::Left),
        ("size", Align::Right),
        ("level", Align::Left),
        ("health", Align::Left),
        ("mode", Align::Left),
        ("dirty", Align::Right),
        ("alerts", Align::Right),
    ];
    let mut table = Table::new(columns);
    let known = || listed.iter().filter_map(known);
    known().for_each(|status| _ = table.row(row(status)));
    if !table.is_empty() {
        print!("{}", table.render());
    }
    for status in known() {
        let Some(worst) = status.alerts.first() else { continue };
        println!("{}: {}: {}", status.name, word(worst.kind), worst.cause);
    }
    for listed in listed {
        if let Listed::Unknown { name, error } = listed {
            println!("{name}: {error}");
        }
    }
}

fn known(listed: &Listed) -> Option<&Status> {
    match listed {
        Listed::Known(status) => Some(status),
        Listed::Unknown { .. } => None,
    }
}

fn row(status: &Status) -> [String; 8] {
    let unknown = || "-".to_owned();
    let mode = status.cache.as_ref().map_or("-", |cache| cache.settings.mode.name());
    [
        status.name.clone(),
        word(status.state).replace('_', " "),
        status.size_bytes.map_or_else(unknown, size),
        status.cores[0].level.to_string(),
        status.health.map_or_else(unknown, word),
        mode.to_owned(),
        status.dirty_bytes().map_or_else(unknown, size),
        status.alerts.len().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_volume_decides_the_exit_code() {
        let of = |exits: &[Exit]| worst(exits.iter().copied());
        assert_eq!(of(&[]), Exit::Ok);
        assert_eq!(of(&[Exit::Ok, Exit::Degraded]), Exit::Degraded);
        assert_eq!(of(&[Exit::Degraded, Exit::NotServed]), Exit::NotServed);
        assert_eq!(of(&[Exit::NotServed, Exit::Error, Exit::Ok]), Exit::Error);
    }
}
