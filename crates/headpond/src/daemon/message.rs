//! What the control thread asks of the data thread.

use crate::client::Refusal;
use crate::outcome::{Exit, Failure, told};
use headpond_raid::{Contents, JournalWhen, Level, Spread, Striping};
use headpond_volume::{SettingChange, Size};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tokio::sync::oneshot;

/// One wish, as the control API carries it.
#[derive(Debug)]
pub enum Wish {
    Status,
    Stats,
    /// The statistics until now, which then begin at zero.
    ResetStats,
    Set {
        changes: Vec<SettingChange>,
        body: SetBody,
    },
    /// Write all dirty data to the core.
    Flush(FlushBody),
    Stop(StopBody),
    ScrubCache,
    AttachCache(AttachBody),
    DetachCache(DetachBody),
    /// The settings stay, and everything dirty is written to the core in between.
    ReplaceCache(AttachBody),
    /// The same on the same device, of which so much is used; all of it where nothing is said.
    ResizeCache(ResizeBody),
    /// The cache is empty afterwards.
    PurgeCache(PurgeBody),
    AddCore(AddCoreBody),
    Array(ArrayWish),
    RemoveCore(RemoveCoreBody),
    StartRecording(RecordBody),
    StopRecording,
    /// A short recording that ends by itself.
    Look(LookBody),
}

impl Wish {
    /// What it is called where a stop would cut it off.
    pub fn work(&self) -> Option<&'static str> {
        Some(match self {
            Self::Set { body, .. } if body.flush => "set --flush",
            Self::Flush(_) => "flush",
            Self::ScrubCache => "cache scrub",
            Self::AttachCache(_) => "cache attach",
            Self::DetachCache(_) => "cache detach",
            Self::ReplaceCache(_) => "cache replace",
            Self::ResizeCache(_) => "cache resize",
            Self::PurgeCache(_) => "cache purge",
            Self::AddCore(_) => "core add",
            Self::RemoveCore(_) => "core remove",
            Self::Array(_) => "array",
            Self::Status | Self::Stats | Self::ResetStats | Self::Set { .. } => return None,
            Self::StartRecording(_) | Self::StopRecording | Self::Look(_) => return None,
            Self::Stop(_) => return None,
        })
    }
}

/// How fast what is dirty is written to the array for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FlushPace {
    /// Readers keep about two thirds of their rate.
    #[default]
    Readers,
    /// As fast as the array can.
    Max,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushBody {
    #[serde(default)]
    pub pace: FlushPace,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    /// `key=value`, as on the command line.
    pub changes: Vec<String>,
    /// Write all dirty data to the core, and answer when that is done.
    #[serde(default)]
    pub flush: bool,
    #[serde(default)]
    pub pace: FlushPace,
}

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachBody {
    pub device: String,
    /// Further devices, which are to be copies of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    /// Settings as `key=value`.
    #[serde(default)]
    pub changes: Vec<String>,
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

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PurgeBody {
    /// Write all dirty data to the core first; without, a cache with dirty data is refused.
    #[serde(default)]
    pub flush: bool,
    /// What is dirty is lost.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Serialize, Deserialize)]
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveCoreBody {
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordBody {
    pub output: PathBuf,
}

/// What a look at the workload is limited by.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookBody {
    pub output: PathBuf,
    pub requests_max: u64,
    pub milliseconds_max: u64,
}

/// A wish about the members of an array, or about the work on it beside the requests.
#[derive(Debug)]
pub enum ArrayWish {
    AddSpare(MemberBody),
    ReAdd(MemberBody),
    Replace(MemberBody),
    Grow(GrowBody),
    Fail(MemberBody),
    Remove(MemberBody),
    DropCopy(MemberBody),
    SetJournal(JournalBody),
    DropJournal(OfCoreBody),
    Scrub(OfCoreBody),
    Pause(OfCoreBody),
    Resume(OfCoreBody),
    Pace(PaceBody),
}

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCoreBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaceBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Size>,
    /// Bytes a second; none, as fast as the members can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Size>,
    #[serde(default)]
    pub no_ceiling: bool,
}

/// A wish and where its answer goes.
pub struct Message {
    pub wish: Wish,
    pub reply: oneshot::Sender<Answer>,
}

/// What comes back: a JSON document, or a refusal.
pub type Answer = Result<serde_json::Value, Refusal>;

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let failure = error.downcast_ref::<Failure>();
        let exit = failure.map_or(Exit::Error, |failure| failure.exit);
        Self { error: told(&error), exit: exit as u8 }
    }
}
