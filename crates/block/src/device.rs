//! The device trait and the answer it gives.

use crate::{
    Buffer, Buffers, ByteRange, DeviceError, DeviceName, Geometry, RemoteStorage, Request,
};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
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

    /// These ranges will be read or written soon, in this order: a device may prefetch, for all of
    /// them side by side, what it looks at one by one later. Without any other effect.
    fn expect(&self, _ranges: &[ByteRange]) {}

    /// Its copies, where it keeps everything several times and can be asked for one of them.
    fn copies(&self) -> Option<&dyn Copies> {
        None
    }

    /// Its other side, where it is storage behind a network, with a lock that keeps others out.
    fn remote(&self) -> Option<&dyn RemoteStorage> {
        None
    }
}

/// A device's copies of everything, one by one: for callers that know by a checksum which of them
/// is right, which the device cannot.
pub trait Copies {
    /// How many there are, those out of use included.
    fn count(&self) -> usize;

    /// Reads from this copy alone; an error where it is out of use.
    fn read_copy(&self, copy: usize, request: Request) -> Submission<'_>;

    /// Writes to this copy alone what the others have there. One that does not take it is out of
    /// use, as after any write. Nobody else may be writing there.
    fn mend_copy(&self, copy: usize, request: Request) -> Submission<'_>;
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
    /// Waits for a device that it keeps alive; made by [`Submission::on`] alone.
    Kept(Kept),
}

/// An operation under way, and the device that it is under way on.
pub struct Kept {
    /// Borrows from the device; declared before it, so that it is dropped before it.
    operation: Pin<Box<dyn Future<Output = Outcome>>>,
    _device: Rc<dyn BlockDevice>,
}

impl<'a> Submission<'a> {
    #[inline]
    pub fn ready(outcome: Outcome) -> Self {
        Self::Ready(Some(outcome))
    }

    pub fn pending(future: impl Future<Output = Outcome> + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Starts a request on a device that may be taken out of its place before the answer is there:
    /// the submission has a share in it. Costs no allocation beyond the device's own.
    pub fn on(device: Rc<dyn BlockDevice>, request: Request) -> Submission<'static> {
        let operation = match device.submit(request) {
            Submission::Ready(outcome) => return Submission::Ready(outcome),
            Submission::Kept(kept) => return Submission::Kept(kept),
            Submission::Pending(operation) => operation,
        };
        type Borrowing<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;
        // SAFETY: only the lifetime changes. What the operation borrows is the device, which stays
        // where it is as long as there is a share in it; ours is dropped after the operation, which
        // never leaves the pair.
        let operation =
            unsafe { std::mem::transmute::<Borrowing<'_>, Borrowing<'static>>(operation) };
        Submission::Kept(Kept { operation, _device: device })
    }

    /// The outcome, where there is one without waiting; the submission otherwise.
    ///
    /// # Errors
    /// The submission itself, which is still to be awaited.
    #[inline]
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
            Self::Kept(kept) => kept.operation.as_mut().poll(context),
        }
    }
}
