//! Describing a volume from its record and the superblocks of its devices.

use super::{
    FoundArray, FoundPart, FoundVolume, Label, Labelled, Lacking, LackingPart, Part, RolePresence,
};
use crate::description::{
    CacheDescription, CoreDescription, Description, HEARTBEAT_MS_DEFAULT, JournalDescription,
};
use crate::record::VolumeRecord;
use crate::{ArraySettings, BackgroundRate, CacheSettings, Size};
use headpond_cache::Mode;
use headpond_raid::Striping;
use headpond_raid::superblock::{RoleState, Superblock};
use std::collections::BTreeMap;
use uuid::Uuid;

type Arrays<'a> = BTreeMap<Uuid, FoundArray<'a>>;

/// Whether an array is one of a recorded volume.
pub(super) fn has_array(record: &VolumeRecord, array: Uuid) -> bool {
    let cache = record.volume.cache.as_ref();
    let mirror = cache.and_then(|cache| cache.mirror.as_ref()).map(|mirror| mirror.uuid);
    record.volume.cores().any(|(uuid, _)| uuid == array) || mirror == Some(array)
}

/// A volume whose settings are on its members.
pub(super) fn recorded(
    record: &VolumeRecord,
    arrays: &Arrays<'_>,
    labelled: &[Labelled],
) -> FoundVolume {
    found(record.volume.clone(), true, arrays, labelled)
}

/// A volume that no program has started that records settings: defaults, and a cache that makes no
/// dirty data.
pub(super) fn unrecorded(
    array: Uuid,
    copies: Option<Uuid>,
    arrays: &Arrays<'_>,
    labelled: &[Labelled],
) -> FoundVolume {
    let newest = arrays[&array].newest;
    let superblock = cache_of(array, newest.owner, labelled).map(|(_, superblock)| superblock);
    let settings = CacheSettings { mode: Mode::WriteThrough, ..CacheSettings::default() };
    let line = superblock.map_or(headpond_block::BLOCK_BYTES, |it| u64::from(it.line_bytes));
    let cache = CacheDescription {
        device: String::new(),
        line: Size(line),
        size: None,
        settings,
        volatile_allowed: false,
        mirror: copies.map(|uuid| crate::MirrorDescription {
            uuid,
            copies: Vec::new(),
            spares: Vec::new(),
        }),
    };
    let description = Description {
        name: newest.name.replace('/', "-"),
        uuid: array,
        slices: superblock.map_or(1, |it| it.slices.len() as u16),
        heartbeat_ms: HEARTBEAT_MS_DEFAULT,
        tier: None,
        cache: newest.owner.map(|_| cache),
        core: CoreDescription {
            raid: newest.level,
            groups: newest.groups,
            strip: Size(u64::from(newest.strip_bytes)),
            intent: true,
            integrity: false,
            members: Vec::new(),
            spares: Vec::new(),
            declustered: None,
            striping: Striping::Plain,
            background: BackgroundRate::default(),
            journal: None,
        },
        array: ArraySettings::default(),
        further_cores: Vec::new(),
        exports: Vec::new(),
    };
    found(description, false, arrays, labelled)
}

/// The cache of a volume on a device of its own: the one that the array names, where there are
/// several.
fn cache_of(
    volume: Uuid,
    owner: Option<Uuid>,
    labelled: &[Labelled],
) -> Option<(&Labelled, &headpond_cache::Superblock)> {
    let caches = labelled.iter().filter_map(|device| match &device.label {
        Label::Cache(superblock) if superblock.volume == volume => Some((device, &**superblock)),
        _ => None,
    });
    caches.max_by_key(|(_, superblock)| (Some(superblock.cache) == owner, superblock.sequence))
}

/// Puts what was found in the place of what is described.
fn found(
    description: Description,
    is_recorded: bool,
    arrays: &Arrays<'_>,
    labelled: &[Labelled],
) -> FoundVolume {
    let mut volume = FoundVolume {
        description: description.clone(),
        is_recorded,
        parts: Vec::new(),
        lacking: Vec::new(),
        can_start: true,
        duplicates: Vec::new(),
    };
    let further = description.further_cores.iter().map(|core| Some(core.name.clone()));
    let names: Vec<Option<String>> = std::iter::once(None).chain(further).collect();
    let uuids: Vec<Uuid> = description.cores().map(|(uuid, _)| uuid).collect();
    for (at, (uuid, name)) in uuids.into_iter().zip(names).enumerate() {
        let what = match &name {
            Some(core) => description.array_name(core),
            None => description.name.clone(),
        };
        let Some(array) = arrays.get(&uuid) else {
            let what = format!("all members of {what}");
            volume.lacking.push(Lacking::new(LackingPart::Member, what));
            volume.can_start = false;
            continue;
        };
        volume.can_start &= array.can_start();
        volume.lacking.extend(array.lacking(&what));
        volume.duplicates.extend(array.duplicates());
        let parts = array.members.iter().map(|(device, superblock)| {
            let place = place_of(array, superblock, name.clone());
            part(device, place, Some(superblock.array.event_count))
        });
        volume.parts.extend(parts);
        let journal = labelled.iter().find(|device| is_journal_of(device, uuid));
        let core = match at {
            0 => &mut volume.description.core,
            at => &mut volume.description.further_cores[at - 1].core,
        };
        take_shape(core, array, journal);
        if array.newest.journal.is_some_and(|it| !it.is_lost) && journal.is_none() {
            let what = format!("the stripe journal of {what}");
            volume.lacking.push(Lacking::new(LackingPart::Journal, what));
        }
        volume.parts.extend(journal.map(|device| part(device, Part::Journal, None)));
    }
    volume.find_cache(arrays, labelled);
    volume.parts.sort_by(|one, other| (&one.part, &one.word).cmp(&(&other.part, &other.word)));
    volume
}

fn part(device: &Labelled, part: Part, event_count: Option<u64>) -> FoundPart {
    let size_bytes = device.device.geometry().size_bytes;
    FoundPart { word: device.word.clone(), part, event_count, size_bytes }
}

fn is_journal_of(device: &Labelled, array: Uuid) -> bool {
    matches!(device.label, Label::Journal { array: found } if found == array)
}

fn place_of(array: &FoundArray<'_>, superblock: &Superblock, core: Option<String>) -> Part {
    let uuid = superblock.member_uuid;
    let roles = array.newest.roles.iter().zip(0..);
    if let Some((entry, role)) = roles.into_iter().find(|(entry, _)| entry.member_uuid == uuid) {
        let state = match entry.state {
            RoleState::Active => RolePresence::Active,
            RoleState::Failed | RoleState::Missing => RolePresence::Excluded,
        };
        return Part::Member { core, role, state };
    }
    match array.newest.spares.iter().any(|spare| spare.member_uuid == uuid) {
        true => Part::Spare { core },
        false => Part::Former { core },
    }
}

/// The shape of a core is that of its superblocks, whatever else describes it.
fn take_shape(core: &mut CoreDescription, array: &FoundArray<'_>, journal: Option<&Labelled>) {
    let newest = array.newest;
    core.raid = newest.level;
    core.groups = newest.groups;
    core.strip = Size(u64::from(newest.strip_bytes));
    core.intent = newest.intent_region_stripes.is_some();
    core.integrity = newest.integrity_region_stripes.is_some();
    core.declustered = newest.declustering.as_ref().map(|it| it.spread);
    match &newest.weights {
        None => core.striping = Striping::Plain,
        Some(weights) if core.striping == Striping::Plain => {
            core.striping = Striping::Weighted(weights.clone());
        }
        Some(_) => {}
    }
    (core.members, core.spares) = array.words();
    if newest.reshape.is_some() {
        // The first half of the superblocks does not have the members that are added.
        let words = array.members.iter().map(|(device, _)| device.word.clone());
        core.members = words.collect();
        core.spares.clear();
    }
    let described = core.journal.take();
    core.journal = newest.journal.map(|recorded| {
        let former = described.as_ref().map(|it| it.device.clone());
        let device = journal.map(|device| device.word.clone()).or(former);
        let successor = described.and_then(|it| it.successor);
        let (device, when) = (device.unwrap_or_default(), recorded.when);
        JournalDescription { device, when, successor }
    });
}

impl FoundVolume {
    fn find_cache(&mut self, arrays: &Arrays<'_>, labelled: &[Labelled]) {
        let owner = arrays.get(&self.description.uuid).and_then(|array| array.newest.owner);
        let Some(cache) = &mut self.description.cache else { return };
        let Some(mirror) = &mut cache.mirror else {
            match cache_of(self.description.uuid, owner, labelled) {
                Some((device, _)) => {
                    cache.device = device.word.clone();
                    self.parts.push(part(device, Part::Cache, None));
                }
                None if owner.is_some() => self.lack_cache("the cache"),
                None => {}
            }
            return;
        };
        let Some(array) = arrays.get(&mirror.uuid) else {
            self.lack_cache("all copies of the cache");
            return;
        };
        let (copies, spares) = array.words();
        let mut copies = copies.into_iter();
        cache.device = copies.next().unwrap_or_default();
        (mirror.copies, mirror.spares) = (copies.collect(), spares);
        let parts = array.members.iter().map(|(device, superblock)| {
            part(device, Part::CacheCopy, Some(superblock.array.event_count))
        });
        self.parts.extend(parts);
        self.lacking.extend(array.lacking("the cache mirror"));
        self.can_start &= array.can_start();
        self.duplicates.extend(array.duplicates());
    }
    fn lack_cache(&mut self, what: &str) {
        self.lacking.push(Lacking::new(LackingPart::Cache, what.to_owned()));
        self.can_start = false;
    }
}
