//! `headpond destroy`.

use crate::args::DestroyArgs;
use crate::client::Client;
use crate::device::{DeviceSpec, Opener};
use crate::outcome::{Exit, Failure, told};
use crate::place::Places;
use anyhow::Result;
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{CacheDescription, Devices, Volume};

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
    if !args.yes {
        let devices: Vec<&str> = description.devices().collect();
        return Err(Failure::refused(format!(
            "everything on {name} would be lost ({}): say --yes if that is what you want",
            devices.join(", ")
        )));
    }
    let pool = BufferPool::new(&PoolConfig::default());
    let destroyed = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async {
        let description = &description;
        let opener = Opener::new(ring, runtime);
        let mut devices = Devices::default();
        let cache = description.cache.as_ref();
        let of_cache: Vec<&str> = cache.into_iter().flat_map(CacheDescription::devices).collect();
        let is_mirrored = cache.is_some_and(|cache| cache.mirror.is_some());
        for device in description.devices() {
            let spec: DeviceSpec = device.parse()?;
            // Memory of the daemon ended with it.
            if matches!(spec, DeviceSpec::Ram(_)) {
                continue;
            }
            match opener.open(&spec) {
                Ok(open) if is_mirrored && of_cache.contains(&device) => devices.copies.push(open),
                Ok(open) if of_cache.contains(&device) => devices.cache = Some(open),
                Ok(open) => devices.members.push(open),
                Err(error) => eprintln!("headpond: note: left alone: {}", told(&error)),
            }
        }
        Ok::<_, anyhow::Error>(Volume::destroy(description, &devices).await)
    })??;
    places.forget(name)?;
    for error in &destroyed.failed {
        eprintln!("headpond: note: not erased, what was there may be there still: {error}");
    }
    let erased = destroyed.erased;
    let devices = if erased == 1 { "device is" } else { "devices are" };
    println!("destroyed {name}: {erased} {devices} free");
    Ok(Exit::Ok)
}
