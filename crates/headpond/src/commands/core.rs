//! `headpond core`: further cores of a volume that is being served, behind the same cache.

use crate::args::ArrayArgs;
use crate::commands::striping::{self, ChosenStriping};
use crate::commands::{contents, create::specs, waiting};
use crate::device::{Consent, DeviceSpec, claims};
use crate::telling::print_json;
use anyhow::Result;
use clap::{Args, Subcommand};
use headpond_api::answers::{Status, Versioned};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::{AddCoreBody, RemoveCoreBody};

/// Add or remove further cores of a served volume: arrays with an export of their own that share
/// its cache.
#[derive(Subcommand)]
pub enum CoreCommand {
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// Make devices an array behind the cache of a served volume; all data on them is lost. The cache
/// is cleaned first, and starts empty.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond core add hv0 logs --raid 1 /dev/sdh /dev/sdi\n  \
    headpond core add hv0 archive --raid 6 --strip 256K /dev/sd[j-q]\n\n\
    The core is served as export hv0/logs beside hv0, and is core_id 2 in rules of I/O classes.")]
pub struct AddArgs {
    pub volume: String,
    /// Name of the core within the volume.
    pub name: String,
    /// Members of the array, in any order.
    #[arg(required = true, value_name = "DEV")]
    pub members: Vec<String>,
    #[command(flatten)]
    pub array: ArrayArgs,
    /// Overwrite data on the devices.
    #[arg(long)]
    pub force: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Remove a core from a served volume. It keeps its data, and becomes the volume VOLUME-NAME
/// without a cache. The cache is cleaned first, and starts empty.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond core remove hv0 logs\n  headpond serve hv0-logs")]
pub struct RemoveArgs {
    pub volume: String,
    pub name: String,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the daemon refuses.
pub fn run(places: &Places, command: &CoreCommand) -> Result<Exit> {
    match command {
        CoreCommand::Add(args) => {
            let members = specs(&args.members)?;
            let consent = if args.force { Consent::Forced } else { Consent::Careful };
            let claims = claims::check(places, &members, &args.volume, consent)?;
            let declustered = args.array.declustered();
            let ChosenStriping { striping, notes } = striping::find_on(&args.array, &members)?;
            let raid = args.array.level()?;
            let groups = args.array.groups(raid, members.len());
            let ArrayArgs { strip, no_intent, integrity, .. } = args.array;
            let body = AddCoreBody {
                name: args.name.clone(),
                raid,
                groups,
                declustered,
                striping,
                strip,
                intent: !no_intent,
                integrity,
                contents: contents::contents(&args.array),
                zeroed: args.array.zeroed,
                members: members.iter().map(DeviceSpec::to_string).collect(),
                force: args.force,
            };
            let client = Client::of(places, &args.volume)?;
            let status = waiting::post(&client, &operations::ADD_CORE, &body)?;
            claims::tell_lost(&claims);
            let notes = notes.into_iter().chain(contents::note(&args.array));
            notes.for_each(|note| eprintln!("headpond: note: {note}"));
            let done = format!("{} is a core, served as {}/{}", args.name, args.volume, args.name);
            tell(&args.volume, &done, &status, args.json)
        }
        CoreCommand::Remove(args) => {
            let body = RemoveCoreBody { name: args.name.clone() };
            let client = Client::of(places, &args.volume)?;
            let status = waiting::post(&client, &operations::REMOVE_CORE, &body)?;
            let (volume, name) = (&args.volume, &args.name);
            let done =
                format!("{name} is a volume of its own now: `headpond serve {volume}-{name}`");
            tell(volume, &done, &status, args.json)
        }
    }
}

fn tell(volume: &str, done: &str, status: &Status, is_json: bool) -> Result<Exit> {
    if is_json {
        print_json(&Versioned::new(status))?;
    } else {
        println!("{volume}: {done}");
        super::status::print_cores(status);
        super::status::print_settings(status);
    }
    Ok(Exit::Ok)
}
