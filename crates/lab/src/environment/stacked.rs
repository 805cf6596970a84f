//! Block devices that the kernel makes of others: what they are set to, and what they are made of.
//!
//! **Source**: Linux `Documentation/admin-guide/bcache.rst`, `admin-guide/md.rst`; what a mapped
//! device is made of is in no file, so that `dmsetup` is asked.

use super::{SettingFact, TargetFacts};
use headpond_uring::safety::BlockNode;
use std::path::Path;
use std::process::Command;

/// Of a bcache device, where it has them: its own, then those of its set and of its cache.
const BCACHE: [&str; 11] = [
    "state",
    "cache_mode",
    "sequential_cutoff",
    "writeback_percent",
    "writeback_delay",
    "writeback_running",
    "readahead",
    "cache/congested_read_threshold_us",
    "cache/congested_write_threshold_us",
    "cache/cache0/bucket_size",
    "cache/cache0/cache_replacement_policy",
];
/// Of an array of the kernel's.
const MD: [&str; 7] = [
    "level",
    "raid_disks",
    "chunk_size",
    "layout",
    "consistency_policy",
    "stripe_cache_size",
    "array_state",
];
/// What is made of what is made of it; nobody builds higher, and links may go round.
const LEVELS_MAX: usize = 6;

/// What a device is set to that the kernel makes of others; nothing of any other.
pub(super) fn settings(node: &BlockNode) -> Vec<SettingFact> {
    let attributes = |folder: &str, names: &[&str]| {
        let attribute = |name: &&str| {
            let value = chosen(&node.attribute(&format!("{folder}/{name}"))?);
            let name = name.rsplit('/').next().unwrap_or(name);
            Some(fact(&format!("{folder} {name}"), value))
        };
        names.iter().filter_map(attribute).collect::<Vec<_>>()
    };
    let mut settings = attributes("bcache", &BCACHE);
    settings.extend(attributes("md", &MD));
    if let Some(name) = node.attribute("dm/name") {
        let table = table(&name).unwrap_or_else(|why| format!("unknown: {why}"));
        settings.extend([fact("mapped as", name), fact("table", table)]);
    }
    settings
}

/// The devices that it is made of, each with those that it is made of.
pub(super) fn parts(node: &BlockNode) -> Vec<TargetFacts> {
    below(node, LEVELS_MAX)
}

fn below(node: &BlockNode, levels: usize) -> Vec<TargetFacts> {
    let Some(levels) = levels.checked_sub(1) else { return Vec::new() };
    let part = |leg: BlockNode| TargetFacts {
        name: format!("below: {}", leg.name()),
        place: Path::new("/dev").join(leg.name().replace('!', "/")).display().to_string(),
        model: leg.disk().attribute("device/model").map(|it| it.trim().to_owned()),
        scheduler: leg.disk().attribute("queue/scheduler").map(|it| chosen(&it)),
        rotational: leg.rotational(),
        settings: settings(&leg),
        parts: below(&leg, levels),
        ..TargetFacts::default()
    };
    node.legs().into_iter().map(part).collect()
}

/// Of several words, the one in brackets.
fn chosen(text: &str) -> String {
    let word = text.split_whitespace().find(|it| it.starts_with('[') && it.ends_with(']'));
    word.map_or_else(|| text.trim().to_owned(), |word| word[1..word.len() - 1].to_owned())
}

fn fact(name: &str, value: String) -> SettingFact {
    SettingFact { name: name.to_owned(), value, is_default: false }
}

/// The lines of a mapped device's table, joined.
fn table(name: &str) -> Result<String, String> {
    let asked = Command::new("dmsetup").args(["table", "--", name]).output();
    let answer = asked.map_err(|error| format!("dmsetup: {error}"))?;
    if !answer.status.success() {
        return Err(String::from_utf8_lossy(&answer.stderr).trim().replace('\n', "; "));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_uring::safety::{DeviceNumber, System};
    use std::fs;

    /// A machine with a bcache device of a slow disk and a fast one.
    fn machine(root: &Path) -> System {
        let sys = root.join("sys");
        let block = sys.join("devices/virtual/block");
        let file = |path: &str, text: &str| {
            let path = block.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        file("bcache0/bcache/cache_mode", "writethrough [writeback] writearound none");
        file("bcache0/bcache/sequential_cutoff", "4.0M");
        file("bcache0/bcache/cache/cache0/cache_replacement_policy", "[lru] fifo random");
        file("vda/device/model", "Slow One");
        file("vda/queue/rotational", "1");
        file("dm-0/dm/name", "headpond-no-such-device");
        let link = |path: &str, to: &str| {
            let path = block.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(block.join(to), path).unwrap();
        };
        link("bcache0/slaves/vda", "vda");
        link("bcache0/slaves/dm-0", "dm-0");
        // Nothing is made of itself, and a reader of it would have no end.
        link("dm-0/slaves/dm-0", "dm-0");
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        std::os::unix::fs::symlink(block.join("bcache0"), sys.join("dev/block/252:0")).unwrap();
        System { sys, proc: root.join("proc") }
    }

    #[test]
    fn a_cache_of_the_kernels_is_told_with_its_settings_and_the_devices_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let number = DeviceNumber { major: 252, minor: 0 };
        let node = BlockNode::find(&machine(folder.path()), number).unwrap();
        let told = settings(&node);
        let told: Vec<_> = told.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        let policy = ("bcache cache_replacement_policy", "lru");
        let (mode, cutoff) =
            (("bcache cache_mode", "writeback"), ("bcache sequential_cutoff", "4.0M"));
        assert_eq!(told, [mode, cutoff, policy]);
        let parts = parts(&node);
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["below: dm-0", "below: vda"]);
        assert_eq!(
            (parts[1].model.as_deref(), parts[1].rotational),
            (Some("Slow One"), Some(true))
        );
        let table = &parts[0].settings[1];
        assert!(table.name == "table" && table.value.starts_with("unknown: "), "{table:?}");
    }
}
