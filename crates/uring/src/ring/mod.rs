//! One io_uring, for one thread.
//!
//! Lifecycle: 1. [`Ring::new`] sets it up and registers the pool's memory; 2. operations are queued
//! as they come and submitted together, when the executor parks or the queue is full; 3.
//! completions are collected in `park` and wake their waiters; 4. with the last handle the ring
//! cancels operations in flight, waits until the kernel has released all memory, and closes.
//!
//! Files whose server may hang have rings and threads of their own ([`separate`]): their operations
//! are recorded here as all others, and complete through the [`Inbox`].
//!
//! **Invariants**
//! - No reference into the ring or its tables is held while foreign code runs (wakers, drops).
//! - Memory of an operation outlives the kernel's use of it (see [`operations`]).
//!
//! **Not here**: the meaning of operations for a device or a stream.

mod arenas;
mod entries;
mod files;
mod handle;
mod operations;
mod patience;
mod polling;
mod separate;
mod setup;
mod unpark;

pub use setup::Level;

pub(crate) use entries::{Direction, PART_COUNT_MAX, TRANSFER_BYTES_MAX};
pub(crate) use handle::Handle;
pub(crate) use operations::Answer;
pub(crate) use separate::closing_descriptors;
pub(crate) use unpark::Unparker;

use crate::error::RingError;
use arenas::Arenas;
use files::FileTable;
use headpond_block::BufferPool;
use io_uring::{IoUring, opcode, squeue, types};
use operations::{Keep, Operations};
use patience::Patience;
use polling::{POLL_MAX, Polling};
use separate::Inbox;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Sizes of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Operations per submission; a power of two. More may be in flight.
    pub entries: u32,
    /// Size of the table of registered files; further files are a little slower.
    pub files: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { entries: 256, files: 1024 }
    }
}

/// Statistics of a ring, and the features that the kernel granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    pub level: Level,
    /// Whether the pool's memory is registered.
    pub has_fixed_buffers: bool,
    /// Whether the kernel refused to register the pool's memory, usually for RLIMIT_MEMLOCK.
    pub fixed_buffers_refused: bool,
    /// Whether an operation takes several parts of it.
    pub has_fixed_parts: bool,
    /// Files used by their descriptors because the table was full or refused.
    pub files_refused: u64,
    pub operations: u64,
    /// Operations with several parts of the pool's memory as it is registered.
    pub fixed_parts: u64,
    /// System calls made to submit and wait.
    pub enters: u64,
    /// Times the completion queue overflowed into kernel memory.
    pub overflows: u64,
}

/// A handle to the thread's ring.
#[derive(Clone)]
pub struct Ring {
    core: Rc<Core>,
}

struct Core {
    uring: RefCell<IoUring>,
    operations: Operations,
    files: FileTable,
    arenas: Arenas,
    pool: BufferPool,
    unparker: Arc<Unparker>,
    /// Completions of files that have rings of their own.
    inbox: Arc<Inbox>,
    patience: Patience,
    polling: Polling,
    /// Whether a read of the unparker's event is in flight.
    is_listening: Cell<bool>,
    /// Whether another thread has unparked this one since it parked last.
    was_unparked: Cell<bool>,
    collected: RefCell<Vec<(u64, Answer)>>,
    /// Completions collected so far.
    answers: Cell<u64>,
    counters: Cell<RingCounters>,
}

/// User data of the unparker's read, and of cancellations.
const UNPARK: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// How long a ring waits at most while other threads cannot wake it.
const DEAF_PATIENCE: Duration = Duration::from_millis(1);

/// How long a closing ring waits for the kernel before it leaks the memory.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// After this time operations are cancelled again: a cancellation misses an operation that a kernel
/// worker is just starting.
const CANCEL_PATIENCE: Duration = Duration::from_millis(250);

impl Ring {
    /// Sets up a ring for this thread, and registers the memory of `pool` with it.
    ///
    /// # Errors
    /// See [`RingError`]; each names the way out.
    pub fn new(config: &RingConfig, pool: &BufferPool) -> Result<Self, RingError> {
        let (uring, level) = setup::build(config)?;
        let files = FileTable::register(&uring.submitter(), config.files);
        let arenas = Arenas::register(&uring.submitter(), pool);
        let unparker = Arc::new(Unparker::new()?);
        let core = Core {
            uring: RefCell::new(uring),
            operations: Operations::with_capacity(config.entries as usize),
            files,
            arenas,
            pool: pool.clone(),
            inbox: Inbox::new(&unparker),
            unparker,
            patience: Patience::default(),
            polling: Polling::default(),
            is_listening: Cell::new(false),
            was_unparked: Cell::new(false),
            collected: RefCell::default(),
            answers: Cell::new(0),
            counters: Cell::new(RingCounters { level, ..RingCounters::default() }),
        };
        Ok(Self { core: Rc::new(core) })
    }

    /// The pool whose memory is registered.
    pub fn pool(&self) -> &BufferPool {
        &self.core.pool
    }

    pub fn counters(&self) -> RingCounters {
        RingCounters {
            has_fixed_buffers: self.core.arenas.is_registered(),
            fixed_buffers_refused: self.core.arenas.is_refused,
            has_fixed_parts: self.core.arenas.has_parts(),
            files_refused: self.core.files.refusals(),
            ..self.core.counters.get()
        }
    }

    pub(crate) fn register(&self, fd: OwnedFd) -> Rc<Handle> {
        Handle::registered(fd, &self.core)
    }

    /// A file whose server may hang: its operations go to a ring of its own.
    ///
    /// # Errors
    /// Where there is no thread or no ring for it.
    pub(crate) fn register_separate(&self, fd: OwnedFd) -> Result<Rc<Handle>, RingError> {
        Handle::separate(fd, &self.core)
    }

    /// A message was received; `was_cut_short` checks whether its sender, perhaps on the same
    /// processor, still has unread replies.
    pub(crate) fn message_received(&self, was_cut_short: impl FnOnce() -> bool) {
        self.core.patience.message(was_cut_short);
    }

    pub(crate) fn unparker(&self) -> Arc<Unparker> {
        Arc::clone(&self.core.unparker)
    }

    /// Submits the queue, waits up to `patience` for a completion (`None`: without a limit), and
    /// wakes the waiters of all completed operations.
    ///
    /// # Errors
    /// Where the kernel reports a permanent error.
    pub(crate) fn park(&self, patience: Option<Duration>) -> io::Result<()> {
        let core = &self.core;
        let before = core.answers.get();
        let patience = if core.listen() { patience } else { Some(DEAF_PATIENCE) };
        core.collect();
        // Answers that came in while the queue was full have made tasks ready as well.
        let is_ready = core.answers.get() != before || core.was_unparked.get();
        if is_ready || patience == Some(Duration::ZERO) {
            core.enter_without_waiting()?;
        } else {
            core.wait(patience)?;
        }
        core.collect();
        // The executor looks what it was woken for.
        core.was_unparked.set(false);
        Ok(())
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// All memory that `entry` points to is owned by `keep`, at addresses that do not change when
    /// `keep` moves.
    unsafe fn start(&self, entry: squeue::Entry, keep: Keep) -> Completion {
        let core = &self.core;
        if keep.handle.separate_ring().is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.start_separate(entry, keep) };
        }
        let flags = keep.handle.flags();
        let key = core.operations.insert(keep);
        let entry = entry.flags(flags).user_data(key as u64);
        // SAFETY: the keep lives in the operations until the kernel has answered.
        if let Err(error) = unsafe { core.push(&entry) } {
            let result = -error.raw_os_error().unwrap_or(libc::EIO);
            core.operations.complete(key, Answer { result, flags: 0 });
        }
        Completion { core: Rc::clone(core), key: Some(key) }
    }

    /// Hands an operation to the ring of its file.
    ///
    /// # Safety
    /// As [`Self::start`].
    #[cold]
    unsafe fn start_separate(&self, entry: squeue::Entry, keep: Keep) -> Completion {
        let core = &self.core;
        core.count(|counters| counters.operations += 1);
        let handle = Rc::clone(&keep.handle);
        let key = core.operations.insert(keep);
        let ring = handle.separate_ring().expect("a file with a ring of its own");
        // SAFETY: the keep lives in the operations until the answer has come to the inbox.
        unsafe { ring.submit(entry.user_data(key as u64)) };
        Completion { core: Rc::clone(core), key: Some(key) }
    }
}

impl Core {
    /// Queues an entry; submits first where the queue is full.
    ///
    /// # Safety
    /// What the entry points to stays in place until the kernel has answered.
    unsafe fn push(&self, entry: &squeue::Entry) -> io::Result<()> {
        self.count(|counters| counters.operations += 1);
        loop {
            // SAFETY: passed on to the caller.
            if unsafe { self.uring.borrow_mut().submission().push(entry) }.is_ok() {
                return Ok(());
            }
            let before = self.queued();
            self.enter_without_waiting()?;
            self.collect();
            if self.queued() >= before {
                // The kernel took nothing though it was asked: it lacks memory.
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
        }
    }

    /// Number of entries that are queued and not submitted.
    fn queued(&self) -> usize {
        self.uring.borrow_mut().submission().len()
    }

    /// Submits the queue and lets the kernel run its deferred work.
    fn enter_without_waiting(&self) -> io::Result<()> {
        let mut uring = self.uring.borrow_mut();
        let submission = uring.submission();
        let queued = submission.len();
        let has_work = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if queued == 0 && !has_work {
            return Ok(());
        }
        self.count(|counters| counters.enters += 1);
        const GETEVENTS: u32 = 1;
        let queued = u32::try_from(queued).expect("a queue of 32-bit size");
        // SAFETY: entries were pushed under `push`'s contract; there is no argument.
        let entered =
            unsafe { uring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None) };
        forgive(entered.map(drop))
    }

    /// Submits the queue and waits for a completion; polls at first, where waits are short.
    fn wait(&self, patience: Option<Duration>) -> io::Result<()> {
        let begun = Instant::now();
        if !self.polling.is_worthwhile() {
            self.sleep(patience)?;
            self.polling.slept(begun.elapsed());
            return Ok(());
        }
        self.enter_without_waiting()?;
        let end = begun + patience.map_or(POLL_MAX, |patience| patience.min(POLL_MAX));
        while !self.has_answers() {
            if Instant::now() >= end {
                self.polling.polled(true);
                return self.sleep(patience.map(|all| all.saturating_sub(POLL_MAX)));
            }
            std::hint::spin_loop();
        }
        self.polling.polled(false);
        self.enter_without_waiting()
    }

    /// Whether the kernel has completed something, or would if it was entered, or another thread
    /// has something.
    fn has_answers(&self) -> bool {
        let mut uring = self.uring.borrow_mut();
        uring.submission().taskrun()
            || !uring.completion().is_empty()
            || self.unparker.is_notified()
    }

    /// Submits the queue and waits in the kernel, unless another thread has something.
    fn sleep(&self, patience: Option<Duration>) -> io::Result<()> {
        if !self.unparker.fall_asleep() {
            return self.enter_without_waiting();
        }
        let waited = self.enter_and_wait(patience);
        self.look_around();
        waited
    }

    /// Takes what other threads have left.
    fn look_around(&self) {
        if self.unparker.wake_up() {
            self.was_unparked.set(true);
            let mut left = self.collected.take();
            self.inbox.take_into(&mut left);
            for (key, answer) in left.drain(..) {
                self.operations.complete(key as usize, answer);
            }
            *self.collected.borrow_mut() = left;
        }
    }

    fn enter_and_wait(&self, patience: Option<Duration>) -> io::Result<()> {
        self.count(|counters| counters.enters += 1);
        let uring = self.uring.borrow();
        let entered = match patience {
            None => uring.submitter().submit_and_wait(1),
            Some(patience) => {
                let timespec = types::Timespec::from(patience);
                let arguments = types::SubmitArgs::new().timespec(&timespec);
                uring.submitter().submit_with_args(1, &arguments)
            }
        };
        forgive(entered.map(drop))
    }

    /// Takes all completions and wakes their waiters.
    fn collect(&self) {
        let mut collected = self.collected.take();
        {
            let mut uring = self.uring.borrow_mut();
            if uring.submission().cq_overflow() {
                self.count(|counters| counters.overflows += 1);
            }
            let answer = |entry: io_uring::cqueue::Entry| {
                let answer = Answer { result: entry.result(), flags: entry.flags() };
                (entry.user_data(), answer)
            };
            collected.extend(uring.completion().map(answer));
        }
        self.answers.set(self.answers.get() + collected.len() as u64);
        for (user_data, answer) in collected.drain(..) {
            match user_data {
                UNPARK => self.is_listening.set(false),
                CANCEL => {}
                key => self.operations.complete(key as usize, answer),
            }
        }
        *self.collected.borrow_mut() = collected;
        // Who leaves answers unparks afterwards.
        if self.unparker.is_notified() {
            self.look_around();
        }
    }

    /// Makes sure that another thread can wake this one; false where the kernel lacks memory for
    /// that.
    fn listen(&self) -> bool {
        if self.is_listening.get() {
            return true;
        }
        let entry = self.unparker.read_entry().user_data(UNPARK);
        // SAFETY: the core keeps the unparker, and so the memory it reads into, until the kernel
        // has let go of it (`close`).
        let is_pushed = unsafe { self.push(&entry) }.is_ok();
        self.is_listening.set(is_pushed);
        is_pushed
    }

    /// Cancels all operations and waits for their completions; memory of those that do not complete
    /// is leaked.
    fn close(&self) {
        let deadline = Instant::now() + CLOSE_PATIENCE;
        while !self.operations.ending().is_empty() && Instant::now() < deadline {
            self.cancel_operations();
            self.wait_until(deadline.min(Instant::now() + CANCEL_PATIENCE), || {
                // Other threads may have answers to give until the last one is there.
                self.listen();
                self.operations.ending().is_empty()
            });
        }
        self.cancel(UNPARK);
        if !self.wait_until(deadline, || !self.is_listening.get()) {
            // The event's memory as well.
            std::mem::forget(Arc::clone(&self.unparker));
        }
        if !self.operations.in_flight().is_empty() {
            self.operations.leak();
        }
    }

    fn cancel_operations(&self) {
        for key in self.operations.ending() {
            match self.operations.handle(key).separate_ring() {
                Some(ring) => ring.cancel(key as u64),
                None => self.cancel(key as u64),
            }
        }
    }

    fn cancel(&self, user_data: u64) {
        let entry = opcode::AsyncCancel::new(user_data).build().user_data(CANCEL);
        // SAFETY: a cancellation points to no memory.
        let _ = unsafe { self.push(&entry) };
    }

    /// Collects completions until the condition holds; false where it does not by the deadline.
    fn wait_until(&self, deadline: Instant, is_so: impl Fn() -> bool) -> bool {
        while !is_so() {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if self.is_listening.get() { left } else { left.min(DEAF_PATIENCE) };
            if self.sleep(Some(patience)).is_err() {
                return false;
            }
            self.collect();
            if left.is_zero() {
                return is_so();
            }
        }
        true
    }

    fn count(&self, change: impl FnOnce(&mut RingCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

/// Treats "not now" as success: the next `park` continues.
fn forgive(entered: io::Result<()>) -> io::Result<()> {
    const NOT_NOW: [i32; 4] = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN];
    match entered {
        Err(error) if error.raw_os_error().is_some_and(|errno| NOT_NOW.contains(&errno)) => Ok(()),
        other => other,
    }
}

/// Waits for the completion of one operation. Dropping it does not cancel the operation.
#[must_use = "an operation's answer is needed to know what it did"]
pub(crate) struct Completion {
    core: Rc<Core>,
    key: Option<usize>,
}

impl Future for Completion {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let key = self.key.expect("polled after completion");
        match self.core.operations.poll(key, context.waker()) {
            Some((answer, _keep)) => {
                self.key = None;
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.operations.abandon(key);
        }
    }
}

#[cfg(test)]
mod tests;
