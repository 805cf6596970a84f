//! On what it was measured: results without it cannot be compared.

mod stacked;
mod surroundings;

use crate::plan::{Kind, Plan, Target};
use headpond_drive::{Drive, KernelFacts};
use headpond_uring::safety::{BlockNode, DeviceNumber, System};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use surroundings::{Connected, Surroundings};

/// The machine and the targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Seconds since 1970, when it began.
    pub began: u64,
    pub lab: String,
    pub fio: Option<String>,
    pub kernel: String,
    pub processor: String,
    pub processors: usize,
    pub memory_gib: f64,
    /// In the order of the plan.
    pub targets: Vec<TargetFacts>,
}

/// What the kernel knows of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFacts {
    pub name: String,
    /// Where it is; of a model, what it is made of.
    pub place: String,
    pub model: Option<String>,
    pub firmware: Option<String>,
    pub scheduler: Option<String>,
    pub write_cache: Option<String>,
    pub rotational: Option<bool>,
    pub node: Option<u32>,
    /// The processors that its load is bound to, and the node that its memory comes from.
    pub cpus: Option<String>,
    #[serde(default)]
    pub memory_node: Option<u32>,
    /// Of an export, what its server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<ExportFacts>,
    /// Those that are built alike and loaded at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<TargetFacts>,
    /// Of a served volume, and of a device that the kernel makes of others, what it is made of,
    /// each called by what it is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<TargetFacts>,
    /// Likewise what it is set to, without what the plan varies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingFact>,
}

/// What the server of an export says when it is asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportFacts {
    /// By its server; empty where it has none.
    pub name: String,
    pub description: String,
    pub size_bytes: u64,
    /// Least, preferred and most bytes of a request.
    pub block_bytes: [u32; 3],
    /// Flags of the transmission, in the words of the protocol.
    pub flags: Vec<String>,
    /// The volume of this machine that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
}

/// One setting of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingFact {
    pub name: String,
    pub value: String,
    /// Whether it is what nobody has changed.
    pub is_default: bool,
}

/// What a served volume says of itself.
#[derive(Clone, Debug, Default)]
pub struct VolumeFacts {
    /// What each device is there ("member", "cache"), what it is called, and its path where it has
    /// one.
    pub parts: Vec<(String, String, Option<PathBuf>)>,
    pub settings: Vec<SettingFact>,
}

impl Environment {
    /// What is to be known now.
    pub fn of(plan: &Plan, fio: Option<&str>, surroundings: &dyn Surroundings) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began: now.as_secs(),
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            fio: fio.map(str::to_owned),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            processor: line_of("/proc/cpuinfo", "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib().unwrap_or(0.0),
            targets: plan
                .targets
                .iter()
                .map(|target| {
                    let facts = |one: &Target| {
                        let address = one.export.clone().or_else(|| {
                            let volume = one.volume.as_ref()?;
                            surroundings.export_of(volume).ok()
                        });
                        let export = address.and_then(|it| surroundings.facts_of_export(&it));
                        let is_of = export.as_ref().and_then(|export| export.volume.clone());
                        let volume = one.volume.clone().or(is_of);
                        let volume = volume.and_then(|it| surroundings.facts_of(&it));
                        TargetFacts { export, ..TargetFacts::of(one) }.with(volume, plan)
                    };
                    let mut each = target.each().into_iter();
                    let mut first = facts(&each.next().expect("itself"));
                    first.alike = each.map(|one| facts(&one)).collect();
                    first
                })
                .collect(),
        }
    }
}

impl TargetFacts {
    fn of(target: &Target) -> Self {
        let place = match target.kind() {
            Kind::Machine => made_of(target),
            _ => target.place().unwrap_or_default(),
        };
        let path = target.device.as_ref().or(target.file.as_ref());
        let node = path.and_then(|path| node(&System::host(), path));
        let facts = facts(&System::host(), target);
        let facts = facts.as_ref();
        let believed = |write_cache: &bool| match write_cache {
            true => "write back".to_owned(),
            false => "write through".to_owned(),
        };
        Self {
            name: target.name.clone(),
            place,
            model: facts.and_then(|it| it.model.value().cloned()),
            firmware: facts.and_then(|it| it.firmware.value().cloned()),
            scheduler: facts.and_then(|it| it.scheduler.value().cloned()),
            write_cache: facts.and_then(|it| it.write_cache.value().map(believed)),
            rotational: facts.and_then(|it| it.rotational.value().copied()),
            node: facts.and_then(|it| it.numa_node.value().copied()),
            cpus: cpus_for(&System::host(), target),
            memory_node: memory_node_for(&System::host(), target),
            parts: node.as_ref().map(stacked::parts).unwrap_or_default(),
            settings: node.as_ref().map(stacked::settings).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// With what a served volume says of itself; drives are looked up as those of other targets.
    fn with(mut self, volume: Option<VolumeFacts>, plan: &Plan) -> Self {
        let Some(volume) = volume else { return self };
        let part = |(name, place, path): (String, String, Option<PathBuf>)| {
            let target = Target { name, file: path, ..Target::default() };
            match target.file {
                Some(_) => Self { place, cpus: None, memory_node: None, ..Self::of(&target) },
                None => Self { name: target.name, place, ..Self::default() },
            }
        };
        self.parts = volume.parts.into_iter().map(part).collect();
        let varied: Vec<_> =
            plan.matrix.settings.keys().map(|name| name.trim_start_matches("cache.")).collect();
        self.settings = volume.settings;
        self.settings.retain(|setting| !varied.contains(&setting.name.as_str()));
        self
    }
}

/// The processors next to a target's device, where the machine has several nodes and the user has
/// not said which.
pub(crate) fn cpus_for(system: &System, target: &Target) -> Option<String> {
    match target.cpus.as_deref() {
        Some("none") => None,
        Some(list) => Some(list.to_owned()),
        None => {
            let nodes = system.sys.join("devices/system/node");
            nodes.join("node1").exists().then_some(())?;
            let node = device_node(system, target)?;
            read(nodes.join(format!("node{node}/cpulist")))
        }
    }
}

/// The node that the memory of a target's load comes from: the one that its processors were found
/// at, unless the user says another.
pub(crate) fn memory_node_for(system: &System, target: &Target) -> Option<u32> {
    match (target.memory.as_deref(), target.cpus.as_deref()) {
        (Some(node), _) => node.parse().ok(),
        // Who says where it runs may say where its memory is; the kernel takes it from there.
        (None, Some(_)) => None,
        (None, None) => cpus_for(system, target).and_then(|_| device_node(system, target)),
    }
}

fn device_node(system: &System, target: &Target) -> Option<u32> {
    facts(system, target)?.numa_node.value().copied()
}

/// The whole block device that a path is.
fn node(system: &System, path: &Path) -> Option<BlockNode> {
    let metadata = fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let number = DeviceNumber::from_raw(metadata.rdev());
    Some(BlockNode::find(system, number).filter(|_| is_device)?.disk())
}

/// What the kernel knows of the disk that a target is, or lies on.
fn facts(system: &System, target: &Target) -> Option<KernelFacts> {
    let path = target.device.as_ref().or(target.file.as_ref())?;
    // A file that is still to be made will lie where its folder does.
    let place = if path.exists() { path } else { path.parent()? };
    Some(Drive::below(system, place).ok()?.kernel())
}

/// A machine that is only described, in a line.
fn made_of(target: &Target) -> String {
    let machine = target.machine.as_ref();
    let core = machine.and_then(|machine| machine.get("core")?.as_table());
    let field = |name: &str| core.and_then(|core| core.get(name)).map(crate::plan::plain);
    let parts = [
        field("raid").map(|raid| format!("RAID {raid}")),
        field("drives").zip(field("drive")).map(|(count, drive)| format!("{count} x {drive}")),
        field("controller").map(|controller| format!("behind {controller}")),
        machine.and_then(|machine| machine.get("cache")).map(|_| "with a cache".to_owned()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("a model: {}", parts.join(", "))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

fn memory_gib() -> Option<f64> {
    let text = line_of("/proc/meminfo", "MemTotal")?;
    let kib: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two nodes whose disk with this number is at the second one.
    fn two_nodes(root: &Path, number: u64) -> System {
        let sys = root.join("sys");
        let (bus, node) = (sys.join("devices/pci0"), sys.join("devices/system/node"));
        let disk = bus.join("block/fast");
        for folder in [&disk.join("device"), &node.join("node0"), &node.join("node1")] {
            fs::create_dir_all(folder).unwrap();
        }
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        for (file, text) in [
            (bus.join("numa_node"), "1\n".to_owned()),
            (disk.join("dev"), format!("{major}:{minor}\n")),
            (disk.join("device/model"), "Fast One\n".to_owned()),
            (node.join("node0/cpulist"), "0-3\n".to_owned()),
            (node.join("node1/cpulist"), "4-7,12\n".to_owned()),
        ] {
            fs::write(file, text).unwrap();
        }
        let links = sys.join("dev/block");
        fs::create_dir_all(&links).unwrap();
        std::os::unix::fs::symlink(&disk, links.join(format!("{major}:{minor}"))).unwrap();
        System { sys, proc: root.join("proc") }
    }

    #[test]
    fn a_file_is_measured_from_the_node_of_the_disk_that_it_lies_on_or_will_lie_on() {
        let folder = tempfile::tempdir().unwrap();
        let number = folder.path().metadata().unwrap().dev();
        let system = two_nodes(folder.path(), number);
        let target = Target { file: Some(folder.path().join("x.img")), ..Target::default() };
        assert_eq!(cpus_for(&system, &target).as_deref(), Some("4-7,12"), "still to be made");
        assert_eq!(memory_node_for(&system, &target), Some(1));
        fs::write(folder.path().join("x.img"), "x").unwrap();
        assert_eq!(cpus_for(&system, &target).as_deref(), Some("4-7,12"));
        let facts = facts(&system, &target).unwrap();
        assert_eq!(
            (facts.model.value().unwrap().as_str(), facts.numa_node.value()),
            ("Fast One", Some(&1))
        );
        fs::remove_dir_all(system.sys.join("devices/system/node/node1")).unwrap();
        assert_eq!(cpus_for(&system, &target), None, "with one node there is nothing to choose");
        assert_eq!(memory_node_for(&system, &target), None);
        let elsewhere = Target { file: Some("/proc/self/x".into()), ..Target::default() };
        assert_eq!(cpus_for(&system, &elsewhere), None, "on no disk at all");
    }

    #[test]
    fn what_the_user_says_of_processors_goes_before_what_the_machine_says() {
        let target = |cpus: &str| Target { cpus: Some(cpus.into()), ..Target::default() };
        let system = System::host();
        assert_eq!(cpus_for(&system, &target("0-3")).as_deref(), Some("0-3"));
        assert_eq!(cpus_for(&system, &target("none")), None);
        let memory = |memory: Option<&str>, cpus: Option<&str>| {
            let (memory, cpus) = (memory.map(str::to_owned), cpus.map(str::to_owned));
            memory_node_for(&system, &Target { memory, cpus, ..Target::default() })
        };
        assert_eq!(memory(Some("3"), Some("0-3")), Some(3));
        assert_eq!(memory(Some("none"), None), None);
        assert_eq!(memory(None, Some("0-3")), None, "the kernel takes it from where it runs");
    }

    struct Served(PathBuf);

    impl Surroundings for Served {
        fn export_of(&self, _: &str) -> Result<String, String> {
            Ok("nbd://here".into())
        }

        fn setting_of(&self, _: &str, name: &str) -> Result<String, String> {
            Err(name.into())
        }

        fn set(&self, _: &str, name: &str, _: &str) -> Result<(), String> {
            Err(name.into())
        }

        fn facts_of(&self, volume: &str) -> Option<VolumeFacts> {
            let setting = |name: &str, is_default| SettingFact {
                name: name.into(),
                value: "on".into(),
                is_default,
            };
            let member =
                (String::from("member"), self.0.display().to_string(), Some(self.0.clone()));
            let cache = (String::from("cache"), String::from("ram:1G"), None);
            let settings =
                vec![setting("mode", false), setting("merge", false), setting("x", true)];
            (volume == "v").then(|| VolumeFacts { parts: vec![member, cache], settings })
        }
    }

    #[test]
    fn a_served_volume_is_told_with_its_devices_and_the_settings_that_are_not_varied() {
        let text = "name = \"t\"\n[[target]]\nname = \"it\"\nvolume = \"v\"\n[matrix]\nrw = \
                    [\"read\"]\nbs = [\"4K\"]\nsettings = { \"cache.mode\" = [\"write-back\"] }\n";
        let plan = Plan::parse(text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let facts = Environment::of(&plan, None, &Served(folder.path().join("m.img"))).targets;
        let parts = facts[0].parts.iter().map(|part| (part.name.as_str(), part.place.as_str()));
        let path = folder.path().join("m.img").display().to_string();
        assert_eq!(parts.collect::<Vec<_>>(), [("member", path.as_str()), ("cache", "ram:1G")]);
        let names = facts[0].settings.iter().map(|it| it.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["merge", "x"], "the mode is varied");
        let stored: TargetFacts =
            serde_json::from_value(serde_json::to_value(&facts[0]).unwrap()).unwrap();
        assert_eq!(stored, facts[0]);
        // What was stored before volumes were told of is read.
        serde_json::from_str::<TargetFacts>("{\"name\": \"x\", \"place\": \"y\"}").unwrap();
    }
}
