//! `headpond stop`.

use crate::args::StopArgs;
use crate::commands::waiting;
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_api::requests::StopBody;

/// Stops the daemon and waits until the volume is closed.
///
/// # Errors
/// Where it is not served, is in use, or cannot be stopped cleanly.
pub fn run(places: &Places, args: &StopArgs) -> Result<Exit> {
    let client = Client::of(places, &args.name)?;
    // A volatile cache is cleaned before the volume is closed: while it is served, progress can be
    // shown. If the daemon reports none, or the stop is forced, it cleans while it closes.
    let status = client.call(&operations::STATUS).ok();
    let caches = status.iter().flat_map(|status| [&status.cache, &status.tier]).flatten();
    let mut live = caches.filter_map(|cache| cache.live.as_ref());
    let is_memory = !args.force && live.any(|cache| cache.lost_on_power);
    let flush = args.flush || is_memory;
    let body = StopBody { flush, wait: args.wait, force: args.force };
    waiting::post(&client, &operations::STOP, &body)?;
    println!("stopped {}", args.name);
    Ok(Exit::Ok)
}
