//! Devices of a cache mirror.

use super::spec::DeviceSpec;
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_volume::MirrorDescription;
use uuid::Uuid;

/// Checks the names of devices before any of them is opened.
///
/// # Errors
/// If one of several is memory, or one is an image of a cluster, with the way out.
pub fn check_copies(devices: &[DeviceSpec]) -> Result<()> {
    if let Some(image) = devices.iter().find(|device| matches!(device, DeviceSpec::Rbd(_))) {
        return Err(Failure::usage(format!(
            "{image} is storage behind a network, which a cache is to hide: it can be a member"
        )));
    }
    let memory = devices.iter().find(|device| device.path().is_none());
    match memory.filter(|_| devices.len() > 1) {
        Some(memory) => Err(Failure::refused(format!(
            "{memory} is volatile: it cannot be part of a cache mirror; name devices \
             that keep their contents, or memory alone"
        ))),
        None => Ok(()),
    }
}

/// The further copies, for the description.
pub fn mirror_of(others: &[DeviceSpec]) -> Option<MirrorDescription> {
    let copies: Vec<String> = others.iter().map(DeviceSpec::to_string).collect();
    let uuid = Uuid::new_v4();
    (!copies.is_empty()).then(|| MirrorDescription { uuid, copies, spares: Vec::new() })
}
