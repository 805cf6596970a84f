//! Changing the settings of a volume that is not open.

use super::Volume;
use crate::assembly::open::Devices;
use crate::assembly::ownership::{ClaimError, Claimant, Ownership};
use crate::description::Description;
use crate::record::{RecordError, VolumeRecord};
use headpond_block::{BlockDevice, Runtime};
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
    #[error("no member of {volume} was found: connect its devices, or set it while it is served")]
    NoMembers { volume: String },
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Volume {
    /// Records a description on the members of a volume that is not open.
    ///
    /// # Errors
    /// Where another host has it open, no member was given, or one cannot be written.
    pub async fn record_stopped(
        runtime: &Runtime,
        description: &Description,
        mut devices: Devices,
        claimant: Option<Claimant>,
    ) -> Result<(), RecordStoppedError> {
        let ownership = match claimant.filter(|_| description.heartbeat_ms > 0) {
            Some(claimant) => {
                Ownership::claim(runtime, description, &claimant, &mut devices).await?
            }
            None => Ownership::default(),
        };
        let recorded = replace(runtime, description, devices.members).await;
        ownership.release().await;
        recorded
    }
}

/// Members by array.
type Members = BTreeMap<Uuid, Vec<(Rc<dyn BlockDevice>, Superblock)>>;

async fn replace(
    runtime: &Runtime,
    description: &Description,
    devices: Vec<Rc<dyn BlockDevice>>,
) -> Result<(), RecordStoppedError> {
    let mut members = Members::new();
    for (device, look) in inspect_all(runtime, devices, description.array.deadlines()).await {
        if let Ok(Inspection::Member(superblock)) = look {
            members.entry(superblock.array.uuid).or_default().push((device, *superblock));
        }
    }
    members.values_mut().for_each(keep_in_force);
    let mut generation = 0;
    for (array, members) in &members {
        for (device, _) in members {
            let found = volume_record_of(&**device, *array).await;
            let found = found.and_then(|found| VolumeRecord::parse(&found.text).ok());
            generation = generation.max(found.map_or(0, |found| found.generation));
        }
    }
    let text = VolumeRecord::new(generation + 1, description).to_bytes()?;
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
