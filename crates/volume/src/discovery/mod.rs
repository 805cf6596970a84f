//! Finding volumes by what their devices say: nothing is written, no description is needed.
//!
//! 1. [`read_labels`] reads what is on each device; 2. [`found_volumes`] groups the devices by
//!    volume, and describes each one from its record and its superblocks; 3. [`FoundVolume::adopt`]
//!    combines that with a description that is there.
//!
//! The array decides about membership when it is assembled (`headpond_raid::assemble`). Here the
//! superblock with the highest event count tells what belongs to the volume.
//!
//! **Not here**: which devices there are, and opening them.

mod adopt;
mod describe;

pub use adopt::Adopted;

use crate::description::Description;
use crate::record::VolumeRecord;
use headpond_block::{BlockDevice, DeviceError, JoinHandle, Runtime};
use headpond_raid::deadlines::in_time;
use headpond_raid::superblock::{ArrayRecord, RoleState, Superblock};
use headpond_raid::{Deadlines, Inspection, Role, inspect, journal_of, volume_record_of};
use std::collections::BTreeMap;
use std::rc::Rc;
use uuid::Uuid;

/// A device, and what a description calls it.
pub struct Candidate {
    pub word: String,
    pub device: Rc<dyn BlockDevice>,
}

/// What is on a device of a volume.
pub enum Label {
    Member {
        superblock: Box<Superblock>,
        record: Option<Box<VolumeRecord>>,
    },
    /// A cache without copies.
    Cache(Box<headpond_cache::Superblock>),
    Journal {
        array: Uuid,
    },
}

/// A device of a volume.
pub struct Labelled {
    pub word: String,
    pub device: Rc<dyn BlockDevice>,
    pub label: Label,
}

/// Why a device is not taken for a part of a volume.
pub enum NoLabel {
    /// It has nothing that this program knows.
    Other,
    Unusable(String),
    Unreadable(DeviceError),
}

/// A volume, as its devices describe it.
pub struct FoundVolume {
    /// Without exports; devices have the words of the candidates.
    pub description: Description,
    /// Whether the members have its settings; without them defaults are assumed.
    pub is_recorded: bool,
    pub parts: Vec<FoundPart>,
    /// What should be there and is not.
    pub lacking: Vec<Lacking>,
    /// Whether every array has enough members, and the cache is there.
    pub can_start: bool,
    /// Devices that claim to be the same part.
    pub duplicates: Vec<String>,
}

/// A part of a volume that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub part: LackingPart,
    pub what: String,
}

/// What kind of part it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LackingPart {
    /// The redundancy may replace it.
    Member,
    Spare,
    Cache,
    Journal,
}

impl Lacking {
    fn new(part: LackingPart, what: String) -> Self {
        Self { part, what }
    }
}

/// A device and its place in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPart {
    pub word: String,
    pub part: Part,
    /// Of the array's superblock on it.
    pub event_count: Option<u64>,
    pub size_bytes: u64,
}

/// The place of a device in a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A member of a core, the first of which has no name here.
    Member {
        core: Option<String>,
        role: u16,
        state: RolePresence,
    },
    Spare {
        core: Option<String>,
    },
    /// Not a part of the array any more, by the newest superblock.
    Former {
        core: Option<String>,
    },
    Cache,
    CacheCopy,
    Journal,
}

/// Whether the array relies on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RolePresence {
    Active,
    /// It was excluded, and may be resynced.
    Excluded,
}

/// Reads what is on devices, all at once, each within the timeout of members.
pub async fn read_labels(
    runtime: &Runtime,
    candidates: Vec<Candidate>,
    deadlines: Option<Deadlines>,
) -> (Vec<Labelled>, Vec<(Candidate, NoLabel)>) {
    let deadline = deadlines.and_then(|deadlines| deadlines.deadline);
    let begin = |candidate: &Candidate| -> JoinHandle<Result<Look, DeviceError>> {
        let (beside, device) = (runtime.clone(), Rc::clone(&candidate.device));
        runtime.spawn(async move {
            let name = device.name().clone();
            let look = async move { look(&*device).await };
            in_time(&beside, &name, deadline, look).await
        })
    };
    let looks: Vec<_> = candidates.iter().map(begin).collect();
    let (mut labelled, mut others) = (Vec::new(), Vec::new());
    for (candidate, look) in candidates.into_iter().zip(looks) {
        match look.await {
            Ok(Look::Label(label)) => {
                let Candidate { word, device } = candidate;
                labelled.push(Labelled { word, device, label });
            }
            Ok(Look::Other) => others.push((candidate, NoLabel::Other)),
            Ok(Look::Unusable(why)) => others.push((candidate, NoLabel::Unusable(why))),
            Err(error) => others.push((candidate, NoLabel::Unreadable(error))),
        }
    }
    (labelled, others)
}

enum Look {
    Label(Label),
    Other,
    Unusable(String),
}

async fn look(device: &dyn BlockDevice) -> Result<Look, DeviceError> {
    match inspect(device).await? {
        Inspection::Member(superblock) => {
            let record = volume_record_of(device, superblock.array.uuid).await;
            let record = record.and_then(|record| VolumeRecord::parse(&record.text).ok());
            return Ok(Look::Label(Label::Member { superblock, record: record.map(Box::new) }));
        }
        Inspection::Unusable(error) => return Ok(Look::Unusable(error.to_string())),
        Inspection::Empty | Inspection::Foreign => {}
    }
    if let Some(array) = journal_of(device).await? {
        return Ok(Look::Label(Label::Journal { array }));
    }
    Ok(match headpond_cache::load(device).await {
        Ok(superblock) => Look::Label(Label::Cache(Box::new(superblock))),
        Err(headpond_cache::OpenError::Device(error)) => return Err(error),
        Err(headpond_cache::OpenError::NoCache { .. }) => Look::Other,
        Err(error) => Look::Unusable(error.to_string()),
    })
}

/// An array, by the devices that were found of it.
struct FoundArray<'a> {
    members: Vec<(&'a Labelled, &'a Superblock)>,
    /// With the highest event count.
    newest: &'a ArrayRecord,
    /// The newest one of a member that the array relies on.
    volume: Option<&'a VolumeRecord>,
}

impl<'a> FoundArray<'a> {
    fn of(members: Vec<(&'a Labelled, &'a Superblock)>) -> Self {
        let newest = members.iter().map(|(_, superblock)| &superblock.array);
        let newest = newest.max_by_key(|record| record.event_count).expect("it has a member");
        let in_force = members.iter().filter(|(_, superblock)| superblock.is_in_force(newest));
        let records = in_force.filter_map(|(device, _)| device.record());
        let volume = records.max_by_key(|record| record.generation);
        Self { members, newest, volume }
    }

    /// The member with this identity.
    fn member(&self, uuid: Uuid) -> Option<&'a Labelled> {
        let found = self.members.iter().find(|(_, superblock)| superblock.member_uuid == uuid);
        found.map(|(device, _)| *device)
    }

    /// Words of members by role, and of spares.
    fn words(&self) -> (Vec<String>, Vec<String>) {
        let words = |uuids: Vec<Uuid>| -> Vec<String> {
            let found = uuids.into_iter().filter_map(|uuid| self.member(uuid));
            found.map(|device| device.word.clone()).collect()
        };
        let roles = self.newest.roles.iter().map(|role| role.member_uuid).collect();
        let spares = self.newest.spares.iter().map(|spare| spare.member_uuid).collect();
        (words(roles), words(spares))
    }

    /// Members on which the array relies that were not found.
    fn lacking(&self, what: &str) -> Vec<Lacking> {
        let mut lacking = Vec::new();
        for (role, entry) in self.newest.roles.iter().enumerate() {
            if entry.state == RoleState::Active && self.member(entry.member_uuid).is_none() {
                let what = format!("member {role} of {what} ({})", entry.member_uuid);
                lacking.push(Lacking::new(LackingPart::Member, what));
            }
        }
        for spare in &self.newest.spares {
            if self.member(spare.member_uuid).is_none() {
                let what = format!("a spare of {what} ({})", spare.member_uuid);
                lacking.push(Lacking::new(LackingPart::Spare, what));
            }
        }
        lacking
    }

    /// Whether the members that were found hold everything.
    fn can_start(&self) -> bool {
        let Ok(layout) = self.newest.layout() else { return false };
        let is_empty = |role: &Role| {
            let entry = &self.newest.roles[role.index()];
            entry.state != RoleState::Active || self.member(entry.member_uuid).is_none()
        };
        let roles = (0..self.newest.roles.len()).map(|role| Role(role as u16));
        let empty: Vec<Role> = roles.filter(is_empty).collect();
        let mut lost = vec![0; layout.groups()];
        for role in self.newest.unreplaced(&empty) {
            lost[layout.group_of_role(role)] += 1;
        }
        lost.into_iter().all(|lost| lost <= layout.redundancy())
    }

    /// Devices with the identity of another one.
    fn duplicates(&self) -> Vec<String> {
        let mut by_uuid: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        for (device, superblock) in &self.members {
            let shown = format!("{} (event {})", device.word, superblock.array.event_count);
            by_uuid.entry(superblock.member_uuid).or_default().push(shown);
        }
        let several = by_uuid.into_iter().filter(|(_, devices)| devices.len() > 1);
        several.map(|(uuid, devices)| format!("{}: member {uuid}", devices.join(", "))).collect()
    }
}

impl Labelled {
    /// The volume record on it.
    pub fn record(&self) -> Option<&VolumeRecord> {
        match &self.label {
            Label::Member { record, .. } => record.as_deref(),
            _ => None,
        }
    }
}

/// The volumes to which devices belong, by name.
pub fn found_volumes(labelled: &[Labelled]) -> Vec<FoundVolume> {
    let mut members: BTreeMap<Uuid, Vec<(&Labelled, &Superblock)>> = BTreeMap::new();
    for device in labelled {
        if let Label::Member { superblock, .. } = &device.label {
            members.entry(superblock.array.uuid).or_default().push((device, &**superblock));
        }
    }
    let arrays: BTreeMap<Uuid, FoundArray<'_>> =
        members.into_iter().map(|(uuid, members)| (uuid, FoundArray::of(members))).collect();
    let mut records: BTreeMap<Uuid, &VolumeRecord> = BTreeMap::new();
    for record in arrays.values().filter_map(|array| array.volume) {
        let newest = records.entry(record.volume.uuid).or_insert(record);
        if newest.generation < record.generation {
            *newest = record;
        }
    }
    let mut volumes: Vec<FoundVolume> =
        records.values().map(|record| describe::recorded(record, &arrays, labelled)).collect();
    let is_known = |uuid: &Uuid| records.values().any(|record| describe::has_array(record, *uuid));
    let unknown = arrays.iter().filter(|(uuid, _)| !is_known(uuid));
    let unknown: Vec<_> = unknown.collect();
    let copies = |name: &str| {
        let is_its = |array: &FoundArray<'_>| array.newest.name == format!("cache of {name}");
        unknown.iter().find(|(_, array)| is_its(array)).map(|(uuid, _)| **uuid)
    };
    for (uuid, array) in &unknown {
        let is_copies = array.newest.name.starts_with("cache of ");
        if !is_copies {
            let copies = copies(&array.newest.name);
            volumes.push(describe::unrecorded(**uuid, copies, &arrays, labelled));
        }
    }
    volumes.sort_by(|one, other| one.description.name.cmp(&other.description.name));
    volumes
}
