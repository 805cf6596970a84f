//! The device's end: requests become requests of the device, with memory that was lent.

use super::mailbox::{Receiver, Sender};
use super::{Crossing, Lent, Reply, Ticket};
use crate::{BlockDevice, Buffer, Buffers, Outcome, Request, Runtime, start};
use std::future::poll_fn;
use std::rc::Rc;

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
        while let Some(crossing) = poll_fn(|context| requests.poll_receive(context)).await {
            let (ticket, request) = receive(crossing, &replies);
            if crate::defect!(AnswerBeforeDevice) {
                answer(&replies, ticket, Ok(()));
                drop(runtime.spawn(crate::Submission::on(Rc::clone(&device), request)));
                continue;
            }
            match start(&device, request) {
                Ok(outcome) => answer(&replies, ticket, outcome),
                Err(started) => {
                    let replies = Rc::clone(&replies);
                    drop(runtime.spawn(async move { answer(&replies, ticket, started.await) }));
                }
            }
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
        Some(start) => unsafe { Buffer::lent(start, lent.len, lent.arena, loan.clone()) },
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
