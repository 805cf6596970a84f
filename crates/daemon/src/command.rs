//! What the control thread asks of the data thread.

use headpond_api::Refusal;
use headpond_api::answers::*;
use headpond_api::requests::*;
use headpond_cache::ScrubReport;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Where the answer to a command goes.
pub type Reply<A> = oneshot::Sender<Result<A, Refusal>>;

/// One command, as the control API carries it, with the place of its answer.
#[derive(Debug)]
pub enum Command {
    Status(Reply<Status>),
    Stats(Reply<Stats>),
    /// The statistics until now, which then begin at zero.
    ResetStats(Reply<Stats>),
    Set(SetBody, Reply<Status>),
    Flush(FlushBody, Reply<Flushed>),
    Stop(StopBody, Reply<Stopped>),
    ScrubCache(Reply<ScrubReport>),
    AttachCache(AttachBody, Reply<Status>),
    DetachCache(DetachBody, Reply<Status>),
    /// The settings stay, and everything dirty is written to the core in between.
    ReplaceCache(AttachBody, Reply<Status>),
    /// The same on the same device, of which so much is used; all of it where nothing is said.
    ResizeCache(ResizeBody, Reply<Resized>),
    /// The cache is empty afterwards.
    PurgeCache(PurgeBody, Reply<Status>),
    AddCore(AddCoreBody, Reply<Status>),
    RemoveCore(RemoveCoreBody, Reply<Status>),
    Array(ArrayCommand, Reply<Status>),
    StartRecording(RecordBody, Reply<RecordingStarted>),
    StopRecording(Reply<Recorded>),
    /// A short recording that ends by itself.
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
    Pause(OfCoreBody),
    Resume(OfCoreBody),
    Rate(RateBody),
}

/// A command on its way.
pub struct Message {
    pub command: Command,
    /// One of those for commands that wait; kept until this one has been carried out, though its
    /// client has gone.
    pub permit: Option<OwnedSemaphorePermit>,
}
