//! `headpond cache`: the cache device of a volume that is being served.

use crate::commands::create::spec;
use crate::commands::waiting;
use crate::device::{Consent, DeviceSpec, claims};
use crate::telling::print_json;
use anyhow::Result;
use clap::{Args, Subcommand};
use headpond_api::answers::{Status, Versioned};
use headpond_api::client::Client;
use headpond_api::operations::{self, Operation};
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::{AttachBody, DetachBody, FlushPace, PurgeBody, ResizeBody};
use headpond_block::BLOCK_BYTES;
use headpond_cache::ScrubReport;
use headpond_volume::{CacheStatus, SettingChange, Size, parse_word};

/// Attach, detach, replace, resize, empty or scrub the cache of a volume while it is served.
#[derive(Subcommand)]
pub enum CacheCommand {
    Attach(AttachArgs),
    Detach(DetachArgs),
    #[command(
        about = "Replace the cache device, or reformat the same one: settings stay, dirty data is \
            written to the array first, and the cache starts empty",
        long_about = None,
        after_help = "Examples:\n  \
            headpond cache replace hv0 /dev/nvme1n1              # another device\n  \
            headpond cache replace hv0 /dev/nvme0n1 --line 64K   # the same one, another line \
            size\n  \
            headpond cache replace hv0 ram:8G --tier             # the tier in memory",
        mut_arg("devices", |arg| arg.help(
            "A block device or file, ram:SIZE, or model:NAME?store=FILE; several devices form a \
             cache mirror"
        ))
    )]
    Replace(AttachArgs),
    Resize(ResizeArgs),
    Purge(PurgeArgs),
    Scrub(ScrubArgs),
}

/// Make a device the cache of a served volume; all data on the device is lost.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond cache attach hv0 /dev/nvme0n1\n  \
    headpond cache attach hv0 /dev/nvme0n1 --set mode=write-through\n  \
    headpond cache attach hv0 /dev/nvme0n1 /dev/nvme1n1      # a cache mirror\n  \
    headpond cache replace hv0 /dev/nvme1n1      # keeps the settings, cleans first\n  \
    headpond cache attach hv0 ram:4G --tier      # memory in front of the cache")]
pub struct AttachArgs {
    pub name: String,
    /// A block device or file, ram:SIZE, or model:NAME?store=FILE. Several devices form a cache
    /// mirror: none of them may be memory.
    #[arg(value_name = "DEV", required = true)]
    pub devices: Vec<String>,
    /// An initial setting, as for `headpond set`; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<SettingChange>,
    /// Line size, 4K to 1M; default: 4K, or that of the replaced cache.
    #[arg(long)]
    pub line: Option<Size>,
    /// Bytes of the device to use; default: all.
    #[arg(long)]
    pub size: Option<Size>,
    /// Overwrite data on the device, and allow write-back on a volatile one.
    #[arg(long)]
    pub force: bool,
    /// Attach memory (ram:SIZE) in front of the cache instead, with a mode of its own; default:
    /// write-through. It is empty after every start.
    #[arg(long)]
    pub tier: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Detach the cache; afterwards all data is on the array.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond cache detach hv0 --flush")]
pub struct DetachArgs {
    pub name: String,
    /// Write all dirty data to the array first; without it, a cache with dirty data is refused.
    #[arg(long)]
    pub flush: bool,
    /// Flush rate: readers keep about two thirds of their rate, or as fast as the array can.
    #[arg(long, value_name = "readers|max", default_value_t, value_parser = parse_word::<FlushPace>, requires = "flush")]
    pub pace: FlushPace,
    /// Discard dirty data that cannot be written to the array: for a lost cache device.
    #[arg(long)]
    pub force: bool,
    /// The tier in memory in front of the cache, not the cache.
    #[arg(long)]
    pub tier: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Grow or shrink the cache: dirty data is written to the array first, and the cache starts empty
/// in its new size.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond cache resize hv0 200G\n  \
    headpond cache resize hv0                    # all of a device that has grown")]
pub struct ResizeArgs {
    pub name: String,
    /// Bytes of the device to use; default: all.
    pub size: Option<Size>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Empty the cache: invalidates all cached data.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond cache purge hv0 --flush\n  \
    headpond cache purge hv0 --force --yes       # what is dirty is lost")]
pub struct PurgeArgs {
    pub name: String,
    /// Write all dirty data to the array first; without it, a cache with dirty data is refused.
    #[arg(long)]
    pub flush: bool,
    /// Discard dirty data: the array then has older data.
    #[arg(long, conflicts_with = "flush")]
    pub force: bool,
    /// Confirm --force: it loses data.
    #[arg(long, requires = "force")]
    pub yes: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Verify the checksums of all cached data; exit code 3 if dirty data is damaged.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond cache scrub hv0")]
pub struct ScrubArgs {
    pub name: String,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// # Errors
/// If the daemon refuses.
pub fn run(places: &Places, command: &CacheCommand) -> Result<Exit> {
    match command {
        CacheCommand::Attach(args) => {
            let place = if args.tier { " as the tier" } else { "" };
            let verb = if args.devices.len() > 1 { "are" } else { "is" };
            let done = format!("{} {verb} attached{place}", args.devices.join(" and "));
            put(places, args, &operations::ATTACH_CACHE, &done)
        }
        CacheCommand::Replace(args) => {
            let place = if args.tier { "tier" } else { "cache" };
            let done = format!("{} is the new {place}", args.devices[0]);
            put(places, args, &operations::REPLACE_CACHE, &done)
        }
        CacheCommand::Resize(args) => {
            let client = Client::of(places, &args.name)?;
            let body = ResizeBody { size: args.size };
            let resized = waiting::post(&client, &operations::RESIZE_CACHE, &body)?;
            let done = match resized.is_unchanged {
                true => "unchanged: the cache has this size already, and keeps its data",
                false => "the cache has its new size",
            };
            tell(&args.name, done, &resized.status, args.json)
        }
        CacheCommand::Purge(args) => purge(places, args),
        CacheCommand::Scrub(args) => scrub(places, args),
        CacheCommand::Detach(args) => {
            let DetachArgs { flush, pace, force, tier, .. } = *args;
            let body = DetachBody { flush, pace, force, tier };
            let client = Client::of(places, &args.name)?;
            let status = waiting::post(&client, &operations::DETACH_CACHE, &body)?;
            let place = if tier { "tier" } else { "cache" };
            tell(&args.name, &format!("the {place} is detached"), &status, args.json)
        }
    }
}

fn put(
    places: &Places,
    args: &AttachArgs,
    operation: &Operation<AttachBody, Status>,
    done: &str,
) -> Result<Exit> {
    let changes = super::class::read_named_files(&args.settings)?;
    let AttachArgs { line, size, force, tier, .. } = *args;
    let devices: Vec<DeviceSpec> = args.devices.iter().map(|it| spec(it)).collect::<Result<_>>()?;
    let consent = if force { Consent::Forced } else { Consent::Careful };
    let claims = claims::check(places, &devices, &args.name, consent)?;
    let mut words: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let copies = words.split_off(1);
    let device = words.remove(0);
    let body = AttachBody { device, copies, changes, line, size, force, tier };
    let status = waiting::post(&Client::of(places, &args.name)?, operation, &body)?;
    claims::tell_lost(&claims);
    tell(&args.name, done, &status, args.json)
}

fn purge(places: &Places, args: &PurgeArgs) -> Result<Exit> {
    let PurgeArgs { flush, force, yes, .. } = *args;
    let client = Client::of(places, &args.name)?;
    if force && !yes {
        let status = client.call(&operations::STATUS)?;
        let bytes = status.live_cache().map_or(0, CacheStatus::unsafe_bytes);
        return Err(Failure::refused(format!(
            "{bytes} bytes that are dirty in the cache of {}, or not flushed by its array, would \
             be lost: confirm with --yes, or write them with --flush",
            args.name
        )));
    }
    let status = waiting::post(&client, &operations::PURGE_CACHE, &PurgeBody { flush, force })?;
    tell(&args.name, "the cache is empty", &status, args.json)
}

fn scrub(places: &Places, args: &ScrubArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    let report = waiting::post(&client, &operations::SCRUB_CACHE, &())?;
    let exit = if report.lost.is_empty() { Exit::Ok } else { Exit::Degraded };
    if args.json {
        print_json(&Versioned::new(report))?;
        return Ok(exit);
    }
    let ScrubReport { blocks, unchecked_blocks, dropped_blocks, lost, is_partial } = report;
    println!(
        "{}: {blocks} blocks of 4 KiB read, {dropped_blocks} damaged ones invalidated",
        args.name
    );
    if unchecked_blocks > 0 {
        println!("  {unchecked_blocks} blocks in memory have no checksum: set checksums=always");
    }
    for run in &lost {
        println!(
            "  {} bytes of dirty data at {} are damaged and lost: write them again",
            run.count * BLOCK_BYTES,
            run.first.0 * BLOCK_BYTES
        );
    }
    if is_partial {
        println!("  the cache was closed before the scrub was complete");
    }
    Ok(exit)
}

fn tell(name: &str, done: &str, status: &Status, is_json: bool) -> Result<Exit> {
    if is_json {
        print_json(&Versioned::new(status))?;
    } else {
        println!("{name}: {done}");
        super::status::print_settings(status);
    }
    Ok(Exit::Ok)
}
