//! `headpond witness`: tests whether a device keeps flushed data across a power loss.
//!
//! **Not here**: verification (`headpond_witness::field`); here are the command line, sockets and
//! devices.

mod agent;
mod args;
mod campaign;
mod connect;
mod key;
mod probe;
mod report;
mod serve;
mod simple;
mod target;
mod verify;
mod words;
mod write;

pub use args::WitnessArgs;

use anyhow::Result;
use args::WitnessCommand;
use headpond_api::outcome::Exit;

/// # Errors
/// Refusals and errors.
pub fn run(args: &WitnessArgs) -> Result<Exit> {
    match &args.command {
        WitnessCommand::Key(args) => key::run(args),
        WitnessCommand::Serve(args) => serve::run(args),
        WitnessCommand::Write(args) => write::run(args),
        WitnessCommand::Verify(args) => verify::run(args),
        WitnessCommand::Agent(args) => agent::run(args),
        WitnessCommand::Campaign(args) => campaign::run(args),
        WitnessCommand::Report(args) => report::run(args),
        WitnessCommand::Simple(command) => simple::run(command),
        WitnessCommand::Probe(args) => probe::run(args),
    }
}
