//! The device trait and the answer it gives.

use crate::{Buffer, Buffers, ByteRange, DeviceError, DeviceName, Geometry, Request};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How an operation ended.
pub type Outcome = Result<(), DeviceError>;

/// Anything that stores blocks: a file, a drive model, an array, a cache, an NBD export.
///
/// A device belongs to one thread and is shared there as `Rc<dyn BlockDevice>`. Requests may be
/// submitted in any number; the order in which overlapping ones take effect is not defined until
/// one of them has been acknowledged.
pub trait BlockDevice {
    fn name(&self) -> &DeviceName;

    fn geometry(&self) -> &Geometry;

    /// Starts a request. Work that needs no waiting is done before this returns; the rest goes on
    /// as the submission is polled, and is not undone when the submission is dropped.
    fn submit(&self, request: Request) -> Submission<'_>;

    /// The device's own memory for `range`, where it has such and where the range is contiguous in
    /// it: later writes to the range show through. RAM devices lend; all others answer `None`.
    fn lend(&self, _range: ByteRange) -> Option<Buffer> {
        None
    }
}

impl dyn BlockDevice + '_ {
    pub fn read(&self, offset: u64, buffers: impl Into<Buffers>) -> Submission<'_> {
        self.submit(Request::read(offset, buffers))
    }

    pub fn write(&self, offset: u64, buffers: impl Into<Buffers>) -> Submission<'_> {
        self.submit(Request::write(offset, buffers))
    }

    pub fn flush(&self) -> Submission<'_> {
        self.submit(Request::flush())
    }

    pub fn size_bytes(&self) -> u64 {
        self.geometry().size_bytes
    }
}

/// The answer to a request: already there, or to be waited for.
///
/// Devices that complete at once (RAM, a cache hit) answer without an allocation; every other layer
/// pays one box a request, for the freedom to assemble a stack from a description at run time
/// (decision 0004).
#[must_use = "a submission that is neither awaited nor spawned may never be carried out"]
pub enum Submission<'a> {
    /// Done; `None` once the answer has been taken.
    Ready(Option<Outcome>),
    Pending(Pin<Box<dyn Future<Output = Outcome> + 'a>>),
}

impl<'a> Submission<'a> {
    pub fn ready(outcome: Outcome) -> Self {
        Self::Ready(Some(outcome))
    }

    pub fn pending(future: impl Future<Output = Outcome> + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// The outcome, where there is one without waiting; the submission otherwise.
    ///
    /// # Errors
    /// The submission itself, which is still to be awaited.
    pub fn now_or(self) -> Result<Outcome, Submission<'a>> {
        match self {
            Self::Ready(outcome) => Ok(outcome.expect("an outcome is taken once")),
            pending => Err(pending),
        }
    }
}

impl Future for Submission<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut *self {
            Self::Ready(outcome) => Poll::Ready(outcome.take().expect("polled after completion")),
            Self::Pending(future) => future.as_mut().poll(context),
        }
    }
}
