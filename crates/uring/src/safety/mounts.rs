//! Current users of a device: mounts and swap, from `/proc`.
//!
//! **Source**: proc(5), `/proc/self/mountinfo` and `/proc/swaps`.

use super::sysfs::{BlockNode, DeviceNumber, System};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub device: DeviceNumber,
    pub mounted_at: PathBuf,
    /// What was mounted: a device's path, or any word.
    pub source: PathBuf,
    /// Options of the file system, comma-separated.
    pub options: String,
}

impl Mount {
    /// The value of `name=value` among the options.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut pairs = self.options.split(',').filter_map(|option| option.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The block device mounted, for file systems that hide it behind a number of their own
    /// (btrfs).
    fn source_number(&self) -> Option<DeviceNumber> {
        number_of(&self.source)
    }
}

/// Every place where one of the devices is mounted.
pub(crate) fn mounted_at(system: &System, numbers: &[DeviceNumber]) -> Vec<PathBuf> {
    let is_ours = |mount: &Mount| {
        numbers.contains(&mount.device)
            || mount.source_number().is_some_and(|number| numbers.contains(&number))
    };
    all(system).into_iter().filter(is_ours).map(|mount| mount.mounted_at).collect()
}

/// The mount of a path: of the longest mount point above it, the one mounted last.
pub(crate) fn covering(system: &System, path: &Path) -> Option<Mount> {
    let mounts = all(system).into_iter().filter(|mount| path.starts_with(&mount.mounted_at));
    mounts.max_by_key(|mount| mount.mounted_at.components().count())
}

/// The block device below the file system of a path, where there is exactly one.
pub(crate) fn node_below(system: &System, path: &Path) -> Option<BlockNode> {
    let mount = covering(system, path)?;
    let by_source = mount.source_number().and_then(|number| BlockNode::find(system, number));
    by_source.or_else(|| BlockNode::find(system, mount.device))
}

pub(crate) fn is_swap_device(system: &System, numbers: &[DeviceNumber]) -> bool {
    swaps(system).iter().filter_map(|path| number_of(path)).any(|n| numbers.contains(&n))
}

pub(crate) fn is_swap_file(system: &System, path: &Path) -> bool {
    swaps(system).iter().any(|swap| swap == path)
}

fn all(system: &System) -> Vec<Mount> {
    let text = fs::read(system.proc.join("self/mountinfo")).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

/// `36 35 98:0 /root /mount rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    Some(Mount {
        device: DeviceNumber::parse(std::str::from_utf8(fields.get(2)?).ok()?)?,
        mounted_at: unescape(fields.get(4)?),
        source: unescape(fields.get(separator + 2)?),
        options: unescape(fields.get(separator + 3)?).to_string_lossy().into_owned(),
    })
}

fn swaps(system: &System) -> Vec<PathBuf> {
    let text = fs::read(system.proc.join("swaps")).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| line.split(|b| b" \t".contains(b)).next()).map(unescape).collect()
}

/// Undoes the kernel's `\040` for bytes that would break its line format.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match octal(rest) {
            Some(byte) => (bytes.push(byte), rest = &rest[4..]),
            None => (bytes.push(*first), rest = tail),
        };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(bytes: &[u8]) -> Option<u8> {
    let digits = bytes.strip_prefix(b"\\")?.get(..3)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

fn number_of(path: &Path) -> Option<DeviceNumber> {
    if !path.as_os_str().as_bytes().starts_with(b"/") {
        return None;
    }
    let metadata = path.metadata().ok()?;
    metadata.file_type().is_block_device().then(|| DeviceNumber::from_raw(metadata.rdev()))
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::FakeSystem;
    use super::*;

    const MOUNTINFO: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/none rw,discard
30 27 0:27 / /mnt/a\\040b rw shared:1 - tmpfs tmpfs rw,size=24k
31 27 8:1 / /mnt rw - ext4 /dev/none rw
32 27 0:44 / /over rw - overlay overlay rw,lowerdir=/l,upperdir=/mnt/up,workdir=/w
garbage
";

    fn fake() -> FakeSystem {
        let fake = FakeSystem::new();
        fake.write_proc("self/mountinfo", MOUNTINFO);
        fake
    }

    #[test]
    fn mounts_are_found_by_device_number() {
        let fake = fake();
        let partition = DeviceNumber { major: 8, minor: 1 };
        assert_eq!(mounted_at(&fake.system, &[partition]), [PathBuf::from("/mnt")]);
        assert!(mounted_at(&fake.system, &[DeviceNumber { major: 8, minor: 0 }]).is_empty());
    }

    #[test]
    fn longest_mount_point_covers_a_path() {
        let fake = fake();
        let mount = covering(&fake.system, Path::new("/mnt/a b/file")).unwrap();
        assert_eq!(mount.mounted_at, Path::new("/mnt/a b"));
        let mount = covering(&fake.system, Path::new("/mnt2")).unwrap();
        assert_eq!(mount.mounted_at, Path::new("/"));
        let mount = covering(&fake.system, Path::new("/over/x")).unwrap();
        assert_eq!(mount.option("upperdir"), Some("/mnt/up"));
    }

    #[test]
    fn swap_file_is_recognised_by_its_path() {
        let fake = fake();
        let swaps = "Filename\t\t\tType\tSize\tUsed\tPriority\n/swap\\040file file 1 0 -2\n";
        fake.write_proc("swaps", swaps);
        assert!(is_swap_file(&fake.system, Path::new("/swap file")));
        assert!(!is_swap_file(&fake.system, Path::new("/swap")));
    }
}
