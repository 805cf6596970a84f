//! `headpond drive`: properties of a drive, and its write cache.

mod args;
mod set;
mod show;

pub use args::DriveCommand;

use anyhow::Result;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_drive::{Drive, FindError};
use std::io::ErrorKind;
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// If the drive is missing or does not apply the change; changes made until then are reported.
pub fn run(places: &Places, command: &DriveCommand) -> Result<Exit> {
    match command {
        DriveCommand::Show(args) => show::run(args),
        DriveCommand::Set(args) => set::set(places, args),
        DriveCommand::Restore(args) => set::restore(places, args),
    }
}

/// The drive of this name; a path of no drive is a mistake in the command.
fn drive(path: &Path) -> Result<Drive> {
    Drive::find(path).map_err(|error| match &error {
        FindError::Open { source, .. } if source.kind() != ErrorKind::NotFound => error.into(),
        _ => Failure::usage(error),
    })
}
