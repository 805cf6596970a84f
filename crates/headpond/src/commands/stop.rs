//! `headpond stop`: one volume, or all that are served.

use crate::args::StopArgs;
use crate::commands::waiting;
use crate::telling::plain;
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_api::requests::StopBody;
use headpond_daemon::attached::{Kept, KeptDevice};
use headpond_daemon::block_devices::orphans::{self, Named, Service};

/// Stops a daemon, or all, and waits until the volumes are closed.
///
/// # Errors
/// Where it is not served, is in use, or cannot be stopped cleanly.
pub fn run(places: &Places, args: &StopArgs) -> Result<Exit> {
    match &args.name {
        Some(name) => one(&Client::of(places, name)?, name, args)?,
        None => return Ok(all(places, args)),
    }
    Ok(Exit::Ok)
}

/// The exit code is that of the last volume that was not stopped.
fn all(places: &Places, args: &StopArgs) -> Exit {
    let mut exit = Exit::Ok;
    for name in places.names() {
        let stopped = Client::of(places, &name).and_then(|client| match client.is_served() {
            true => one(&client, &name, args),
            false => waits_for_none(places, &name),
        });
        if let Err(error) = stopped {
            eprintln!("headpond: error: {name}: {}", plain(&told(&error)));
            exit = Failure::exit_of(&error);
        }
    }
    exit
}

/// A volume that is not served may have left a block device: its requests wait for a daemon.
fn waits_for_none(places: &Places, name: &str) -> Result<()> {
    let attached = Kept::load(places, name).devices.iter().map(KeptDevice::path).next();
    let is_its = |device: &Named| device.volume == name && device.state != Service::Served;
    // Without the driver there is none.
    let ublk = || orphans::all().unwrap_or_default().into_iter().find(is_its);
    let left = attached.or_else(|| Some(ublk()?.link.display().to_string()));
    left.map_or(Ok(()), |device| {
        Err(Failure::refused(format!(
            "{device} waits for its daemon: start {name}, and unmount and remove it there"
        )))
    })
}

fn one(client: &Client, name: &str, args: &StopArgs) -> Result<()> {
    // A volatile cache is cleaned before the volume is closed: while it is served, progress can be
    // shown. If the daemon reports none, or the stop is forced, it cleans while it closes.
    let status = client.call(&operations::STATUS).ok();
    let caches = status.iter().flat_map(|status| [&status.cache, &status.tier]).flatten();
    let mut live = caches.filter_map(|cache| cache.live.as_ref());
    let is_memory = !args.force && live.any(|cache| cache.lost_on_power);
    let flush = args.flush || is_memory;
    let body = StopBody { flush, wait: args.wait, force: args.force };
    waiting::post(client, &operations::STOP, &body)?;
    println!("stopped {name}");
    Ok(())
}
