//! One queue of a device on the thread's ring.

use super::{READ_WRITE, command};
use crate::ring::{Completion, Handle, Ring};
use headpond_block::Buffer;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The size of the command's structure.
pub(super) const COMMAND_BYTES: u32 = 16;
const FETCH: u32 = command(READ_WRITE, 0x20, COMMAND_BYTES);
const COMMIT_AND_FETCH: u32 = command(READ_WRITE, 0x21, COMMAND_BYTES);
/// Tags that a queue can have; the descriptors of one queue begin so many after the last one's.
const DEPTH_MAX: u16 = 4096;
const PAGE_BYTES: usize = 4096;

/// A request as the kernel describes it, shared with it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The operation in the low eight bits, flags in the others.
    pub operation_and_flags: u32,
    /// Of 512 bytes.
    pub sectors: u32,
    pub first_sector: u64,
    _address: u64,
}

impl Descriptor {
    pub fn new(operation_and_flags: u32, sectors: u32, first_sector: u64) -> Self {
        Self { operation_and_flags, sectors, first_sector, _address: 0 }
    }
}

/// A queue of the device whose character device this is.
pub struct Queue {
    ring: Ring,
    handle: Rc<Handle>,
    descriptors: Descriptors,
    number: u16,
}

/// The kernel's descriptors, one for each tag.
struct Descriptors {
    start: NonNull<c_void>,
    depth: u16,
}

impl Queue {
    /// # Errors
    /// Where the descriptors cannot be mapped.
    ///
    /// # Panics
    /// Where the depth is none of the driver's.
    pub fn open(ring: &Ring, device: OwnedFd, number: u16, depth: u16) -> io::Result<Self> {
        assert!((1..=DEPTH_MAX).contains(&depth), "a queue of depth {depth}");
        let descriptors = Descriptors::map(&device, number, depth)?;
        Ok(Self { ring: ring.clone(), handle: ring.register(device), descriptors, number })
    }

    pub fn depth(&self) -> u16 {
        self.descriptors.depth
    }

    /// Asks for the first request of a tag. Its data is copied to this memory, or from it.
    pub fn fetch(&self, tag: u16, memory: Buffer) -> Fetch {
        self.start(FETCH, tag, 0, memory)
    }

    /// Answers the request of a tag, with the data of a read in this memory, and asks for the next
    /// one, whose data goes to the same memory.
    pub fn commit_and_fetch(&self, tag: u16, result: i32, memory: Buffer) -> Fetch {
        self.start(COMMIT_AND_FETCH, tag, result, memory)
    }

    /// The request of a tag, once it was fetched.
    pub fn descriptor(&self, tag: u16) -> Descriptor {
        self.descriptors.at(tag)
    }

    fn start(&self, what: u32, tag: u16, result: i32, memory: Buffer) -> Fetch {
        let mut bytes = [0; COMMAND_BYTES as usize];
        bytes[0..2].copy_from_slice(&self.number.to_ne_bytes());
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(memory.as_ptr() as u64).to_ne_bytes());
        Fetch(self.ring.command(&self.handle, what, bytes, memory))
    }
}

impl Descriptors {
    fn map(device: &OwnedFd, queue: u16, depth: u16) -> io::Result<Self> {
        let bytes = Self::bytes(depth);
        let offset = u64::from(queue) * Self::bytes(DEPTH_MAX) as u64;
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, protection, flags, device.as_fd(), offset)
        }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, depth })
    }

    const fn bytes(depth: u16) -> usize {
        (depth as usize * size_of::<Descriptor>()).next_multiple_of(PAGE_BYTES)
    }

    fn at(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of a queue of {}", self.depth);
        // SAFETY: the mapping has so many descriptors; the kernel writes one only before it
        // completes the command that asks for it.
        unsafe { self.start.cast::<Descriptor>().add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.start.as_ptr(), Self::bytes(self.depth)) };
    }
}

/// Waits for a request. Dropping it leaves the kernel with the command.
#[must_use = "a request that is fetched must be answered"]
pub struct Fetch(Completion);

impl Future for Fetch {
    /// An error where no request will come any more.
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll(context).map(|answer| match answer.count() {
            Ok(_) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        })
    }
}
