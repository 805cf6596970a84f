//! On what it was measured: results without it cannot be compared.

use crate::plan::{Kind, Plan, Target};
use headpond_drive::{Drive, KernelFacts};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// The processors that its load is bound to.
    pub cpus: Option<String>,
}

impl Environment {
    /// What is to be known now.
    pub fn of(plan: &Plan, fio: Option<&str>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            began: now.as_secs(),
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            fio: fio.map(str::to_owned),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            processor: line_of("/proc/cpuinfo", "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib().unwrap_or(0.0),
            targets: plan.targets.iter().map(TargetFacts::of).collect(),
        }
    }
}

impl TargetFacts {
    fn of(target: &Target) -> Self {
        let place = match target.kind() {
            Kind::Machine => made_of(target),
            _ => target.place().unwrap_or_default(),
        };
        let facts = facts(target);
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
            cpus: cpus_for(target),
        }
    }
}

/// The processors next to a target's device, where the machine has several nodes and the user has
/// not said which.
pub(crate) fn cpus_for(target: &Target) -> Option<String> {
    match target.cpus.as_deref() {
        Some("none") => None,
        Some(list) => Some(list.to_owned()),
        None => {
            Path::new("/sys/devices/system/node/node1").exists().then_some(())?;
            read(format!("/sys/devices/system/node/node{}/cpulist", node(target)?))
        }
    }
}

/// What the kernel knows of the disk that a target is, or lies on.
fn facts(target: &Target) -> Option<KernelFacts> {
    let drive = Drive::of_block_device(target.device.as_ref()?).ok()?;
    Some(drive.kernel())
}

/// The node that a target's device is attached to.
fn node(target: &Target) -> Option<u32> {
    facts(target)?.numa_node.value().copied()
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

    #[test]
    fn what_the_user_says_of_processors_goes_before_what_the_machine_says() {
        let target = |cpus: &str| Target { cpus: Some(cpus.into()), ..Target::default() };
        assert_eq!(cpus_for(&target("0-3")).as_deref(), Some("0-3"));
        assert_eq!(cpus_for(&target("none")), None);
    }
}
