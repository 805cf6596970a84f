//! What is measured.

use super::SettingOf;
use super::cell::{Sync, plain};
use super::error::PlanError;
use super::matrix::Matrix;
use super::processors::processors;
use headpond_raid::Level;
use headpond_volume::Size;
use headpond_whatif::Stack;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// The setting that says how many arrays are loaded at once: of a machine the field of that name,
/// of what is real so many of those that the target names.
pub(crate) const ARRAYS: &str = "arrays";

/// One thing that takes requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub name: String,
    /// A block device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// A file; it is made where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// An NBD export: `nbd+unix:///NAME?socket=PATH` or `nbd://HOST/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// A served volume of Headpond, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// A machine that is only described, as in the files of `simulate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<toml::Table>,
    /// Others of the same kind that are built alike: paths, addresses or names. All of them, or as
    /// many as the setting `arrays` says, take the whole load at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<String>,
    /// A command that sets one setting; `{name}` and `{value}` stand for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// A command that sets back what the one above has set, run when the plan ends, however it
    /// does; `{name}` stands for each setting that was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// Who makes the requests.
    #[serde(default)]
    pub load: Loader,
    /// The processors of the load, as a list (`0-3,8`), or `none` for no binding; without, those of
    /// the node that the device is on, where there are several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The NUMA node that the load's memory comes from, or `none`; without, the node that the
    /// device is on, where there are several nodes and `cpus` is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The array that it is, where a rating is to compare it with what such arrays are expected to
    /// do; of a machine that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayOf>,
}

/// An array as the calculator takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayOf {
    pub raid: Level,
    /// As `array plan` takes it: a sheet, a model, or a file.
    pub drive: String,
    pub drives: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip: Option<Size>,
}

impl FromStr for ArrayOf {
    type Err = String;

    /// From an inline table, as a plan has it.
    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Holder {
            array: ArrayOf,
        }
        let holder: Result<Holder, _> = toml::from_str(&format!("array = {text}"));
        holder.map(|holder| holder.array).map_err(|error| error.message().to_owned())
    }
}

/// Who makes the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// fio on what is real; this program on models, where requests have a rate, of which fio would
    /// not count how long they wait to be sent, and where a flush belongs to writes among reads,
    /// since fio would have one after each read too.
    #[default]
    Auto,
    Fio,
    /// This program, whatever the target is.
    InProcess,
}

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    File,
    Export,
    Volume,
    Machine,
}

impl Kind {
    /// Whether its requests travel over NBD.
    pub(crate) fn is_nbd(self) -> bool {
        matches!(self, Self::Export | Self::Volume)
    }
}

impl Target {
    /// What it is.
    ///
    /// # Panics
    /// Where the plan was not checked.
    pub fn kind(&self) -> Kind {
        self.kinds().next().expect("the plan was checked")
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        let kinds = [
            (self.device.is_some(), Kind::Device),
            (self.file.is_some(), Kind::File),
            (self.export.is_some(), Kind::Export),
            (self.volume.is_some(), Kind::Volume),
            (self.machine.is_some(), Kind::Machine),
        ];
        kinds.into_iter().filter_map(|(is_it, kind)| is_it.then_some(kind))
    }

    /// Whether this program makes the requests of a matrix itself.
    pub fn is_in_process(&self, matrix: &Matrix) -> bool {
        match (self.kind(), self.load) {
            (Kind::Machine, _) | (_, Loader::InProcess) => true,
            (_, Loader::Fio) => false,
            (kind, Loader::Auto) => {
                let flushes_aside = kind.is_nbd() && matrix.flushes_in_turn();
                !matrix.rate.is_empty() || matrix.flushes_among_reads() || flushes_aside
            }
        }
    }

    /// Where it is, as a user names it again to allow that it is overwritten.
    pub fn place(&self) -> Option<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let device = self.device.as_ref().or(self.file.as_ref()).map(path);
        device.or_else(|| self.export.clone()).or_else(|| self.volume.clone())
    }

    /// It and those that are built alike, each by itself.
    pub fn each(&self) -> Vec<Self> {
        let first = Self { alike: Vec::new(), ..self.clone() };
        let at = |place: &String| match self.kind() {
            Kind::Device => Self { device: Some(place.into()), ..first.clone() },
            Kind::File => Self { file: Some(place.into()), ..first.clone() },
            Kind::Export => Self { export: Some(place.clone()), ..first.clone() },
            Kind::Volume | Kind::Machine => Self { volume: Some(place.clone()), ..first.clone() },
        };
        let others: Vec<_> = self.alike.iter().map(at).collect();
        [first].into_iter().chain(others).collect()
    }

    /// Whether it has a setting that can be changed.
    pub(super) fn has(&self, name: &str, setting_of: SettingOf<'_>) -> bool {
        match (self.set.is_some(), self.kind()) {
            (_, Kind::Machine) => true,
            _ if name == ARRAYS => !self.alike.is_empty(),
            (true, _) => true,
            (false, Kind::Volume) => setting_of(self, name).is_some(),
            (false, Kind::Device | Kind::File | Kind::Export) => false,
        }
    }

    /// Whether something says how its settings are changed.
    pub(super) fn can_be_set(&self) -> bool {
        self.machine.is_some() || self.volume.is_some() || self.set.is_some()
    }

    pub(super) fn check(&self, matrix: &Matrix) -> Result<(), PlanError> {
        let field = |what: &str| format!("target {:?}: {what}", self.name);
        match self.kinds().count() {
            1 => {}
            count => {
                let cause = format!("it says {count} of them");
                let way_out = "say one of device, file, export, volume and machine";
                return Err(PlanError::field(field("what it is"), cause, way_out));
            }
        }
        let kind = self.kind();
        if kind == Kind::File && self.size.is_none() {
            let way_out = "say how much of it is used";
            return Err(PlanError::field(field("size"), "a file needs one", way_out));
        }
        if self.size.is_some_and(|size| size.bytes() == 0) {
            return Err(PlanError::field(field("size"), "it is 0", "give some"));
        }
        if kind.is_nbd() && matrix.sync.contains(&Sync::Fua) && !self.is_in_process(matrix) {
            let way_out = "set load = \"in-process\", or use fsync: a flush after each write";
            let cause = "fio's NBD client sends no FUA";
            return Err(PlanError::field(field("sync"), cause, way_out));
        }
        if self.load == Loader::Fio && kind.is_nbd() && matrix.flushes_in_turn() {
            let way_out = "leave load out, or set load = \"in-process\"";
            let cause = "fio's NBD client goes on beside its flushes";
            return Err(PlanError::field(field("flushes"), cause, way_out));
        }
        if self.load == Loader::Fio && matrix.flushes_among_reads() {
            let way_out = "leave load out, or set load = \"in-process\"";
            let cause = "where reads and writes are mixed, fio flushes after each read too";
            return Err(PlanError::field(field("sync"), cause, way_out));
        }
        if kind == Kind::Machine && self.load == Loader::Fio {
            let way_out = "leave load out";
            return Err(PlanError::field(field("load"), "fio cannot run on a model", way_out));
        }
        let is_node = |memory: &str| memory == "none" || memory.parse::<u32>().is_ok();
        if let Some(memory) = self.memory.as_deref().filter(|memory| !is_node(memory)) {
            let cause = format!("{memory:?} is no node");
            return Err(PlanError::field(field("memory"), cause, "write \"0\", or \"none\""));
        }
        self.check_cpus().map_err(|cause| {
            PlanError::field(field("cpus"), cause, "write a list, as \"0-3,8\", or \"none\"")
        })?;
        self.check_alike(matrix).map_err(|cause| {
            let way_out = "name the others in alike = [...], or leave it out";
            PlanError::field(field(ARRAYS), cause, way_out)
        })?;
        let has_settings = matrix.settings.keys().any(|name| name != ARRAYS);
        if has_settings && !self.can_be_set() {
            let way_out = "give a command: set = \"casadm ... {name} {value}\"";
            return Err(PlanError::field(
                field("set"),
                "nothing says how its settings are changed",
                way_out,
            ));
        }
        if self.restore.is_some() && self.set.is_none() {
            let way_out = "give a command that changes it (set = ...), or leave restore out";
            let cause = "there is nothing that it could set back";
            return Err(PlanError::field(field("restore"), cause, way_out));
        }
        if kind == Kind::Machine {
            for settings in matrix.settings() {
                self.stack(&settings)?;
            }
        }
        Ok(())
    }

    /// Whether there are as many arrays as are asked for, and each once.
    fn check_alike(&self, matrix: &Matrix) -> Result<(), String> {
        if self.kind() == Kind::Machine {
            return match self.alike.is_empty() {
                true => Ok(()),
                false => Err("a machine says itself how many of it there are (arrays)".into()),
            };
        }
        let mut places: Vec<_> = self.each().iter().filter_map(Self::place).collect();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} is there twice", pair[0]));
        }
        let wrong = |value: &&toml::Value| {
            let count = value.as_integer().and_then(|count| usize::try_from(count).ok());
            !count.is_some_and(|count| (1..=places.len()).contains(&count))
        };
        let mut values = matrix.settings.get(ARRAYS).into_iter().flatten();
        match values.find(wrong) {
            None => Ok(()),
            Some(value) => Err(format!("{value} at once, and there are {}", places.len())),
        }
    }

    fn check_cpus(&self) -> Result<(), String> {
        match self.cpus.as_deref() {
            Some(list) if list != "none" && processors(list).is_none() => {
                Err(format!("{list:?} names no processors"))
            }
            _ => Ok(()),
        }
    }

    /// The machine of a target that is a model, with the settings of a cell.
    ///
    /// # Errors
    /// Where that is none.
    ///
    /// # Panics
    /// Where the target is no machine.
    pub(crate) fn stack(
        &self,
        settings: &BTreeMap<String, toml::Value>,
    ) -> Result<Stack, PlanError> {
        let mut machine = self.machine.clone().expect("a machine");
        machine.insert("name".into(), self.name.clone().into());
        for (path, value) in settings {
            set(&mut machine, path, value).ok_or_else(|| {
                let cause = format!("{path} is no field of the machine {:?}", self.name);
                PlanError::field("matrix.settings", cause, "write cache.mode, core.strip ...")
            })?;
        }
        let text = toml::to_string(&machine).expect("a table is TOML");
        Stack::parse(&text).map_err(|error| {
            let field = format!("target {:?}: machine", self.name);
            PlanError::field(field, error.to_string(), "mend the machine or the setting")
        })
    }

    /// The array that a rating compares it with.
    pub(crate) fn array_of(&self, settings: &BTreeMap<String, toml::Value>) -> Option<ArrayOf> {
        if self.machine.is_none() {
            return self.array.clone();
        }
        let core = self.stack(settings).ok()?.core;
        let groups = Some(core.groups).filter(|_| core.raid.has_groups());
        let (raid, drive, drives) = (core.raid, core.drive, core.drives);
        Some(ArrayOf { raid, drive, drives, groups, strip: Some(core.strip) })
    }

    /// Drives that a depth is multiplied with where it is that of one; what says nothing of its
    /// drives is taken for one.
    pub(super) fn drives(&self, settings: &BTreeMap<String, toml::Value>) -> u16 {
        self.array_of(settings).map_or(1, |array| array.drives)
    }

    /// Arrays that are alike and loaded at the same time.
    pub(crate) fn arrays(&self, settings: &BTreeMap<String, toml::Value>) -> u16 {
        match self.machine {
            Some(_) => self.stack(settings).map_or(1, |stack| stack.arrays),
            None => {
                let asked = settings.get(ARRAYS).and_then(toml::Value::as_integer);
                let all = 1 + self.alike.len() as u16;
                asked.and_then(|count| u16::try_from(count).ok()).unwrap_or(all).min(all)
            }
        }
    }

    /// The command that brings a cell's setting about, where the target has a hook for it.
    pub(crate) fn set_command(&self, name: &str, value: &toml::Value) -> Option<String> {
        let hook = self.set.as_ref()?;
        // Tools that switch something call it on and off.
        let value = match value {
            toml::Value::Boolean(true) => "on".to_owned(),
            toml::Value::Boolean(false) => "off".to_owned(),
            value => plain(value),
        };
        Some(hook.replace("{name}", name).replace("{value}", &value))
    }

    /// The command that sets a setting back, where the target has one for that.
    pub(crate) fn restore_command(&self, name: &str) -> Option<String> {
        Some(self.restore.as_ref()?.replace("{name}", name))
    }
}

/// Puts a value where a dotted path leads; `none` takes a table out.
fn set(table: &mut toml::Table, path: &str, value: &toml::Value) -> Option<()> {
    match path.split_once('.') {
        None if value.as_str() == Some("none") => {
            table.remove(path);
            Some(())
        }
        None => {
            table.insert(path.to_owned(), value.clone());
            Some(())
        }
        Some((head, rest)) => {
            let inner = table.get_mut(head)?.as_table_mut()?;
            set(inner, rest, value)
        }
    }
}
