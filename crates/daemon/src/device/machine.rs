//! The block devices of this machine, each once, and what tells them apart.
//!
//! A device that has a device-mapper or other holder is left out: the holder is the one to use.
//! Several paths to one disk have one identity.

use super::spec::DeviceSpec;
use anyhow::Result;
use headpond_api::outcome::Failure;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Files of a folder that are looked at.
const FILES_MAX: usize = 256;
/// No member is smaller.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Whose reads may wait for a medium, or that hold nothing of their own.
const LEFT_OUT: [&str; 6] = ["sr", "fd", "ram", "zram", "nbd", "ublkb"];

/// A device that may be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineDevice {
    /// By its identity, where it has such a name.
    pub path: PathBuf,
    pub identity: String,
    /// Differs where a device was connected again, or a file replaced.
    pub appearance: String,
}

impl MachineDevice {
    /// The device or file at a path, if it is there.
    pub fn at(path: &Path) -> Option<Self> {
        let identity = identity_of(path)?;
        let appearance = match fs::metadata(path).ok().filter(|file| file.is_file()) {
            Some(file) => format!("{identity} since {}.{}", file.ctime(), file.ctime_nsec()),
            None => identity.clone(),
        };
        Some(Self { path: path.to_owned(), identity, appearance })
    }
}

/// The block devices of this machine.
pub fn block_devices() -> Vec<MachineDevice> {
    devices_of(Path::new("/sys/class/block"), Path::new("/dev"))
}

fn devices_of(system: &Path, dev: &Path) -> Vec<MachineDevice> {
    let Ok(entries) = fs::read_dir(system) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| may_hold(system, name)).collect();
    names.sort();
    let by_id = names_by_id(dev);
    let mut devices: Vec<MachineDevice> = Vec::new();
    for name in names {
        let node = dev.join(name.replace('!', "/"));
        let path = by_id.get(&node).cloned().unwrap_or(node);
        let identity = identity_in(system, &name);
        // A further path to the same disk.
        if !devices.iter().any(|device| device.identity == identity) {
            let folder = system.join(&name);
            let time = word_of(&folder.join("diskseq")).unwrap_or_default();
            let appearance = format!("{identity} time {time}");
            devices.push(MachineDevice { path, identity, appearance });
        }
    }
    devices
}

fn may_hold(system: &Path, name: &str) -> bool {
    let of_kind = |kind: &str| {
        name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let folder = system.join(name);
    let has_holder =
        || fs::read_dir(folder.join("holders")).is_ok_and(|mut it| it.next().is_some());
    let sectors = word_of(&folder.join("size")).and_then(|word| word.parse::<u64>().ok());
    !LEFT_OUT.iter().any(|kind| of_kind(kind)) && sectors.unwrap_or(0) > 0 && !has_holder()
}

/// What a device is, whatever it is called: the file below a loop device, the number that the
/// vendor gave a disk, or else the number of the device.
fn identity_in(system: &Path, name: &str) -> String {
    let folder = system.join(name);
    if let Some(file) = word_of(&folder.join("loop/backing_file"))
        && let Ok(file) = fs::metadata(&file)
    {
        let offset = word_of(&folder.join("loop/offset")).unwrap_or_default();
        return format!("file {}:{}+{offset}", file.dev(), file.ino());
    }
    let number = word_of(&folder.join("dev")).unwrap_or_else(|| name.to_owned());
    let partition = word_of(&folder.join("partition")).unwrap_or_default();
    let disk = match partition.is_empty() {
        true => folder,
        false => folder.join(".."),
    };
    let names = ["wwid", "device/wwid"].map(|file| word_of(&disk.join(file)));
    match names.into_iter().flatten().next() {
        Some(wwid) => format!("disk {wwid} part {partition}"),
        None => format!("number {number}"),
    }
}

/// What the file or device at a path is, as [`MachineDevice::identity`].
pub fn identity_of(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok()?;
    if !file.file_type().is_block_device() {
        return Some(format!("file {}:{}+0", file.dev(), file.ino()));
    }
    let (major, minor) = (libc_major(file.rdev()), libc_minor(file.rdev()));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = folder.file_name()?.to_str()?.to_owned();
    Some(identity_in(Path::new("/sys/class/block"), &name))
}

/// What an existing device is found again by, whatever its name is then: the number that the vendor
/// gave its disk. Files, and disks without such a number, are found by their names alone.
pub fn existing_identity(spec: &DeviceSpec) -> Option<String> {
    let path = spec.path()?;
    let identity = identity_of(path).filter(|identity| identity.starts_with("disk "));
    identity.or_else(|| {
        let device = fs::metadata(path).ok()?.rdev();
        let number = format!("{}:{}", libc_major(device), libc_minor(device));
        let partition = word_of(&PathBuf::from(format!("/sys/dev/block/{number}/partition")));
        Some(format!("serial {} part {}", serial_of(path)?, partition.unwrap_or_default()))
    })
}

/// An existing device by its identity: at its name, or elsewhere on this machine.
///
/// # Errors
/// Where another device has its name, and it is nowhere.
pub fn find_existing(named: &DeviceSpec, identity: &str) -> Result<DeviceSpec> {
    if identity.is_empty() || existing_identity(named).is_some_and(|found| found == identity) {
        return Ok(named.clone());
    }
    let mut all = block_devices().into_iter().map(|device| DeviceSpec::Path(device.path));
    match all.find(|device| existing_identity(device).is_some_and(|found| found == identity)) {
        Some(device) => Ok(device),
        None if named.path().is_some_and(Path::exists) => Err(Failure::refused(format!(
            "{named}: is another device than the one that was taken ({identity}), which is not on \
             this machine"
        ))),
        // To open it tells that it is not there.
        None => Ok(named.clone()),
    }
}

/// Source: `gnu_dev_major` and `gnu_dev_minor` of the C library.
fn libc_major(device: u64) -> u64 {
    (device >> 8 & 0xfff) | (device >> 32 & !0xfff)
}

fn libc_minor(device: u64) -> u64 {
    (device & 0xff) | (device >> 12 & !0xff)
}

/// The serial number of the disk at a path, where the kernel knows it.
pub fn serial_of(path: &Path) -> Option<String> {
    let file = fs::metadata(path).ok().filter(|file| file.file_type().is_block_device())?;
    let number = format!("{}:{}", libc_major(file.rdev()), libc_minor(file.rdev()));
    let folder = PathBuf::from(format!("/sys/dev/block/{number}"));
    let disk = if folder.join("partition").exists() { folder.join("..") } else { folder };
    let files = ["device/serial", "serial", "device/wwid", "wwid"];
    files.iter().find_map(|file| word_of(&disk.join(file)))
}

/// Files in a folder that may be members, as far as there are not too many.
pub fn files_in(folder: &Path) -> Vec<MachineDevice> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let may_be = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() >= FILE_BYTES_MIN)
    };
    let files = paths.into_iter().filter(may_be).take(FILES_MAX);
    files.filter_map(|path| MachineDevice::at(&path)).collect()
}

/// The names below `disk/by-id` by the device that they lead to: of several, the one with the
/// vendor's number.
fn names_by_id(dev: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let Ok(entries) = fs::read_dir(dev.join("disk/by-id")) else { return BTreeMap::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let rank = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let is_number = ["wwn-", "nvme-eui.", "scsi-3"].iter().any(|it| name.starts_with(it));
        (!is_number, name)
    };
    paths.sort_by_key(rank);
    let mut names = BTreeMap::new();
    for path in paths {
        if let Ok(node) = path.canonicalize() {
            names.entry(node).or_insert(path);
        }
    }
    names
}

fn word_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of files below a folder: `attributes` of each device.
    fn machine(folder: &Path, devices: &[(&str, &[(&str, &str)])]) -> (PathBuf, PathBuf) {
        let (system, dev) = (folder.join("sys"), folder.join("dev"));
        fs::create_dir_all(dev.join("disk/by-id")).unwrap();
        for (name, attributes) in devices {
            for (file, text) in *attributes {
                let path = system.join(name).join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            fs::write(dev.join(name), "").unwrap();
        }
        (system, dev)
    }

    fn names(devices: &[MachineDevice]) -> Vec<String> {
        let name = |device: &MachineDevice| device.path.file_name().unwrap().to_owned();
        devices.iter().map(|device| name(device).into_string().unwrap()).collect()
    }

    #[test]
    fn a_disk_with_several_paths_is_one_and_its_holder_is_preferred() {
        let folder = headpond_testkit::tempdir();
        let (system, dev) = machine(
            folder.path(),
            &[
                ("sda", &[("size", "8"), ("dev", "8:0"), ("device/wwid", "naa.1")]),
                ("sdb", &[("size", "8"), ("dev", "8:16"), ("device/wwid", "naa.1")]),
                (
                    "sdc",
                    &[
                        ("size", "8"),
                        ("dev", "8:32"),
                        ("device/wwid", "naa.2"),
                        ("holders/dm-0", ""),
                    ],
                ),
                (
                    "sdd",
                    &[
                        ("size", "8"),
                        ("dev", "8:48"),
                        ("device/wwid", "naa.2"),
                        ("holders/dm-0", ""),
                    ],
                ),
                ("dm-0", &[("size", "8"), ("dev", "254:0")]),
            ],
        );
        assert_eq!(names(&devices_of(&system, &dev)), ["dm-0", "sda"]);
    }

    #[test]
    fn what_is_empty_or_has_no_disk_is_left_out() {
        let folder = headpond_testkit::tempdir();
        let (system, dev) = machine(
            folder.path(),
            &[
                ("sr0", &[("size", "8"), ("dev", "11:0")]),
                ("nbd3", &[("size", "8"), ("dev", "43:3")]),
                ("loop0", &[("size", "0"), ("dev", "7:0")]),
                ("vda", &[("size", "8"), ("dev", "252:0")]),
                ("fdisk", &[("size", "8"), ("dev", "252:16")]),
            ],
        );
        assert_eq!(names(&devices_of(&system, &dev)), ["fdisk", "vda"]);
    }

    #[test]
    fn a_device_is_called_by_the_number_that_its_vendor_gave_it() {
        let folder = headpond_testkit::tempdir();
        let (system, dev) = machine(folder.path(), &[("sda", &[("size", "8"), ("dev", "8:0")])]);
        for name in ["ata-DISK_7", "wwn-0x5000"] {
            std::os::unix::fs::symlink(dev.join("sda"), dev.join("disk/by-id").join(name)).unwrap();
        }
        assert_eq!(names(&devices_of(&system, &dev)), ["wwn-0x5000"]);
    }

    #[test]
    fn a_file_has_one_identity_by_each_of_its_names() {
        let folder = headpond_testkit::tempdir();
        let (one, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&one, vec![0; FILE_BYTES_MIN as usize]).unwrap();
        fs::hard_link(&one, &other).unwrap();
        assert_eq!(identity_of(&one), identity_of(&other));
        fs::write(folder.path().join("short"), "x").unwrap();
        assert_eq!(names(&files_in(folder.path())), ["a", "b"]);
    }
}
