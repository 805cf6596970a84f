//! Starting a reshape: the conditions, and the first records of it.
//!
//! 1. the new devices become hot spares; 2. a second half, without moved rows, is written to every
//!    member; 3. one event of the array as it is makes the second halves valid. After a cut before
//!    that event, the array has some more spares, and no other change.
//!
//! Of RAID 1 more members are more copies, and no data moves: one event adds roles, which are
//! rebuilt as after a loss (`copy_count`).

use std::rc::Rc;

use headpond_block::{BlockDevice, DeviceError, DeviceName};
use thiserror::Error;
use uuid::Uuid;

use super::lost::erase_lost;
use super::second_half::SecondHalf;
use super::{Array, Bitmap, Member, MemberError, write_bitmap_page, write_superblock, zero_copy};
use crate::deadlines::in_time;
use crate::intent::{IntentBitmap, region_stripes};
use crate::layout::{LayoutError, Role};
use crate::level::Level;
use crate::reshape::stage_rows;
use crate::superblock::{
    ArrayRecord, RecordedReshape, RecordedState, RecordedWork, RoleRecord, RoleState, SPARES_MAX,
    STAGE_BYTES, Superblock,
};

/// Why an array does not get more members; it is as it was, but for new devices that may be spares.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrowError {
    #[error("no devices were given to grow array `{array}` with")]
    NoDevices { array: String },
    #[error(
        "array `{array}` is already being reshaped; wait for that, or restart the array to continue"
    )]
    Growing { array: String },
    #[error("array `{array}` can grow by at most {most} devices at a time, not by {devices}")]
    TooMany { array: String, devices: usize, most: usize },
    #[error(
        "array `{array}` is declustered and cannot be reshaped; create a new array and copy the \
         data"
    )]
    Declustered { array: String },
    #[error(
        "array `{array}` is striped by weights and cannot be reshaped; create a new array and copy \
         the data"
    )]
    Weighted { array: String },
    #[error(
        "array `{array}` has a stripe journal, which is bound to its shape: remove it first \
         (`headpond array drop-journal`), and set one after the reshape"
    )]
    Journal { array: String },
    #[error(
        "array `{array}` has no intent bitmap, which would show what a power cut tore; create a \
         new array with one and copy the data"
    )]
    NoBitmap { array: String },
    #[error("array `{array}` is degraded: rebuild it onto a spare first")]
    Degraded { array: String },
    #[error("array `{array}` is rebuilding onto a spare: wait for that, or remove the spare")]
    Filling { array: String },
    #[error("the initial sync of array `{array}` is not complete: wait for that")]
    Uninitialised { array: String },
    #[error("array `{array}` has lost blocks: write them again first; `status` lists them")]
    LostBlocks { array: String },
    #[error(
        "array `{array}` has the hot spare {device}, and would lose it: grow with it too, or \
         remove it"
    )]
    Spare { array: String, device: DeviceName },
    #[error(
        "array `{array}` has strips of {strip_bytes} bytes, and a reshape supports up to \
         {STAGE_BYTES}; create a new array with smaller strips and copy the data"
    )]
    Strip { array: String, strip_bytes: u32 },
    #[error(
        "array `{array}` has groups of {width} members and grows by whole groups, not by {devices} \
         devices"
    )]
    Groups { array: String, width: usize, devices: usize },
    #[error("array `{array}` cannot have that many members: {cause}")]
    Layout { array: String, cause: LayoutError },
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A device that an array is to grow by.
pub struct Addition {
    pub device: Rc<dyn BlockDevice>,
    /// Random, and never used before; ignored if the device is already a spare.
    pub uuid: Uuid,
}

impl Array {
    /// Adds the devices that the array is to grow by as spares, if they are not. So a list of its
    /// devices can be updated before they are needed. The contents of new ones are lost; the caller
    /// has checked that they may be.
    ///
    /// # Errors
    /// What speaks against it, before anything is written; or that of a device, which may leave
    /// some as spares.
    pub async fn join_to_grow(&self, additions: &[Addition]) -> Result<(), GrowError> {
        self.check_writable()?;
        self.consider_reshape(additions)?;
        for Addition { device, uuid } in additions {
            if self.spare_on(device.name().as_str()).is_none() {
                self.join_spare(Rc::clone(device), *uuid).await?;
            }
        }
        Ok(())
    }

    /// Gives the array more members, which hold nothing yet. When that is recorded the array is to
    /// be stopped and assembled again: then [`Array::grow`] moves the data. What is on new devices
    /// is lost; the caller has seen to it that this may be.
    ///
    /// # Errors
    /// What speaks against it, before anything is written; or that of a device, which may leave new
    /// ones as spares.
    pub async fn begin_reshape(&self, additions: &[Addition]) -> Result<(), GrowError> {
        self.join_to_grow(additions).await?;
        let next = self.consider_reshape(additions)?;
        if next.reshape.is_none() {
            return Ok(self.change_record(|record| record.roles = next.roles).await?);
        }
        let mut roles = next.roles.clone();
        let before = self.layout.members();
        for (addition, role) in additions.iter().zip(&mut roles[before..]) {
            let spare = self.spare_on(addition.device.name().as_str());
            let gone = || GrowError::Degraded { array: next.name.clone() };
            role.member_uuid = spare.ok_or_else(gone)?;
        }
        let next = ArrayRecord { roles, ..next };
        for (index, entry) in next.roles.iter().enumerate() {
            let present = self.members.present();
            let member = present.iter().find(|member| member.uuid == entry.member_uuid);
            let Some(member) = member else {
                return Err(GrowError::Degraded { array: next.name });
            };
            let (member, record) = (Rc::clone(member), next.clone());
            let name = member.name().clone();
            let write = write_second_half(member, record, Role(index as u16));
            in_time(&self.runtime, &name, self.deadline(), write).await?;
        }
        // The second halves have no record of members lost meanwhile.
        let is_as_before = self.members.standing_by().len() == next.roles.len() - before;
        if !is_as_before || self.members.is_degraded() {
            return Err(GrowError::Degraded { array: next.name });
        }
        Ok(self.change_record(|record| record.reshape = Some(RecordedReshape::Former)).await?)
    }

    /// The array of more members, as it would be recorded. Nothing is written.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn consider_reshape(&self, additions: &[Addition]) -> Result<ArrayRecord, GrowError> {
        self.check_growable()?;
        let (record, array) = (self.recorder.record(), || self.array_name());
        let names: Vec<&DeviceName> = additions.iter().map(|it| it.device.name()).collect();
        if names.is_empty() {
            return Err(GrowError::NoDevices { array: array() });
        }
        for (index, addition) in additions.iter().enumerate() {
            let stands_by = self.spare_on(names[index].as_str()).is_some();
            if names[..index].contains(&names[index]) {
                return Err(MemberError::Known { device: names[index].clone() }.into());
            }
            if !stands_by {
                self.consider_device(&*addition.device)?;
            }
        }
        let spares = self.members.standing_by();
        let others = || spares.iter().filter(|spare| !names.contains(&spare.name()));
        let (width, devices) = (self.layout.width(), names.len());
        // They are spares until the reshape, next to others of a RAID 1.
        let beside = if record.level == Level::Raid1 { others().count() } else { 0 };
        let most = SPARES_MAX - beside;
        if devices > most {
            return Err(GrowError::TooMany { array: array(), devices, most });
        }
        if record.level == Level::Raid1 {
            return self.with_more_copies(&record, devices);
        }
        if let Some(spare) = others().next() {
            return Err(GrowError::Spare { array: array(), device: spare.name().clone() });
        }
        let has_groups = record.level.has_groups();
        if has_groups && !devices.is_multiple_of(width) {
            return Err(GrowError::Groups { array: array(), width, devices });
        }
        let more_groups = if has_groups { devices / width } else { 0 };
        let new = additions.iter().map(|it| it.uuid);
        let new = new.map(|member_uuid| RoleRecord { member_uuid, state: RoleState::Active });
        let mut next = ArrayRecord {
            roles: record.roles.iter().copied().chain(new).collect(),
            groups: record.groups.saturating_add(more_groups as u16),
            state: RecordedState::Clean,
            spares: Vec::new(),
            work: RecordedWork::default(),
            reshape: Some(RecordedReshape::Next { moved_rows: 0, staged_rows: 0 }),
            ..record.clone()
        };
        let layout = next.layout().map_err(|cause| GrowError::Layout { array: array(), cause })?;
        let is_marked = record.intent_region_stripes.is_some();
        next.intent_region_stripes = is_marked.then(|| region_stripes(&layout));
        let is_signed = record.integrity_region_stripes.is_some();
        next.integrity_region_stripes = is_signed.then(|| region_stripes(&layout));
        Ok(next)
    }

    fn check_growable(&self) -> Result<(), GrowError> {
        let (record, array) = (self.recorder.record(), self.array_name());
        let moves = record.level != Level::Raid1;
        let strip_bytes = self.layout.strip_bytes();
        let refusals = [
            (record.reshape.is_some(), GrowError::Growing { array: array.clone() }),
            (self.layout.is_declustered(), GrowError::Declustered { array: array.clone() }),
            (record.weights.is_some(), GrowError::Weighted { array: array.clone() }),
            (record.journal.is_some(), GrowError::Journal { array: array.clone() }),
            (
                moves && self.layout.redundancy() > 0 && self.intents.is_none(),
                GrowError::NoBitmap { array: array.clone() },
            ),
            (self.members.is_degraded(), GrowError::Degraded { array: array.clone() }),
            (!self.filling_roles().is_empty(), GrowError::Filling { array: array.clone() }),
            (!self.is_parity_whole(), GrowError::Uninitialised { array: array.clone() }),
            (moves && self.lost.is_listed(), GrowError::LostBlocks { array: array.clone() }),
            (moves && stage_rows(strip_bytes) == 0, GrowError::Strip { array, strip_bytes }),
        ];
        let refusal = refusals.into_iter().find(|(speaks_against, _)| *speaks_against);
        refusal.map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}

/// Describes the array of more members in the second half of one.
async fn write_second_half(
    member: Rc<Member>,
    record: ArrayRecord,
    role: Role,
) -> Result<(), DeviceError> {
    let half = SecondHalf::of(Rc::clone(&member.device), member.uuid);
    zero_copy(&half, 0).await?;
    zero_copy(&half, 1).await?;
    erase_lost(&half).await?;
    if let Some(region_stripes) = record.intent_region_stripes {
        let layout = record.layout().expect("it was considered");
        let bitmap = IntentBitmap::new(record.uuid, layout.stripes(), region_stripes);
        for number in 0..bitmap.pages() {
            write_bitmap_page(&half, Bitmap::Intent, number, &bitmap.empty_page(number)).await?;
        }
    }
    let (array, member_uuid) = (record, member.uuid);
    let superblock = Superblock { array, member_uuid, role: Some(role), sequence: 1 };
    write_superblock(&half, superblock).await
}
