//! Wakes a ring from another thread.
//!
//! **Invariants**
//! - A ring does not sleep after it was unparked, before it has looked what for.
//! - Unparking a thread that is awake costs no system call.

use io_uring::{opcode, squeue, types};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// The thread of the ring runs, or polls.
const AWAKE: u8 = 0;
/// It waits in the kernel, or is about to.
const ASLEEP: u8 = 1;
/// Another thread has unparked it, and it has not looked yet.
const NOTIFIED: u8 = 2;

/// An event that a ring reads; a write to it completes the read.
pub(super) struct Event {
    event: OwnedFd,
    /// Where the kernel puts the event's count; never read.
    count: UnsafeCell<u64>,
}

/// The event of a ring whose thread says when it sleeps.
pub(crate) struct Unparker {
    event: Event,
    state: AtomicU8,
}

// SAFETY: the count is written by the kernel only and never read; the descriptor may be used from
// any thread.
unsafe impl Sync for Event {}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Event {
    pub fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { event, count: UnsafeCell::new(0) })
    }

    pub fn raise(&self) {
        // It fails only where the count is at its maximum: then the event is set already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The read that waits for the event. It points to memory of this event.
    pub fn read_entry(&self) -> squeue::Entry {
        let event = types::Fd(self.event.as_raw_fd());
        opcode::Read::new(event, self.count.get().cast(), size_of::<u64>() as u32).build()
    }
}

impl Unparker {
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, state: AtomicU8::new(AWAKE) })
    }

    pub fn unpark(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            self.event.raise();
        }
    }

    /// The thread is about to sleep; false where it was unparked, and has to look first.
    pub(super) fn fall_asleep(&self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.state.compare_exchange(AWAKE, ASLEEP, success, failure).is_ok()
    }

    /// The thread is awake, and looks; whether it was unparked since it did so last.
    pub(super) fn wake_up(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Whether the thread was unparked.
    pub(super) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) == NOTIFIED
    }

    pub(super) fn read_entry(&self) -> squeue::Entry {
        self.event.read_entry()
    }
}
