//! A block device as `/sys` shows it.

use std::fs;
use std::path::{Path, PathBuf};

/// The roots of `/sys` and `/proc`; other folders in tests.
#[derive(Clone, Debug)]
pub struct System {
    pub sys: PathBuf,
    pub proc: PathBuf,
}

impl System {
    /// The real ones of this machine.
    pub fn host() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    /// From the `st_rdev` of its node.
    pub fn from_raw(device: u64) -> Self {
        Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
    }

    /// Reads `8:16`, as in a `dev` attribute or in mountinfo.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// The directory of one disk or partition under `/sys/devices`.
#[derive(Clone, Debug)]
pub struct BlockNode {
    dir: PathBuf,
}

impl BlockNode {
    /// The device with this number; `None` where `/sys` has none.
    pub fn find(system: &System, number: DeviceNumber) -> Option<Self> {
        let link = system.sys.join(format!("dev/block/{}:{}", number.major, number.minor));
        Some(Self { dir: link.canonicalize().ok()? })
    }

    /// Its directory, as the kernel nests it below the buses that it is attached to.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// As the kernel calls it: `sda`, `nvme0n1p2`.
    pub fn name(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Major and minor number.
    pub fn number(&self) -> Option<DeviceNumber> {
        DeviceNumber::parse(&self.attribute("dev")?)
    }

    /// The text of one attribute, without the line's end.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.dir.join(name)).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    }

    /// The bytes of an attribute that is not text.
    pub fn attribute_bytes(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.join(name)).ok()
    }

    /// The whole disk: queue, drive and NUMA node are its attributes, not its partitions'.
    pub fn disk(&self) -> BlockNode {
        match self.dir.parent() {
            Some(parent) if self.dir.join("partition").exists() => {
                BlockNode { dir: parent.to_owned() }
            }
            _ => self.clone(),
        }
    }

    /// The node itself and, where it is a disk, its partitions.
    pub fn with_partitions(&self) -> Vec<BlockNode> {
        let partitions =
            children(&self.dir).filter(|dir| dir.join("partition").exists() && dir.is_dir());
        std::iter::once(self.dir.clone()).chain(partitions).map(|dir| BlockNode { dir }).collect()
    }

    /// The devices that this one is made of: the legs of a device-mapper or md device.
    pub fn legs(&self) -> Vec<BlockNode> {
        let links = children(&self.dir.join("slaves"));
        links.filter_map(|link| Some(BlockNode { dir: link.canonicalize().ok()? })).collect()
    }

    /// The devices made of this one, with device-mapper's name where there is one.
    pub fn holders(&self) -> Vec<String> {
        children(&self.dir.join("holders")).map(|link| describe(&link)).collect()
    }

    /// Whether the kernel treats the drive's cache as volatile, and sends flushes.
    pub fn write_cache(&self) -> Option<bool> {
        match self.disk().attribute("queue/write_cache")?.as_str() {
            "write back" => Some(true),
            "write through" => Some(false),
            _ => None,
        }
    }

    /// Whether it is rotational, as the drive reports.
    pub fn rotational(&self) -> Option<bool> {
        Some(self.disk().attribute("queue/rotational")? == "1")
    }

    /// The NUMA node of the nearest bus device above that has one; `-1` there means none.
    pub fn numa_node(&self) -> Option<u32> {
        let mut ancestors = self.dir.ancestors();
        let text = ancestors.find_map(|dir| fs::read_to_string(dir.join("numa_node")).ok())?;
        text.trim().parse().ok()
    }
}

/// The loop devices whose backing file is `path`.
pub(crate) fn loops_over(system: &System, path: &Path) -> Vec<String> {
    let is_over = |dir: &PathBuf| {
        let backing = fs::read_to_string(dir.join("loop/backing_file")).unwrap_or_default();
        !backing.is_empty() && Path::new(backing.trim_end_matches('\n')) == path
    };
    children(&system.sys.join("block")).filter(is_over).map(|dir| describe(&dir)).collect()
}

fn describe(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    match fs::read_to_string(dir.join("dm/name")) {
        Ok(mapped) => format!("{name} ({})", mapped.trim_end()),
        Err(_) => name.into_owned(),
    }
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter()
}

/// A simulated `/sys` and `/proc`, for hardware that this machine does not have.
#[cfg(test)]
pub(crate) struct FakeSystem {
    pub system: System,
    _root: tempfile::TempDir,
}

#[cfg(test)]
impl FakeSystem {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().canonicalize().unwrap();
        let system = System { sys: base.join("sys"), proc: base.join("proc") };
        fs::create_dir_all(system.sys.join("dev/block")).unwrap();
        fs::create_dir_all(system.proc.join("self")).unwrap();
        Self { system, _root: root }
    }

    /// Adds a disk, or with `disk/partition` a partition, and answers its directory.
    pub fn add(&self, name: &str, number: &str, attributes: &[(&str, &str)]) -> PathBuf {
        let dir = self.system.sys.join("devices/pci0/virtual").join(name);
        for (attribute, text) in attributes.iter().chain(&[("dev", number)]) {
            let file = dir.join(attribute);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        let link = self.system.sys.join("dev/block").join(number);
        std::os::unix::fs::symlink(&dir, link).unwrap();
        dir
    }

    pub fn link(&self, dir: &Path, kind: &str, target: &Path) {
        fs::create_dir_all(dir.join(kind)).unwrap();
        let name = target.file_name().unwrap();
        std::os::unix::fs::symlink(target, dir.join(kind).join(name)).unwrap();
    }

    pub fn write_proc(&self, name: &str, text: &str) {
        fs::write(self.system.proc.join(name), text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(fake: &FakeSystem, number: &str) -> BlockNode {
        BlockNode::find(&fake.system, DeviceNumber::parse(number).unwrap()).unwrap()
    }

    #[test]
    fn partition_answers_with_the_attributes_of_its_disk() {
        let fake = FakeSystem::new();
        let queue = [("queue/rotational", "1"), ("queue/write_cache", "write back")];
        fake.add("sda", "8:0", &queue);
        fake.add("sda/sda1", "8:1", &[("partition", "1")]);
        let partition = node(&fake, "8:1");
        assert_eq!(partition.rotational(), Some(true));
        assert_eq!(partition.write_cache(), Some(true));
        let family = node(&fake, "8:0").with_partitions();
        assert_eq!(family.iter().map(BlockNode::name).collect::<Vec<_>>(), ["sda", "sda1"]);
    }

    #[test]
    fn numa_node_comes_from_the_bus_above_and_minus_one_is_none() {
        let fake = FakeSystem::new();
        fake.add("nvme0n1", "259:0", &[]);
        assert_eq!(node(&fake, "259:0").numa_node(), None);
        let bus = fake.system.sys.join("devices/pci0/numa_node");
        fs::write(&bus, "1\n").unwrap();
        assert_eq!(node(&fake, "259:0").numa_node(), Some(1));
        fs::write(&bus, "-1\n").unwrap();
        assert_eq!(node(&fake, "259:0").numa_node(), None);
    }

    #[test]
    fn holders_carry_the_name_an_administrator_knows() {
        let fake = FakeSystem::new();
        let disk = fake.add("sdb", "8:16", &[]);
        let mapped = fake.add("dm-0", "253:0", &[("dm/name", "vg-root")]);
        fake.link(&disk, "holders", &mapped);
        assert_eq!(node(&fake, "8:16").holders(), ["dm-0 (vg-root)"]);
    }
}
