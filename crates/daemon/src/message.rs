//! What the control thread asks of the data thread.

use headpond_api::Refusal;
use headpond_api::requests::*;
use headpond_volume::SettingChange;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

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
            Self::StartRecording(_) => "trace record",
            Self::StopRecording | Self::Look(_) => return None,
            Self::Stop(_) => return None,
        })
    }
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

/// A wish and where its answer goes.
pub struct Message {
    pub wish: Wish,
    pub reply: oneshot::Sender<Answer>,
    /// Among the wishes that wait; taken until this one has been carried out, though nobody wants
    /// its answer any more.
    pub place: Option<OwnedSemaphorePermit>,
}

/// What comes back: a JSON document, or a refusal.
pub type Answer = Result<serde_json::Value, Refusal>;
