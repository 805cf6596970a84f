//! Block devices of this program, also those whose daemon is gone.
//!
//! Requests of such a device wait for the next daemon, and with them whoever made them: for ever,
//! unless the device is removed. Then they fail.

use super::{names, remove, users};
use anyhow::{Context, Result};
use headpond_api::place::Places;
use headpond_ublk::{Devices, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A block device with a name of ours.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    pub device: PathBuf,
    pub link: PathBuf,
    /// Of its name.
    pub volume: String,
    pub core: Option<String>,
    pub state: Service,
    pub used_by: Vec<String>,
    #[serde(skip)]
    number: u32,
}

/// Whether a daemon serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Served,
    /// Its requests wait for the next daemon.
    Waiting,
    /// Neither: it is being made or removed.
    Changing,
}

/// All that have names of ours.
///
/// # Errors
/// Where the driver does not tell.
pub fn all() -> Result<Vec<Named>> {
    let mut devices = Devices::open()?;
    let mut found = Vec::new();
    for (link, number) in names::all() {
        let Some(information) = devices.information(number)? else { continue };
        let state = match information.state {
            State::Live => Service::Served,
            State::Quiesced | State::Failing => Service::Waiting,
            State::Dead | State::Unknown(_) => Service::Changing,
        };
        let device = names::node(number);
        let used_by = match state {
            Service::Served => users::of(&device),
            Service::Waiting | Service::Changing => users::without_opening(&device),
        };
        let used_by = used_by.iter().map(ToString::to_string).collect();
        let (volume, core) = names::of(&link);
        found.push(Named { device, link, volume, core, state, used_by, number });
    }
    Ok(found)
}

/// When devices were first seen to wait, in seconds since 1970.
#[derive(Default, Serialize, Deserialize)]
struct Seen(BTreeMap<PathBuf, u64>);

/// Removes those that were seen to wait for so long, and remembers the others until the next call.
///
/// # Errors
/// Where the driver refuses, or the run folder cannot be written.
pub fn reap(places: &Places, after: Duration) -> Result<Vec<Named>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let file = places.make_run_folder()?.join("waiting-devices.json");
    let text = fs::read(&file).unwrap_or_default();
    let before: Seen = serde_json::from_slice(&text).unwrap_or_default();
    let (mut seen, mut reaped) = (Seen::default(), Vec::new());
    for named in all()?.into_iter().filter(|named| named.state == Service::Waiting) {
        let since = before.0.get(&named.device).copied().unwrap_or(now);
        if now.saturating_sub(since) >= after.as_secs() {
            remove(named.number)?;
            names::unlink(&named.link, named.number);
            reaped.push(named);
        } else {
            seen.0.insert(named.device, since);
        }
    }
    fs::write(&file, serde_json::to_vec(&seen)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(reaped)
}
