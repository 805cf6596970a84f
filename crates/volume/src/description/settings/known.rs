//! The settings and their values, for listings and error messages.

use super::array::{CLIENT_MEMORY, MERGE_MAX_MAX, MERGE_WAIT_US_MAX, TIMEOUTS_MAX, WAIT_MS};
use super::texts::text_of;
use super::{ArraySettings, CacheSettings, SettingChange, TierSettings, dashed, word_of};
use crate::Size;
use crate::description::cutoff::{THRESHOLD_MAX, THRESHOLD_MIN};
use headpond_cache::classes::OneRule;
use serde::Serialize;
use std::fmt;
use toml::{Table, Value};

/// A setting, its value in some settings, what it could be, and what it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownSetting {
    pub key: String,
    pub group: SettingGroup,
    pub value: String,
    pub default: String,
    pub takes: String,
    /// In one line.
    pub what: &'static str,
    /// What else is to be known.
    pub more: &'static str,
}

/// What a setting is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SettingGroup {
    Cache,
    Tier,
    Array,
    Clients,
}

impl SettingGroup {
    pub const ALL: [Self; 4] = [Self::Cache, Self::Tier, Self::Array, Self::Clients];

    /// The table of the description that it is in.
    pub fn table(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Tier => "tier",
            Self::Array | Self::Clients => "array",
        }
    }
}

/// Least similarity of a name that may have been meant, from 0 to 1.
const NEAR: f64 = 0.8;
/// Names that are proposed.
const NEAR_MAX: usize = 3;

/// What a setting takes.
#[derive(Clone, Copy)]
pub(super) enum Takes {
    Words(&'static [&'static str]),
    Number(u64, u64),
    Bytes(Size, Size),
    /// Zero stands for none.
    BytesOrNone,
    WordsOrNumber(&'static [&'static str], u64, u64),
    /// Words, or a size: of the cutoff for the policy `always` with that threshold.
    WordsOrSize(&'static [&'static str], Size, Size),
    /// Words, one rule, or a file of classes.
    WordsOrClasses(&'static [&'static str]),
}

const K: u64 = 1 << 10;
const PERCENT: Takes = Takes::Number(0, 100);

/// Everything that can be set, with the keys of the command line, in the order in which it is
/// shown.
const KNOWN: &[(&str, Takes)] = &[
    (
        "mode",
        Takes::Words(&[
            "write-back",
            "write-through",
            "write-around",
            "write-invalidate",
            "write-only",
            "pass-through",
        ]),
    ),
    ("cleaning", Takes::Words(&["stripe", "ordered", "alru", "acp", "nop"])),
    ("cleaning.in-flight-max", Takes::Number(1, 65_536)),
    ("cleaning.write-bytes-max", Takes::Bytes(Size(4 * K), Size(64 << 20))),
    ("cleaning.core-flush-interval-ms", Takes::Number(1, 60_000)),
    ("cleaning.full-wait-ms", Takes::Number(0, 60_000)),
    ("cleaning.stripe.low-percent", PERCENT),
    ("cleaning.stripe.target-percent", PERCENT),
    ("cleaning.stripe.high-percent", PERCENT),
    ("cleaning.stripe.idle-after-ms", Takes::Number(100, 3_600_000)),
    ("cleaning.alru.wake-up-s", Takes::Number(0, 3600)),
    ("cleaning.alru.staleness-s", Takes::Number(1, 3600)),
    ("cleaning.alru.flush-max-buffers", Takes::Number(1, 10_000)),
    ("cleaning.alru.activity-threshold-ms", Takes::Number(0, 1_000_000)),
    ("cleaning.alru.dirty-ratio-threshold-percent", PERCENT),
    ("cleaning.alru.dirty-ratio-inertia-mib", Takes::Number(0, 1 << 20)),
    ("cleaning.acp.wake-up-ms", Takes::Number(0, 10_000)),
    ("cleaning.acp.flush-max-buffers", Takes::Number(1, 10_000)),
    ("promotion", Takes::Words(&["always", "nhit"])),
    ("promotion.insertion-threshold", Takes::Number(2, 1000)),
    ("promotion.trigger", PERCENT),
    ("eviction", Takes::Words(&["s3-fifo", "lru", "arc", "fifo", "adaptive"])),
    ("seq-cutoff", Takes::WordsOrSize(&["full", "always", "never"], THRESHOLD_MIN, THRESHOLD_MAX)),
    ("seq-cutoff.threshold", Takes::Bytes(THRESHOLD_MIN, THRESHOLD_MAX)),
    ("seq-cutoff.promotion-count", Takes::Number(1, 65_535)),
    ("readahead", Takes::Words(&["adaptive", "off"])),
    ("readahead.degree-max", Takes::Bytes(Size(128 * K), Size(64 << 20))),
    ("classes", Takes::WordsOrClasses(&["none", "lustre"])),
    ("bypass", Takes::Words(&["off", "adaptive"])),
    ("checksums", Takes::Words(&["auto", "always"])),
    ("fallback.errors", Takes::Number(0, 10_000)),
    ("fallback.window-s", Takes::Number(1, 86_400)),
    ("discard", Takes::Words(&["true", "false"])),
    ("checkpoint.every", Takes::BytesOrNone),
    ("merge-wait-us", Takes::WordsOrNumber(&["auto", "off"], 0, MERGE_WAIT_US_MAX)),
    ("merge-max", Takes::Bytes(Size(0), MERGE_MAX_MAX)),
    ("member-read-timeout-ms", Takes::WordsOrNumber(&["off"], WAIT_MS.0, WAIT_MS.1)),
    ("member-timeout-ms", Takes::WordsOrNumber(&["off"], WAIT_MS.0, WAIT_MS.1)),
    ("member-timeouts-max", Takes::WordsOrNumber(&["off"], TIMEOUTS_MAX.0, TIMEOUTS_MAX.1)),
    ("client-memory", Takes::WordsOrSize(&["auto"], CLIENT_MEMORY.0, CLIENT_MEMORY.1)),
];

/// What the setting of this key takes.
pub(super) fn takes(key: &str) -> Option<Takes> {
    let plain = key.strip_suffix(".policy").unwrap_or(key);
    KNOWN.iter().find(|(known, _)| *known == plain).map(|(_, takes)| *takes)
}

/// Whether the setting of this key is a number of bytes, which may be said as a size.
pub(super) fn is_of_bytes(key: &str) -> bool {
    matches!(takes(key), Some(Takes::Bytes(..)))
}

/// Every key, without those of the tier.
pub(super) fn keys() -> Vec<&'static str> {
    KNOWN.iter().map(|(key, _)| *key).chain([super::preset::KEY]).collect()
}

/// The settings whose names are most like this one.
pub fn nearest_settings(key: &str) -> Vec<String> {
    let key = dashed(key);
    let of_tier = |key: &&str| {
        let first = key.split('.').next().unwrap_or(key);
        ["mode", "cleaning", "promotion", "eviction", "preset"].contains(&first)
    };
    let tier = keys().into_iter().filter(of_tier).map(|key| format!("tier.{key}"));
    nearest(&key, keys().into_iter().map(str::to_owned).chain(tier))
}

/// The names that are most like this one, or whose last part is.
pub fn nearest(name: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let likeness = |known: &String| {
        let last = known.rsplit('.').next().unwrap_or(known);
        strsim::jaro(name, known).max(strsim::jaro(name, last))
    };
    let mut near: Vec<(f64, String)> = known.map(|known| (likeness(&known), known)).collect();
    near.retain(|(likeness, _)| *likeness >= NEAR);
    near.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    near.into_iter().take(NEAR_MAX).map(|(_, known)| known).collect()
}

/// What the keys begin with that can be set: `tier` stands for those of the tier in memory.
pub(super) fn beginnings() -> Vec<&'static str> {
    let words = KNOWN.iter().map(|(key, _)| key.split('.').next().unwrap_or(key));
    let mut all: Vec<_> = words.chain([super::preset::KEY, "tier"]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Takes {
    /// Whether a value may be meant: one for which it is not says nothing else than what is.
    pub fn may_take(self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => {
                value.parse().is_ok_and(|number: u64| (least..=most).contains(&number))
            }
            Self::WordsOrClasses(_) => {
                value.contains('\n') || OneRule::beginnings().any(|it| value.starts_with(it))
            }
            _ => false,
        }
    }
}

impl CacheSettings {
    /// Every setting of a cache, as [`SettingChange`] reads it.
    pub fn shown(&self) -> Vec<ShownSetting> {
        let mut all = shown(&table(self), &table(&Self::default()), "");
        all.insert(1, self.shown_preset());
        all
    }
}

impl TierSettings {
    /// Every setting of a tier, as [`SettingChange`] reads it.
    pub fn shown(&self) -> Vec<ShownSetting> {
        let mut all = shown(&table(self), &table(&Self::default()), "tier.");
        all.insert(1, self.shown_preset());
        all
    }
}

impl ArraySettings {
    /// Every setting of the arrays and the clients, as [`SettingChange`] reads it.
    pub fn shown(&self) -> Vec<ShownSetting> {
        shown(&table(self), &table(&Self::default()), "")
    }
}

fn group_of(key: &str, prefix: &str) -> SettingGroup {
    let change = SettingChange { key: key.to_owned(), value: String::new() };
    match key {
        _ if !prefix.is_empty() => SettingGroup::Tier,
        "client-memory" => SettingGroup::Clients,
        _ if change.is_of_array() => SettingGroup::Array,
        _ => SettingGroup::Cache,
    }
}

fn table(settings: &impl Serialize) -> Table {
    Table::try_from(settings).expect("settings are plain data")
}

fn shown(settings: &Table, defaults: &Table, prefix: &str) -> Vec<ShownSetting> {
    let show = |(key, takes): &(&str, Takes)| {
        let (what, more) = text_of(key);
        Some(ShownSetting {
            key: format!("{prefix}{key}"),
            group: group_of(key, prefix),
            value: told(find(settings, key)?),
            default: told(find(defaults, key)?),
            takes: takes.to_string(),
            what,
            more,
        })
    };
    KNOWN.iter().filter_map(show).collect()
}

fn find<'a>(settings: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let (_, value) = settings.iter().find(|(name, _)| dashed(name) == first)?;
    match value {
        // Of a cutoff that was set as a size, that is shown.
        Value::Table(inner) if rest.is_empty() => match inner.get("by_size") {
            Some(_) => find(inner, "threshold"),
            None => find(inner, "policy"),
        },
        Value::Table(inner) => find(inner, rest),
        value => rest.is_empty().then_some(value),
    }
}

/// A value in one line: that of a file of classes by how many there are.
fn told(value: &Value) -> String {
    let word = word_of(value).expect("a single value");
    match word.contains('\n') {
        true => format!("({} classes)", word.matches("[[class]]").count()),
        false => word,
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(&words.join(", ")),
            Self::Number(least, most) => write!(f, "{least} to {most}"),
            Self::Bytes(least, most) => write!(f, "{least} to {most}"),
            Self::BytesOrNone => f.write_str("a size such as 256M, or 0 for none"),
            Self::WordsOrNumber(words, least, most) => {
                write!(f, "{}, or {least} to {most}", words.join(", "))
            }
            Self::WordsOrSize(words, least, most) => {
                write!(f, "{}, or a size from {least} to {most}", words.join(", "))
            }
            Self::WordsOrClasses(words) => {
                let rules: String = OneRule::beginnings().map(|it| format!(", {it}RULE")).collect();
                write!(f, "{}{rules}, or a file", words.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SettingChange;

    fn set(key: &str, value: impl fmt::Display) -> Result<(), String> {
        let change: SettingChange = format!("{key}={value}").parse().unwrap();
        let changed = match change.is_of_array() {
            true => ArraySettings::default().with_all(&[change]).map(|_| ()),
            false => CacheSettings::default().with_all(&[change]).map(|_| ()),
        };
        changed.map_err(|error| error.to_string())
    }

    fn leaves(table: &Table, prefix: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for (key, value) in table {
            let key = format!("{prefix}{}", dashed(key));
            match value {
                Value::Table(inner) => keys.extend(leaves(inner, &format!("{key}."))),
                _ => keys.push(key.strip_suffix(".policy").unwrap_or(&key).to_owned()),
            }
        }
        keys.sort();
        keys
    }

    #[test]
    fn nothing_that_can_be_set_is_missing_and_nothing_else_is_shown() {
        let cache = CacheSettings::default();
        let mut keys: Vec<String> = cache.shown().into_iter().map(|it| it.key).collect();
        keys.retain(|key| key != "preset");
        keys.sort();
        assert_eq!(keys, leaves(&table(&cache), ""));
        let array = ArraySettings::default();
        let mut keys: Vec<String> = array.shown().into_iter().map(|it| it.key).collect();
        keys.sort();
        assert_eq!(keys, leaves(&table(&array), ""));
        let tier = TierSettings::default();
        let mut keys: Vec<String> = tier.shown().into_iter().map(|it| it.key).collect();
        keys.retain(|key| key != "tier.preset");
        keys.sort();
        assert_eq!(keys, leaves(&table(&tier), "tier."));
    }

    #[test]
    fn a_setting_takes_what_it_is_said_to_take_and_nothing_beyond() {
        // Of three that rise one alone may not go everywhere.
        let may = |outcome: Result<(), String>| match outcome {
            Ok(()) => true,
            Err(error) => error.contains("must rise"),
        };
        for (key, takes) in KNOWN {
            let what = format!("{key} takes {takes}");
            match takes {
                Takes::Words(words)
                | Takes::WordsOrSize(words, ..)
                | Takes::WordsOrClasses(words) => {
                    assert!(words.iter().all(|word| set(key, word).is_ok()), "{what}");
                    let error = set(key, "LRU").unwrap_err();
                    let possible = format!("it is {}", words.join(", "));
                    assert!(error.contains(&possible), "{what}: {error}");
                }
                Takes::Number(least, most) => {
                    assert!(may(set(key, least)) && may(set(key, most)), "{what}");
                    assert!(!may(set(key, most + 1)), "{what}");
                    assert!(*least == 0 || !may(set(key, least - 1)), "{what}");
                }
                Takes::WordsOrNumber(words, least, most) => {
                    assert!(words.iter().all(|word| set(key, word).is_ok()), "{what}");
                    assert!(may(set(key, least)) && may(set(key, most)), "{what}");
                    assert!(!may(set(key, most + 1)) && !may(set(key, "LRU")), "{what}");
                }
                Takes::Bytes(least, most) => {
                    assert!(may(set(key, least)) && may(set(key, most)), "{what}");
                    let below = least.0.checked_sub(1).map(Size);
                    let beyond = below.into_iter().chain([Size(most.0 + K)]);
                    assert!(beyond.into_iter().all(|size| !may(set(key, size))), "{what}");
                }
                Takes::BytesOrNone => {
                    assert!(may(set(key, 0)) && may(set(key, "1T")), "{what}");
                    assert!(!may(set(key, "often")), "{what}");
                }
            }
        }
        assert!(set("seq-cutoff", "2M").is_ok());
        for beyond in ["1", "5G"] {
            let error = set("seq-cutoff", beyond).unwrap_err();
            assert!(error.contains("or a size from 1K to 4194181K"), "{error}");
        }
    }

    #[test]
    fn a_cutoff_is_shown_as_it_was_set() {
        let shown = |texts: &[&str]| {
            let changes: Vec<SettingChange> = texts.iter().map(|it| it.parse().unwrap()).collect();
            let settings = CacheSettings::default().with_all(&changes).unwrap();
            // As a description keeps it.
            let kept: CacheSettings = toml::from_str(&toml::to_string(&settings).unwrap()).unwrap();
            assert_eq!(kept, settings);
            let shown = kept.shown().into_iter().find(|it| it.key == "seq-cutoff").unwrap().value;
            assert_eq!(shown, kept.seq_cutoff.setting());
            shown
        };
        assert_eq!(shown(&[]), "full");
        assert_eq!(shown(&["seq-cutoff=1M"]), "1M");
        assert_eq!(shown(&["seq-cutoff=always"]), "always");
        assert_eq!(shown(&["seq-cutoff=2M", "seq-cutoff=always"]), "always");
        assert_eq!(shown(&["seq-cutoff=2M", "seq-cutoff.threshold=4M"]), "4M");
        assert_eq!(shown(&["seq-cutoff=2M", "seq-cutoff=never"]), "never");
        assert_eq!(shown(&["seq-cutoff=2M", "seq-cutoff.policy=full"]), "full");
    }

    #[test]
    fn a_name_that_is_wrong_by_a_letter_is_found() {
        assert_eq!(nearest_settings("mod")[0], "mode");
        assert_eq!(nearest_settings("seq_cutof")[0], "seq-cutoff");
        assert_eq!(nearest_settings("tier.mod")[0], "tier.mode");
        assert_eq!(nearest_settings("staleness")[0], "cleaning.alru.staleness-s");
        assert_eq!(nearest_settings("xyz"), Vec::<String>::new());
    }

    #[test]
    fn what_was_changed_stands_beside_its_default() {
        let changes = ["cleaning=alru", "cleaning.alru.staleness-s=60", "seq-cutoff=2M"];
        let changes: Vec<SettingChange> = changes.map(|it| it.parse().unwrap()).into();
        let shown = CacheSettings::default().with_all(&changes).unwrap().shown();
        let of = |key: &str| {
            let setting = shown.iter().find(|setting| setting.key == key).unwrap();
            (setting.value.clone(), setting.default.clone())
        };
        assert_eq!(of("cleaning"), ("alru".into(), "stripe".into()));
        assert_eq!(of("cleaning.alru.staleness-s"), ("60".into(), "120".into()));
        assert_eq!(of("seq-cutoff"), ("2M".into(), "full".into()));
        assert_eq!(of("seq-cutoff.threshold"), ("2M".into(), "1M".into()));
        assert_eq!(of("checkpoint.every"), ("256M".into(), "256M".into()));
        let classes = "classes=[[class]]\nid = 0\n\n[[class]]\nid = 1\nwhen = \"done\"\n";
        let of_file = CacheSettings::default().with_all(&[classes.parse().unwrap()]).unwrap();
        let classes = of_file.shown().into_iter().find(|it| it.key == "classes").unwrap();
        assert_eq!((&*classes.value, &*classes.default), ("(2 classes)", "none"));
    }
}
