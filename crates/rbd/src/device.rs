//! An image as a `BlockDevice`.

use crate::answers::{Answers, News};
use crate::image::{OpenImage, errno_of};
use crate::keeper::lost_by;
use crate::queue::{Operation, Order, Parts, Queue};
use headpond_block::sync::{Receiver, Sender, oneshot};
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Cause, DeviceError, DeviceName, Geometry, OnLoss,
    Outcome, RemoteStatus, RemoteStorage, Request, RequestFlags, RequestKind, Runtime, Stability,
    Submission,
};
use slab::Slab;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A cluster that answers later than this is waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);

/// An open, locked image. Requests wait for a cluster that does not answer, without a limit.
pub struct RbdDevice {
    name: DeviceName,
    geometry: Geometry,
    queue: Queue,
    answers: Arc<Answers>,
    requests: Rc<Requests>,
}

/// The data thread's side of what is in flight.
#[derive(Default)]
struct Requests {
    pending: RefCell<Slab<Pending>>,
    /// Why the lock is lost.
    lost: RefCell<Option<String>>,
    on_loss: RefCell<Vec<OnLoss>>,
}

struct Pending {
    /// Kept until librbd has completed the request.
    memory: Buffers,
    answer: Sender<isize>,
}

impl RbdDevice {
    /// A device on the executor's thread; does not block.
    ///
    /// # Errors
    /// Where no thread can be started; the image is closed.
    pub fn new(runtime: &Runtime, image: OpenImage) -> io::Result<Self> {
        let size_bytes = image.size_bytes().map_err(io::Error::from_raw_os_error)?;
        let geometry = Geometry {
            size_bytes: size_bytes - size_bytes % 512,
            // What has completed is on the OSDs; an image may have a cache nevertheless, by its own
            // settings, which go before ours.
            stability: Stability::Flushable,
            ..Geometry::of_size(0)
        };
        let name = DeviceName::new(image.name());
        let answers = Arc::new(Answers::new(size_bytes));
        let queue = Queue::start(image, &answers)?;
        let requests = Rc::new(Requests::default());
        let (heard, told) = (Arc::clone(&answers), Rc::clone(&requests));
        drop(runtime.spawn(std::future::poll_fn(move |context| {
            while let Some(news) = heard.take(context) {
                if told.hear(news) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })));
        Ok(Self { name, geometry, queue, answers, requests })
    }

    fn start(&self, operation: Operation, range: ByteRange, memory: Buffers) -> Receiver<isize> {
        let parts = Parts::of(&memory);
        let (answer, receiver) = oneshot();
        let key = self.requests.pending.borrow_mut().insert(Pending { memory, answer });
        self.queue.order(Order { key, operation, range, parts });
        receiver
    }

    /// Carries out one operation of librbd.
    fn operate(
        &self,
        operation: Operation,
        range: ByteRange,
        memory: Buffers,
    ) -> impl Future<Output = Outcome> + use<'_> {
        let answer = self.start(operation, range, memory);
        async move {
            let result =
                answer.await.expect("a request is answered as long as its device is there");
            let is_short = operation == Operation::Read && (result as u64) < range.len();
            match result {
                ..0 => Err(self.failed(operation, range, errno_of(result))),
                // The image ends before.
                _ if is_short => {
                    let size_bytes = self.answers.size_bytes();
                    Err(DeviceError::new(&self.name, Cause::OutOfRange { range, size_bytes }))
                }
                _ => Ok(()),
            }
        }
    }

    /// Every write that was acknowledged is on the OSDs when the flush is.
    async fn write_through(&self, write: impl Future<Output = Outcome>) -> Outcome {
        write.await?;
        self.operate(Operation::Flush, ByteRange::EMPTY, Buffers::new()).await
    }

    fn failed(&self, operation: Operation, range: ByteRange, errno: i32) -> DeviceError {
        if let Some(why) = lost_by(errno) {
            self.requests.lose(why);
        }
        let cause = match errno {
            libc::ESHUTDOWN | libc::EROFS | libc::ENOENT => Cause::Gone,
            libc::EIO => Cause::Media { range },
            libc::ENOSPC | libc::EDQUOT => Cause::NoSpace,
            errno => Cause::Os { operation: operation.word(), errno },
        };
        DeviceError::new(&self.name, cause).with_errno(errno)
    }

    fn check(&self, request: &Request) -> Outcome {
        if self.requests.lost.borrow().is_some() {
            let gone = DeviceError::new(&self.name, Cause::Gone);
            return Err(gone.with_errno(libc::ESHUTDOWN));
        }
        request.check(&self.name, &self.geometry)
    }
}

impl BlockDevice for RbdDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = self.check(&request) {
            return Submission::ready(Err(error));
        }
        let (range, flags) = (request.range, request.flags);
        if range.is_empty() && request.kind != RequestKind::Flush {
            return Submission::ready(Ok(()));
        }
        let operation = match request.kind {
            RequestKind::Read => Operation::Read,
            RequestKind::Write => Operation::Write,
            RequestKind::Flush => Operation::Flush,
            RequestKind::Discard => Operation::Discard,
            RequestKind::WriteZeroes => {
                Operation::WriteZeroes { is_allocated: flags.contains(RequestFlags::NO_UNMAP) }
            }
        };
        let is_through = request.is_fua() && request.is_mutation();
        let memory = match request.buffers.is_payload_free() {
            true => Buffers::from(Buffer::zeroed(request.buffers.len_bytes())),
            false => request.buffers,
        };
        let operated = self.operate(operation, range, memory);
        match is_through {
            true => Submission::pending(self.write_through(operated)),
            false => Submission::pending(operated),
        }
    }

    fn remote(&self) -> Option<&dyn RemoteStorage> {
        Some(self)
    }
}

impl RemoteStorage for RbdDevice {
    fn status(&self) -> RemoteStatus {
        let unanswered = self.answers.unanswered();
        let lost = self.requests.lost.borrow().clone();
        let is_waiting = unanswered >= ANSWER_TIME_MAX && lost.is_none();
        RemoteStatus {
            waiting_s: is_waiting.then_some(unanswered.as_secs()),
            size_bytes: self.answers.size_bytes(),
            lost,
        }
    }

    fn when_lost(&self, tell: OnLoss) {
        let lost = self.requests.lost.borrow().clone();
        match lost {
            Some(why) => tell(&why),
            None => self.requests.on_loss.borrow_mut().push(tell),
        }
    }
}

impl Requests {
    /// Whether nothing follows.
    fn hear(&self, news: News) -> bool {
        // Before the requests that failed for it: who hears of them knows.
        news.lost.iter().for_each(|why| self.lose(why));
        for (key, result) in news.completed {
            let Pending { memory, answer } = self.pending.borrow_mut().remove(key);
            drop(memory);
            answer.send(result);
        }
        news.is_closed
    }

    fn lose(&self, why: &str) {
        if self.lost.borrow().is_none() {
            self.lost.replace(Some(why.to_owned()));
            self.on_loss.take().iter().for_each(|tell| tell(why));
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // The executor has ended: librbd may still use the memory of what is in flight.
        std::mem::forget(self.pending.take());
    }
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes { .. } => "write zeros",
        }
    }
}
