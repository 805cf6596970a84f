//! `headpond export`: where a volume is served.

use crate::commands::waiting;
use crate::telling::print_json;
use anyhow::Result;
use clap::{Args, Subcommand};
use headpond_api::answers::Versioned;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::ExportsBody;
use headpond_daemon::block_devices::orphans::{self, Named, Service};
use headpond_daemon::export;
use headpond_report::{Align, Table};
use headpond_volume::{Description, ExportDescription};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Show or change where a volume is served: addresses of NBD, which change at its next start, and
/// block devices of the kernel, which change at once.
#[derive(Subcommand)]
pub enum ExportCommand {
    List(ListArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
    Reap(ReapArgs),
}

/// Show the addresses of a volume, and whether they are served now; or, without a volume, all block
/// devices of the kernel, also those whose daemon is gone.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond export list hv0\n  headpond export list")]
pub struct ListArgs {
    pub volume: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Serve a volume at one more address: over NBD from its next start on, as a block device at once.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond export add hv0 tcp:127.0.0.1:10809\n  \
    headpond export add hv0 unix:/run/hv0.nbd\n  \
    headpond export add hv0 ublk                    # /dev/headpond/hv0\n  \
    headpond export add hv0 ublk:queues=2,depth=256,io=512K\n  \
    headpond export add hv0 tcp:10.0.0.7:10809 --insecure     # on a network that is trusted")]
pub struct AddArgs {
    pub volume: String,
    /// unix:PATH, tcp:HOST:PORT or ublk[:queues=N,depth=N,io=SIZE,read-only].
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// A TCP address that other machines can reach, without encryption or authentication.
    #[arg(long)]
    pub insecure: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Serve a volume at an address no more, as `add` does. Without any it is served at its
/// Unix socket in the run folder.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond export remove hv0 tcp:127.0.0.1:10809")]
pub struct RemoveArgs {
    pub volume: String,
    /// As `headpond export list` shows it.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Remove block devices whose daemon has not come back: their requests, which wait for it, fail.
///
/// A device is removed once it was seen to wait by two calls so long apart; a timer of systemd
/// calls this every minute (headpond-reap.timer).
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond export reap --after-s 600\n  \
    headpond export reap --after-s 0       # at once")]
pub struct ReapArgs {
    /// Seconds that a device may wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub after_s: u64,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// An address of a volume.
#[derive(Serialize)]
struct Listed {
    address: String,
    insecure: bool,
    /// Whether it is served now.
    is_served: bool,
}

#[derive(Serialize)]
struct Exports<'a> {
    name: &'a str,
    exports: Vec<Listed>,
}

/// Runs the command.
///
/// # Errors
/// Where the volume or the address is wrong, or `serve` would refuse it.
pub fn run(places: &Places, command: &ExportCommand) -> Result<Exit> {
    match command {
        ExportCommand::List(ListArgs { volume: Some(volume), json }) => show(places, volume, *json),
        ExportCommand::List(ListArgs { volume: None, json }) => show_devices(*json),
        ExportCommand::Reap(args) => reap(places, args),
        ExportCommand::Add(args) => add(places, args),
        ExportCommand::Remove(args) => remove(places, args),
    }
}

fn add(places: &Places, args: &AddArgs) -> Result<Exit> {
    let new = ExportDescription { address: args.address.clone(), insecure: args.insecure };
    export::address(&new)?;
    let description = places.load(&args.volume)?;
    let mut exports = exports_of(places, &description)?;
    if exports.iter().any(|export| export.address == new.address) {
        let (volume, address) = (&args.volume, &args.address);
        return Err(Failure::usage(format!("{volume} has the export {address} already")));
    }
    exports.push(new);
    export::check(&exports)?;
    change(places, description, exports)?;
    told(places, &args.volume, args.json)
}

fn remove(places: &Places, args: &RemoveArgs) -> Result<Exit> {
    let description = places.load(&args.volume)?;
    let mut exports = exports_of(places, &description)?;
    let before = exports.len();
    exports.retain(|export| export.address != args.address);
    if exports.len() == before {
        let known: Vec<String> = exports.into_iter().map(|export| export.address).collect();
        return Err(Failure::usage(format!(
            "{} has no export {}; it has {}",
            args.volume,
            args.address,
            known.join(", ")
        )));
    }
    change(places, description, exports)?;
    told(places, &args.volume, args.json)
}

/// Through the daemon of a served volume, which keeps the description.
fn change(
    places: &Places,
    description: Description,
    exports: Vec<ExportDescription>,
) -> Result<()> {
    let client = Client::of(places, &description.name)?;
    if client.is_served() {
        let body = ExportsBody { exports };
        return waiting::post(&client, &operations::SET_EXPORTS, &body).map(drop);
    }
    places.save(&Description { exports, ..description })
}

fn told(places: &Places, volume: &str, as_json: bool) -> Result<Exit> {
    let exit = show(places, volume, as_json)?;
    if !as_json {
        println!("addresses of NBD change at the next start of {volume}");
    }
    Ok(exit)
}

/// Those of the description, or the one that stands for none.
fn exports_of(places: &Places, description: &Description) -> Result<Vec<ExportDescription>> {
    if !description.exports.is_empty() {
        return Ok(description.exports.clone());
    }
    let address = format!("unix:{}", places.nbd_socket(&description.name)?.display());
    Ok(vec![ExportDescription { address, insecure: false }])
}

#[derive(Serialize)]
struct Devices {
    devices: Vec<Named>,
}

fn show_devices(as_json: bool) -> Result<Exit> {
    let devices = orphans::all()?;
    if as_json {
        print_json(&Versioned::new(Devices { devices }))?;
        return Ok(Exit::Ok);
    }
    let columns = ["name", "device", "state", "used by"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    for named in &devices {
        let state = match named.state {
            Service::Served => "served",
            Service::Waiting => "waits for its daemon",
            Service::Changing => "being made or removed",
        };
        let path = |path: &Path| path.display().to_string();
        let users = named.used_by.join(", ");
        table.row([path(&named.link), path(&named.device), state.to_owned(), users]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}

fn reap(places: &Places, args: &ReapArgs) -> Result<Exit> {
    let devices = orphans::reap(places, Duration::from_secs(args.after_s))?;
    if args.json {
        print_json(&Versioned::new(Devices { devices }))?;
        return Ok(Exit::Ok);
    }
    for Named { link, device, used_by, .. } in devices {
        let users =
            if used_by.is_empty() { String::new() } else { format!(" ({})", used_by.join(", ")) };
        println!("removed {}, {}{users}: its daemon is gone", device.display(), link.display());
    }
    Ok(Exit::Ok)
}

fn show(places: &Places, volume: &str, as_json: bool) -> Result<Exit> {
    let description = places.load(volume)?;
    let client = Client::of(places, volume)?;
    let served = match client.is_served() {
        true => client.call(&operations::STATUS)?.exports,
        false => Vec::new(),
    };
    let listed = exports_of(places, &description)?.into_iter().map(|export| Listed {
        is_served: served.contains(&export.address),
        address: export.address,
        insecure: export.insecure,
    });
    let exports: Vec<Listed> = listed.collect();
    if as_json {
        print_json(&Versioned::new(Exports { name: volume, exports }))?;
        return Ok(Exit::Ok);
    }
    let columns = ["export", "served now", "insecure"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for Listed { address, insecure, is_served } in exports {
        table.row([address, word(is_served), word(insecure)]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}
