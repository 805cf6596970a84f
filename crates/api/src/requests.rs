//! The bodies of requests, as they stand in JSON.
//!
//! **Invariant**: a field that is not known is refused, and none that is known changes its meaning.

use headpond_raid::{Contents, JournalWhen, Level, Spread, Striping};
use headpond_volume::{SettingChange, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// How fast what is dirty is written to the array for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FlushPace {
    /// Readers keep about two thirds of their rate.
    #[default]
    Readers,
    /// As fast as the array can.
    Max,
}

impl fmt::Display for FlushPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Readers => "readers",
            Self::Max => "max",
        })
    }
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushBody {
    #[serde(default)]
    pub pace: FlushPace,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    /// `key=value`, as on the command line.
    pub changes: Vec<SettingChange>,
    /// Write all dirty data to the core, and answer when that is done.
    #[serde(default)]
    pub flush: bool,
    #[serde(default)]
    pub pace: FlushPace,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    /// Write all dirty data to the core first.
    #[serde(default)]
    pub flush: bool,
    /// Until commands that are under way have come to their end.
    #[serde(default)]
    pub wait: bool,
    /// Though clients are connected or commands are under way.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachBody {
    pub device: String,
    /// Further devices, which are to be copies of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// Settings as `key=value`.
    #[serde(default)]
    pub changes: Vec<SettingChange>,
    /// Length of its lines; that of the cache before it, or 4K, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Size>,
    /// How much of the device is used; all of it where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Overwrite what is on the device, and allow it to be lost with the power.
    #[serde(default)]
    pub force: bool,
    /// It becomes the tier in memory in front of the cache.
    #[serde(default)]
    pub tier: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachBody {
    /// Write all dirty data to the core first.
    #[serde(default)]
    pub flush: bool,
    #[serde(default)]
    pub pace: FlushPace,
    /// Give up what cannot be written.
    #[serde(default)]
    pub force: bool,
    /// Not the cache, but the tier in memory in front of it.
    #[serde(default)]
    pub tier: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeBody {
    /// Write all dirty data to the core first; without, a cache with dirty data is refused.
    #[serde(default)]
    pub flush: bool,
    /// What is dirty is lost.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddCoreBody {
    pub name: String,
    pub raid: Level,
    pub groups: u16,
    #[serde(default)]
    pub declustered: Option<Spread>,
    #[serde(default)]
    pub striping: Striping,
    pub strip: Size,
    /// The members carry a map of the regions that are being written.
    pub intent: bool,
    /// The members get room for checksums of what a scrub finds whole.
    #[serde(default)]
    pub integrity: bool,
    /// What is to be taken for right without computing it.
    #[serde(default)]
    pub contents: Contents,
    /// The members are said to read as zeros, which is looked at.
    #[serde(default)]
    pub zeroed: bool,
    pub members: Vec<String>,
    /// Overwrite what is on the devices.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveCoreBody {
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordBody {
    pub output: PathBuf,
}

/// What a look at the workload is limited by.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampleBody {
    pub output: PathBuf,
    pub requests_max: u64,
    pub milliseconds_max: u64,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberBody {
    /// The first core where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    pub device: String,
    /// What takes its place; a spare that stands by where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Overwrite what is on the new device.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// New devices, or spares that stand by.
    pub devices: Vec<String>,
    /// Overwrite what is on the new devices.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    pub device: String,
    /// As before, or while a member is missing, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<JournalWhen>,
    /// Overwrite what is on the device.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfCoreBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Size>,
    /// Bytes a second; none, as fast as the members can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Size>,
    #[serde(default)]
    pub no_max: bool,
}
