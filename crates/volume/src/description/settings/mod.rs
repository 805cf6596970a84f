//! Settings that change while a volume is served.
//!
//! There is one typed struct of them, which stands in the description's `[cache]` table too. A
//! change names a place in that table and a text for it; the changed table is read again as a
//! whole, so that what can be written into the file can be set, and nothing else.

mod array;
mod known;
mod preset;
mod texts;

use crate::{ClassSetting, Readahead, SeqCutoff, Size};
use headpond_cache::{
    AdmissionConfig, BypassPolicy, Checksums, CleaningConfig, EvictionPolicy, FallbackConfig, Mode,
    Promotion, SliceConfig,
};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use toml::{Table, Value};

pub use array::{ArraySettings, CLIENT_MEMORY, ClientMemory, MergeWaitSetting};
pub use known::{SettingGroup, ShownSetting, nearest, nearest_settings};

/// Everything of a cache that can be changed while it runs.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheSettings {
    pub mode: Mode,
    pub cleaning: CleaningConfig,
    pub classes: ClassSetting,
    pub seq_cutoff: SeqCutoff,
    pub promotion: Promotion,
    pub eviction: EvictionPolicy,
    pub checksums: Checksums,
    pub bypass: BypassPolicy,
    pub readahead: Readahead,
    pub fallback: FallbackConfig,
    /// Discard unused segments of the cache device.
    pub discard: bool,
    pub checkpoint: Checkpoints,
}

/// How often the cache writes a checkpoint for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoints {
    /// Bytes of log from one checkpoint to the next; 0 = none.
    pub every: Size,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { every: Size(SliceConfig::default().checkpoint_every_bytes) }
    }
}

/// Everything of a tier that can be changed while it runs. What is recognised of a request before
/// it comes to any cache is set on the cache: streams, classes, what to read ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierSettings {
    pub mode: Mode,
    pub cleaning: CleaningConfig,
    pub promotion: Promotion,
    pub eviction: EvictionPolicy,
}

/// One change, as `key=value`; the key of a setting within another one has a dot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct SettingChange {
    key: String,
    value: String,
}

/// Changes by what they are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesByOwner {
    pub cache: Vec<SettingChange>,
    /// Without the prefix.
    pub tier: Vec<SettingChange>,
    pub array: Vec<SettingChange>,
}

/// A change that cannot be read, or is not possible. What was set before holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("{text:?} is no setting: write key=value, e.g. mode=write-through")]
    Form { text: String },
    #[error("there is no setting {key:?}; there are: {known}{}", told_near(near))]
    Key { key: String, known: String, near: Vec<String> },
    #[error("{change} is not possible: {reason}")]
    Value { change: SettingChange, reason: String },
}

impl CacheSettings {
    /// These settings with some of them changed, in order.
    ///
    /// # Errors
    /// At the first unknown setting or invalid value; the text lists what is possible. Settings of
    /// a tier are not settings of a cache.
    pub fn with_all(&self, changes: &[SettingChange]) -> Result<Self, SettingError> {
        changes.iter().try_fold(self.clone(), |settings, change| settings.with(change))
    }

    fn with(&self, change: &SettingChange) -> Result<Self, SettingError> {
        if change.key == preset::KEY {
            return self.with_preset(change);
        }
        change.check_beginning()?;
        let mut changed = change.changed(self)?;
        if let Some(word) =
            ["seq-cutoff", "seq-cutoff.policy"].iter().find_map(|key| change.value_of(key))
        {
            changed.seq_cutoff.by_size = word.parse::<Size>().is_ok();
        }
        let is_named = change.concerns("classes") && changed.classes.file().is_some();
        let reason = "it is none, lustre, only:RULE, past:RULE, keep:RULE, or the text of a file of classes, \
             which the client reads";
        match is_named {
            true => Err(change.refusal(reason.to_owned())),
            false => Ok(changed),
        }
    }

    /// What a slice of the cache is to do.
    pub(crate) fn of_slice(&self, allow_volatile: bool) -> SliceConfig {
        SliceConfig {
            mode: self.mode,
            cleaning: self.cleaning,
            admission: AdmissionConfig {
                cutoff: self.seq_cutoff.policy,
                promotion: self.promotion,
                classes: self.classes.classes(),
            },
            eviction: self.eviction,
            fallback: self.fallback,
            discard: self.discard,
            bypass: self.bypass,
            checksums: self.checksums,
            allow_volatile,
            checkpoint_every_bytes: self.checkpoint.every.0,
            ..SliceConfig::default()
        }
    }
}

impl TierSettings {
    /// These settings with some of them changed, in order; the changes are those that
    /// [`SettingChange::of_tier`] tells.
    ///
    /// # Errors
    /// As of those of a cache.
    pub fn with_all(&self, changes: &[SettingChange]) -> Result<Self, SettingError> {
        changes.iter().try_fold(self.clone(), |settings, change| {
            let changed = match change.key == preset::KEY {
                true => settings.with_preset(change),
                false => change.changed(&settings),
            };
            changed.map_err(SettingError::of_tier)
        })
    }

    /// With what is set on the cache for both.
    pub(crate) fn beside(&self, cache: &CacheSettings) -> CacheSettings {
        let Self { mode, cleaning, promotion, eviction } = self.clone();
        CacheSettings { mode, cleaning, promotion, eviction, ..cache.clone() }
    }
}

/// Memory has no dirty data, unless that is set.
impl Default for TierSettings {
    fn default() -> Self {
        let CacheSettings { cleaning, promotion, eviction, .. } = CacheSettings::default();
        Self { mode: Mode::WriteThrough, cleaning, promotion, eviction }
    }
}

impl SettingError {
    /// With the prefix, as the user wrote it.
    fn of_tier(self) -> Self {
        match self {
            Self::Key { key, known, .. } if key.contains('.') => {
                Self::Key { key: format!("tier.{key}"), known, near: Vec::new() }
            }
            Self::Key { key, known, .. } => {
                let words = known.split(", ").chain([preset::KEY]);
                let known: Vec<_> = words.map(|word| format!("tier.{word}")).collect();
                let known = known.join(", ");
                Self::Key { key: format!("tier.{key}"), known, near: Vec::new() }
            }
            Self::Value { change: SettingChange { key, value }, reason } => {
                let change = SettingChange { key: format!("tier.{key}"), value };
                Self::Value { change, reason }
            }
            form @ Self::Form { .. } => form,
        }
    }
}

impl SettingChange {
    /// The change of a setting to a value of its type.
    ///
    /// # Panics
    /// Where the value is no single word or number.
    pub fn new(key: &str, value: impl Serialize) -> Self {
        let value = Value::try_from(value).expect("a setting is plain data");
        Self { key: key.to_owned(), value: word_of(&value).expect("a single value") }
    }

    /// The change of the tier's settings that this is, where its key says `tier.`
    pub fn of_tier(&self) -> Option<Self> {
        let key = self.key.strip_prefix("tier.")?.to_owned();
        Some(Self { key, value: self.value.clone() })
    }

    /// Changes by what they are about.
    pub fn by_owner(changes: &[Self]) -> ChangesByOwner {
        let (array, others): (Vec<Self>, Vec<Self>) =
            changes.iter().cloned().partition(Self::is_of_array);
        let tier = others.iter().filter_map(Self::of_tier).collect();
        let cache = others.into_iter().filter(|change| change.of_tier().is_none()).collect();
        ChangesByOwner { cache, tier, array }
    }

    /// The settings with this change.
    fn changed<S: Serialize + DeserializeOwned>(&self, settings: &S) -> Result<S, SettingError> {
        let mut table = Table::try_from(settings).expect("settings are plain data");
        self.apply_to(&mut table)?;
        let refuse = |error: toml::de::Error| {
            self.refusal(self.possible().unwrap_or_else(|| error.message().to_owned()))
        };
        table.try_into().map_err(refuse)
    }

    /// Refuses a key that no setting begins with, with all that one does.
    fn check_beginning(&self) -> Result<(), SettingError> {
        let known = known::beginnings();
        let first = self.key.split('.').next().unwrap_or_default();
        match self.key.as_str() {
            "line" => Err(self.refusal(
                "the line size is chosen with the device: `headpond cache replace NAME DEVICE --line`"
                    .into(),
            )),
            _ if known.contains(&first) => Ok(()),
            _ => {
                let (key, known) = (self.key.clone(), known.join(", "));
                Err(SettingError::Key { near: nearest_settings(&key), key, known })
            }
        }
    }

    fn refusal(&self, reason: String) -> SettingError {
        SettingError::Value { change: self.clone(), reason }
    }

    /// What it could be, where it is not that: what is wrong with a file, or with a number in its
    /// range that does not fit the others, only who reads them knows.
    fn possible(&self) -> Option<String> {
        let takes = known::takes(&self.key)?;
        (!takes.may_take(&self.value)).then(|| format!("it is {takes}"))
    }

    /// Whether it is about the setting of this key, or about a part of it.
    pub(crate) fn concerns(&self, key: &str) -> bool {
        self.key == key || self.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))
    }

    /// The value, where the change is about the setting of this key.
    pub fn value_of(&self, key: &str) -> Option<&str> {
        (self.key == key).then_some(&*self.value)
    }

    fn apply_to(&self, settings: &mut Table) -> Result<(), SettingError> {
        let place = self.find_in(settings)?;
        let value = match place {
            Value::String(_) => Ok(Value::String(self.value.clone())),
            Value::Integer(_) if known::is_of_bytes(&self.key) => {
                self.value.parse().map(|Size(bytes)| Value::Integer(bytes as i64)).map_err(drop)
            }
            // Numbers and truth values read as the table's own syntax does.
            _ => format!("v = {}", self.value)
                .parse::<Table>()
                .map(|mut table| table.remove("v").expect("what was written"))
                .map_err(drop),
        };
        *place = value.map_err(|()| self.refusal(self.possible().unwrap_or_default()))?;
        Ok(())
    }

    /// The place of the value in the settings. Of a setting with parameters, its policy is meant
    /// where nothing else is said.
    fn find_in<'a>(&self, settings: &'a mut Table) -> Result<&'a mut Value, SettingError> {
        let mut table = settings;
        let mut words = self.key.split('.');
        loop {
            let word = words.next().unwrap_or("policy");
            let is_meant = |key: &&String| dashed(key) == dashed(word);
            let Some(key) = table.keys().find(is_meant).cloned() else {
                let known: Vec<String> = table.keys().map(|key| dashed(key)).collect();
                let (key, known) = (self.key.clone(), known.join(", "));
                return Err(SettingError::Key { near: nearest_settings(&key), key, known });
            };
            match table.get_mut(&key).expect("found") {
                Value::Table(inner) => table = inner,
                value if words.next().is_none() => return Ok(value),
                _ => {
                    let known = format!("{}, without anything after it", dashed(&key));
                    let key = self.key.clone();
                    return Err(SettingError::Key { key, known, near: Vec::new() });
                }
            }
        }
    }
}

/// Reads a setting of one word, as a value of its type.
///
/// # Errors
/// Names what is possible.
pub fn parse_word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let word: value::StrDeserializer<'_, value::Error> = text.into_deserializer();
    T::deserialize(word).map_err(|error| error.to_string())
}

/// The settings that may have been meant.
fn told_near(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) }
}

/// The word or number for a value; nothing for a table or a list.
fn word_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Table(_) | Value::Array(_) => None,
        value => Some(value.to_string()),
    }
}

/// The command line has dashes where the file has underscores.
fn dashed(key: &str) -> String {
    key.replace('_', "-")
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl From<SettingChange> for String {
    fn from(change: SettingChange) -> Self {
        change.to_string()
    }
}

impl TryFrom<String> for SettingChange {
    type Error = SettingError;

    fn try_from(text: String) -> Result<Self, SettingError> {
        text.parse()
    }
}

impl FromStr for SettingChange {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let form = || SettingError::Form { text: text.to_owned() };
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        Ok(Self { key: dashed(key.trim()), value: value.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<CacheSettings, SettingError> {
        CacheSettings::default().with(&text.parse()?)
    }

    #[test]
    fn what_is_set_is_what_the_file_would_say() {
        let changed = [
            ("mode=write-through", "mode = 'write-through'"),
            ("cleaning=nop", "cleaning = 'nop'"),
            ("cleaning.policy=alru", "cleaning = { policy = 'alru' }"),
            ("cleaning.alru.wake-up-s=3", "cleaning = { alru = { wake_up_s = 3 } }"),
            ("cleaning.acp.flush_max_buffers=10000", "cleaning.acp.flush_max_buffers = 10000"),
            ("cleaning.write-bytes-max=2M", "cleaning.write_bytes_max = 2097152"),
            ("cleaning.write-bytes-max=65536", "cleaning.write_bytes_max = 65536"),
            ("seq-cutoff=1M", "seq_cutoff = '1M'"),
            ("seq_cutoff = 1M", "seq_cutoff = '1M'"),
            ("seq-cutoff=always", "seq_cutoff = { policy = 'always' }"),
            ("seq-cutoff.threshold=2M", "seq_cutoff = { threshold = '2M' }"),
            ("seq-cutoff.promotion-count=3", "seq_cutoff = { promotion_count = 3 }"),
            ("promotion=nhit", "promotion = { policy = 'nhit' }"),
            ("promotion.insertion-threshold=5", "promotion = { insertion_threshold = 5 }"),
            ("eviction=arc", "eviction = 'arc'"),
            ("fallback.errors=7", "fallback = { errors = 7 }"),
            ("discard=true", "discard = true"),
            ("bypass=adaptive", "bypass = 'adaptive'"),
            ("checksums=always", "checksums = 'always'"),
            ("eviction=s3-fifo", "eviction = 's3-fifo'"),
            ("readahead=off", "readahead = { policy = 'off' }"),
            ("readahead.degree-max=1M", "readahead = { degree_max = '1M' }"),
            ("classes=lustre", "classes = 'lustre'"),
            ("classes=past:request_size:ge:8192", "classes = 'past:request_size:ge:8192'"),
            ("checkpoint.every=1G", "checkpoint = { every = '1G' }"),
            ("checkpoint.every=0", "checkpoint.every = '0'"),
        ];
        for (text, file) in changed {
            let expected: CacheSettings = toml::from_str(file).unwrap();
            assert_eq!(set(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn settings_of_a_tier_are_told_by_their_prefix() {
        let changes = ["tier.mode=write-back", "mode=write-around", "tier.eviction=lru"];
        let changes: Vec<SettingChange> = changes.map(|text| text.parse().unwrap()).into();
        let of = SettingChange::by_owner(&changes);
        let cache = CacheSettings::default().with_all(&of.cache).unwrap();
        let tier = TierSettings::default().with_all(&of.tier).unwrap();
        assert_eq!((cache.mode, tier.mode), (Mode::WriteAround, Mode::WriteBack));
        assert_eq!((cache.eviction, tier.eviction), (EvictionPolicy::S3Fifo, EvictionPolicy::Lru));
        assert_eq!(tier.beside(&cache).seq_cutoff, cache.seq_cutoff);
        let streams = ["seq-cutoff=1M".parse().unwrap()];
        let error = TierSettings::default().with_all(&streams).unwrap_err().to_string();
        let known = "tier.cleaning, tier.eviction, tier.mode, tier.promotion, tier.preset";
        let expected = format!("there is no setting \"tier.seq-cutoff\"; there are: {known}");
        assert_eq!(error, expected);
        for (text, expected) in [
            ("mode=fast", "tier.mode=fast is not possible"),
            ("preset=fast", "tier.preset=fast is not possible"),
            ("cleaning.alru.age=1", "no setting \"tier.cleaning.alru.age\"; there are: activity-"),
        ] {
            let changes = [text.parse().unwrap()];
            let error = TierSettings::default().with_all(&changes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_typed_change_reads_back() {
        let change = SettingChange::new("seq-cutoff.threshold", Size(2 << 20));
        assert_eq!(change.to_string().parse(), Ok(change.clone()));
        let changed = CacheSettings::default().with(&change).unwrap();
        assert_eq!(changed.seq_cutoff.threshold, Size(2 << 20));
    }

    #[test]
    fn a_mistake_says_what_is_possible() {
        for (text, part) in [
            ("mode", "key=value"),
            ("mode=fast", "write-through"),
            (
                "colour=red",
                "there are: bypass, checkpoint, checksums, classes, cleaning, client-memory, discard, eviction, \
                 fallback, member-read-timeout-ms, member-timeout-ms, member-timeouts-max, merge-max, merge-wait-us, \
                 mode, preset, promotion, readahead, seq-cutoff, tier",
            ),
            ("line=64K", "cache replace NAME DEVICE --line"),
            ("discard=perhaps", "it is true, false"),
            ("mode.speed=9", "mode, without anything after it"),
            ("seq-cutoff=fast", "or a size from 1K to 4194181K"),
            ("eviction=random", "adaptive"),
            ("fallback.window-s=0", "1 to 86400"),
            ("bypass=always", "adaptive"),
            ("classes=/no/text", "the text of a file"),
            ("classes=past:request_sise:ge:8192", "request_sise"),
            ("promotion.trigger=101", "it is 0 to 100"),
            ("promotion.insertion-threshold=1", "2 to 1000"),
            ("classes=[[class]]\nid = 7\n", "line 1: class 7 has no rule"),
            ("cleaning=soon", "it is stripe, ordered, alru, acp, nop"),
            (
                "cleaning.alru.wake-up-s=3601",
                "alru.wake-up-s=3601 is not possible: it is 0 to 3600",
            ),
            ("cleaning.acp.staleness-s=1", "there are: flush-max-buffers, wake-up-ms"),
            ("cleaning.stripe.low-percent=90", "must rise"),
        ] {
            let error = set(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_word_on_the_command_line_names_what_there_is() {
        assert_eq!(parse_word::<Mode>("write-back"), Ok(Mode::WriteBack));
        assert!(parse_word::<Mode>("fast").unwrap_err().contains("write-through"));
    }
}
