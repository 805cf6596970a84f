//! Errors of the devices of an open volume: told, and cleared.

use super::Volume;
use super::devices::devices_of;
use crate::history::{DeviceReport, DeviceRole, KeptHistory};
use headpond_cache::Slice;

/// Why no errors were cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    #[error("{volume} has no device {device}; it has: {known}")]
    NoDevice { volume: String, device: String, known: String },
}

impl Volume {
    /// All of its devices.
    pub(crate) fn devices(&self) -> Vec<DeviceReport> {
        devices_of(&self.cores(), &self.caches().collect::<Vec<_>>())
    }

    /// Clears the errors of a device, by its name or UUID; without one, those of all devices and
    /// arrays, and what scrubs have found. The members know it when this completes.
    ///
    /// # Errors
    /// Where it has no such device.
    pub async fn clear_errors(&self, device: Option<&str>) -> Result<(), ClearError> {
        let named = named(&self.description().name, self.devices(), device)?;
        let (cores, caches) = (self.cores(), self.caches().collect::<Vec<_>>());
        let history = cores.first().array.history();
        for report in &named {
            history.errors_of(report.uuid).clear();
        }
        let has_cache = |role| named.iter().any(|report| report.role == role);
        for cached in &caches {
            let role = if cached.is_tier { DeviceRole::Tier } else { DeviceRole::Cache };
            if has_cache(role) {
                cached.slices.iter().for_each(Slice::clear_errors);
                cached.mirror.iter().for_each(|mirror| mirror.forget_repaired());
            }
        }
        if device.is_none() {
            cores.reset_failed_flushes();
            cores.iter().for_each(|(core, _)| history.clear_scrub(core.array.uuid()));
        }
        self.kept.record_history().await;
        Ok(())
    }

    /// The members are to keep what was written to the cache in this run.
    pub(crate) fn note_wear(&self) {
        if self.caches().any(|cached| !cached.is_memory() && cached.is_worn()) {
            self.cores().first().array.history().note_change();
        }
    }

    /// The scrub that the members know of its cache, and its wear.
    pub(crate) fn restore_cache_history(&self, kept: &KeptHistory) {
        if let Some(cached) = self.cached() {
            cached.last_scrub.replace(kept.scrub_of_cache(cached.superblock.cache));
            cached.worn_before.set(kept.wear_of_cache(cached.superblock.cache));
        }
    }
}

/// The devices that a word means; without one, all.
///
/// # Errors
/// Where there is none.
pub(super) fn named(
    volume: &str,
    mut devices: Vec<DeviceReport>,
    word: Option<&str>,
) -> Result<Vec<DeviceReport>, ClearError> {
    let Some(word) = word else { return Ok(devices) };
    let known = devices.iter().map(|report| match &report.device {
        Some(device) => device.clone(),
        None => report.uuid.to_string(),
    });
    let known = known.collect::<Vec<_>>().join(", ");
    devices.retain(|report| report.is_named(word));
    match devices.is_empty() {
        false => Ok(devices),
        true => {
            let (volume, device) = (volume.to_owned(), word.to_owned());
            Err(ClearError::NoDevice { volume, device, known })
        }
    }
}
