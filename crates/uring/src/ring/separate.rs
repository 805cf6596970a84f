//! A separate ring and thread for one file whose server may hang.
//!
//! The server of a file on FUSE, NFS and the like is a process or another host. Where it hangs,
//! FUSE blocks the thread that submits as soon as its queue is full, and each operation that blocks
//! keeps one of the kernel's workers, of which a thread has a few for all of its rings. Here the
//! file has both to itself, so it blocks only itself.
//!
//! Lifecycle: 1. [`SeparateRing::start`]; 2. the data ring puts entries in `orders`, which the
//! thread submits; 3. completions go to the data ring's [`Inbox`] and wake it; 4. the descriptor is
//! last: when everything has completed the thread closes it and ends.
//!
//! **Invariants**
//! - Memory of an operation stays with the data ring's operations: only entries are here.
//! - The data ring's thread never waits for this one, except for its start.
//! - The queue is bounded by the callers' operations in flight.
//!
//! **Source**: io_uring_enter(2) for IOSQE_ASYNC; the kernel's io-wq.c has its workers for each
//! thread, and fs/fuse/dev.c blocks in `fuse_get_req` beyond `max_background`.

use super::operations::Answer;
use super::unpark::{Event, Unparker};
use super::{CANCEL, RingConfig, UNPARK, forgive, setup};
use crate::error::RingError;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::DupFlags;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// Operations per submission; more may be in flight.
const ENTRIES: u32 = 128;

/// Operations of one file that may block in the kernel concurrently: a usual queue depth of a
/// client. Others wait for them, as they would in the server.
const WORKERS_MAX: u32 = 32;

/// How long the thread waits where the kernel accepted nothing.
const PAUSE: Duration = Duration::from_millis(1);

/// Descriptors on their way to be closed, of all threads.
static CLOSING: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The data ring's end.
pub(super) struct SeparateRing {
    shared: Arc<Shared>,
}

struct Shared {
    orders: Mutex<Vec<Order>>,
    wake: Event,
}

enum Order {
    Submit(squeue::Entry),
    /// The last one.
    Close(OwnedFd),
}

/// Where other threads put completions for a ring.
pub(super) struct Inbox {
    answers: Mutex<Vec<(u64, Answer)>>,
    unparker: Arc<Unparker>,
}

impl SeparateRing {
    /// Starts the thread, which puts completions in `inbox`.
    ///
    /// # Errors
    /// Where no thread or ring can be created; nothing is left behind.
    pub fn start(inbox: &Arc<Inbox>) -> Result<Self, RingError> {
        let shared = Arc::new(Shared { orders: Mutex::default(), wake: Event::new()? });
        let (there, inbox) = (Arc::clone(&shared), Arc::clone(inbox));
        let (report, started) = mpsc::sync_channel(1);
        // The ring is made where it is used: the kernel knows its submitter from the start.
        let run = move || match ring() {
            Ok(uring) => {
                let _ = report.send(Ok(()));
                Submitter::new(uring, there, inbox).run();
            }
            Err(error) => _ = report.send(Err(error)),
        };
        std::thread::Builder::new().name("file ring".into()).spawn(run)?;
        started.recv().expect("the thread reports before it ends")?;
        Ok(Self { shared })
    }

    /// Submits an operation; its completion arrives in the inbox under its user data.
    ///
    /// # Safety
    /// What the entry points to stays in place until the completion.
    pub unsafe fn submit(&self, entry: squeue::Entry) {
        self.shared.order(Order::Submit(entry.flags(squeue::Flags::ASYNC)));
    }

    pub fn cancel(&self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data).build().user_data(CANCEL);
        self.shared.order(Order::Submit(entry));
    }

    /// Closes the file when everything has completed: close(2) may block as well.
    pub fn close(&self, fd: OwnedFd) {
        locked(&CLOSING).push(fd.as_raw_fd());
        self.shared.order(Order::Close(fd));
    }
}

/// Descriptors of this process that are still open but no longer used.
pub(crate) fn closing_descriptors() -> Vec<RawFd> {
    locked(&CLOSING).clone()
}

impl Shared {
    fn order(&self, order: Order) {
        let mut orders = locked(&self.orders);
        let was_empty = orders.is_empty();
        orders.push(order);
        drop(orders);
        // Who finds others before it is taken together with them.
        if was_empty {
            self.wake.raise();
        }
    }
}

impl Inbox {
    pub fn new(unparker: &Arc<Unparker>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::default(), unparker: Arc::clone(unparker) })
    }

    /// Takes over all completions, and wakes the ring.
    fn post(&self, answers: &mut Vec<(u64, Answer)>) {
        if answers.is_empty() {
            return;
        }
        let mut posted = locked(&self.answers);
        let was_empty = posted.is_empty();
        posted.append(answers);
        drop(posted);
        if was_empty {
            self.unparker.unpark();
        }
    }

    /// Moves all completions into `empty`.
    pub fn take_into(&self, empty: &mut Vec<(u64, Answer)>) {
        assert!(empty.is_empty(), "answers would be posted back");
        std::mem::swap(&mut *locked(&self.answers), empty);
    }
}

fn ring() -> Result<IoUring, RingError> {
    let (uring, _) = setup::build(&RingConfig { entries: ENTRIES, files: 0 })?;
    // Regular files have bounded workers; of the others there is no use.
    uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 1])?;
    Ok(uring)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A list is whole after each statement, whatever became of the thread that held it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's end.
struct Submitter {
    uring: IoUring,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    orders: Vec<Order>,
    /// Not submitted yet.
    queue: VecDeque<squeue::Entry>,
    /// Entries without a completion, queued or submitted.
    open_count: usize,
    /// Whether a read of the event is in flight.
    is_listening: bool,
    closing: Option<OwnedFd>,
    answers: Vec<(u64, Answer)>,
}

impl Submitter {
    fn new(uring: IoUring, shared: Arc<Shared>, inbox: Arc<Inbox>) -> Self {
        Self {
            uring,
            shared,
            inbox,
            orders: Vec::new(),
            queue: VecDeque::new(),
            open_count: 0,
            is_listening: false,
            closing: None,
            answers: Vec::new(),
        }
    }

    fn run(mut self) {
        let mut fd = loop {
            self.take_orders();
            match self.closing.take() {
                Some(fd) if self.open_count == 0 => break fd,
                closing => self.closing = closing,
            }
            self.submit_and_wait();
            self.collect();
        };
        // The kernel reads into the event's memory until it has answered.
        while self.is_listening {
            self.shared.wake.raise();
            self.submit_and_wait();
            self.collect();
        }
        drop(self.uring);
        // Closes the file and keeps its number, which would be another file's before it is off the
        // list.
        let _ = rustix::io::dup3(&self.shared.wake, &mut fd, DupFlags::CLOEXEC);
        locked(&CLOSING).retain(|it| *it != fd.as_raw_fd());
    }

    fn take_orders(&mut self) {
        std::mem::swap(&mut *locked(&self.shared.orders), &mut self.orders);
        for order in self.orders.drain(..) {
            match order {
                Order::Submit(entry) => {
                    assert!(self.closing.is_none(), "an operation on a file that is closed");
                    self.open_count += 1;
                    self.queue.push_back(entry);
                }
                Order::Close(fd) => self.closing = Some(fd),
            }
        }
    }

    /// Submits everything, and waits for a completion or an order.
    fn submit_and_wait(&mut self) {
        while !self.push_all() {
            let before = self.uring.submission().len();
            if self.uring.submit().is_err() || self.uring.submission().len() >= before {
                // The kernel lacks memory, or room for answers.
                return self.wait_briefly();
            }
        }
        if forgive(self.uring.submit_and_wait(1).map(drop)).is_err() {
            std::thread::sleep(PAUSE);
        }
    }

    fn wait_briefly(&self) {
        let timespec = types::Timespec::from(PAUSE);
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        if forgive(self.uring.submitter().submit_with_args(1, &arguments).map(drop)).is_err() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Puts what is queued into the ring, the read of the event first; false where it is full.
    fn push_all(&mut self) -> bool {
        let mut submission = self.uring.submission();
        if !self.is_listening {
            let entry = self.shared.wake.read_entry().user_data(UNPARK);
            // SAFETY: `run` keeps the event's memory until this read is answered.
            self.is_listening = unsafe { submission.push(&entry) }.is_ok();
        }
        while let Some(entry) = self.queue.front() {
            // SAFETY: by `submit`'s contract memory stays until the answer is there.
            if unsafe { submission.push(entry) }.is_err() {
                return false;
            }
            self.queue.pop_front();
        }
        self.is_listening
    }

    fn collect(&mut self) {
        for entry in self.uring.completion() {
            match entry.user_data() {
                UNPARK => self.is_listening = false,
                user_data => {
                    self.open_count -= 1;
                    let answer = Answer { result: entry.result(), flags: entry.flags() };
                    if user_data != CANCEL {
                        self.answers.push((user_data, answer));
                    }
                }
            }
        }
        self.inbox.post(&mut self.answers);
    }
}

#[cfg(test)]
mod tests;
