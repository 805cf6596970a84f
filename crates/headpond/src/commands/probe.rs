//! `headpond probe`.

use crate::args::ProbeArgs;
use crate::device::labels::{self, Label};
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_raid::superblock::Superblock;
use headpond_uring::safety;
use serde::Serialize;
use std::path::Path;
use uuid::Uuid;

/// What is on a device.
#[derive(Serialize)]
struct Probed {
    device: String,
    /// Of ours; null if there is nothing.
    label: Option<ProbedLabel>,
    /// Other contents, as signatures show them; not searched on a device of ours.
    contents: Vec<String>,
}

#[derive(Serialize)]
struct ProbedLabel {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Of the array, or of the volume of a cache.
    uuid: Option<Uuid>,
    device_uuid: Option<Uuid>,
    array: Option<String>,
    role: Option<u16>,
    event_count: Option<u64>,
    /// The volume, if it is described on this machine.
    volume: Option<String>,
    /// Why the superblock cannot be used.
    unusable: Option<String>,
}

/// Shows what a device is, and changes nothing.
///
/// # Errors
/// Where it cannot be read.
pub fn run(places: &Places, args: &ProbeArgs) -> Result<Exit> {
    let path = Path::new(&args.device);
    let label = labels::read(path)?.label;
    let exit = if label.is_some() { Exit::Ok } else { Exit::Usage };
    if args.export {
        label.iter().for_each(|label| export(label, label.volume(places)));
        return Ok(exit);
    }
    let contents = match label {
        Some(_) => Vec::new(),
        None => safety::contents(path)?.iter().map(ToString::to_string).collect(),
    };
    let volume = label.as_ref().and_then(|label| label.volume(places));
    if args.json {
        let label = label.as_ref().map(|label| ProbedLabel::of(label, volume));
        let device = args.device.clone();
        print_json(&Versioned::new(Probed { device, label, contents }))?;
        return Ok(exit);
    }
    let told = match (&label, contents.is_empty()) {
        (Some(label), _) => describe(label, volume.as_deref()),
        (None, true) => "nothing of Headpond, and no other contents that are known".into(),
        (None, false) => format!("nothing of Headpond; {}", contents.join(", ")),
    };
    println!("{}: {told}", args.device);
    Ok(exit)
}

/// For udev: a line for each property.
fn export(label: &Label, volume: Option<String>) {
    println!("ID_FS_TYPE={}", label.kind().type_name());
    println!("ID_FS_USAGE=raid");
    label.uuid().iter().for_each(|uuid| println!("ID_FS_UUID={uuid}"));
    label.own_uuid().iter().for_each(|uuid| println!("ID_FS_UUID_SUB={uuid}"));
    label.array_name().iter().for_each(|name| println!("ID_FS_LABEL={}", safe(name)));
    // The rule makes a unit's name of it: the description's, not what the device says.
    volume.iter().for_each(|volume| println!("HEADPOND_VOLUME={volume}"));
    println!("SYSTEMD_READY=0");
    println!("UDISKS_IGNORE=1");
}

/// As udev replaces what could mean something to a rule.
fn safe(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_/".contains(c);
    name.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// In a line.
pub fn describe(label: &Label, volume: Option<&str>) -> String {
    let of_volume = match volume {
        Some(volume) => format!("volume {volume}"),
        None => "a volume that is not described here".into(),
    };
    match label {
        Label::Member(superblock) => {
            let role = role(superblock);
            let name = &superblock.array.name;
            let array = superblock.array.uuid;
            let events = superblock.array.event_count;
            format!("{role} of array `{name}` ({array}), of {of_volume}; event count {events}")
        }
        Label::CacheCopy(superblock, cache) => {
            let role = role(superblock);
            format!("{role} of the cache mirror of {of_volume} ({})", cache.volume)
        }
        Label::Cache(cache) => format!("cache of {of_volume} ({})", cache.volume),
        Label::Journal { array } => format!("stripe journal of array {array}, of {of_volume}"),
        Label::Unusable { kind, cause } => {
            format!("a superblock ({}) that cannot be used: {cause}", kind.type_name())
        }
    }
}

fn role(superblock: &Superblock) -> String {
    match superblock.role {
        Some(role) => format!("member {} of {}", role.0, superblock.array.roles.len()),
        None => "spare".into(),
    }
}

impl ProbedLabel {
    fn of(label: &Label, volume: Option<String>) -> Self {
        let superblock = match label {
            Label::Member(superblock) | Label::CacheCopy(superblock, _) => Some(superblock),
            _ => None,
        };
        let unusable = match label {
            Label::Unusable { cause, .. } => Some(cause.clone()),
            _ => None,
        };
        Self {
            kind: label.kind().type_name(),
            uuid: label.uuid(),
            device_uuid: label.own_uuid(),
            array: label.array_name().map(str::to_owned),
            role: superblock.and_then(|it| it.role).map(|role| role.0),
            event_count: superblock.map(|it| it.array.event_count),
            volume,
            unusable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_device_cannot_add_a_property_or_a_word() {
        assert_eq!(safe("hv0/logs"), "hv0/logs");
        assert_eq!(safe("a b\nRUN=x;$(y)"), "a_b_RUN=x___y_");
    }
}
