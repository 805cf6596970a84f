//! The disk behind a path.

use headpond_uring::safety::{BlockNode, DeviceNumber, System};
use serde::Serialize;
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A whole disk.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(crate) node: BlockNode,
    /// Its device node.
    pub path: PathBuf,
    pub protocol: Protocol,
}

/// The transport between kernel and drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Nvme,
    Sata,
    Sas,
    Usb,
    /// SCSI over something else: a hypervisor, iSCSI, a RAID controller.
    Scsi,
    /// virtio-blk.
    Virtio,
    Other,
}

/// Why there is no drive.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a block device: name a drive, as /dev/sda or /dev/nvme0n1", path.display())]
    NotABlockDevice { path: PathBuf },
    #[error("{}: /sys has no device {major}:{minor}", path.display())]
    NotInSys { path: PathBuf, major: u32, minor: u32 },
    #[error("{} is made of {}: name one of these", path.display(), legs.join(", "))]
    Composed { path: PathBuf, legs: Vec<String> },
}

impl Drive {
    /// The disk that `path` is, or is a partition of.
    ///
    /// # Errors
    /// Where it is no disk.
    pub fn find(path: &Path) -> Result<Self, FindError> {
        Self::of_block_device(path)?.whole()
    }

    /// As [`Self::find`], or a composed device (md, device-mapper), which only the kernel
    /// describes.
    ///
    /// # Errors
    /// Where it is no block device.
    pub fn of_block_device(path: &Path) -> Result<Self, FindError> {
        let metadata = std::fs::metadata(path);
        let metadata =
            metadata.map_err(|source| FindError::Open { path: path.to_owned(), source })?;
        if !metadata.file_type().is_block_device() {
            return Err(FindError::NotABlockDevice { path: path.to_owned() });
        }
        Self::with_number(&System::host(), path, DeviceNumber::from_raw(metadata.rdev()))
    }

    /// As [`Self::of_block_device`]; of a file or folder, the device of its file system.
    ///
    /// # Errors
    /// Where it is not there, or on no block device.
    pub fn below(system: &System, path: &Path) -> Result<Self, FindError> {
        let metadata = std::fs::metadata(path);
        let metadata =
            metadata.map_err(|source| FindError::Open { path: path.to_owned(), source })?;
        let is_device = metadata.file_type().is_block_device();
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let found = Self::with_number(system, path, DeviceNumber::from_raw(number))?;
        let node = Path::new("/dev").join(found.node.name().replace('!', "/"));
        Ok(if is_device { found } else { Self { path: node, ..found } })
    }

    fn whole(self) -> Result<Self, FindError> {
        let legs: Vec<String> = self.node.legs().iter().map(BlockNode::name).collect();
        match legs.is_empty() {
            true => Ok(self),
            false => Err(FindError::Composed { path: self.path, legs }),
        }
    }

    /// The disk with this number, or the disk of the partition with this number.
    pub(crate) fn with_number(
        system: &System,
        path: &Path,
        number: DeviceNumber,
    ) -> Result<Self, FindError> {
        let DeviceNumber { major, minor } = number;
        let not_there = || FindError::NotInSys { path: path.to_owned(), major, minor };
        let given = BlockNode::find(system, number).ok_or_else(not_there)?;
        let node = given.disk();
        // The kernel writes a slash in a device's name as an exclamation mark.
        let path = match given.name() == node.name() {
            true => path.to_owned(),
            false => Path::new("/dev").join(node.name().replace('!', "/")),
        };
        Ok(Self { protocol: protocol(&node), node, path })
    }

    /// A name that survives a restart: the WWN, else the serial number, else the kernel's name.
    /// NVMe: that of the subsystem, because its namespaces share a cache.
    pub fn identity(&self) -> String {
        let names = ["device/subsysnqn", "wwid", "device/wwid"];
        let identity = self.text(&names).value().cloned();
        let serial = || self.serial().value().cloned();
        identity.or_else(serial).unwrap_or_else(|| self.node.name())
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvme => "NVMe",
            Self::Sata => "SATA",
            Self::Sas => "SAS",
            Self::Usb => "USB",
            Self::Scsi => "SCSI",
            Self::Virtio => "virtio",
            Self::Other => "other",
        })
    }
}

impl Protocol {
    /// Whether the drive accepts SCSI commands, natively or translated (SAT).
    pub(crate) fn speaks_scsi(self) -> bool {
        matches!(self, Self::Sata | Self::Sas | Self::Usb | Self::Scsi)
    }
}

/// From the buses above the disk in `/sys`.
fn protocol(node: &BlockNode) -> Protocol {
    let names: Vec<_> = node.dir().iter().map(|name| name.to_string_lossy()).collect();
    let below = |prefix: &str| {
        let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        names.iter().any(|name| name.strip_prefix(prefix).is_some_and(numbered))
    };
    let is_scsi = node.dir().join("device/scsi_disk").exists();
    let is_ata = node.attribute("device/vendor").is_some_and(|vendor| vendor.trim() == "ATA");
    match is_scsi {
        false if below("nvme") || below("nvme-subsys") => Protocol::Nvme,
        false if below("virtio") => Protocol::Virtio,
        false => Protocol::Other,
        true if below("usb") => Protocol::Usb,
        true if below("ata") || is_ata => Protocol::Sata,
        true if below("end_device-") => Protocol::Sas,
        true => Protocol::Scsi,
    }
}

/// A `/sys` made by hand.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::fs;

    pub struct Tree {
        pub system: System,
        root: tempfile::TempDir,
    }

    impl Tree {
        pub fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let system = System { sys: root.path().join("sys"), proc: root.path().join("proc") };
            fs::create_dir_all(system.sys.join("dev/block")).unwrap();
            Self { system, root }
        }

        /// A disk whose directory is `below/block/NAME`, with these attributes; a path that begins
        /// with `device/` lies in `below`.
        pub fn add(&self, below: &str, number: &str, attributes: &[(&str, &[u8])]) -> PathBuf {
            let device = self.root.path().join("sys/devices").join(below);
            let dir = device.join("block/disk");
            fs::create_dir_all(&dir).unwrap();
            std::os::unix::fs::symlink(&device, dir.join("device")).unwrap();
            for (name, bytes) in attributes.iter().chain(&[("dev", number.as_bytes())]) {
                let file = dir.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, bytes).unwrap();
            }
            let link = self.system.sys.join("dev/block").join(number);
            std::os::unix::fs::symlink(&dir, link).unwrap();
            dir
        }

        pub fn drive(&self, number: &str) -> Result<Drive, FindError> {
            let number = DeviceNumber::parse(number).unwrap();
            Drive::with_number(&self.system, Path::new("/dev/disk"), number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Tree;
    use super::*;

    const SCSI: (&str, &[u8]) = ("device/scsi_disk/0:0:0:0/cache_type", b"write back\n");

    fn protocol_below(below: &str, attributes: &[(&str, &[u8])]) -> Protocol {
        let tree = Tree::new();
        tree.add(below, "8:0", attributes);
        tree.drive("8:0").unwrap().protocol
    }

    #[test]
    fn the_buses_above_a_disk_tell_its_protocol() {
        let ata = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
        assert_eq!(protocol_below(ata, &[SCSI]), Protocol::Sata);
        let sas = "pci0000:00/0000:03:00.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0";
        assert_eq!(protocol_below(sas, &[SCSI]), Protocol::Sas);
        let vendor: (&str, &[u8]) = ("device/vendor", b"ATA     \n");
        assert_eq!(protocol_below(sas, &[SCSI, vendor]), Protocol::Sata);
        let virtual_scsi = "pci0000:00/0000:00:03.0/virtio1/host2/target2:0:0/2:0:0:0";
        assert_eq!(protocol_below(virtual_scsi, &[SCSI]), Protocol::Scsi);
        let usb = "pci0000:00/usb2/2-1/2-1:1.0/host4/target4:0:0/4:0:0:0";
        assert_eq!(protocol_below(usb, &[SCSI]), Protocol::Usb);
        assert_eq!(protocol_below("pci0000:00/0000:00:04.0/nvme/nvme0", &[]), Protocol::Nvme);
        assert_eq!(protocol_below("pci0000:00/0000:00:05.0/virtio2", &[]), Protocol::Virtio);
        assert_eq!(protocol_below("virtual", &[]), Protocol::Other);
    }

    #[test]
    fn a_device_made_of_others_is_refused_and_names_them() {
        let tree = Tree::new();
        let dir = tree.add("virtual", "253:0", &[]);
        let leg = tree.add("pci0/sda", "8:0", &[]);
        std::fs::create_dir(dir.join("slaves")).unwrap();
        std::os::unix::fs::symlink(leg, dir.join("slaves/sda")).unwrap();
        let error = tree.drive("253:0").unwrap().whole().unwrap_err();
        assert!(matches!(error, FindError::Composed { legs, .. } if legs == ["disk"]));
    }

    #[test]
    fn identity_is_the_worldwide_name_where_there_is_one() {
        let tree = Tree::new();
        let namespace: &[(&str, &[u8])] =
            &[("wwid", b"eui.1\n"), ("device/subsysnqn", b"nqn.2014:a\n")];
        tree.add("pci0/nvme/nvme0", "259:0", namespace);
        tree.add("pci0/0:0:0:0", "8:0", &[("device/wwid", b"naa.5\n"), ("serial", b"S1\n")]);
        tree.add("pci0/0:0:0:1", "8:1", &[("device/vpd_pg80", b"\0\x80\0\x02S2")]);
        tree.add("pci0/virtio1", "254:0", &[]);
        assert_eq!(tree.drive("259:0").unwrap().identity(), "nqn.2014:a");
        assert_eq!(tree.drive("8:0").unwrap().identity(), "naa.5");
        assert_eq!(tree.drive("8:1").unwrap().identity(), "S2");
        assert_eq!(tree.drive("254:0").unwrap().identity(), "disk");
        assert!(matches!(tree.drive("1:1"), Err(FindError::NotInSys { .. })));
    }

    #[test]
    fn a_file_is_no_drive() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Drive::find(file.path()).unwrap_err();
        assert!(matches!(error, FindError::NotABlockDevice { .. }), "{error}");
    }
}
