//! Commands from the control thread to the data thread.

use crate::metrics::Snapshot;
use headpond_api::Refusal;
use headpond_api::answers::*;
use headpond_api::requests::*;
use headpond_cache::ScrubReport;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// The channel for the answer to a command.
pub type Reply<A> = oneshot::Sender<Result<A, Refusal>>;

/// One command of the control API, with the channel for its answer.
#[derive(Debug)]
pub enum Command {
    Status(Reply<Status>),
    Stats(Reply<Stats>),
    Metrics(Reply<Box<Snapshot>>),
    /// The statistics until now; then the counters are reset.
    ResetStats(Reply<Stats>),
    ClearErrors(ClearBody, Reply<Status>),
    Set(SetBody, Reply<Status>),
    SetExports(ExportsBody, Reply<Status>),
    /// An export becomes a device of the kernel.
    AttachDevice(AttachDeviceBody, Reply<AttachedDevice>),
    DetachDevice(DetachDeviceBody, Reply<Status>),
    Flush(FlushBody, Reply<Flushed>),
    Stop(StopBody, Reply<Stopped>),
    ScrubCache(Reply<ScrubReport>),
    AttachCache(AttachBody, Reply<Status>),
    DetachCache(DetachBody, Reply<Status>),
    /// The settings stay, and all dirty data is written to the core in between.
    ReplaceCache(AttachBody, Reply<Status>),
    /// The same on the same device, with this size; default: all of it.
    ResizeCache(ResizeBody, Reply<Resized>),
    /// The cache is empty afterwards.
    PurgeCache(PurgeBody, Reply<Status>),
    AddCore(AddCoreBody, Reply<Status>),
    RemoveCore(RemoveCoreBody, Reply<Status>),
    Array(ArrayCommand, Reply<Status>),
    StartRecording(RecordBody, Reply<RecordingStarted>),
    StopRecording(Reply<Recorded>),
    /// A short recording that ends automatically.
    Sample(SampleBody, Reply<Recorded>),
}

/// A command about the members of an array, or about the background work on it.
#[derive(Debug)]
pub enum ArrayCommand {
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
    Pause(PauseBody),
    Resume(PauseBody),
    Rate(RateBody),
}

/// A command on its way.
pub struct Message {
    pub command: Command,
    /// A permit of a waiting command; held until it has completed, even if its client disconnects.
    pub permit: Option<OwnedSemaphorePermit>,
}
