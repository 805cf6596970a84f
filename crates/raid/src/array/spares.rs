//! Adding and removing devices while the array serves.
//!
//! A device is added as a hot spare; only then it can be given a role. The array knows it once an
//! event that names it is on the members; a cut before that leaves a device that belongs to no
//! array.

use std::rc::Rc;

use headpond_block::{BlockDevice, Cause, DeviceError, DeviceName};
use thiserror::Error;
use uuid::Uuid;

use super::lost::erase_lost;
use super::{Array, Member, zero_copy};
use crate::deadlines::in_time;
use crate::layout::Role;
use crate::superblock::{FillRecord, SPARES_MAX};

/// Why the members stay as they are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberError {
    #[error("array `{array}` has no redundancy: it requires every member, and none can be rebuilt")]
    NoRedundancy { array: String },
    #[error("{device}: is already in the array")]
    Known { device: DeviceName },
    #[error(
        "{device}: has {size_bytes} bytes; a member of array `{array}` requires {needed_bytes}"
    )]
    TooSmall { array: String, device: DeviceName, size_bytes: u64, needed_bytes: u64 },
    #[error(
        "{device}: has logical blocks of {found} bytes; array `{array}` supports up to {allowed}: \
         attach it with smaller ones"
    )]
    LogicalBlock { array: String, device: DeviceName, found: u32, allowed: u32 },
    #[error("array `{array}` has {SPARES_MAX} spares, which is the maximum; remove one first")]
    TooMany { array: String },
    #[error("array `{array}` has no hot spare; add a device first")]
    NoSpare { array: String },
    #[error("array `{array}` has no member or spare `{member}`; `status` lists them")]
    Unknown { array: String, member: String },
    #[error(
        "role {role} is already being rebuilt onto a spare; remove that one first to use another"
    )]
    Filling { role: u16 },
    #[error(
        "array `{array}` needs {device}: its group lacks as many members as the level tolerates; \
         rebuild one of those first (`headpond array add-spare`), or re-add it (`re-add`)"
    )]
    Needed { array: String, device: DeviceName },
    #[error(
        "array `{array}`: its initial sync is not complete, and the data of a failed member could \
         not be reconstructed: wait for that (`headpond array wait`)"
    )]
    Uninitialised { array: String },
    #[error("array `{array}` is being reshaped to more members; wait for that")]
    Growing { array: String },
    #[error("array `{array}` is not a RAID 1, and has no copies to drop")]
    NoCopies { array: String },
    #[error(
        "array `{array}` has no copy `{copy}`: `status` lists them; one without a known device is \
         called `missing`"
    )]
    UnknownCopy { array: String, copy: String },
    #[error(
        "array `{array}` has no copy without a known device: name one by its device, as `status` \
         lists it"
    )]
    NoneMissing { array: String },
    #[error(
        "the copies of array `{array}` may differ since an unclean shutdown; wait for the resync"
    )]
    Unalike { array: String },
    #[error("array `{array}` would have fewer than two copies in use")]
    LastCopies { array: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Array {
    /// Adds a device as a hot spare. Its contents are lost; the caller has seen to it that this may
    /// be.
    ///
    /// # Errors
    /// Where it cannot be a member of this array; it is then untouched, unless it failed itself.
    pub async fn add_spare(
        &self,
        device: Rc<dyn BlockDevice>,
        uuid: Uuid,
    ) -> Result<(), MemberError> {
        self.check_writable()?;
        self.consider_spare(&*device)?;
        self.join_spare(device, uuid).await
    }

    /// Makes a device a spare that has been considered.
    pub(super) async fn join_spare(
        &self,
        device: Rc<dyn BlockDevice>,
        uuid: Uuid,
    ) -> Result<(), MemberError> {
        let blank = {
            let device = Rc::clone(&device);
            async move {
                zero_copy(&*device, 0).await?;
                zero_copy(&*device, 1).await?;
                erase_lost(&*device).await
            }
        };
        in_time(&self.runtime, device.name(), self.deadline(), blank).await?;
        let spare =
            Rc::new(Member::joining(device, uuid, self.recorder.issued_count(), self.history()));
        self.members.join(Rc::clone(&spare));
        self.write_all_pages().await?;
        self.write_found_lost().await?;
        self.change_record(|_| {}).await?;
        match self.members.is_present(&spare) {
            true => Ok(()),
            false => Err(DeviceError::new(spare.name(), Cause::Gone).into()),
        }
    }

    /// Whether a device could be a member.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn consider_spare(&self, device: &dyn BlockDevice) -> Result<(), MemberError> {
        if self.layout.redundancy() == 0 {
            let array = self.recorder.record().name.clone();
            return Err(MemberError::NoRedundancy { array });
        }
        self.check_members_stay()?;
        self.consider_device(device)
    }

    /// Refuses another use of spares than as members of the larger array.
    fn check_members_stay(&self) -> Result<(), MemberError> {
        match self.is_growing() {
            true => Err(MemberError::Growing { array: self.recorder.record().name.clone() }),
            false => Ok(()),
        }
    }

    /// Whether a device has what a member needs.
    pub(super) fn consider_device(&self, device: &dyn BlockDevice) -> Result<(), MemberError> {
        let array = || self.recorder.record().name.clone();
        let present = self.members.present();
        if present.iter().any(|member| member.name() == device.name()) {
            return Err(MemberError::Known { device: device.name().clone() });
        }
        if self.members.spare_records().len() >= SPARES_MAX {
            return Err(MemberError::TooMany { array: array() });
        }
        let record = self.recorder.record();
        let needed_bytes = record.data_offset + record.member_data_bytes;
        let geometry = device.geometry();
        let (size_bytes, device) = (geometry.size_bytes, device.name().clone());
        if size_bytes < needed_bytes {
            let array = record.name.clone();
            return Err(MemberError::TooSmall { array, device, size_bytes, needed_bytes });
        }
        let (found, allowed) = (geometry.logical_block_bytes, record.logical_block_bytes);
        if found > allowed {
            let array = record.name.clone();
            return Err(MemberError::LogicalBlock { array, device, found, allowed });
        }
        Ok(())
    }

    /// Starts filling a role onto a hot spare, which [`Array::fill`] continues. The member with the
    /// role keeps it until then.
    ///
    /// # Errors
    /// Where there is no such spare, or the role is being filled.
    pub async fn assign_spare(&self, role: Role, spare: Option<Uuid>) -> Result<(), MemberError> {
        self.check_writable()?;
        self.check_members_stay()?;
        let slot = self.members.slot(role);
        if slot.filling().is_some() {
            return Err(MemberError::Filling { role: role.0 });
        }
        if self.members.active(role).is_none() && !self.is_parity_whole() {
            return Err(MemberError::Uninitialised { array: self.recorder.record().name.clone() });
        }
        let mut standing_by = self.members.standing_by();
        standing_by.retain(|it| spare.is_none_or(|uuid| it.uuid == uuid));
        let Some(spare) = standing_by.first() else {
            return Err(MemberError::NoSpare { array: self.recorder.record().name.clone() });
        };
        self.members.begin_filling(role, spare);
        Ok(self.change_record(|_| {}).await?)
    }

    /// Fails the member in a role, durably on the others.
    ///
    /// # Errors
    /// Where the array would not survive that.
    pub async fn fail(&self, role: Role) -> Result<(), MemberError> {
        let Some(member) = self.members.active(role) else { return Ok(()) };
        self.check_spared(role, member.name())?;
        if !self.is_parity_whole() {
            return Err(MemberError::Uninitialised { array: self.recorder.record().name.clone() });
        }
        // A member that cannot even record the unchanged state must not be the one that remains.
        self.change_record(|_| {}).await?;
        if !self.members.is_present(&member) {
            return Ok(());
        }
        self.check_spared(role, member.name())?;
        if let Some(former) = self.former()
            && role.index() < former.layout.members()
        {
            Box::pin(former.fail(role)).await?;
        }
        self.fail_member(&member).await;
        Ok(self.check_intact()?)
    }

    fn check_spared(&self, role: Role, device: &DeviceName) -> Result<(), MemberError> {
        let (array, device) = (self.recorder.record().name.clone(), device.clone());
        let lost = self.members.lost_in(self.layout.group_of_role(role));
        match self.layout.redundancy() {
            0 => Err(MemberError::NoRedundancy { array }),
            redundancy if lost >= redundancy => Err(MemberError::Needed { array, device }),
            _ => Ok(()),
        }
    }

    /// Lets go of a spare, also of one on its way to a role; its label is erased.
    ///
    /// # Errors
    /// Where it is not there.
    pub async fn remove_spare(&self, uuid: Uuid) -> Result<(), MemberError> {
        self.check_members_stay()?;
        let present = self.members.present();
        let is_spare = |it: &&Rc<Member>| it.uuid == uuid && !self.members.is_in_role(it);
        let Some(spare) = present.iter().find(is_spare) else {
            let array = self.recorder.record().name.clone();
            return Err(MemberError::Unknown { array, member: uuid.to_string() });
        };
        self.fail_member(spare).await;
        self.check_intact()?;
        super::erase_unlisted(&self.runtime, Rc::clone(&spare.device)).await;
        Ok(())
    }

    /// Has distributed spare space stand in for a member that is lost, from where
    /// [`Array::fill_slot`] goes on. Says for which; `None` where nothing is lost, or lent already.
    ///
    /// # Errors
    /// Where lost data cannot be reconstructed from the others.
    pub async fn lend_slot(&self) -> Result<Option<Role>, MemberError> {
        self.check_writable()?;
        let Some((role, slot)) = self.slot_to_lend() else { return Ok(None) };
        if !self.is_parity_whole() {
            return Err(MemberError::Uninitialised { array: self.recorder.record().name.clone() });
        }
        self.members.lend(slot, FillRecord { role, rows: 0 });
        self.change_record(|_| {}).await?;
        Ok(Some(role))
    }

    /// Whether there is a free slot of distributed spare space, and something for it to do.
    pub fn can_lend_slot(&self) -> bool {
        self.slot_to_lend().is_some() && self.is_parity_whole()
    }

    /// Roles that distributed spare space is to stand in for, and does not completely.
    pub fn lent_roles(&self) -> Vec<Role> {
        let is_under_way = |role: &Role| {
            let lent = self.members.lent_to(*role);
            lent.is_some_and(|_| self.members.is_lost(*role))
        };
        self.members.slots().map(|(role, _)| role).filter(is_under_way).collect()
    }

    fn slot_to_lend(&self) -> Option<(Role, u16)> {
        let slot = self.members.free_slot()?;
        let lacks_one = |role: &Role| {
            let slot = self.members.slot(*role);
            let is_vacant = self.members.active(*role).is_none() && slot.filling().is_none();
            is_vacant && self.members.lent_to(*role).is_none()
        };
        let role = self.members.slots().map(|(role, _)| role).find(lacks_one)?;
        Some((role, slot))
    }

    /// A role without a member and a target; first one without spare space.
    pub fn vacant_role(&self) -> Option<Role> {
        let is_vacant = |role: &Role| {
            self.members.active(*role).is_none() && self.members.slot(*role).filling().is_none()
        };
        let vacant = || self.members.slots().map(|(role, _)| role).filter(is_vacant);
        vacant().find(|role| self.members.is_lost(*role)).or_else(|| vacant().next())
    }

    /// Whether there is a hot spare.
    pub fn has_spare(&self) -> bool {
        !self.members.standing_by().is_empty()
    }

    /// Roles that spares are on their way to.
    pub fn filling_roles(&self) -> Vec<Role> {
        let slots = self.members.slots();
        slots.filter(|(_, slot)| slot.filling().is_some()).map(|(role, _)| role).collect()
    }

    /// The role of the member on a device, or that had it last.
    pub fn role_on(&self, device: &str) -> Option<Role> {
        let is_it = |slot: &super::members::Slot| {
            slot.name.borrow().as_ref().is_some_and(|name| name.as_str() == device)
        };
        self.members.slots().find(|(_, slot)| is_it(slot)).map(|(role, _)| role)
    }

    /// The spare on a device, also one on its way to a role.
    pub fn spare_on(&self, device: &str) -> Option<Uuid> {
        let present = self.members.present();
        let is_it = |it: &&Rc<Member>| it.name().as_str() == device && !self.members.is_in_role(it);
        present.iter().find(is_it).map(|member| member.uuid)
    }
}
