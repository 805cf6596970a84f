//! `headpond drive`: what a drive is, and its write cache.

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
/// Where the drive is not there, or does not do as asked; what was changed until then is said.
pub fn run(places: &Places, command: &DriveCommand) -> Result<Exit> {
    match command {
        DriveCommand::Show(args) => show::run(args),
        DriveCommand::Set(args) => set::set(places, args),
        DriveCommand::Restore(args) => set::restore(places, args),
    }
}
