//! What the devices say, combined with a description that is there.

use super::FoundVolume;
use crate::ShownSetting;
use crate::description::{CacheDescription, CoreDescription, Description};
use uuid::Uuid;

/// Longer values, such as rules of I/O classes, are not repeated in a message.
const SHOWN_MAX: usize = 60;

/// A description to start with.
pub struct Adopted {
    pub description: Description,
    /// Where the devices say something else than the description did, in words.
    pub differences: Vec<String>,
}

impl FoundVolume {
    /// Shape and settings are those of the devices; names of devices that are not there, exports,
    /// and what the devices do not record are those of the description. `unusable`: words of the
    /// description whose devices are not there, or are no part of the volume.
    pub fn adopt(&self, described: &Description, unusable: &[String]) -> Adopted {
        let mut description = match self.is_recorded {
            true => self.description.clone(),
            false => self.with_settings_of(described),
        };
        description.name.clone_from(&described.name);
        description.exports.clone_from(&described.exports);
        for (uuid, core) in described.cores() {
            if let Some(found) = core_of(&mut description, uuid) {
                keep_words(found, core, unusable);
            }
        }
        for core in &described.further_cores {
            if !description.further_cores.iter().any(|it| it.uuid == core.uuid) {
                description.further_cores.push(core.clone());
            }
        }
        match (&mut description.cache, &described.cache) {
            (Some(found), Some(known)) => keep_cache_words(found, known),
            (found @ None, Some(known)) => *found = Some(known.clone()),
            (_, None) => {}
        }
        let differences = differences(described, &description);
        Adopted { description, differences }
    }

    /// The settings of a description, and the shape that was found.
    fn with_settings_of(&self, described: &Description) -> Description {
        let found = &self.description;
        let mut description = described.clone();
        description.core =
            CoreDescription { background: described.core.background, ..found.core.clone() };
        if let (Some(cache), Some(found)) = (&mut description.cache, &found.cache) {
            cache.device.clone_from(&found.device);
            cache.mirror.clone_from(&found.mirror);
        }
        description
    }
}

fn core_of(description: &mut Description, uuid: Uuid) -> Option<&mut CoreDescription> {
    if description.uuid == uuid {
        return Some(&mut description.core);
    }
    let mut further = description.further_cores.iter_mut();
    further.find(|core| core.uuid == uuid).map(|core| &mut core.core)
}

/// Devices stay in the order of the description. Those that are not there keep a place in it as
/// long as a device is missing.
fn keep_words(found: &mut CoreDescription, described: &CoreDescription, unusable: &[String]) {
    let described_words = || described.members.iter().chain(&described.spares);
    let is_found = |word: &String| found.members.contains(word) || found.spares.contains(word);
    let missing =
        described_words().count().saturating_sub(found.members.len() + found.spares.len());
    let absent: Vec<String> = described
        .members
        .iter()
        .filter(|word| unusable.contains(word) && !is_found(word))
        .take(missing)
        .cloned()
        .collect();
    let mut members: Vec<String> = Vec::new();
    for word in &described.members {
        if found.members.contains(word) || absent.contains(word) {
            members.push(word.clone());
        }
    }
    let new: Vec<String> =
        found.members.iter().filter(|word| !members.contains(word)).cloned().collect();
    members.extend(new);
    found.members = members;
    if let (Some(found), Some(described)) = (&mut found.journal, &described.journal)
        && found.device.is_empty()
    {
        found.device.clone_from(&described.device);
    }
}

fn keep_cache_words(found: &mut CacheDescription, described: &CacheDescription) {
    if found.device.is_empty() {
        found.device.clone_from(&described.device);
    }
    let is_found: Vec<String> = found.copies().map(str::to_owned).collect();
    let missing = described.copies().count().saturating_sub(is_found.len());
    let absent = described.copies().filter(|word| !is_found.iter().any(|it| it == word));
    let absent: Vec<String> = absent.take(missing).map(str::to_owned).collect();
    if let Some(mirror) = &mut found.mirror {
        mirror.copies.extend(absent);
    }
}

fn differences(described: &Description, found: &Description) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, described: String, found: String| {
        if described != found && described.len().max(found.len()) > SHOWN_MAX {
            differences.push(format!(
                "{what} of the description is not that of the devices, which counts"
            ));
        } else if described != found {
            differences.push(format!(
                "{what} is {described} in the description, and {found} on the devices, which counts"
            ));
        }
    };
    for (uuid, core) in described.cores() {
        let Some((_, other)) = found.cores().find(|(it, _)| *it == uuid) else { continue };
        compare("the RAID level", core.raid.to_string(), other.raid.to_string());
        compare("groups", core.groups.to_string(), other.groups.to_string());
        compare("strip", core.strip.to_string(), other.strip.to_string());
        compare("intent", core.intent.to_string(), other.intent.to_string());
        compare("integrity", core.integrity.to_string(), other.integrity.to_string());
        let rate = |core: &CoreDescription| format!("{:?}", core.background);
        compare("the background rate", rate(core), rate(other));
    }
    compare("slices", described.slices.to_string(), found.slices.to_string());
    let heartbeats = [described, found].map(|it| it.heartbeat_ms.to_string());
    let [ours, theirs] = heartbeats;
    compare("heartbeat_ms", ours, theirs);
    let presence = |is_there: bool| if is_there { "there" } else { "not there" }.to_owned();
    compare("a tier", presence(described.tier.is_some()), presence(found.tier.is_some()));
    compare("a cache", presence(described.cache.is_some()), presence(found.cache.is_some()));
    for (one, other) in settings(described).into_iter().zip(settings(found)) {
        compare(&one.key, one.value, other.value);
    }
    differences
}

/// Those that both can have, in one order.
fn settings(description: &Description) -> Vec<ShownSetting> {
    let cache = description.cache.as_ref().map(|cache| cache.settings.clone());
    let tier = description.tier.as_ref().map(|tier| tier.settings.clone());
    let mut shown = cache.unwrap_or_default().shown();
    shown.extend(tier.unwrap_or_default().shown());
    shown.extend(description.array.shown());
    shown
}
