//! Volumes of this machine that use a device which is about to be overwritten.
//!
//! The device records its owner; the descriptions have its name, whether the volume is served, and
//! what would be lost.

use super::{Consent, DeviceSpec};
use anyhow::Result;
use headpond_api::client::Client;
use headpond_api::outcome::Failure;
use headpond_api::place::Places;
use headpond_volume::{CacheDescription, Description};
use std::fmt;
use std::path::PathBuf;

/// A volume's claim on a device.
pub struct Claim {
    device: String,
    pub volume: String,
    part: Part,
}

/// The use of the device by the volume.
enum Part {
    /// Bytes of dirty data on it, if known.
    Cache {
        dirty_bytes: Option<u64>,
    },
    Member,
    Journal,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, volume, part } = self;
        match part {
            Part::Cache { dirty_bytes: Some(0) } => {
                write!(f, "{device} is the cache of volume {volume}, without dirty data")
            }
            Part::Cache { dirty_bytes: Some(bytes) } => write!(
                f,
                "{device} is the cache of volume {volume}, with {bytes} bytes of dirty data"
            ),
            Part::Cache { dirty_bytes: None } => write!(
                f,
                "{device} is the cache of volume {volume}, and may hold dirty data: no \
                 daemon has stopped that volume"
            ),
            Part::Member => {
                write!(f, "{device} is a member of volume {volume}, and holds a part of its data")
            }
            Part::Journal => write!(f, "{device} is the stripe journal of volume {volume}"),
        }
    }
}

/// Checks that no volume's devices are overwritten silently: those of a served volume are refused,
/// and for others the loss is reported.
///
/// # Errors
/// A refusal, unless it is forced.
pub fn check(
    places: &Places,
    devices: &[DeviceSpec],
    own: &str,
    consent: Consent,
) -> Result<Vec<Claim>> {
    let claims = find(places, devices, own);
    for claim in &claims {
        let volume = &claim.volume;
        if Client::of(places, volume)?.is_served() {
            return Err(Failure::refused(format!(
                "{claim}, and {volume} is being served: use another device"
            )));
        }
        match consent {
            Consent::Forced => eprintln!("headpond: note: {claim}: it is overwritten"),
            Consent::Never | Consent::Careful => {
                return Err(Failure::refused(format!(
                    "{claim}: use another device, or overwrite it with --force"
                )));
            }
        }
    }
    Ok(claims)
}

/// The claims of all volumes on a device.
pub fn claims_of(places: &Places, device: &DeviceSpec) -> Vec<Claim> {
    find(places, std::slice::from_ref(device), "")
}

/// Reports what was lost.
pub fn tell_lost(claims: &[Claim]) {
    for Claim { device, volume, part } in claims {
        let lost = match part {
            Part::Cache { dirty_bytes: Some(0) } => {
                format!("no data of {volume} is lost: all of it is on its array")
            }
            Part::Cache { dirty_bytes: Some(bytes) } => {
                format!("{bytes} bytes of dirty data of {volume} are lost")
            }
            Part::Cache { dirty_bytes: None } => {
                format!("the dirty data of {volume} is lost")
            }
            Part::Member => format!("{volume} has lost a member"),
            Part::Journal => format!("{volume} has lost its stripe journal"),
        };
        eprintln!("headpond: note: {device} is overwritten: {lost}");
    }
}

fn find(places: &Places, devices: &[DeviceSpec], own: &str) -> Vec<Claim> {
    let others = places.names().into_iter().filter(|name| name != own);
    // An unreadable description names no device.
    let others: Vec<(String, Description)> =
        others.filter_map(|name| Some((name.clone(), places.load(&name).ok()?))).collect();
    let mut claims = Vec::new();
    for device in devices {
        let Some(path) = real_path(device) else { continue };
        let is_it = |word: &str| {
            let named = word.parse::<DeviceSpec>().ok();
            named.and_then(|named| real_path(&named)) == Some(path.clone())
        };
        for (volume, description) in &others {
            let mut of_cache = description.cache.iter().flat_map(CacheDescription::devices);
            let part = if of_cache.any(is_it) {
                Part::Cache { dirty_bytes: places.left_dirty_bytes(volume) }
            } else if description.members().any(is_it) {
                Part::Member
            } else if description.journals().any(is_it) {
                Part::Journal
            } else {
                continue;
            };
            claims.push(Claim { device: device.to_string(), volume: volume.clone(), part });
        }
    }
    claims
}

fn real_path(device: &DeviceSpec) -> Option<PathBuf> {
    match device {
        // It has no other name.
        DeviceSpec::Rbd(address) => Some(format!("rbd:{}", address.spec()).into()),
        device => device.path()?.canonicalize().ok(),
    }
}
