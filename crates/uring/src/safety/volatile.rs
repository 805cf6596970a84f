//! Whether written data survives a power cut.
//!
//! Memory hides under several names: tmpfs, ramfs, zram, brd, and any loop, device-mapper or md
//! device made of them. A drive with a write cache is another matter: it honours FLUSH.

use super::mounts;
use super::sysfs::{BlockNode, System};
use std::fmt;
use std::path::Path;

/// Depth of device stacks that is followed; real stacks have three or four.
const DEPTH_MAX: u32 = 16;

/// Why contents are lost at a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolatileReason {
    /// A file system in memory.
    MemoryFileSystem(&'static str),
    /// A block device in memory.
    MemoryDevice { name: String, what: &'static str },
    /// It is stacked on something volatile.
    Over { name: String, below: Box<VolatileReason> },
}

impl fmt::Display for VolatileReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryFileSystem(name) => write!(f, "its file system, {name}, is in memory"),
            Self::MemoryDevice { name, what } => write!(f, "{name} is {what}"),
            Self::Over { name, below } => write!(f, "it is on {name}: {below}"),
        }
    }
}

/// Why a regular file would be lost, by its file system and the device below.
pub(crate) fn of_file(system: &System, path: &Path) -> Option<VolatileReason> {
    file_below(system, path, DEPTH_MAX)
}

/// Why a block device would lose its contents.
pub(crate) fn of_block(system: &System, node: &BlockNode) -> Option<VolatileReason> {
    block_below(system, &node.disk(), DEPTH_MAX)
}

fn file_below(system: &System, path: &Path, depth: u32) -> Option<VolatileReason> {
    let depth = depth.checked_sub(1)?;
    if let Some(name) = memory_file_system(path) {
        return Some(VolatileReason::MemoryFileSystem(name));
    }
    let mount = mounts::covering(system, path)?;
    if let Some(upper) = mount.option("upperdir") {
        let below = file_below(system, Path::new(upper), depth)?;
        return Some(over("an overlay".to_owned(), below));
    }
    let node = mounts::node_below(system, path)?.disk();
    let below = block_below(system, &node, depth)?;
    Some(over(format!("a file system on {}", node.name()), below))
}

fn block_below(system: &System, disk: &BlockNode, depth: u32) -> Option<VolatileReason> {
    let depth = depth.checked_sub(1)?;
    let name = disk.name();
    if let Some(what) = memory_device(disk, &name) {
        return Some(VolatileReason::MemoryDevice { name, what });
    }
    if let Some(backing) = disk.attribute("loop/backing_file") {
        let path = Path::new(backing.strip_suffix(" (deleted)").unwrap_or(&backing));
        return file_below(system, path, depth)
            .map(|below| over(path.display().to_string(), below));
    }
    let mut legs = disk.legs().into_iter().map(|leg| leg.disk());
    let (leg, below) =
        legs.find_map(|leg| Some((leg.name(), block_below(system, &leg, depth)?)))?;
    Some(over(leg, below))
}

fn memory_file_system(path: &Path) -> Option<&'static str> {
    // A file that is gone (a loop over a deleted one) leaves its directory to ask.
    let existing = path.ancestors().find(|ancestor| ancestor.exists())?;
    // Source: linux/magic.h. devtmpfs answers as tmpfs.
    match rustix::fs::statfs(existing).ok()?.f_type as u64 & 0xffff_ffff {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58f6 => Some("ramfs"),
        0x9584_58f6 => Some("hugetlbfs"),
        _ => None,
    }
}

fn memory_device(disk: &BlockNode, name: &str) -> Option<&'static str> {
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_scsi_debug =
        || disk.attribute("device/model").is_some_and(|model| model.trim() == "scsi_debug");
    match name {
        _ if is_numbered("zram") => Some("compressed memory"),
        _ if is_numbered("ram") => Some("a RAM disk"),
        _ if is_numbered("nullb") => Some("a null device"),
        _ if is_scsi_debug() => Some("a simulated drive in memory"),
        _ => None,
    }
}

fn over(name: String, below: VolatileReason) -> VolatileReason {
    VolatileReason::Over { name, below: Box::new(below) }
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::{DeviceNumber, FakeSystem};
    use super::*;

    fn reason(fake: &FakeSystem, number: &str) -> Option<String> {
        let number = DeviceNumber::parse(number).unwrap();
        let node = BlockNode::find(&fake.system, number).unwrap();
        of_block(&fake.system, &node).map(|reason| reason.to_string())
    }

    #[test]
    fn memory_devices_are_known_by_name() {
        let fake = FakeSystem::new();
        fake.add("zram0", "253:0", &[]);
        fake.add("ram3", "1:3", &[]);
        fake.add("sdq", "65:0", &[("device/model", "scsi_debug      ")]);
        fake.add("ramen", "9:9", &[]);
        assert_eq!(reason(&fake, "253:0").unwrap(), "zram0 is compressed memory");
        assert_eq!(reason(&fake, "1:3").unwrap(), "ram3 is a RAM disk");
        assert!(reason(&fake, "65:0").is_some());
        assert_eq!(reason(&fake, "9:9"), None);
    }

    #[test]
    fn partition_of_a_mapper_over_zram_is_volatile() {
        let fake = FakeSystem::new();
        let zram = fake.add("zram1", "253:1", &[]);
        let disk = fake.add("sdb", "8:16", &[]);
        let mapped = fake.add("dm-0", "252:0", &[]);
        fake.link(&mapped, "slaves", &disk);
        assert_eq!(reason(&fake, "252:0"), None);
        fake.link(&mapped, "slaves", &zram);
        fake.add("dm-0/dm-0p1", "252:1", &[("partition", "1")]);
        let text = reason(&fake, "252:1").unwrap();
        assert_eq!(text, "it is on zram1: zram1 is compressed memory");
    }

    #[test]
    fn loop_over_a_file_in_memory_is_volatile_even_when_deleted() {
        if memory_file_system(Path::new("/dev/shm")).is_none() {
            eprintln!("skipped: loop_over_a_file_in_memory: /dev/shm is no tmpfs");
            return;
        }
        let fake = FakeSystem::new();
        fake.add("loop9", "7:9", &[("loop/backing_file", "/dev/shm/gone (deleted)")]);
        assert!(reason(&fake, "7:9").unwrap().contains("tmpfs"));
    }

    #[test]
    fn devices_that_lie_over_each_other_end_the_search() {
        let fake = FakeSystem::new();
        let one = fake.add("dm-1", "252:1", &[]);
        let two = fake.add("dm-2", "252:2", &[]);
        fake.link(&one, "slaves", &two);
        fake.link(&two, "slaves", &one);
        assert_eq!(reason(&fake, "252:1"), None);
    }
}
