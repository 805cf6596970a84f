//! Whether a volume acknowledges writes that are in the daemon's memory alone.
//!
//! A power cut loses no more than what was not flushed, and file systems know that. A daemon that
//! ends below a mounted file system is none: the file system goes on, and counts on every write
//! that was acknowledged, flushed or not. What is in the kernel's page cache or in a device
//! survives a process.
//!
//! The mark is a file in the run folder, which a reboot empties, as it removes the block devices.
//! It is written before such a write can be acknowledged, and stays until the next start: dirty
//! data is there for longer than the setting.

use crate::command::{ArrayCommand, Command};
use crate::device::DeviceSpec;
use headpond_cache::Mode;
use headpond_volume::{Description, SettingChange};

/// Whether this volume, or what it is about to become, does.
pub fn acknowledges_from_memory(description: &Description) -> bool {
    let cache = description.cache.as_ref().is_some_and(|cache| {
        // A mirror has other copies, where not all of them are memory.
        acknowledges(cache.settings.mode) && cache.devices().all(is_memory)
    });
    let tier = description.tier.as_ref().is_some_and(|tier| acknowledges(tier.settings.mode));
    let cores = std::iter::once(&description.core)
        .chain(description.further_cores.iter().map(|core| &core.core));
    let members = cores.flat_map(|core| &core.members).any(|member| is_memory(member));
    cache || tier || members
}

/// Whether the volume may do so once this command has been carried out.
pub fn may_bring_memory(command: &Command) -> bool {
    let is_any = |devices: &[String]| devices.iter().any(|device| is_memory(device));
    match command {
        Command::Set(body, _) => sets_mode(&body.changes),
        Command::AttachCache(body, _) | Command::ReplaceCache(body, _) => {
            if body.tier {
                sets_mode(&body.changes)
            } else {
                is_memory(&body.device)
            }
        }
        Command::AddCore(body, _) => is_any(&body.members),
        Command::Array(ArrayCommand::AddSpare(body) | ArrayCommand::Replace(body), _) => {
            is_memory(&body.device) || body.with.as_deref().is_some_and(is_memory)
        }
        Command::Array(ArrayCommand::Grow(body), _) => is_any(&body.devices),
        _ => false,
    }
}

fn sets_mode(changes: &[SettingChange]) -> bool {
    let mut modes =
        changes.iter().filter_map(|it| it.value_of("mode").or(it.value_of("tier.mode")));
    modes.any(|mode| matches!(mode, "write-back" | "write-only"))
}

/// Whether writes are acknowledged before they are on the core.
fn acknowledges(mode: Mode) -> bool {
    matches!(mode, Mode::WriteBack | Mode::WriteOnly)
}

fn is_memory(word: &str) -> bool {
    let is_own = |spec: &DeviceSpec| {
        matches!(spec, DeviceSpec::Ram(_) | DeviceSpec::Lossy { .. } | DeviceSpec::Model { .. })
    };
    word.parse::<DeviceSpec>().is_ok_and(|spec| is_own(&spec))
}
