//! `headpond label clear`.

use super::ClearArgs;
use crate::commands::probe::describe;
use crate::device::claims::{Claim, claims_of};
use crate::device::labels::{self, Label};
use crate::device::{DeviceSpec, Opener};
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::outcome::{Exit, Failure};
use headpond_api::place::Places;
use headpond_block::{BufferPool, PoolConfig};
use headpond_daemon::{Notifier, host, loading};
use headpond_uring::safety::{self, Hazard};
use headpond_uring::{OpenError, RingConfig, run_with_pool};
use headpond_volume::{erase_owners, expect_no_owner};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a device is waited for that is held, and how often it is looked at.
const RELEASE_TIME: Duration = Duration::from_secs(3);
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// # Errors
/// Refusals, which change nothing; and those of the device.
pub fn run(places: &Places, args: &ClearArgs) -> Result<Exit> {
    let (device, path) = (&args.device, Path::new(&args.device));
    let Some(label) = labels::read(path)?.label else {
        println!("{device}: no label of Headpond");
        return Ok(Exit::Ok);
    };
    refuse_hazards(device, path, &label)?;
    let spec = DeviceSpec::Path(PathBuf::from(path)).absolute()?;
    let claims = claims_of(places, &spec);
    let volume = label.volume(places);
    for volume in claims.iter().map(|claim| &claim.volume).chain(&volume) {
        refuse_use(places, device, volume)?;
    }
    if !args.yes {
        let told = what_is_lost(device, &label, volume.as_deref(), &claims);
        return Err(Failure::refused(format!("{told}: confirm with --yes")));
    }
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let opened = Opener::new(ring, runtime.clone()).open(&spec).await.map_err(in_use)?;
        let claimant = host::claimant(&Notifier::default());
        let name = volume.as_deref().or(label.array_name()).unwrap_or("the volume");
        let owned = expect_no_owner(&runtime, &claimant, name, &opened).await;
        owned.map_err(Failure::refused)?;
        // The places of both copies are those of every kind of superblock.
        headpond_raid::erase(&*opened).await?;
        erase_owners(&*opened).await?;
        println!("{device}: cleared; it was {}", describe(&label, volume.as_deref()));
        Ok(Exit::Ok)
    })?
}

/// What clients have stored on the array may look like anything, at its own place.
fn refuse_hazards(device: &str, path: &Path, label: &Label) -> Result<()> {
    let is_theirs = |hazard: &Hazard| match hazard {
        Hazard::Contents(signature) => signature.offset < label.data_offset(),
        _ => true,
    };
    let mut hazards = safety::inspect(path)?.hazards();
    // The kernel closes the files of a daemon some time after it has ended.
    let begun = Instant::now();
    while hazards.contains(&Hazard::Claimed) && begun.elapsed() < RELEASE_TIME {
        std::thread::sleep(RELEASE_PAUSE);
        hazards = safety::inspect(path)?.hazards();
    }
    let blocking: Vec<String> =
        hazards.iter().filter(|hazard| is_theirs(hazard)).map(Hazard::to_string).collect();
    match blocking.is_empty() {
        true => Ok(()),
        false => Err(Failure::refused(format!("{device}: {}", blocking.join("; ")))),
    }
}

fn refuse_use(places: &Places, device: &str, volume: &str) -> Result<()> {
    let is_served = Client::of(places, volume)?.is_served();
    if is_served || loading::look(places, volume).is_some() {
        return Err(Failure::refused(format!(
            "{device} belongs to {volume}, which is being served: `headpond stop {volume}` first, \
             or remove the device from it"
        )));
    }
    Ok(())
}

fn what_is_lost(device: &str, label: &Label, volume: Option<&str>, claims: &[Claim]) -> String {
    match claims {
        [] => format!("{device} is {}, and would be lost to it", describe(label, volume)),
        claims => {
            let told: Vec<String> = claims.iter().map(Claim::to_string).collect();
            format!("{}, which would be lost", told.join("; "))
        }
    }
}

fn in_use(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<OpenError>() {
        Some(OpenError::InUse { .. }) => Failure::refused(error),
        _ => error,
    }
}
