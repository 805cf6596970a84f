//! The bodies of requests, as in JSON.
//!
//! **Invariant**: an unknown field is refused, and no field changes its meaning.

use headpond_raid::{Contents, JournalWhen, Level, Spread, Striping};
use headpond_volume::{ExportDescription, SettingChange, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The rate at which a command writes dirty data to the array.
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
pub struct ClearBody {
    /// Its name or UUID. Default: all devices, and what scrubs have found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    /// `key=value`, as on the command line.
    pub changes: Vec<SettingChange>,
    /// Write all dirty data to the core, and answer when done.
    #[serde(default)]
    pub flush: bool,
    #[serde(default)]
    pub pace: FlushPace,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportsBody {
    /// All of them; none stands for the Unix socket in the run folder.
    pub exports: Vec<ExportDescription>,
}

/// How long a device without a daemon lets requests wait: time to restart one by hand.
pub const DEAD_CONN_TIMEOUT_S: u64 = 600;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachDeviceBody {
    /// A further core; default: the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// `/dev/nbdN`; default: one that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How long requests wait for a daemon, in seconds; after that they are errors.
    #[serde(default = "ten_minutes")]
    pub dead_conn_timeout_s: u64,
}

fn ten_minutes() -> u64 {
    DEAD_CONN_TIMEOUT_S
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachDeviceBody {
    /// `/dev/nbdN`.
    pub device: String,
    /// Although it is mounted, or in use otherwise.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    /// Write all dirty data to the core first.
    #[serde(default)]
    pub flush: bool,
    /// Wait until commands in progress have ended.
    #[serde(default)]
    pub wait: bool,
    /// Despite connected clients or commands in progress.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachBody {
    pub device: String,
    /// Further devices of a cache mirror.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// Settings as `key=value`.
    #[serde(default)]
    pub changes: Vec<SettingChange>,
    /// Line size; default: that of the previous cache, or 4K.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Size>,
    /// Bytes of the device to use; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Overwrite data on the device, and allow a volatile one.
    #[serde(default)]
    pub force: bool,
    /// Attach it as the tier in memory in front of the cache.
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
    /// Discard data that cannot be written.
    #[serde(default)]
    pub force: bool,
    /// The tier in memory instead of the cache.
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
    /// Write all dirty data to the core first; without it, a cache with dirty data is refused.
    #[serde(default)]
    pub flush: bool,
    /// Dirty data is discarded.
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
    /// The members have a write-intent bitmap.
    pub intent: bool,
    /// The members reserve space for checksums of verified blocks.
    #[serde(default)]
    pub integrity: bool,
    /// Contents that are assumed to be consistent.
    #[serde(default)]
    pub contents: Contents,
    /// The members read as zeros, which is checked by samples.
    #[serde(default)]
    pub zeroed: bool,
    pub members: Vec<String>,
    /// The only member is an existing device, which keeps its contents, as an array of level 0;
    /// strip and bitmap are then chosen by its size.
    #[serde(default)]
    pub keep: bool,
    /// Overwrite data on the devices; with `keep`, accept that the cache is in write-back mode.
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

/// Limits of a sample of the workload.
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
    /// Default: the first core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    pub device: String,
    /// The replacement; default: a hot spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Overwrite data on the new device.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// New devices, or hot spares.
    pub devices: Vec<String>,
    /// Overwrite data on the new devices.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    pub device: String,
    /// Default: as before, or for degraded groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<JournalWhen>,
    /// Overwrite data on the device.
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
pub struct PauseBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// Only scrubs; other background work goes on.
    #[serde(default)]
    pub scrub: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Size>,
    /// Bytes/s; null: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Size>,
    #[serde(default)]
    pub no_max: bool,
}
