//! An open file as one ring knows it.

use super::Core;
use io_uring::{squeue, types};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};

/// A file or socket, in the ring's file table where there is room.
///
/// Every operation keeps its handle, so that neither the descriptor nor the place in the table is
/// used again for something else while an operation that names it waits to be submitted.
pub(crate) struct Handle {
    fd: OwnedFd,
    registration: Option<Registration>,
}

struct Registration {
    // Weak, since operations in the core keep handles.
    core: Weak<Core>,
    slot: u32,
}

impl Handle {
    pub(super) fn registered(fd: OwnedFd, core: &Rc<Core>) -> Rc<Self> {
        let slot = core.files.insert(&core.uring.borrow().submitter(), fd.as_raw_fd());
        let registration = slot.map(|slot| Registration { core: Rc::downgrade(core), slot });
        Rc::new(Self { fd, registration })
    }

    #[cfg(test)]
    pub(super) fn unregistered(fd: OwnedFd) -> Rc<Self> {
        Rc::new(Self { fd, registration: None })
    }

    /// How an operation names this file; its entry also needs [`Handle::flags`].
    pub(super) fn target(&self) -> types::Fd {
        match &self.registration {
            Some(registration) => types::Fd(registration.slot as i32),
            None => types::Fd(self.fd.as_raw_fd()),
        }
    }

    pub(super) fn flags(&self) -> squeue::Flags {
        match self.registration {
            Some(_) => squeue::Flags::FIXED_FILE,
            None => squeue::Flags::empty(),
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(Registration { core, slot }) = self.registration.take() else { return };
        // A ring that is gone has given up its table.
        if let Some(core) = core.upgrade() {
            core.files.remove(&core.uring.borrow().submitter(), slot);
        }
    }
}
