//! `headpond core`: further cores of a volume that is being served, behind the same cache.

use crate::args::ArrayArgs;
use crate::commands::create::{spec, specs};
use crate::commands::striping::{self, ChosenStriping};
use crate::commands::{contents, existing, waiting};
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
use headpond_raid::{Contents, Level, Striping};

/// Add or remove further cores of a served volume: arrays with an export of their own that share
/// its cache.
#[derive(Subcommand)]
pub enum CoreCommand {
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// Make devices an array behind the cache of a served volume; all data on them is lost, unless it
/// is kept by --keep. The cache is cleaned first, and starts empty.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond core add hv0 logs --raid 1 /dev/sdh /dev/sdi\n  \
    headpond core add hv0 archive --raid 6 --strip 256K /dev/sd[j-q]\n  \
    headpond core add hv0 home --core /dev/sdr --keep\n\n\
    The core is served as export hv0/logs beside hv0, and is core_id 2 in rules of I/O classes.")]
pub struct AddArgs {
    pub volume: String,
    /// Name of the core within the volume.
    pub name: String,
    /// Members of the array, in any order.
    #[arg(required_unless_present = "core", value_name = "DEV")]
    pub members: Vec<String>,
    /// An existing block device or image as it is, instead of an array of new members. Nothing but
    /// the clients' data is written to it, and after `headpond detach VOLUME/NAME` it is used
    /// directly again.
    #[arg(
        long,
        value_name = "DEV",
        requires = "keep",
        conflicts_with_all = [
            "members", "raid", "groups", "width", "striping", "weights", "strip", "no_intent",
            "integrity", "zeroed", "assume_clean",
        ]
    )]
    pub core: Option<String>,
    /// Keep the contents of the core.
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub array: ArrayArgs,
    /// Overwrite data on the devices; with --keep, which overwrites none, accept that the cache of
    /// the volume is in write-back mode.
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
            let status = match &args.core {
                Some(device) => add_existing(places, args, device)?,
                None => add_array(places, args)?,
            };
            let done = format!("{} is a core, served as {}/{}", args.name, args.volume, args.name);
            tell(&args.volume, &done, &status, args.json)
        }
        CoreCommand::Remove(args) => {
            let status = remove(places, &args.volume, &args.name)?;
            let (volume, name) = (&args.volume, &args.name);
            let done =
                format!("{name} is a volume of its own now: `headpond serve {volume}-{name}`");
            tell(volume, &done, &status, args.json)
        }
    }
}

fn add_array(places: &Places, args: &AddArgs) -> Result<Status> {
    existing::refuse_keep_alone(args.keep)?;
    let members = specs(&args.members)?;
    let consent = if args.force { Consent::Forced } else { Consent::Careful };
    let claims = claims::check(places, &members, &args.volume, consent)?;
    let ChosenStriping { striping, notes } = striping::find_on(&args.array, &members)?;
    let body = AddCoreBody {
        striping,
        contents: contents::contents(&args.array),
        zeroed: args.array.zeroed,
        force: args.force,
        ..body(args, args.array.level()?, &members)
    };
    let client = Client::of(places, &args.volume)?;
    let status = waiting::post(&client, &operations::ADD_CORE, &body)?;
    claims::tell_lost(&claims);
    let notes = notes.into_iter().chain(contents::note(&args.array));
    notes.for_each(|note| eprintln!("headpond: note: {note}"));
    Ok(status)
}

fn add_existing(places: &Places, args: &AddArgs, device: &str) -> Result<Status> {
    let device = [spec(device)?];
    claims::check(places, &device, &args.volume, Consent::Careful)?;
    let body = AddCoreBody { keep: true, force: args.force, ..body(args, Level::Raid0, &device) };
    let client = Client::of(places, &args.volume)?;
    let status = waiting::post(&client, &operations::ADD_CORE, &body)?;
    let description = places.load(&args.volume)?;
    let added = description.further_cores.iter().find(|core| core.name == args.name);
    let existing = added.and_then(|core| core.core.members.first()?.parse().ok());
    if let Some(existing) = &existing {
        existing::taken(places, &description, &description.array_name(&args.name), existing);
    }
    Ok(status)
}

fn body(args: &AddArgs, raid: Level, members: &[DeviceSpec]) -> AddCoreBody {
    AddCoreBody {
        name: args.name.clone(),
        raid,
        groups: args.array.groups(raid, members.len()),
        declustered: args.array.declustered(),
        striping: Striping::Plain,
        strip: args.array.strip,
        intent: !args.array.no_intent,
        integrity: args.array.integrity,
        contents: Contents::default(),
        zeroed: false,
        members: members.iter().map(DeviceSpec::to_string).collect(),
        keep: false,
        force: false,
    }
}

/// Removes a core, which is a volume of its own then.
///
/// # Errors
/// If the daemon refuses.
pub(super) fn remove(places: &Places, volume: &str, name: &str) -> Result<Status> {
    let body = RemoveCoreBody { name: name.to_owned() };
    let client = Client::of(places, volume)?;
    let status = waiting::post(&client, &operations::REMOVE_CORE, &body)?;
    let own = format!("{volume}-{name}");
    let described = places.load(&own)?;
    for device in existing::devices_of(&described) {
        // The rule names the volume.
        existing::hide(places, &own, &device.named);
    }
    Ok(status)
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
