//! The ring's table of registered files: an operation on one saves the kernel a look-up and a
//! count.

use io_uring::Submitter;
use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;

#[derive(Default)]
pub(super) struct FileTable {
    free: RefCell<Vec<u32>>,
    refusals: Cell<u64>,
}

impl FileTable {
    /// An empty table of `count` places; without places where the kernel refuses (before 5.19).
    pub fn register(submitter: &Submitter<'_>, count: u32) -> Self {
        let table = Self::default();
        match submitter.register_files_sparse(count) {
            Ok(()) => *table.free.borrow_mut() = (0..count).rev().collect(),
            Err(_) => table.refusals.set(1),
        }
        table
    }

    /// A place for a file, if one is free.
    pub fn insert(&self, submitter: &Submitter<'_>, fd: RawFd) -> Option<u32> {
        let slot = self.free.borrow_mut().pop();
        let is_registered = |slot| submitter.register_files_update(slot, &[fd]).is_ok();
        match slot {
            Some(slot) if is_registered(slot) => Some(slot),
            slot => {
                self.free.borrow_mut().extend(slot);
                self.refusals.set(self.refusals.get() + 1);
                None
            }
        }
    }

    pub fn remove(&self, submitter: &Submitter<'_>, slot: u32) {
        // A place that cannot be emptied is lost, not handed out again.
        if submitter.register_files_update(slot, &[-1]).is_ok() {
            self.free.borrow_mut().push(slot);
        }
    }

    /// How many files are used by their descriptors instead.
    pub fn refusals(&self) -> u64 {
        self.refusals.get()
    }
}
