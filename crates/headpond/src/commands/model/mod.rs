//! `headpond model`: the catalogue of models, how far a model is from a real drive, and models
//! fitted to devices.

mod args;
mod catalogue;
mod demerit;
mod files;
mod fit;

pub use args::ModelCommand;

use anyhow::Result;
use headpond_api::outcome::Exit;

/// # Errors
/// Where a model is unknown, or files cannot be read or understood.
pub fn run(command: &ModelCommand) -> Result<Exit> {
    match command {
        ModelCommand::List(args) => catalogue::list(args),
        ModelCommand::Show(args) => catalogue::show(args),
        ModelCommand::Demerit(args) => demerit::run(args),
        ModelCommand::Fit(args) => fit::run(args),
    }
}
