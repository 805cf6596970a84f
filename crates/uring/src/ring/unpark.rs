//! Wakes a ring from another thread.

use io_uring::{opcode, squeue, types};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// An event that the ring reads; a write to it completes the read.
pub(crate) struct Unparker {
    event: OwnedFd,
    /// Where the kernel puts the event's count; never read.
    count: UnsafeCell<u64>,
}

// SAFETY: the count is written by the kernel only and never read; the descriptor may be used from
// any thread.
unsafe impl Sync for Unparker {}

impl AsFd for Unparker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Unparker {
    pub fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { event, count: UnsafeCell::new(0) })
    }

    pub fn unpark(&self) {
        // It fails only where the count is at its maximum: then the event is set already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The read that waits for the event. It points to memory of this unparker.
    pub(super) fn read_entry(&self) -> squeue::Entry {
        let event = types::Fd(self.event.as_raw_fd());
        opcode::Read::new(event, self.count.get().cast(), size_of::<u64>() as u32).build()
    }
}
