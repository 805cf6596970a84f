//! Which of the devices given are members of the array, and in which role. Pure but for the
//! devices' geometry.
//!
//! A member *calls out* (excludes) another where the role table of its superblock has that one
//! failed or missing, or where neither that table nor the spares have it although the other had
//! been added by then. From the invariants of `array::failure` follows:
//! - Every member that was in use when a write was acknowledged excludes those that lack it, from
//!   then on for ever. So members that no superblock here excludes have every write that any member
//!   here has.
//! - The event count does not show that: a start that was cut may have raised it on one member, and
//!   the others may since have continued without that one and reached the same count. It only shows
//!   which record is the newest, among those members that are not excluded.
//! - Within one history the newest excludes all that any older one does. A member that alone
//!   excludes another was in use in another history than the newest; either may have data that the
//!   other lacks.
//! - A member in use is at most one event behind. One that is not excluded and is further behind
//!   was put back from an older image.

use std::ops::Range;

use headpond_block::DeviceName;

use super::{AssembleError, Candidate};
use crate::array::{FoundMembers, Member};
use crate::layout::{Layout, Role};
use crate::level::Level;
use crate::superblock::{ArrayRecord, RecordedState, RoleState, Superblock};

/// The members of an array.
pub(super) struct JudgedMembers {
    /// As it was found on the newest of them.
    pub(super) record: ArrayRecord,
    pub(super) found: FoundMembers,
    pub(super) missing: Vec<Role>,
    /// Those of them that spare space does not stand in for completely.
    pub(super) lost: Vec<Role>,
    pub(super) stale: Vec<DeviceName>,
    /// The stripes that hold data of it: all, but for an array that is being grown.
    pub(super) stripes: Range<u64>,
}

/// Sorts the candidates, which all belong to one array.
pub(super) fn judge(candidates: Vec<Candidate>) -> Result<JudgedMembers, AssembleError> {
    check_agreement(&candidates)?;
    let record = newest_in_use(&candidates)?.superblock.array.clone();
    if record.state == RecordedState::Creating {
        return Err(AssembleError::Unborn { name: record.name });
    }
    let mut seats = Seats::of(&record);
    let mut stale = Vec::new();
    for candidate in candidates {
        if is_stale(&candidate, &record) {
            stale.push(candidate.device.name().clone());
            continue;
        }
        check_device(&candidate, &record)?;
        seats.take(candidate, &record)?;
    }
    let missing = seats.vacancies();
    let lost = record.unreplaced(&missing);
    check_count(&record, &lost)?;
    let stripes = 0..record.layout().expect("a decoded superblock has a shape").stripes();
    Ok(JudgedMembers { found: seats.found(&record), record, missing, lost, stale, stripes })
}

/// The member in each role.
struct Seats {
    roles: Vec<Option<Candidate>>,
    spares: Vec<Option<Candidate>>,
}

impl Seats {
    fn of(record: &ArrayRecord) -> Seats {
        let roles = record.roles.iter().map(|_| None).collect();
        Seats { roles, spares: record.spares.iter().map(|_| None).collect() }
    }

    /// # Errors
    /// Where the place is taken already.
    fn take(&mut self, candidate: Candidate, record: &ArrayRecord) -> Result<(), AssembleError> {
        let uuid = candidate.superblock.member_uuid;
        let role = record.roles.iter().position(|entry| entry.member_uuid == uuid);
        let spare = || record.spares.iter().position(|entry| entry.member_uuid == uuid);
        let seat = match role {
            Some(role) => &mut self.roles[role],
            None => &mut self.spares[spare().expect("whoever is not stale is known")],
        };
        if let Some(other) = seat {
            return Err(AssembleError::Duplicate {
                device: candidate.device.name().clone(),
                other: other.device.name().clone(),
                place: role.map_or_else(|| "a spare".to_owned(), |role| format!("role {role}")),
            });
        }
        *seat = Some(candidate);
        Ok(())
    }

    fn vacancies(&self) -> Vec<Role> {
        let empty = self.roles.iter().enumerate().filter(|(_, candidate)| candidate.is_none());
        empty.map(|(index, _)| Role(index as u16)).collect()
    }

    fn found(self, record: &ArrayRecord) -> FoundMembers {
        let member = |it: Candidate, role| Member::found(it.device, &it.superblock, role);
        let roles = self.roles.into_iter().zip(0..).map(|(candidate, index)| {
            let role = Role(index);
            let found = candidate.map(|it| member(it, Some(role)));
            found.ok_or_else(|| vacancy(record, role))
        });
        let mut found = FoundMembers {
            roles: roles.collect(),
            filling: Vec::new(),
            standing_by: Vec::new(),
            volume_record: None,
        };
        for (entry, candidate) in record.spares.iter().zip(self.spares) {
            let Some(candidate) = candidate else { continue };
            match entry.filling {
                Some(filled) => {
                    found.filling.push((filled, member(candidate, Some(filled.role))));
                }
                None => found.standing_by.push(member(candidate, None)),
            }
        }
        found
    }
}

/// Roles as a user reads them.
pub(super) fn list(roles: &[Role]) -> String {
    roles.iter().map(|role| format!("role {}", role.0)).collect::<Vec<_>>().join(", ")
}

/// The shape of an array never changes, whatever the event count, but for the number of copies of
/// RAID 1; one being reshaped has two, each with superblocks of its own. A member excluded at that
/// time has the former shape, and is left out anyway.
fn check_agreement(candidates: &[Candidate]) -> Result<(), AssembleError> {
    let newest = newest(candidates.iter()).expect("there are candidates");
    let record = &newest.superblock.array;
    for candidate in candidates.iter().filter(|it| !calls_out(record, &it.superblock)) {
        let own = &candidate.superblock.array;
        let fields = [
            ("level", own.level == record.level),
            ("groups", own.groups == record.groups),
            ("declustering", own.declustering == record.declustering),
            ("weights", own.weights == record.weights),
            ("members", own.roles.len() == record.roles.len() || record.level == Level::Raid1),
            ("strip size", own.strip_bytes == record.strip_bytes),
            ("data offset", own.data_offset == record.data_offset),
            ("data size", own.member_data_bytes == record.member_data_bytes),
            ("intent bitmap", own.intent_region_stripes == record.intent_region_stripes),
            ("integrity region", own.integrity_region_stripes == record.integrity_region_stripes),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, agrees)| !agrees) {
            let (device, newer) = (candidate.device.name().clone(), newest.device.name().clone());
            return Err(AssembleError::Contradiction { device, newer, field });
        }
    }
    Ok(())
}

fn newest<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    candidates.max_by_key(|candidate| candidate.superblock.array.event_count)
}

/// The newest of those that are not excluded.
///
/// # Errors
/// If it does not exclude all that others do: then the array has diverged.
fn newest_in_use(candidates: &[Candidate]) -> Result<&Candidate, AssembleError> {
    let accuser_of = |accused: &Candidate| {
        let accused = &accused.superblock;
        candidates.iter().find(|accuser| calls_out(&accuser.superblock.array, accused))
    };
    let accusers: Vec<Option<&Candidate>> = candidates.iter().map(accuser_of).collect();
    let pairs = || candidates.iter().zip(&accusers);
    let newest = newest(pairs().filter(|(_, by)| by.is_none()).map(|(candidate, _)| candidate));
    for (accused, accuser) in pairs() {
        let Some(accuser) = accuser else { continue };
        let agrees = |it: &Candidate| calls_out(&it.superblock.array, &accused.superblock);
        if !newest.is_some_and(agrees) {
            let (device, other) = (accuser.device.name().clone(), accused.device.name().clone());
            return Err(AssembleError::Diverged { device, other });
        }
    }
    Ok(newest.expect("where everybody is called out, nobody is there to agree"))
}

fn calls_out(record: &ArrayRecord, member: &Superblock) -> bool {
    record.calls_out(member.member_uuid, member.array.event_count)
}

/// Whether the array went on without this device.
fn is_stale(candidate: &Candidate, record: &ArrayRecord) -> bool {
    let own = &candidate.superblock;
    let in_step = own.array.event_count.saturating_add(1) >= record.event_count;
    calls_out(record, own) || !in_step
}

fn check_device(candidate: &Candidate, record: &ArrayRecord) -> Result<(), AssembleError> {
    let device = candidate.device.name().clone();
    let geometry = candidate.device.geometry();
    let data_bytes = |role| record.data_bytes_of(role);
    let data_bytes = candidate.superblock.role.map_or(record.member_data_bytes, data_bytes);
    let needed_bytes = record.data_offset + data_bytes;
    if geometry.size_bytes < needed_bytes {
        let size_bytes = geometry.size_bytes;
        return Err(AssembleError::TooSmall { device, size_bytes, needed_bytes });
    }
    let (found, allowed) = (geometry.logical_block_bytes, record.logical_block_bytes);
    if found > allowed {
        return Err(AssembleError::LogicalBlock { device, found, allowed });
    }
    Ok(())
}

fn check_count(record: &ArrayRecord, missing: &[Role]) -> Result<(), AssembleError> {
    let layout: Layout = record.layout().expect("a decoded superblock has a shape");
    for group in 0..layout.groups() {
        let lost: Vec<Role> =
            missing.iter().copied().filter(|role| layout.group_of_role(*role) == group).collect();
        if lost.len() > layout.redundancy() {
            return Err(AssembleError::TooFew {
                name: record.name.clone(),
                group,
                lost: lost.len(),
                redundancy: layout.redundancy(),
                roles: list(&lost),
            });
        }
    }
    Ok(())
}

/// Why a role has no member, as the record knows or as it now gets to know.
fn vacancy(record: &ArrayRecord, role: Role) -> RoleState {
    match record.roles[role.index()].state {
        RoleState::Failed => RoleState::Failed,
        RoleState::Active | RoleState::Missing => RoleState::Missing,
    }
}
