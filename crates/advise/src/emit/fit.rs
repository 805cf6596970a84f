//! How well a setting is expressed elsewhere; and what holds for every other cache.

use super::Cache;
use super::wanted::{Named, Wanted};

/// How a setting is expressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The words for it there.
    As(String),
    /// What comes nearest, and what differs.
    Nearly(String),
    /// Why not.
    Not(String),
}

/// Settings of the array and of the clients, which other caches do not have.
const OF_ARRAY: [&str; 7] = [
    "strip",
    "merge-wait-us",
    "merge-max",
    "member-read-timeout-ms",
    "member-timeout-ms",
    "member-timeouts-max",
    "client-memory",
];

impl Fit {
    pub(super) fn same(words: impl Into<String>) -> Option<Self> {
        Some(Self::As(words.into()))
    }

    pub(super) fn nearly(words: impl Into<String>) -> Option<Self> {
        Some(Self::Nearly(words.into()))
    }

    pub(super) fn not(why: impl Into<String>) -> Option<Self> {
        Some(Self::Not(why.into()))
    }

    /// The comment that names the setting.
    pub(super) fn told(&self, setting: &Named) -> String {
        match self {
            Self::As(words) => format!("{setting}: {words}"),
            Self::Nearly(words) => format!("{setting}, nearly: {words}"),
            Self::Not(why) => format!("not expressed here: {setting}: {why}"),
        }
    }
}

/// How a cache expresses a setting.
pub(super) fn of(cache: &dyn Cache, setting: &Named, wanted: &Wanted) -> Fit {
    if !wanted.has_cache && !is_of_array(setting) {
        return Fit::As("there is no cache, and nothing to set".to_owned());
    }
    if is_of_cleaning(setting) && !wanted.mode().is_write_back() {
        return Fit::As("nothing is dirty in this mode, and nothing has to be cleaned".to_owned());
    }
    let special = cache.fit(setting, wanted);
    special.unwrap_or_else(|| elsewhere(cache.name(), setting))
}

pub(super) fn is_of_array(setting: &Named) -> bool {
    OF_ARRAY.contains(&setting.key.as_str())
}

fn is_of_cleaning(setting: &Named) -> bool {
    matches!(setting.root(), "cleaning" | "preset")
}

/// Of a cache that has nothing of its own to say.
fn elsewhere(name: &str, setting: &Named) -> Fit {
    let why = match (setting.key.as_str(), setting.value.as_str()) {
        ("readahead", "off") => return Fit::As(format!("{name} reads nothing ahead")),
        ("bypass", "off") => return Fit::As(format!("{name} sends no hits to the array")),
        ("classes", "none") => return Fit::As(format!("{name} treats all requests alike")),
        ("promotion", "always") => return Fit::As(format!("{name} takes in all that it may")),
        ("strip", _) => {
            "the array is not the cache's: where it is made with mdadm, --chunk says it".to_owned()
        }
        _ if is_of_array(setting) => "a setting of Headpond's array".to_owned(),
        ("readahead", _) | ("readahead.degree-max", _) => format!("{name} reads nothing ahead"),
        ("bypass", _) => format!("{name} answers every hit, however busy the cache device is"),
        ("cleaning.full-wait-ms", _) => format!("{name} has no such wait to be set"),
        _ => format!("{name} has nothing of the kind"),
    };
    Fit::Not(why)
}
