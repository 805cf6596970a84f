//! Changing the settings of a volume that is not open, and clearing its errors.

use super::Volume;
use super::errors::{ClearError, named};
use crate::assembly::open::Devices;
use crate::assembly::ownership::{ClaimError, Claimant, Ownership};
use crate::description::Description;
use crate::history::{DeviceReport, DeviceRole, KeptHistory};
use crate::record::{RecordError, VolumeRecord};
use headpond_block::{BlockDevice, DeviceErrors, Runtime};
use headpond_raid::array::replace_volume_record;
use headpond_raid::superblock::Superblock;
use headpond_raid::{Inspection, inspect_all, volume_record_of};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// Why a volume that is not open was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordStoppedError {
    #[error(transparent)]
    Owned(#[from] ClaimError),
    #[error(
        "no member of {volume} was found: connect its devices, or change it while it is served"
    )]
    NoMembers { volume: String },
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Clear(#[from] ClearError),
}

/// What is changed of the history that the members keep.
type Change<'a> = dyn Fn(&mut KeptHistory, Vec<DeviceReport>) -> Result<(), ClearError> + 'a;

impl Volume {
    /// Records a description on the members of a volume that is not open.
    ///
    /// # Errors
    /// Where another host has it open, no member was given, or one cannot be written.
    pub async fn record_stopped(
        runtime: &Runtime,
        description: &Description,
        devices: Devices,
        claimant: Option<Claimant>,
    ) -> Result<(), RecordStoppedError> {
        owned(runtime, description, devices, claimant, &|_, _| Ok(())).await
    }

    /// Clears the errors that the members keep of a device, by its UUID or, of a member, by its
    /// name; without one all of them, and what scrubs have found.
    ///
    /// # Errors
    /// The same, and where it has no such device.
    pub async fn clear_errors_stopped(
        runtime: &Runtime,
        description: &Description,
        devices: Devices,
        claimant: Option<Claimant>,
        device: Option<&str>,
    ) -> Result<(), RecordStoppedError> {
        let clear = |history: &mut KeptHistory, members| {
            let named = device.map(|_| named(&description.name, members, device)).transpose()?;
            let named = named.map(|it| it.iter().map(|it| it.uuid).collect::<Vec<Uuid>>());
            history.clear(named.as_deref());
            Ok(())
        };
        owned(runtime, description, devices, claimant, &clear).await
    }
}

async fn owned(
    runtime: &Runtime,
    description: &Description,
    mut devices: Devices,
    claimant: Option<Claimant>,
    change: &Change<'_>,
) -> Result<(), RecordStoppedError> {
    let ownership = match claimant.filter(|_| description.heartbeat_ms > 0) {
        Some(claimant) => Ownership::claim(runtime, description, &claimant, &mut devices).await?,
        None => Ownership::default(),
    };
    let recorded = replace(runtime, description, devices.members, change).await;
    ownership.release().await;
    recorded
}

/// Members by array.
type Members = BTreeMap<Uuid, Vec<(Rc<dyn BlockDevice>, Superblock)>>;

async fn replace(
    runtime: &Runtime,
    description: &Description,
    devices: Vec<Rc<dyn BlockDevice>>,
    change: &Change<'_>,
) -> Result<(), RecordStoppedError> {
    let mut members = Members::new();
    for (device, look) in inspect_all(runtime, devices, description.array.deadlines()).await {
        if let Ok(Inspection::Member(superblock)) = look {
            members.entry(superblock.array.uuid).or_default().push((device, *superblock));
        }
    }
    members.values_mut().for_each(keep_in_force);
    let (mut generation, mut history) = (0, KeptHistory::default());
    for (array, members) in &members {
        for (device, _) in members {
            let found = volume_record_of(&**device, *array).await;
            let found = found.and_then(|found| VolumeRecord::parse(&found.text).ok());
            let Some(found) = found else { continue };
            generation = generation.max(found.generation);
            if found.history.sequence >= history.sequence {
                history = found.history;
            }
        }
    }
    let reports =
        members.values().flatten().map(|(device, superblock)| report(&**device, superblock));
    let others = history.devices.iter().map(|kept| of_unknown(kept.device));
    let reports: Vec<DeviceReport> = reports.chain(others).collect();
    change(&mut history, reports)?;
    history.sequence += 1;
    let record = VolumeRecord::new(generation + 1, description);
    let text = record.with_history(history).to_bytes()?;
    let mut is_written = false;
    for (array, members) in &members {
        let devices: Vec<_> = members.iter().map(|(device, _)| Rc::clone(device)).collect();
        replace_volume_record(&devices, *array, &text).await.map_err(RecordError::from)?;
        is_written = true;
    }
    match is_written {
        true => Ok(()),
        false => Err(RecordStoppedError::NoMembers { volume: description.name.clone() }),
    }
}

/// Leaves out what the newest superblock excludes, and older images.
fn keep_in_force(members: &mut Vec<(Rc<dyn BlockDevice>, Superblock)>) {
    let newest = members.iter().map(|(_, superblock)| &superblock.array);
    let Some(newest) = newest.max_by_key(|array| array.event_count).cloned() else { return };
    members.retain(|(_, superblock)| superblock.is_in_force(&newest));
}

/// A member that was found.
fn report(device: &dyn BlockDevice, superblock: &Superblock) -> DeviceReport {
    let device = Some(device.name().to_string());
    DeviceReport { device, ..of_unknown(superblock.member_uuid) }
}

/// A device with errors that is known by its UUID only.
fn of_unknown(uuid: Uuid) -> DeviceReport {
    DeviceReport {
        role: DeviceRole::Member,
        number: None,
        core: None,
        uuid,
        device: None,
        errors: DeviceErrors::default(),
        last_error: None,
    }
}
