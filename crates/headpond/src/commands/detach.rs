//! `headpond detach`.

use super::{attach, core, destroy, existing, waiting};
use crate::args::DetachArgs;
use crate::device::{Consent, DeviceSpec, vet};
use anyhow::{Context, Result};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_api::requests::StopBody;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for the kernel, which lets go of a device a little after it was closed.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// Ends a device of the kernel; or writes dirty data to the existing device of a volume, and
/// removes the volume.
///
/// # Errors
/// Where the volume has an array of its own, is in use, or has dirty data that cannot be written.
pub fn run(places: &Places, args: &DetachArgs) -> Result<Exit> {
    if args.name.starts_with("/dev/") {
        return attach::detach(places, &args.name, args.force);
    }
    if args.force {
        return Err(Failure::usage("--force is for devices such as /dev/nbd0"));
    }
    match args.name.split_once('/') {
        Some((volume, core)) => further(places, volume, core),
        None => whole(places, &args.name),
    }
}

/// A further core becomes a volume of its own first.
fn further(places: &Places, volume: &str, core: &str) -> Result<Exit> {
    let description = places.load(volume)?;
    let named = description.further_cores.iter().find(|it| it.name == core);
    if named.is_some_and(|it| !it.core.is_existing()) {
        return Err(Failure::refused(format!(
            "core {core} of {volume} is an array of its own members, which nothing else can read: \
             `headpond core remove {volume} {core}` makes it a volume of its own"
        )));
    }
    core::remove(places, volume, core)?;
    whole(places, &format!("{volume}-{core}"))
}

fn whole(places: &Places, name: &str) -> Result<Exit> {
    let description = places.load(name)?;
    if !description.core.is_existing() {
        return Err(Failure::refused(format!(
            "{name} has an array of its own members, which nothing else can read: copy its data, then \
             `headpond destroy {name}`; `headpond cache detach {name}` takes its cache away"
        )));
    }
    if let Some(further) = description.further_cores.first() {
        let core = &further.name;
        let way = match further.core.is_existing() {
            true => format!("`headpond detach {name}/{core}` gives that one back"),
            false => {
                format!("`headpond core remove {name} {core}` makes that one a volume of its own")
            }
        };
        return Err(Failure::refused(format!(
            "{name} has further cores, whose data would be lost: {way}"
        )));
    }
    attach::refuse_attached(places, name)?;
    let client = Client::of(places, name)?;
    if client.is_served() {
        let body = StopBody { flush: true, wait: false, force: false };
        waiting::post(&client, &operations::STOP, &body)?;
    }
    let dirty = match (&description.cache, places.left_dirty_bytes(name)) {
        (None, _) | (_, Some(0)) => None,
        (_, Some(bytes)) => Some(format!("{bytes} bytes of dirty data are in its cache")),
        (_, None) => Some("its cache may have dirty data".to_owned()),
    };
    if let Some(dirty) = dirty {
        return Err(Failure::refused(format!(
            "{name} is not detached: {dirty}; serve it (`headpond serve {name}`), and detach it while it \
             is served, which writes that data first"
        )));
    }
    // Its daemon has let go of the head.
    let device = existing::devices_of(&description).pop().context("its device has no name")?;
    let erased = destroy::erase(&description)?;
    for error in &erased.failed {
        eprintln!("headpond: note: not erased, an old superblock may remain: {error}");
    }
    await_release(&device.now);
    existing::release(places, &device);
    places.forget(name)?;
    let device = device.now;
    println!("detached {name}: {device} is used directly again, with all that was written to it");
    Ok(Exit::Ok)
}

/// So that the device can be mounted as soon as the command has ended.
fn await_release(device: &DeviceSpec) {
    let end = Instant::now() + RELEASE_MAX;
    let is_free = || device.path().is_none() || vet(device, Consent::Forced).is_ok();
    while !is_free() && Instant::now() < end {
        sleep(Duration::from_millis(20));
    }
}
