//! `headpond label`: the superblocks of one device.

mod clear;
mod show;

use anyhow::Result;
use clap::{Args, Subcommand};
use headpond_api::outcome::Exit;
use headpond_api::place::Places;

/// Show or clear the superblocks of one device.
#[derive(Subcommand)]
pub enum LabelCommand {
    Show(ShowArgs),
    Clear(ClearArgs),
}

/// Show the superblocks of a device: member, cache or stripe journal, and the recorded owner.
/// Nothing is changed, and a served volume is not disturbed.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond label show /dev/sdb --json")]
pub struct ShowArgs {
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Clear the superblocks of a device: it belongs to no volume any more. What it held of a volume is
/// lost. Refused while a volume of any host that reaches the device uses it.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond label clear /dev/sdb --yes\n\n\
    `headpond destroy` removes a whole volume.")]
pub struct ClearArgs {
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Confirm: what the device holds of a volume is lost.
    #[arg(long)]
    pub yes: bool,
}

/// # Errors
/// Where the device cannot be read; refusals of `clear`, which change nothing.
pub fn run(places: &Places, command: &LabelCommand) -> Result<Exit> {
    match command {
        LabelCommand::Show(args) => show::run(places, args),
        LabelCommand::Clear(args) => clear::run(places, args),
    }
}
