//! An existing device as core: what its user is told, how it is hidden from others, and how its
//! volume comes back when its head is lost.

mod import;
mod rule;

pub use import::import;
pub use rule::hide;
use rule::unhide;

use crate::device::{DeviceSpec, Opener};
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::Description;
use std::fs;

/// --keep where no core is named.
///
/// # Errors
/// Where it is given.
pub fn refuse_keep_alone(is_given: bool) -> Result<()> {
    match is_given {
        true => {
            Err(Failure::usage("--keep keeps the contents of the device of --core: name it there"))
        }
        false => Ok(()),
    }
}

/// An existing device of a volume.
pub struct TakenDevice {
    /// With its head, as the description has it.
    pub named: DeviceSpec,
    /// By its name of now: another device may have the one that it was taken with. Where its head
    /// does not tell, by that one.
    pub now: DeviceSpec,
}

/// The cores of a volume that are existing devices.
pub fn devices_of(description: &Description) -> Vec<TakenDevice> {
    let cores = description.cores().map(|(_, core)| core).filter(|core| core.is_existing());
    let specs = cores.filter_map(|core| core.members.first()?.parse().ok());
    let taken = |named: DeviceSpec| Some(TakenDevice { now: locate(&named)?, named });
    specs.filter_map(taken).collect()
}

fn locate(named: &DeviceSpec) -> Option<DeviceSpec> {
    let DeviceSpec::Existing { body, head } = named else { return None };
    let pool = BufferPool::new(&PoolConfig::default());
    let located = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| {
        let opener = Opener::new(ring, runtime);
        async move { opener.locate(body, head).await.map(|(_, body)| body).ok() }
    });
    Some(located.ok().flatten().unwrap_or(*body.clone()))
}

/// The device is used directly again: nothing of it is left here.
pub fn release(places: &Places, device: &TakenDevice) {
    unhide(places, device);
    if let DeviceSpec::Existing { head, .. } = &device.named {
        // Of no volume.
        let _ = fs::remove_file(head);
    }
}

/// A device is a core from now on, of a volume or of what is called `VOLUME/CORE`: its user is told
/// what holds, and others are kept off it.
pub fn taken(places: &Places, description: &Description, core: &str, existing: &DeviceSpec) {
    let DeviceSpec::Existing { body, .. } = existing else { return };
    tell(places, description, core, body);
    hide(places, core, existing);
}

/// What holds for the device from now on.
fn tell(places: &Places, description: &Description, name: &str, device: &DeviceSpec) {
    println!(
        "{device} keeps its contents, and is to be used through {name} alone: what is written past it \
         makes the cache wrong. `headpond detach {name}` gives it back"
    );
    let mode = description.cache.as_ref().map(|cache| cache.settings.mode);
    if mode.is_some_and(|mode| mode.is_write_back()) {
        eprintln!(
            "headpond: note: with write-back, {device} alone is out of date: a file system on it that is \
             mounted past {name} is damaged, and lost with the cache device; {} describes it",
            places.description(&description.name).display()
        );
    }
}
