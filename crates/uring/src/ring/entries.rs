//! The operations of the ring, each with the memory it needs.

use super::arenas::ARENA;
use super::operations::Keep;
use super::{Completion, Handle, Ring};
use headpond_block::{Buffer, Buffers, ByteRange};
use io_uring::{opcode, squeue, types};
use std::rc::Rc;

/// Most parts in one vectored operation: IOV_MAX.
pub(crate) const PART_COUNT_MAX: usize = 1024;

/// Most bytes in one operation; the kernel accepts a little less than 2 GiB.
pub(crate) const TRANSFER_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    /// A write with the flags of pwritev2(2).
    Write {
        flags: i32,
    },
}

impl Ring {
    /// Starts to move `buffers` from or to a file at `offset`.
    ///
    /// # Panics
    /// Where there are no bytes, or more parts or bytes than one operation can have.
    pub(crate) fn transfer(
        &self,
        handle: &Rc<Handle>,
        direction: Direction,
        offset: u64,
        buffers: Buffers,
    ) -> Completion {
        assert!(!buffers.is_empty() && buffers.len_bytes() <= TRANSFER_BYTES_MAX);
        let mut keep = Keep::new(handle, buffers);
        // Memory is registered with the thread's ring only.
        let is_separate = handle.separate_ring().is_some();
        let target = handle.target();
        let entry = match keep.buffers.as_single() {
            Some(single) => {
                let is_fixed = !is_separate && self.core.arenas.contains(single);
                single_part(target, direction, offset, single, is_fixed)
            }
            None => {
                let is_fixed = !is_separate && self.core.arenas.takes(&keep.buffers);
                self.core.count(|counters| counters.fixed_parts += u64::from(is_fixed));
                keep.vectors = vectors(&keep.buffers);
                vectored(target, direction, offset, &keep.vectors, is_fixed)
            }
        };
        // SAFETY: the entry points to the buffers' memory and the vectors on the heap, both kept.
        unsafe { self.start(entry, keep) }
    }

    /// Makes what was written to a file stable: fdatasync.
    pub(crate) fn sync_data(&self, handle: &Rc<Handle>) -> Completion {
        let fsync = opcode::Fsync::new(handle.target());
        let entry = fsync.flags(types::FsyncFlags::DATASYNC).build();
        // SAFETY: the entry points to no memory.
        unsafe { self.start(entry, Keep::new(handle, Buffers::new())) }
    }

    /// Changes the allocation of a range: fallocate with `mode`.
    pub(crate) fn allocate(&self, handle: &Rc<Handle>, mode: i32, range: ByteRange) -> Completion {
        let allocate = opcode::Fallocate::new(handle.target(), range.len());
        let entry = allocate.offset(range.start()).mode(mode).build();
        // SAFETY: the entry points to no memory.
        unsafe { self.start(entry, Keep::new(handle, Buffers::new())) }
    }

    /// Receives available bytes.
    pub(crate) fn receive(&self, handle: &Rc<Handle>, buffer: Buffer) -> Completion {
        let len = buffer.len().min(TRANSFER_BYTES_MAX) as u32;
        let entry = opcode::Recv::new(handle.target(), buffer.as_ptr(), len).build();
        // SAFETY: the entry points to the buffer's memory, which is kept.
        unsafe { self.start(entry, Keep::new(handle, buffer.into())) }
    }

    /// Sends buffers, all of them unless the connection breaks.
    pub(crate) fn send(&self, handle: &Rc<Handle>, buffers: Buffers) -> Completion {
        const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let mut keep = Keep::new(handle, buffers);
        let target = handle.target();
        let entry = match keep.buffers.as_single() {
            Some(single) => {
                let send = opcode::Send::new(target, single.as_ptr(), single.len() as u32);
                send.flags(FLAGS).build()
            }
            None => {
                keep.vectors = vectors(&keep.buffers);
                let header = keep.header.insert(Box::new(header(&keep.vectors)));
                let send = opcode::SendMsg::new(target, std::ptr::from_ref(&**header));
                send.flags(FLAGS as u32).build()
            }
        };
        // SAFETY: the entry points to the buffers' memory, the vectors and the boxed header: all
        // kept.
        unsafe { self.start(entry, keep) }
    }

    /// A command of sixteen bytes to the driver of a file, which may use this memory until it has
    /// answered, which may be when the process ends.
    pub(crate) fn command(
        &self,
        handle: &Rc<Handle>,
        number: u32,
        bytes: [u8; 16],
        memory: Buffer,
    ) -> Completion {
        let entry = opcode::UringCmd16::new(handle.target(), number).cmd(bytes).build();
        let keep = Keep { outlives_ring: true, ..Keep::new(handle, memory.into()) };
        // SAFETY: what a command points to is memory of the buffer, which is kept.
        unsafe { self.start(entry, keep) }
    }

    /// Waits for a connection; the answer is its descriptor.
    pub(crate) fn accept(&self, handle: &Rc<Handle>) -> Completion {
        let nowhere = std::ptr::null_mut();
        let accept = opcode::Accept::new(handle.target(), nowhere, nowhere.cast());
        let entry = accept.flags(libc::SOCK_CLOEXEC).build();
        let keep = Keep { answers_descriptor: true, ..Keep::new(handle, Buffers::new()) };
        // SAFETY: the entry points to no memory.
        unsafe { self.start(entry, keep) }
    }

    /// Connects a socket to the address whose bytes `address` holds.
    pub(crate) fn connect(&self, handle: &Rc<Handle>, address: Buffer) -> Completion {
        let len = address.len() as libc::socklen_t;
        let entry = opcode::Connect::new(handle.target(), address.as_ptr().cast(), len).build();
        // SAFETY: the entry points to the address, which is kept.
        unsafe { self.start(entry, Keep::new(handle, address.into())) }
    }
}

fn single_part(
    target: types::Fd,
    direction: Direction,
    offset: u64,
    buffer: &Buffer,
    is_fixed: bool,
) -> squeue::Entry {
    let (start, len) = (buffer.as_ptr(), buffer.len() as u32);
    match (direction, is_fixed) {
        (Direction::Read, true) => {
            opcode::ReadFixed::new(target, start, len, ARENA).offset(offset).build()
        }
        (Direction::Read, false) => opcode::Read::new(target, start, len).offset(offset).build(),
        (Direction::Write { flags }, true) => {
            let write = opcode::WriteFixed::new(target, start, len, ARENA);
            write.offset(offset).rw_flags(flags).build()
        }
        (Direction::Write { flags }, false) => {
            let write = opcode::Write::new(target, start, len);
            write.offset(offset).rw_flags(flags).build()
        }
    }
}

fn vectored(
    target: types::Fd,
    direction: Direction,
    offset: u64,
    vectors: &[libc::iovec],
    is_fixed: bool,
) -> squeue::Entry {
    let (start, count) = (vectors.as_ptr(), vectors.len() as u32);
    match (direction, is_fixed) {
        (Direction::Read, true) => {
            opcode::ReadvFixed::new(target, start, count, ARENA).offset(offset).build()
        }
        (Direction::Read, false) => opcode::Readv::new(target, start, count).offset(offset).build(),
        (Direction::Write { flags }, true) => {
            let write = opcode::WritevFixed::new(target, start, count, ARENA);
            write.offset(offset).rw_flags(flags).build()
        }
        (Direction::Write { flags }, false) => {
            let write = opcode::Writev::new(target, start, count);
            write.offset(offset).rw_flags(flags).build()
        }
    }
}

fn vectors(buffers: &Buffers) -> Vec<libc::iovec> {
    assert!(buffers.count() <= PART_COUNT_MAX, "more parts than one operation takes");
    let vector =
        |part: &Buffer| libc::iovec { iov_base: part.as_ptr().cast(), iov_len: part.len() };
    buffers.iter().map(vector).collect()
}

fn header(vectors: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: a message header of zeros is valid: no name, no control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_ptr().cast_mut();
    header.msg_iovlen = vectors.len() as _;
    header
}
