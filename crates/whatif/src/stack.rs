//! What a simulated machine is made of, as a file that people write.

mod single;

use crate::condition::Condition;
use crate::endurance::Endurance;
use crate::engine::{EngineError, EngineModel};
use crate::models;
use headpond_raid::{Level, Spread, Striping};
use headpond_sim::ssd::State;
use headpond_sim::{CatalogueError, ControllerModel, Model, NetworkModel};
use headpond_volume::{
    ArraySettings, BackgroundRate, CacheDescription, CacheSettings, CoreDescription, Description,
    Size,
};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// A whole machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// What results call it.
    pub name: String,
    /// What serving costs: the name of an engine, or a file; nothing where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// So many alike, with all that belongs to them, behind one controller and one network.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub arrays: u16,
    /// The array; or, as one word, the model of the one device that it is made of.
    #[serde(deserialize_with = "single::or_array")]
    pub core: CoreStack,
    /// How the array works.
    #[serde(default)]
    pub array: ArraySettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStack>,
}

/// The array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreStack {
    pub raid: Level,
    /// Left out, and zero until it is known: as is usual for the level.
    #[serde(default)]
    pub groups: u16,
    /// Stripes narrower than the array, and its distributed spares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declustered: Option<Spread>,
    #[serde(default = "strip")]
    pub strip: Size,
    /// The drives' model: a name of the catalogue, or a file.
    pub drive: String,
    pub drives: u16,
    /// The drives' own write caches; as the model says where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_write_cache: Option<bool>,
    /// What was done to solid state drives before.
    #[serde(default)]
    pub drive_state: State,
    /// The model of a controller that all drives are behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The model of a network that lies between the host and all that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The members carry a map of the regions that are being written.
    #[serde(default)]
    pub intent: bool,
    /// What has become of it by the time that it is looked at.
    #[serde(default)]
    pub condition: Condition,
}

/// The cache and the device that it is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheStack {
    pub size: Size,
    #[serde(default = "four_kib")]
    pub line: Size,
    #[serde(flatten)]
    pub settings: CacheSettings,
    /// The model of its device, of which `size` is used; without one, the four figures below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What was done to a solid state device before.
    #[serde(default)]
    pub state: State,
    /// Latencies of one operation in microseconds, and what all share in MB/s (10^6 bytes); zero
    /// latencies are RAM.
    #[serde(default)]
    pub read_us: f64,
    #[serde(default)]
    pub write_us: f64,
    #[serde(default)]
    pub flush_us: f64,
    #[serde(default = "ram_mb_per_s")]
    pub mb_per_s: f64,
    /// What its maker says may be written to its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Endurance>,
}

/// A stack that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error("the stack cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error(transparent)]
    Model(#[from] CatalogueError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{field} must be {what}, not {found}")]
    Field { field: &'static str, what: &'static str, found: String },
}

/// The models that a machine is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    pub drive: Model,
    pub controller: Option<Rc<ControllerModel>>,
    pub network: Option<Rc<NetworkModel>>,
    pub cache: Option<Model>,
}

impl Parts {
    /// Whether its drives, or what hides them, say that they have a volatile cache.
    pub(crate) fn report_a_cache(&self) -> bool {
        let hides = self.controller.as_ref().is_some_and(|model| model.reports_a_cache());
        hides || self.drive.reports_a_cache()
    }
}

const fn one() -> u16 {
    1
}

const fn is_one(count: &u16) -> bool {
    *count == 1
}

const fn strip() -> Size {
    Size(64 << 10)
}

const fn four_kib() -> Size {
    Size(4 << 10)
}

const fn ram_mb_per_s() -> f64 {
    10_000.0
}

impl Stack {
    /// Reads and checks a stack.
    ///
    /// # Errors
    /// Where it is no TOML, lacks or has unknown fields, or a figure is none; the error says which.
    pub fn parse(text: &str) -> Result<Self, StackError> {
        let mut stack: Self = toml::from_str(text)?;
        if stack.core.groups == 0 {
            stack.core.groups = stack.core.raid.usual_groups(stack.core.drives);
        }
        stack.parts()?;
        stack.engine_model()?;
        let (level, condition) = (stack.core.raid, stack.core.condition);
        let what =
            "one that this level has: RAID 0 loses no drive, and parity alone is initialised";
        require("core.condition", what, condition, condition.is_of(level))?;
        require("arrays", "1 to 64", stack.arrays, (1..=64).contains(&stack.arrays))?;
        if let Some(cache) = &stack.cache {
            cache.check_model()?;
            let is_line = headpond_cache::is_line_size(cache.line.bytes());
            require("cache.line", "a power of two from 4K to 1M", cache.line, is_line)?;
            let wears = cache.model.is_some() || cache.read_us > 0.0;
            if let Some(endurance) = cache.endurance {
                let what = "left out for memory (no model, and no read_us): it does not wear out";
                require("cache.endurance", what, endurance, wears)?;
            }
            let latencies = [
                ("cache.read_us", cache.read_us),
                ("cache.write_us", cache.write_us),
                ("cache.flush_us", cache.flush_us),
            ];
            for (field, found) in latencies {
                require(
                    field,
                    "a time of 0 to 10,000,000 us",
                    found,
                    (0.0..=1e7).contains(&found),
                )?;
            }
            let (field, found) = ("cache.mb_per_s", cache.mb_per_s);
            require(field, "a rate of 1 to 1,000,000 MB/s", found, (1.0..=1e6).contains(&found))?;
        }
        Ok(stack)
    }

    /// The models that are named, with the drives' write cache as asked for.
    ///
    /// # Errors
    /// Where there is no such model, or one of a kind that does not belong there.
    pub fn parts(&self) -> Result<Parts, CatalogueError> {
        let core = &self.core;
        let controller = match core.controller.as_deref().map(models::load).transpose()? {
            None => None,
            Some(Model::Controller(model)) => Some(model),
            Some(other) => return Err(other.is_not("a controller (core.controller)")),
        };
        let network = match core.network.as_deref().map(models::load).transpose()? {
            None => None,
            Some(Model::Network(model)) => Some(model),
            Some(other) => return Err(other.is_not("a network (core.network)")),
        };
        let asked = core.drive_write_cache;
        let set = asked.or(controller.as_ref().and_then(|model| model.drive_write_cache));
        let drive = match (models::load(&core.drive)?, set) {
            (Model::Hdd(model), Some(enabled)) => {
                Model::Hdd(Rc::new(Rc::unwrap_or_clone(model).with_write_cache(enabled)))
            }
            (Model::Ssd(model), Some(enabled)) => {
                Model::Ssd(Rc::new(Rc::unwrap_or_clone(model).with_write_cache(enabled)))
            }
            (drive @ (Model::Hdd(_) | Model::Ssd(_) | Model::Remote(_)), None) => drive,
            (remote @ Model::Remote(_), Some(_)) => {
                let wanted = "a drive whose write cache can be switched (core.drive_write_cache)";
                return Err(remote.is_not(wanted));
            }
            (other, _) => return Err(other.is_not("a drive, hdd, ssd or remote (core.drive)")),
        };
        let named = self.cache.as_ref().and_then(|cache| cache.model.as_deref());
        let cache = match named.map(models::load).transpose()? {
            Some(other @ (Model::Controller(_) | Model::Network(_) | Model::Remote(_))) => {
                return Err(other.is_not("a drive, hdd or ssd (cache.model)"));
            }
            cache => cache,
        };
        Ok(Parts { drive, controller, network, cache })
    }

    /// About the size of the volume: what members hold besides data is little.
    ///
    /// # Errors
    /// Where there is no such model.
    pub fn capacity_bytes(&self) -> Result<u64, CatalogueError> {
        let core = &self.core;
        let drive = self.parts()?.drive.capacity_bytes().unwrap_or(0);
        let (drives, groups) = (u64::from(core.drives), u64::from(core.groups));
        let redundant = match core.raid {
            Level::Raid1 => drives.saturating_sub(1),
            Level::Raid10 => drives.saturating_sub(groups),
            level => u64::from(level.parity()) * groups,
        };
        Ok(drive.saturating_mul(drives.saturating_sub(redundant)))
    }

    /// What serving costs on this machine.
    ///
    /// # Errors
    /// Where there is no such engine.
    pub fn engine_model(&self) -> Result<Option<EngineModel>, EngineError> {
        self.engine.as_deref().map(EngineModel::find).transpose()
    }

    /// The volume on this machine.
    pub(crate) fn description(&self) -> Description {
        let cache = self.cache.as_ref().map(|cache| CacheDescription {
            device: "cache".into(),
            line: cache.line,
            size: None,
            settings: cache.settings.clone(),
            volatile_allowed: true,
            mirror: None,
        });
        let core = CoreDescription {
            raid: self.core.raid,
            groups: self.core.groups,
            strip: self.core.strip,
            intent: self.core.intent,
            integrity: false,
            members: (0..self.core.drives).map(|number| format!("drive{number:02}")).collect(),
            spares: Vec::new(),
            declustered: self.core.declustered,
            striping: Striping::Plain,
            background: BackgroundRate::default(),
            journal: None,
        };
        let uuid = Uuid::from_u128(0x5eed);
        Description {
            name: "simulated".into(),
            uuid,
            slices: 1,
            tier: None,
            cache,
            core,
            array: self.array.clone(),
            heartbeat_ms: 0,
            further_cores: Vec::new(),
            exports: Vec::new(),
        }
    }
}

impl CoreStack {
    /// Whether a drive more takes the place of one that is lost.
    pub(crate) fn needs_spare(&self) -> bool {
        let has_slots = self.declustered.is_some_and(|spread| spread.spares > 0);
        self.condition == Condition::Rebuilding && !has_slots
    }
}

impl CacheStack {
    fn check_model(&self) -> Result<(), StackError> {
        let figures = [
            ("cache.read_us", self.read_us),
            ("cache.write_us", self.write_us),
            ("cache.flush_us", self.flush_us),
        ];
        let is_free = |found: f64| self.model.is_none() || found == 0.0;
        figures.into_iter().try_for_each(|(field, found)| {
            require(field, "left out beside cache.model", found, is_free(found))
        })
    }

    pub(crate) fn latency(micros: f64) -> Duration {
        Duration::from_nanos((micros * 1e3) as u64)
    }
}

fn require(
    field: &'static str,
    what: &'static str,
    found: impl std::fmt::Display,
    holds: bool,
) -> Result<(), StackError> {
    let found = found.to_string();
    if holds { Ok(()) } else { Err(StackError::Field { field, what, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"array\"\n[core]\nraid = 60\ngroups = 4\ndrive = \"hdd-7k2-4t\"\n\
                        drives = 40\n[cache]\nsize = \"64M\"\nwrite_us = 20\n";

    #[test]
    fn groups_that_are_left_out_are_as_is_usual() {
        let of = |core: &str| Stack::parse(&format!("name = \"a\"\n[core]\n{core}")).unwrap();
        let mirrors = of("raid = 10\ndrives = 8\ndrive = \"hdd-7k2-4t\"\n");
        let one = of("raid = 0\ndrives = 1\ndrive = \"hdd-7k2-4t\"\n").capacity_bytes().unwrap();
        assert_eq!(mirrors.core.groups, 4);
        assert_eq!(mirrors.capacity_bytes().unwrap(), 4 * one);
        let threes = of("raid = 10\ngroups = 2\ndrives = 6\ndrive = \"hdd-7k2-4t\"\n");
        assert_eq!(threes.capacity_bytes().unwrap(), 2 * one);
    }

    #[test]
    fn a_core_of_one_word_is_one_device_of_that_model() {
        let stack = Stack::parse("name = \"far\"\ncore = \"rbd\"\n[cache]\nsize = \"1G\"\n");
        let stack = stack.unwrap();
        assert_eq!((stack.core.drive.as_str(), stack.core.drives), ("rbd", 1));
        assert_eq!((stack.core.raid, stack.core.groups), (Level::Raid0, 1));
        assert_eq!(stack.capacity_bytes().unwrap(), 1 << 40);
        let again = toml::to_string(&stack).unwrap();
        assert_eq!(Stack::parse(&again).unwrap(), stack);
        for (core, says) in [
            ("\"floppy\"", "no model named floppy"),
            ("\"net-10g\"", "is a model of kind network; here a drive"),
            ("7", "a table of the array, or the model of its one device"),
        ] {
            let error = Stack::parse(&format!("name = \"far\"\ncore = {core}\n")).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let stack = Stack::parse(TEXT).unwrap();
        assert_eq!(stack.core.strip, Size(64 << 10));
        let cache = stack.cache.unwrap();
        assert_eq!((cache.settings.mode, cache.write_us), (headpond_cache::Mode::WriteBack, 20.0));
    }

    #[test]
    fn mistakes_name_the_field() {
        for (from, to, says) in [
            ("drives", "disks", "unknown field `disks`"),
            ("hdd-7k2-4t", "floppy", "no model named floppy"),
            ("write_us = 20", "write_us = -1", "cache.write_us must be a time"),
            ("write_us = 20", "line = \"12K\"", "cache.line must be a power of two from 4K to 1M"),
            ("raid = 60", "raid = 7", "not a supported RAID level"),
            ("hdd-7k2-4t", "net-10g", "net-10g is a model of kind network; here a drive"),
            ("hdd-7k2-4t\"", "rbd\"\ndrive_write_cache = true", "whose write cache can be"),
            ("raid = 60\ngroups = 4", "raid = 0\ncondition = \"degraded\"", "RAID 0 loses no"),
            ("drives = 40", "drives = 40\ncontroller = \"net-10g\"", "here a controller"),
            ("write_us = 20", "write_us = 20\nmodel = \"nvme-dc-2t\"", "must be left out beside"),
            ("write_us = 20", "endurance = \"600\"", "an endurance is what may be written"),
            ("write_us = 20", "endurance = \"600TB\"", "must be left out for memory"),
        ] {
            let error = Stack::parse(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
