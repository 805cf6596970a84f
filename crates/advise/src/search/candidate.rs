//! A choice of settings.

use super::axes::{
    ARRAY_KEYS, CREATION_KEYS, DIRTY_MODES, INSERTION_THRESHOLD, KEYS, MAIN_KEYS, SAFE_MODES,
    cleaner_of, is_of_use,
};
use super::class_axis;
use headpond_volume::{ClassSetting, SettingChange, ShownSetting, Size};
use headpond_whatif::Stack;
use serde::{Serialize, Serializer};
use std::fmt;

/// Values of some settings; the others are what they are by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// False: there is none, and no settings of it.
    has_cache: bool,
    values: Vec<(&'static str, String)>,
}

/// One setting as `headpond set` and `headpond create` take it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub key: &'static str,
    pub value: String,
}

/// What may be lost with the cache, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    NoCache,
    /// Nothing: the array has everything.
    Clean,
    Dirty,
}

impl Candidate {
    /// The array by itself.
    pub fn without_cache() -> Self {
        Self { has_cache: false, values: Vec::new() }
    }

    /// What is set on a machine that is there. Its cleaner is none of the values: a preset cannot
    /// be told from its parameters; nor is what was chosen at creation, or a list of classes, which
    /// stay.
    pub fn standing(stack: &Stack) -> Self {
        let of_cache = stack.cache.iter().flat_map(|cache| cache.settings.shown());
        let shown: Vec<ShownSetting> = of_cache.chain(stack.array.shown()).collect();
        let value_of = |key: &str| {
            let shown = shown.iter().find(|setting| setting.key == key)?;
            Some(shown.value.clone())
        };
        let classes = stack.cache.as_ref().map(|cache| &cache.settings.classes);
        let value = |key: &'static str| match (key, value_of(key)?) {
            ("seq-cutoff", policy) if policy == "always" => {
                Some((key, value_of("seq-cutoff.threshold")?))
            }
            (key, _) if key == INSERTION_THRESHOLD && value_of("promotion")? != "nhit" => None,
            // They stay on the machine, and what is shown of them does not say them.
            (class_axis::KEY, _) if classes.is_some_and(ClassSetting::is_text) => None,
            (_, value) => Some((key, value)),
        };
        let is_of_cleaner = |key: &str| key == "cleaning" || cleaner_of(key).is_some();
        let stands = |key: &&str| !is_of_cleaner(key) && !CREATION_KEYS.contains(key);
        let values = KEYS.into_iter().filter(stands).filter_map(value);
        let standing = Self::new(values);
        match standing.value("mode") {
            None | Some("pass-through") => standing.array_alone(),
            Some(_) => standing,
        }
    }

    /// The array by itself, with what is set of it.
    #[must_use]
    pub fn array_alone(&self) -> Self {
        let of_array = |(key, _): &&(&'static str, String)| ARRAY_KEYS.contains(key);
        Self { has_cache: false, values: self.values.iter().filter(of_array).cloned().collect() }
    }

    /// A cache with these settings.
    pub fn new(values: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let mut candidate = Self { has_cache: true, values: values.into_iter().collect() };
        candidate.sort();
        candidate
    }

    /// The same with another value of one setting.
    #[must_use]
    pub fn with(&self, key: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        match changed.values.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => value.clone_into(old),
            None => changed.values.push((key, value.to_owned())),
        }
        changed.sort();
        changed.settled()
    }

    /// Without what changes nothing beside the rest, such as parameters of another cleaner.
    fn settled(mut self) -> Self {
        let as_it_was = self.clone();
        self.values.retain(|(key, _)| MAIN_KEYS.contains(key) || is_of_use(key, &as_it_was));
        self
    }

    /// Whichever is set first, it is the same candidate, and is tried once.
    fn sort(&mut self) {
        self.values.sort_by_key(|(key, _)| KEYS.iter().position(|known| known == key));
    }

    /// Settings, the mode aside, that are not what they are by themselves; those of which nothing
    /// else is tried stay, and are not among them.
    pub(super) fn changed(&self, defaults: &[(&'static str, String)]) -> Vec<&'static str> {
        let is_changed = |(key, value): &&(&'static str, String)| {
            let of_key = defaults.iter().find(|(known, _)| known == key);
            *key != "mode" && of_key.is_some_and(|(_, default)| default != value)
        };
        self.values.iter().filter(is_changed).map(|(key, _)| *key).collect()
    }

    /// The same with a setting as it is by itself.
    #[must_use]
    pub(super) fn without(&self, key: &str) -> Self {
        let mut changed = self.clone();
        changed.values.retain(|(known, _)| *known != key);
        changed.settled()
    }

    pub fn has_cache(&self) -> bool {
        self.has_cache
    }

    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// The mode, which is pass-through without a cache.
    pub fn mode(&self) -> &str {
        if self.has_cache { self.value("mode").unwrap_or(DIRTY_MODES[0]) } else { "pass-through" }
    }

    /// What decides how it treats an array: the mode, and who cleans.
    pub(super) fn kind(&self) -> (&str, Option<&str>) {
        (self.mode(), self.value("cleaning"))
    }

    pub fn risk(&self) -> Risk {
        match self.mode() {
            "pass-through" => Risk::NoCache,
            mode if SAFE_MODES.contains(&mode) => Risk::Clean,
            _ => Risk::Dirty,
        }
    }

    pub fn settings(&self) -> Vec<Setting> {
        let setting = |(key, value): &(&'static str, String)| setting(key, value);
        // Who has nothing dirty has nothing to clean, and leaves the cleaner as it is.
        let is_of_use =
            |it: &&(&'static str, String)| it.0 != "cleaning" || self.risk() != Risk::Clean;
        let mode = Setting { key: "mode", value: self.mode().to_owned() };
        let mode = (!self.has_cache).then_some(mode);
        mode.into_iter().chain(self.values.iter().filter(is_of_use).map(setting)).collect()
    }

    /// The machine with these settings, and a cache of so many bytes where it has one.
    ///
    /// # Panics
    /// Where a setting is none: candidates come from axes, which name those that there are.
    pub fn applied(&self, stack: &Stack, cache_bytes: u64) -> Stack {
        let mut stack = stack.clone();
        stack.name = self.to_string();
        if !self.has_cache {
            stack.cache = None;
        }
        for (key, value) in &self.values {
            let size = || value.parse::<Size>().expect("a size of an axis");
            match (*key, stack.cache.as_mut()) {
                ("strip", _) => stack.core.strip = size(),
                ("line", Some(cache)) => cache.line = size(),
                _ => set(&mut stack, &setting(key, value).to_string()),
            }
        }
        if let Some(cache) = &mut stack.cache {
            cache.size = Size(cache_bytes);
        }
        stack
    }
}

fn set(stack: &mut Stack, change: &str) {
    let change: SettingChange = change.parse().expect("a setting of an axis");
    if change.is_of_array() {
        stack.array = stack.array.with_all(&[change]).expect("a value of an axis");
    } else if let Some(cache) = &mut stack.cache {
        cache.settings = cache.settings.with_all(&[change]).expect("a value of an axis");
    }
}

/// A cleaner with parameters of its own is a preset.
fn setting(key: &'static str, value: &str) -> Setting {
    let is_preset = key == "cleaning" && value.contains("-aggressive");
    Setting { key: if is_preset { "preset" } else { key }, value: value.to_owned() }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_cache && self.values.is_empty() {
            return f.write_str("no cache");
        }
        let settings: Vec<String> = self.settings().iter().map(Setting::to_string).collect();
        f.write_str(&settings.join(" "))
    }
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
