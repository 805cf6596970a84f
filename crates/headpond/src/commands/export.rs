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
use headpond_daemon::export;
use headpond_report::{Align, Table};
use headpond_volume::{Description, ExportDescription};
use serde::Serialize;

/// Show or change the addresses at which a volume is served over NBD; a change takes effect at its
/// next start.
#[derive(Subcommand)]
pub enum ExportCommand {
    List(ListArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// Show the addresses of a volume, and whether they are served now.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond export list hv0")]
pub struct ListArgs {
    pub volume: String,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Serve a volume at one more address, from its next start on.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond export add hv0 tcp:127.0.0.1:10809\n  \
    headpond export add hv0 unix:/run/hv0.nbd\n  \
    headpond export add hv0 tcp:10.0.0.7:10809 --insecure     # on a network that is trusted")]
pub struct AddArgs {
    pub volume: String,
    /// unix:PATH or tcp:HOST:PORT.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// A TCP address that other machines can reach, without encryption or authentication.
    #[arg(long)]
    pub insecure: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Serve a volume at an address no more, from its next start on. Without any it is served at its
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

/// An address of a volume.
#[derive(Serialize)]
struct Listed {
    nbd: String,
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
        ExportCommand::List(args) => show(places, &args.volume, args.json),
        ExportCommand::Add(args) => add(places, args),
        ExportCommand::Remove(args) => remove(places, args),
    }
}

fn add(places: &Places, args: &AddArgs) -> Result<Exit> {
    let new = ExportDescription { nbd: args.address.clone(), insecure: args.insecure };
    export::address(&new)?;
    let description = places.load(&args.volume)?;
    let mut exports = exports_of(places, &description)?;
    if exports.iter().any(|export| export.nbd == new.nbd) {
        let (volume, address) = (&args.volume, &args.address);
        return Err(Failure::usage(format!("{volume} has the export {address} already")));
    }
    exports.push(new);
    change(places, description, exports)?;
    told(places, &args.volume, args.json)
}

fn remove(places: &Places, args: &RemoveArgs) -> Result<Exit> {
    let description = places.load(&args.volume)?;
    let mut exports = exports_of(places, &description)?;
    let before = exports.len();
    exports.retain(|export| export.nbd != args.address);
    if exports.len() == before {
        let known: Vec<String> = exports.into_iter().map(|export| export.nbd).collect();
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
        println!("the next start of {volume} serves these");
    }
    Ok(exit)
}

/// Those of the description, or the one that stands for none.
fn exports_of(places: &Places, description: &Description) -> Result<Vec<ExportDescription>> {
    if !description.exports.is_empty() {
        return Ok(description.exports.clone());
    }
    let nbd = format!("unix:{}", places.nbd_socket(&description.name)?.display());
    Ok(vec![ExportDescription { nbd, insecure: false }])
}

fn show(places: &Places, volume: &str, as_json: bool) -> Result<Exit> {
    let description = places.load(volume)?;
    let client = Client::of(places, volume)?;
    let served = match client.is_served() {
        true => client.call(&operations::STATUS)?.exports,
        false => Vec::new(),
    };
    let listed = exports_of(places, &description)?.into_iter().map(|export| Listed {
        is_served: served.contains(&export.nbd),
        nbd: export.nbd,
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
    for Listed { nbd, insecure, is_served } in exports {
        table.row([nbd, word(is_served), word(insecure)]);
    }
    print!("{}", table.render());
    Ok(Exit::Ok)
}
