//! `headpond destroy`.

use super::{attach, existing};
use crate::args::DestroyArgs;
use crate::device::{DeviceSpec, Opener};
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{CacheDescription, Description, Destroyed, Devices, Volume};
use std::fs::File;
use std::io::{Seek, SeekFrom};

/// Removes superblocks and description.
///
/// # Errors
/// Refused while the volume is served, and without `--yes`.
pub fn run(places: &Places, args: &DestroyArgs) -> Result<Exit> {
    let name = &args.name;
    let description = places.load(name)?;
    if Client::of(places, name)?.is_served() {
        return Err(Failure::refused(format!(
            "{name} is being served: `headpond stop {name}` first"
        )));
    }
    attach::refuse_attached(places, name)?;
    let holds = what_it_holds(places, &description);
    if !args.yes {
        let devices: Vec<&str> = description.devices().collect();
        return Err(Failure::refused(format!(
            "all data of {name} would be lost, {holds} ({}): confirm with --yes",
            devices.join(", ")
        )));
    }
    let existing = existing::devices_of(&description);
    let destroyed = erase(&description)?;
    existing.iter().for_each(|device| existing::release(places, device));
    places.forget(name)?;
    for error in &destroyed.failed {
        eprintln!("headpond: note: not erased, old superblocks may remain: {error}");
    }
    let erased = destroyed.erased;
    let devices = if erased == 1 { "device is" } else { "devices are" };
    println!("destroyed {name}, {holds}: {erased} {devices} free");
    Ok(Exit::Ok)
}

/// Erases the superblocks of the volume's devices, as far as they are there.
///
/// # Errors
/// Where a name cannot be read; the outcome of each device is in what is returned.
pub(super) fn erase(description: &Description) -> Result<Destroyed> {
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async {
        let opener = Opener::new(ring, runtime);
        let mut devices = Devices::default();
        let cache = description.cache.as_ref();
        let of_cache: Vec<&str> = cache.into_iter().flat_map(CacheDescription::devices).collect();
        let is_mirrored = cache.is_some_and(|cache| cache.mirror.is_some());
        for device in description.devices() {
            let spec: DeviceSpec = device.parse()?;
            // The daemon's memory is gone with it.
            if matches!(spec, DeviceSpec::Ram(_)) {
                continue;
            }
            match opener.open(&spec).await {
                Ok(open) if is_mirrored && of_cache.contains(&device) => devices.copies.push(open),
                Ok(open) if of_cache.contains(&device) => devices.cache = Some(open),
                Ok(open) => devices.members.push(open),
                Err(error) => eprintln!("headpond: note: not touched: {}", told(&error)),
            }
        }
        Ok(Volume::destroy(description, &devices).await)
    })?
}

/// In bytes: capacity of the members, and dirty data of the cache.
fn what_it_holds(places: &Places, description: &Description) -> String {
    let size_of = |word: &str| {
        let path = word.parse::<DeviceSpec>().ok()?.path()?.to_owned();
        File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()
    };
    let bytes: u64 = description.members().filter_map(size_of).sum();
    let members = format!("{bytes} bytes on its members");
    match (&description.cache, places.left_dirty_bytes(&description.name)) {
        (None, _) | (_, Some(0)) => members,
        (_, Some(dirty)) => format!("{members} and {dirty} bytes of dirty data in its cache"),
        (_, None) => format!("{members} and the dirty data of its cache"),
    }
}
