//! Re-adding a member: only the writes that it missed are resynced.
//!
//! It had its role until an event since which the marks cover every write (`absence`), and it was
//! not used on its own since. Until it is complete it is a spare that is filled with its old role,
//! and after a cut it is rebuilt as any other.

use std::ops::Range;
use std::rc::Rc;

use headpond_block::{BlockDevice, Cause, DeviceError, DeviceName};
use thiserror::Error;
use uuid::Uuid;

use super::{Array, Inspection, Member, MemberError, inspect};
use crate::layout::Role;
use crate::superblock::Superblock;

/// Why a device cannot take its old role again as it is. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReturnError {
    #[error("{device}: is not a member of array `{array}`; `add-spare` adds it as a spare")]
    Foreign { array: String, device: DeviceName },
    #[error(
        "{device}: array `{array}` has no role to re-add it to: another device has its role, or it \
         failed while it was re-added; `add-spare --force` adds it as a spare"
    )]
    Replaced { array: String, device: DeviceName },
    #[error("{device}: is already in use in array `{array}`")]
    InUse { array: String, device: DeviceName },
    #[error(
        "{device}: array `{array}` has no record of the writes that it missed ({cause}); \
         `add-spare --force` rebuilds all of it"
    )]
    Unmarked { array: String, device: DeviceName, cause: &'static str },
    #[error(
        "{device}: is at event {found}, and array `{array}` has marked writes only since event \
         {since}: it is an older image; `add-spare --force` rebuilds all of it"
    )]
    TooOld { array: String, device: DeviceName, found: u64, since: u64 },
    #[error(
        "{device}: was in use without {other}, as array `{array}` never was: it may hold data that \
         the array lacks; save that first, then `add-spare --force` rebuilds all of it"
    )]
    Diverged { array: String, device: DeviceName, other: DeviceName },
    #[error(transparent)]
    Member(#[from] MemberError),
}

impl Array {
    /// Re-adds a member to its role; [`Array::fill`] then resyncs the rows that it missed. Returns
    /// their number. `uuid` was never used before.
    ///
    /// # Errors
    /// If it never had a role, or may have missed unmarked writes, or have data that the array
    /// lacks.
    pub async fn re_add(
        &self,
        device: Rc<dyn BlockDevice>,
        uuid: Uuid,
    ) -> Result<u64, ReturnError> {
        self.check_writable().map_err(MemberError::from)?;
        let name = device.name().clone();
        let superblock = match inspect(&*device).await.map_err(MemberError::from)? {
            Inspection::Member(superblock) if superblock.array.uuid == self.uuid() => superblock,
            _ => return Err(ReturnError::Foreign { array: self.array_name(), device: name }),
        };
        let own = &superblock.array;
        if own.reshape.is_some() || own.roles.len() != self.layout.members() {
            let cause = "it has been reshaped to more members";
            return Err(ReturnError::Unmarked { array: self.array_name(), device: name, cause });
        }
        let role = self.consider_return(&name, &superblock)?;
        self.consider_spare(&*device)?;
        let lacks = self.rows_lacking(role);
        let rows = lacks.iter().map(|range| range.end - range.start).sum();
        let member = Member::joining(device, uuid, self.recorder.issued_count(), self.history());
        member.sequence.set(superblock.sequence);
        let member = Rc::new(member);
        self.members.begin_catching_up(role, Rc::clone(&member), lacks);
        self.write_all_pages().await.map_err(MemberError::from)?;
        self.write_found_lost().await.map_err(MemberError::from)?;
        self.change_record(|_| {}).await.map_err(MemberError::from)?;
        match self.members.is_present(&member) {
            true => Ok(rows),
            false => {
                let gone = DeviceError::new(&name, Cause::Gone);
                Err(MemberError::from(gone).into())
            }
        }
    }

    /// The role that a device may be re-added to.
    fn consider_return(
        &self,
        device: &DeviceName,
        superblock: &Superblock,
    ) -> Result<Role, ReturnError> {
        let (array, device) = (self.array_name(), device.clone());
        let (uuid, found) = (superblock.member_uuid, superblock.array.event_count);
        let present = self.members.present();
        if present.iter().any(|member| member.uuid == uuid) {
            return Err(ReturnError::InUse { array, device });
        }
        let had = |slot: &super::members::Slot| slot.uuid.get() == uuid;
        let role = self.members.slots().find(|(_, slot)| had(slot)).map(|(role, _)| role);
        let Some(role) = role else { return Err(ReturnError::Replaced { array, device }) };
        if self.members.slot(role).filling().is_some() {
            return Err(MemberError::Filling { role: role.0 }.into());
        }
        let calls_out =
            |other: &&Rc<Member>| superblock.array.calls_out(other.uuid, other.event_count.get());
        if let Some(other) = present.iter().find(calls_out) {
            let other = other.name().clone();
            return Err(ReturnError::Diverged { array, device, other });
        }
        let Some(since) = self.recorder.record().absent_since else {
            let cause = match (self.intents.is_some(), self.members.lent_to(role).is_some()) {
                (false, _) => "it has no intent bitmap",
                (_, true) => "its data is in distributed spare space",
                _ => {
                    "it was started by force, or repaired from its cache, after an unclean shutdown that \
                      cost it a member"
                }
            };
            return Err(ReturnError::Unmarked { array, device, cause });
        };
        match found + 1 >= since {
            true => Ok(role),
            false => Err(ReturnError::TooOld { array, device, found, since }),
        }
    }

    /// What is marked; everything, where the device has spare space that was lent to others without
    /// a mark.
    fn rows_lacking(&self, role: Role) -> Vec<Range<u64>> {
        if self.members.is_lent_beside(role) {
            return std::iter::once(0..self.layout.rows()).collect();
        }
        let absence = self.absence.as_ref().expect("the record tells of its marks");
        let mut rows: Vec<Range<u64>> = Vec::new();
        for stripes in absence.lacks(self.layout.stripes()) {
            let next = self.layout.rows_of(stripes);
            match rows.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                _ => rows.push(next),
            }
        }
        rows
    }

    pub(super) fn array_name(&self) -> String {
        self.recorder.record().name.clone()
    }
}
