//! Which of the devices given make up the array, and as what. Pure but for the devices' geometry.

use headpond_block::DeviceName;

use super::{AssembleError, Candidate};
use crate::array::Member;
use crate::layout::{Layout, Role};
use crate::superblock::{ArrayRecord, RecordedState, RoleState};

/// The members of an array.
pub(super) struct Verdict {
    /// What the highest event count says.
    pub(super) record: ArrayRecord,
    /// One a role.
    pub(super) members: Vec<Member>,
    pub(super) missing: Vec<Role>,
    pub(super) stale: Vec<DeviceName>,
}

/// Sorts the candidates, which all belong to one array.
pub(super) fn judge(candidates: Vec<Candidate>) -> Result<Verdict, AssembleError> {
    let newest = candidates
        .iter()
        .max_by_key(|candidate| candidate.superblock.array.event_count)
        .expect("there are candidates");
    let (record, newest) = (newest.superblock.array.clone(), newest.device.name().clone());
    if record.state == RecordedState::Creating {
        return Err(AssembleError::Unborn { name: record.name });
    }
    let mut chosen: Vec<Option<Candidate>> = record.roles.iter().map(|_| None).collect();
    let mut stale = Vec::new();
    for candidate in candidates {
        check_agreement(&candidate, &record, &newest)?;
        if is_stale(&candidate, &record) {
            stale.push(candidate.device.name().clone());
            continue;
        }
        check_device(&candidate, &record)?;
        let place = &mut chosen[candidate.superblock.role.index()];
        if let Some(other) = place {
            return Err(AssembleError::Duplicate {
                device: candidate.device.name().clone(),
                other: other.device.name().clone(),
                role: candidate.superblock.role.0,
            });
        }
        *place = Some(candidate);
    }
    let missing = vacancies(&chosen);
    check_count(&record, &missing)?;
    let members = chosen.into_iter().enumerate().map(|(index, candidate)| match candidate {
        Some(Candidate { device, superblock }) => {
            let (uuid, sequence) = (superblock.member_uuid, superblock.sequence);
            Member::new(Some(device), uuid, RoleState::Active, sequence)
        }
        None => vacant(&record, Role(index as u16)),
    });
    Ok(Verdict { members: members.collect(), record, missing, stale })
}

/// Roles as a user reads them.
pub(super) fn list(roles: &[Role]) -> String {
    roles.iter().map(|role| format!("role {}", role.0)).collect::<Vec<_>>().join(", ")
}

/// The shape of an array never changes, whatever the event count.
fn check_agreement(
    candidate: &Candidate,
    record: &ArrayRecord,
    newest: &DeviceName,
) -> Result<(), AssembleError> {
    let own = &candidate.superblock.array;
    let fields = [
        ("level", own.level == record.level),
        ("groups", own.groups == record.groups),
        ("members", own.roles.len() == record.roles.len()),
        ("strip size", own.strip_bytes == record.strip_bytes),
        ("data offset", own.data_offset == record.data_offset),
        ("data size", own.member_data_bytes == record.member_data_bytes),
        ("intent bitmap", own.intent_region_stripes == record.intent_region_stripes),
    ];
    match fields.iter().find(|(_, agrees)| !agrees) {
        None => Ok(()),
        Some((field, _)) => Err(AssembleError::Contradiction {
            device: candidate.device.name().clone(),
            newer: newest.clone(),
            field,
        }),
    }
}

/// Whether the array went on without this device: the newest role table says so, or has another in
/// its place, or the device missed more than the one update that may have been interrupted.
fn is_stale(candidate: &Candidate, record: &ArrayRecord) -> bool {
    let own = &candidate.superblock;
    let entry = record.roles[own.role.index()];
    let current = own.array.event_count.saturating_add(1) >= record.event_count;
    entry.member_uuid != own.member_uuid || entry.state != RoleState::Active || !current
}

fn check_device(candidate: &Candidate, record: &ArrayRecord) -> Result<(), AssembleError> {
    let device = candidate.device.name().clone();
    let geometry = candidate.device.geometry();
    let needed_bytes = record.data_offset + record.member_data_bytes;
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

fn vacancies(chosen: &[Option<Candidate>]) -> Vec<Role> {
    let empty = chosen.iter().enumerate().filter(|(_, candidate)| candidate.is_none());
    empty.map(|(index, _)| Role(index as u16)).collect()
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

/// A role without a device, in the state that the record knows or that it now gets.
fn vacant(record: &ArrayRecord, role: Role) -> Member {
    let entry = record.roles[role.index()];
    let state = match entry.state {
        RoleState::Failed => RoleState::Failed,
        RoleState::Active | RoleState::Missing => RoleState::Missing,
    };
    Member::new(None, entry.member_uuid, state, 0)
}
