//! The device's end: requests become requests of the device, with memory that was lent.

use super::mailbox::{Receiver, Sender};
use super::{Crossing, Lent, Reply, Ticket};
use crate::{
    BlockDevice, Buffer, Buffers, ByteRange, Outcome, Request, RequestKind, Runtime, start,
};
use smallvec::SmallVec;
use std::future::poll_fn;
use std::rc::Rc;

/// Requests that are taken together.
const TOGETHER_MAX: usize = 16;
type Batch = SmallVec<[Crossing; TOGETHER_MAX]>;

/// The device's end on its way to its thread.
pub struct DeviceEnd {
    // Dropped before the replies' sender: what is left in it has not been lent.
    requests: Receiver<Crossing>,
    replies: Sender<Reply>,
}

/// Memory of one request. With the last of its buffers it is returned.
struct Loan {
    ticket: Ticket,
    replies: Rc<Sender<Reply>>,
}

impl DeviceEnd {
    pub(super) fn new(requests: Receiver<Crossing>, replies: Sender<Reply>) -> Self {
        Self { requests, replies }
    }

    /// Hands requests to the device until the clients' end is closed, and all are answered that
    /// were sent.
    pub async fn serve(self, runtime: Runtime, device: Rc<dyn BlockDevice>) {
        let Self { requests, replies } = self;
        let replies = Rc::new(replies);
        while let Some(first) = poll_fn(|context| requests.poll_receive(context)).await {
            let more = std::iter::from_fn(|| requests.try_receive());
            let batch: Batch = std::iter::once(first).chain(more).take(TOGETHER_MAX).collect();
            announce(&batch, &*device);
            let is_full = batch.len() == TOGETHER_MAX;
            for crossing in batch {
                carry_out(crossing, &replies, &device, &runtime);
            }
            if is_full {
                // The sender may be faster for ever.
                runtime.yield_now().await;
            }
        }
    }
}

/// Tells the device of requests that have come together.
fn announce(batch: &Batch, device: &dyn BlockDevice) {
    let is_data = |kind| matches!(kind, RequestKind::Read | RequestKind::Write);
    let data = batch.iter().filter(|crossing| is_data(crossing.kind));
    let ranges: SmallVec<[ByteRange; TOGETHER_MAX]> = data.map(|crossing| crossing.range).collect();
    if ranges.len() > 1 {
        device.expect(&ranges);
    }
}

fn carry_out(
    crossing: Crossing,
    replies: &Rc<Sender<Reply>>,
    device: &Rc<dyn BlockDevice>,
    runtime: &Runtime,
) {
    let (ticket, request) = receive(crossing, replies);
    if crate::defect!(AnswerBeforeDevice) {
        answer(replies, ticket, Ok(()));
        drop(runtime.spawn(crate::Submission::on(Rc::clone(device), request)));
        return;
    }
    match start(device, request) {
        Ok(outcome) => answer(replies, ticket, outcome),
        Err(started) => {
            let replies = Rc::clone(replies);
            drop(runtime.spawn(async move { answer(&replies, ticket, started.await) }));
        }
    }
}

fn answer(replies: &Sender<Reply>, ticket: Ticket, outcome: Outcome) {
    // A client that is gone needs no answer.
    let _ = replies.send(Reply::Answered(ticket, outcome));
}

fn receive(crossing: Crossing, replies: &Rc<Sender<Reply>>) -> (Ticket, Request) {
    let Crossing { ticket, kind, range, flags, hints, memory } = crossing;
    let loan = Rc::new(Loan { ticket, replies: Rc::clone(replies) });
    let buffer = |lent: Lent| match lent.start {
        // SAFETY: the clients' thread keeps the memory allocated until the loan is dropped, which
        // the buffer has a share in, and does not use it before the answer.
        Some(start) => unsafe { Buffer::lent(start, lent.len, loan.clone()) },
        None => Buffer::payload_free(lent.len),
    };
    let buffers: Buffers = memory.into_iter().map(buffer).collect();
    (ticket, Request { kind, range, buffers, flags, hints })
}

impl Drop for Loan {
    fn drop(&mut self) {
        // Where nobody is left to take it back, its memory was left allocated.
        let _ = self.replies.send(Reply::Returned(self.ticket));
    }
}
