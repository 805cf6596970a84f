//! `headpond trace`: one file a subcommand, and what they share.

mod args;
mod convert;
mod damage;
mod kernel;
mod stats;
mod volume;

pub use args::TraceCommand;

use anyhow::Result;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use std::path::Path;

/// Runs one of the commands that need no place of a volume.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where; where nothing can be written.
pub fn run(places: &Places, command: &TraceCommand) -> Result<Exit> {
    match command {
        TraceCommand::Record(args) if args.name.contains('/') => {
            kernel::record(Path::new(&args.name), args)
        }
        TraceCommand::Record(args) => volume::record(places, args),
        TraceCommand::Stats(args) => stats::run(args),
        TraceCommand::Convert(args) => convert::run(args),
    }
}
