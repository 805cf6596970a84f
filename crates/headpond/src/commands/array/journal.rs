//! The stripe journal of a served volume's array.

use super::live::OfArgs;
use crate::commands::create::spec;
use anyhow::Result;
use clap::Args;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::JournalBody;
use headpond_raid::JournalWhen;
use headpond_volume::parse_word;

const NOT_OF_COPIES: &str = "mirrors have no parity and need no stripe journal";

/// Give the array of a served volume this stripe journal. It replaces the present one, which may be
/// missing.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond array set-journal hv0 /dev/nvme1n1\n  \
    headpond array set-journal hv0 /dev/nvme1n1 --when always\n\n\
    Requests wait for a moment. The device that was the journal is free then.")]
pub struct SetJournalArgs {
    #[command(flatten)]
    of: OfArgs,
    /// All data on it is lost.
    #[arg(value_name = "DEV")]
    device: String,
    /// When it is used: degraded (for writes to degraded groups) or always. Default: as the
    /// previous journal, or degraded.
    #[arg(long, value_parser = parse_word::<JournalWhen>)]
    when: Option<JournalWhen>,
    /// Overwrite data on the device.
    #[arg(long)]
    force: bool,
}

pub fn set(places: &Places, args: &SetJournalArgs) -> Result<Exit> {
    let of = &args.of;
    of.check_no_cache(NOT_OF_COPIES)?;
    let (core, device) = (of.core(), spec(&args.device)?.to_string());
    let body = JournalBody { core, device, when: args.when, force: args.force };
    let status = of.post(places, &operations::SET_JOURNAL, &body)?;
    of.tell(&format!("{} is the stripe journal of the array", body.device), &status)
}

pub fn take_away(places: &Places, of: &OfArgs) -> Result<Exit> {
    of.check_no_cache(NOT_OF_COPIES)?;
    let status = of.post(places, &operations::DROP_JOURNAL, &of.body())?;
    of.tell("the stripe journal is removed", &status)
}
