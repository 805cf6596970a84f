//! An open file as one ring refers to it.

use super::Core;
use super::separate::SeparateRing;
use crate::error::RingError;
use io_uring::{squeue, types};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::{Rc, Weak};

/// A file or socket: in the ring's file table where a place is free, or with a ring of its own
/// where its server may hang.
///
/// Every operation keeps its handle, so that neither the descriptor nor the place in the table is
/// used again for something else while an operation that names it waits to be submitted.
pub(crate) struct Handle {
    fd: ManuallyDrop<OwnedFd>,
    way: Way,
}

/// How operations reach the file.
enum Way {
    Descriptor,
    Table(Registration),
    Separate { ring: SeparateRing, is_closed: Cell<bool> },
}

struct Registration {
    // Weak, since operations in the core keep handles.
    core: Weak<Core>,
    slot: u32,
}

impl Handle {
    pub(super) fn registered(fd: OwnedFd, core: &Rc<Core>) -> Rc<Self> {
        let slot = core.files.insert(&core.uring.borrow().submitter(), fd.as_raw_fd());
        let table = |slot| Way::Table(Registration { core: Rc::downgrade(core), slot });
        Rc::new(Self::new(fd, slot.map_or(Way::Descriptor, table)))
    }

    /// # Errors
    /// Where there is no thread or no ring for it.
    pub(super) fn separate(fd: OwnedFd, core: &Core) -> Result<Rc<Self>, RingError> {
        let ring = SeparateRing::start(&core.inbox)?;
        Ok(Rc::new(Self::new(fd, Way::Separate { ring, is_closed: Cell::new(false) })))
    }

    fn new(fd: OwnedFd, way: Way) -> Self {
        Self { fd: ManuallyDrop::new(fd), way }
    }

    #[cfg(test)]
    pub(super) fn unregistered(fd: OwnedFd) -> Rc<Self> {
        Rc::new(Self::new(fd, Way::Descriptor))
    }

    /// How an operation names this file; its entry also needs [`Handle::flags`].
    pub(super) fn target(&self) -> types::Fd {
        match &self.way {
            Way::Table(registration) => types::Fd(registration.slot as i32),
            Way::Descriptor | Way::Separate { .. } => types::Fd(self.fd.as_raw_fd()),
        }
    }

    pub(super) fn flags(&self) -> squeue::Flags {
        match self.way {
            Way::Table(_) => squeue::Flags::FIXED_FILE,
            Way::Descriptor | Way::Separate { .. } => squeue::Flags::empty(),
        }
    }

    /// The ring that takes its operations, where it is not the thread's.
    pub(super) fn separate_ring(&self) -> Option<&SeparateRing> {
        match &self.way {
            Way::Separate { ring, .. } => Some(ring),
            Way::Descriptor | Way::Table(_) => None,
        }
    }

    /// Has a file with a ring of its own closed when the kernel has answered, though its handle is
    /// leaked. Again does nothing.
    ///
    /// # Safety
    /// The handle is neither used nor dropped any more.
    pub(super) unsafe fn leave_behind(&self) {
        let Way::Separate { ring, is_closed } = &self.way else { return };
        if !is_closed.replace(true) {
            // SAFETY: the handle's own owner of the descriptor is leaked with it.
            ring.close(unsafe { OwnedFd::from_raw_fd(self.fd.as_raw_fd()) });
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
        // SAFETY: the descriptor is not looked at again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        match &self.way {
            Way::Descriptor => {}
            Way::Table(Registration { core, slot }) => {
                // A ring that is gone has given up its table.
                if let Some(core) = core.upgrade() {
                    core.files.remove(&core.uring.borrow().submitter(), *slot);
                }
            }
            Way::Separate { ring, .. } => ring.close(fd),
        }
    }
}
