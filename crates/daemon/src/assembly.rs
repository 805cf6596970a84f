//! Finds the devices of a volume: those that its description names, and others of this machine that
//! say that they belong to it.
//!
//! A name in the description is a hint. What is on a device decides; a device that is no part of
//! the volume is left alone, whatever it is called.

use crate::device::{
    DeviceSpec, MachineDevice, Opener, block_devices, files_in, identity_of, serial_of,
};
use crate::run_blocking::run_blocking;
use anyhow::Result;
use headpond_api::outcome::{Failure, told};
use headpond_block::{BlockDevice, Runtime};
use headpond_volume::{
    Adopted, CacheDescription, Candidate, Description, Devices, FoundVolume, Label, Labelled,
    Lacking, LackingPart, NoLabel, Note, found_volumes, read_labels,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The devices of a volume, and its description by them.
pub struct Assembly {
    pub description: Description,
    pub devices: Devices,
    /// Where the devices say something else than the description did.
    pub differences: Vec<String>,
    /// Parts that should be there, and are not.
    pub lacking: Vec<Lacking>,
}

/// How long a device is waited for that is only looked at.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

impl Assembly {
    /// Whether something is missing that no redundancy replaces: a cache, a journal or a tier.
    pub fn lacks_more_than_members(&self) -> bool {
        let is_more = |it: &Lacking| matches!(it.part, LackingPart::Cache | LackingPart::Journal);
        self.lacking.iter().any(is_more)
    }
}

/// Words of a description that lead to no part of the volume, and why.
type Unusable = BTreeMap<String, String>;

/// The folders and devices in which to look for volumes.
#[derive(Clone, Debug, Default)]
pub struct SearchPlaces {
    pub folders: Vec<PathBuf>,
    pub devices: Vec<PathBuf>,
}

/// Everything on this machine that may belong to a volume, to be read only.
///
/// # Errors
/// Where no thread can be started.
pub async fn candidates(
    opener: &Opener,
    runtime: &Runtime,
    places: &SearchPlaces,
    open: &[String],
) -> Result<Vec<Candidate>> {
    unseen_candidates(opener, runtime, places, open, &mut BTreeSet::new()).await
}

/// The same without what was looked at before, by its appearance.
///
/// # Errors
/// Where no thread can be started.
pub async fn unseen_candidates(
    opener: &Opener,
    runtime: &Runtime,
    places: &SearchPlaces,
    open: &[String],
    seen: &mut BTreeSet<String>,
) -> Result<Vec<Candidate>> {
    let (places, open, known) = (places.clone(), open.to_vec(), seen.clone());
    let list = run_blocking(move || {
        let is_new = |device: &MachineDevice| !known.contains(&device.appearance);
        Ok(devices_in(&places, &open).into_iter().filter(is_new).collect::<Vec<_>>())
    });
    let mut candidates = Vec::new();
    for MachineDevice { path, appearance, .. } in list.await? {
        // One that cannot be opened is no part of anything that could be started.
        let opening = opener.look_at(path.clone());
        let end = runtime.now() + LOOK_TIME_MAX;
        if let Ok(Ok(device)) = runtime.deadline(end, opening).await {
            candidates.push(Candidate { word: path.display().to_string(), device });
            seen.insert(appearance);
        }
    }
    Ok(candidates)
}

/// Everything that may be looked at, each once, without what is open already.
fn devices_in(places: &SearchPlaces, open: &[String]) -> Vec<MachineDevice> {
    let mut known: Vec<String> = open.iter().filter_map(|word| identity_of_word(word)).collect();
    let named = places.devices.iter().filter_map(|path| MachineDevice::at(path));
    let in_folders = places.folders.iter().flat_map(|folder| files_in(folder));
    let mut list: Vec<MachineDevice> = Vec::new();
    for device in named.chain(block_devices()).chain(in_folders) {
        if !known.contains(&device.identity) {
            known.push(device.identity.clone());
            list.push(device);
        }
    }
    list
}

fn identity_of_word(word: &str) -> Option<String> {
    identity_of(word.parse::<DeviceSpec>().ok()?.path()?)
}

/// Finds and opens the devices of the described volume.
///
/// # Errors
/// Where two devices claim to be the same part, or a name cannot be read.
pub async fn assemble(
    opener: &Opener,
    runtime: &Runtime,
    described: &Description,
) -> Result<Assembly> {
    let mut unusable = Unusable::new();
    let mut labelled = open_named(opener, runtime, described, &mut unusable).await?;
    let mut found = volume_of(described, &labelled);
    let is_whole = found.as_ref().is_some_and(|found| found.lacking.is_empty());
    if !is_whole || unusable.keys().any(|word| is_persistent(word)) {
        open_others(opener, runtime, described, &mut labelled, &mut unusable).await?;
        found = volume_of(described, &labelled);
    }
    let words: Vec<String> = unusable.keys().cloned().collect();
    let (adopted, lacking) = match &found {
        Some(found) => {
            refuse_duplicates(&described.name, found)?;
            (found.adopt(described, &words), found.lacking.clone())
        }
        None => {
            let adopted = Adopted { description: described.clone(), differences: Vec::new() };
            let what = format!("all members of {}", described.name);
            (adopted, vec![Lacking { part: LackingPart::Member, what }])
        }
    };
    let Adopted { description, mut differences } = adopted;
    let description = match description.check() {
        Ok(()) => description,
        Err(error) => {
            differences.push(format!("what the devices say is not used: {error}"));
            described.clone()
        }
    };
    let devices = hand_over(opener, &description, labelled, &unusable).await?;
    Ok(Assembly { description, devices, differences, lacking })
}

/// Opens what the description names, and keeps what belongs to a volume.
async fn open_named(
    opener: &Opener,
    runtime: &Runtime,
    described: &Description,
    unusable: &mut Unusable,
) -> Result<Vec<Labelled>> {
    let mut candidates = Vec::new();
    let of_cache = described.cache.iter().flat_map(CacheDescription::devices);
    let words = of_cache.chain(described.members()).chain(described.journals());
    let specs = words.map(|word| Ok((word, word.parse::<DeviceSpec>()?)));
    let mut specs = specs.collect::<Result<Vec<_>>>()?;
    // What is known by more than its name is opened before what may have its name now.
    specs.sort_by_key(|(_, spec)| !matches!(spec, DeviceSpec::Existing { .. }));
    for (word, spec) in specs {
        if matches!(spec, DeviceSpec::Ram(_)) {
            continue;
        }
        match opener.open(&spec).await {
            Ok(device) => candidates.push(Candidate { word: word.to_owned(), device }),
            Err(error) => {
                unusable.insert(word.to_owned(), told(&error));
            }
        }
    }
    let deadlines = described.array.deadlines();
    let (labelled, others) = read_labels(runtime, candidates, deadlines).await;
    let (ours, strangers): (Vec<_>, Vec<_>) =
        labelled.into_iter().partition(|device| belongs(device, described));
    for device in strangers {
        let why = match &device.label {
            Label::Member { superblock, .. } => {
                format!("{}: is a member of array `{}`", device.word, superblock.array.name)
            }
            Label::Cache(_) => format!("{}: is the cache of another volume", device.word),
            Label::Journal { .. } => {
                format!("{}: is the stripe journal of another array", device.word)
            }
        };
        unusable.insert(device.word, why);
    }
    for (Candidate { word, .. }, why) in others {
        let why = match why {
            NoLabel::Other => format!("{word}: has nothing of this volume on it"),
            NoLabel::Unusable(why) => format!("{word}: its superblock cannot be used: {why}"),
            NoLabel::Unreadable(error) => error.to_string(),
        };
        unusable.insert(word, why);
    }
    Ok(ours)
}

/// Whether a device says that it belongs to the described volume, as far as is known without the
/// others.
fn belongs(device: &Labelled, described: &Description) -> bool {
    let mirror = described.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
    let is_array = |array| {
        described.cores().any(|(uuid, _)| uuid == array)
            || mirror.is_some_and(|mirror| mirror.uuid == array)
    };
    match &device.label {
        Label::Member { superblock, record } => {
            let volume = record.as_ref().map(|record| record.volume.uuid);
            is_array(superblock.array.uuid) || volume == Some(described.uuid)
        }
        Label::Cache(superblock) => superblock.volume == described.uuid,
        Label::Journal { array } => is_array(*array),
    }
}

fn volume_of(described: &Description, labelled: &[Labelled]) -> Option<FoundVolume> {
    found_volumes(labelled).into_iter().find(|found| found.description.uuid == described.uuid)
}

/// Looks for further devices of the volume on this machine, and beside its files.
async fn open_others(
    opener: &Opener,
    runtime: &Runtime,
    described: &Description,
    labelled: &mut Vec<Labelled>,
    unusable: &mut Unusable,
) -> Result<()> {
    // An existing device may be elsewhere than its name says, where another one is now.
    let place = |it: &Labelled| match it.word.parse() {
        Ok(DeviceSpec::Existing { .. }) => it.device.name().to_string(),
        _ => it.word.clone(),
    };
    let open: Vec<String> = labelled.iter().map(place).collect();
    let places = SearchPlaces { folders: folders_of(described), devices: Vec::new() };
    let candidates = candidates(opener, runtime, &places, &open).await?;
    let deadlines = described.array.deadlines();
    let (mut others, _) = read_labels(runtime, candidates, deadlines).await;
    let belonging = |labelled: &[Labelled], others: &[Labelled]| -> Vec<String> {
        let all = labelled.iter().chain(others);
        let record = all.filter(|it| belongs(it, described)).filter_map(Labelled::record);
        let record = record.max_by_key(|record| record.generation);
        let known = record.map_or(described, |record| &record.volume);
        let is_ours = |device: &&Labelled| belongs(device, described) || belongs(device, known);
        others.iter().filter(is_ours).map(|device| device.word.clone()).collect()
    };
    let ours = belonging(labelled, &others);
    others.retain(|device| ours.contains(&device.word));
    for Labelled { word, label, device } in others {
        drop(device);
        match opener.open(&word.parse()?).await {
            Ok(device) => labelled.push(Labelled { word, device, label }),
            Err(error) => {
                unusable.insert(word, told(&error));
            }
        }
    }
    Ok(())
}

/// The folders of the files that a volume is described with.
pub fn folders_of(described: &Description) -> Vec<PathBuf> {
    let folder = |word: &str| {
        let path = word.parse::<DeviceSpec>().ok()?.path()?.to_owned();
        let folder = path.parent().filter(|folder| !folder.starts_with("/dev"))?;
        Some(folder.to_owned())
    };
    let mut folders: Vec<PathBuf> = described.devices().filter_map(folder).collect();
    folders.sort();
    folders.dedup();
    folders
}

fn is_persistent(word: &str) -> bool {
    word.parse::<DeviceSpec>().is_ok_and(|spec| !matches!(spec, DeviceSpec::Ram(_)))
}

/// Refuses a volume with two devices for one part: which one is current is not certain.
///
/// # Errors
/// That, with event counts and serial numbers.
pub fn refuse_duplicates(volume: &str, found: &FoundVolume) -> Result<()> {
    if found.duplicates.is_empty() {
        return Ok(());
    }
    let serial = |part: &headpond_volume::FoundPart| {
        let serial = serial_of(Path::new(&part.word))?;
        Some(format!("{} has serial {serial}", part.word))
    };
    let serials: Vec<String> = found.parts.iter().filter_map(serial).collect();
    let serials =
        if serials.is_empty() { String::new() } else { format!(" ({})", serials.join(", ")) };
    Err(Failure::refused(format!(
        "{volume} has devices that claim to be the same part: {}{serials}: one is a copy of the \
         other; disconnect the one that is out of date, or clear it with `headpond label clear`",
        found.duplicates.join("; "),
    )))
}

/// Sorts the devices into their places, opens those that have no label, and tells what is missing.
async fn hand_over(
    opener: &Opener,
    description: &Description,
    labelled: Vec<Labelled>,
    unusable: &Unusable,
) -> Result<Devices> {
    let mut by_word: BTreeMap<String, Rc<dyn BlockDevice>> =
        labelled.into_iter().map(|device| (device.word, device.device)).collect();
    let mut devices = Devices::default();
    if let Some(tier) = &description.tier {
        match opener.open(&tier.device.parse()?).await {
            Ok(device) => devices.tier = Some(device),
            // It starts empty in any case.
            Err(error) => {
                devices.absent.push(format!("tier {}: {}", tier.device, told(&error)).into());
            }
        }
    }
    if let Some(cache) = &description.cache {
        for word in cache.devices() {
            let device = match by_word.remove(word) {
                Some(device) => Ok(device),
                // Memory has no label; a device without one is refused by the cache, by its name.
                None if cache.mirror.is_none() => opener.open(&word.parse()?).await,
                None => Err(anyhow::anyhow!("{}", reason(unusable, word))),
            };
            match device {
                Ok(device) if cache.mirror.is_some() => devices.copies.push(device),
                Ok(device) => devices.cache = Some(device),
                Err(error) => devices.absent.push(format!("cache {word}: {}", told(&error)).into()),
            }
        }
    }
    for word in description.members() {
        match by_word.remove(word) {
            Some(device) => devices.members.push(device),
            // The array decides whether it can start without it.
            None => {
                let name = word.parse::<DeviceSpec>()?.device_name();
                devices.absent.push(Note::of_member(name, reason(unusable, word)));
            }
        }
    }
    for word in description.journals() {
        match by_word.remove(word) {
            Some(device) => devices.journals.push(device),
            None => {
                devices.absent.push(format!("stripe journal: {}", reason(unusable, word)).into());
            }
        }
    }
    devices.changed = opener.take_changed();
    Ok(devices)
}

fn reason(unusable: &Unusable, word: &str) -> String {
    unusable.get(word).cloned().unwrap_or_else(|| format!("{word}: was not found"))
}
