//! `headpond drive`: properties of a drive, and its write cache.

mod args;
mod set;
mod show;

pub use args::DriveCommand;

use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;

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
