//! The buffer pool's memory, registered with the ring so that the kernel need not pin it each time.
//!
//! **Source**: io_uring_register(2). Several parts of registered memory in one operation need
//! IORING_OP_READV_FIXED and IORING_OP_WRITEV_FIXED of Linux 6.15; older kernels pin such parts.

use headpond_block::{Buffer, BufferPool, Buffers};
use io_uring::{Probe, Submitter, opcode};
use std::cell::Cell;
use std::ops::Range;

/// The kernel accepts at most this much in one registered buffer, in bytes.
const ARENA_BYTES_MAX: usize = 1 << 30;

/// The number of the only registered buffer.
pub(super) const ARENA: u16 = 0;

#[derive(Default)]
pub(super) struct Arenas {
    /// Addresses; empty where nothing is registered.
    range: Range<usize>,
    /// Whether one operation takes several parts of it.
    takes_parts: Cell<bool>,
    pub is_refused: bool,
}

impl Arenas {
    /// Registers the pool's arena. Where RLIMIT_MEMLOCK forbids it, requests use unregistered
    /// buffers.
    pub fn register(submitter: &Submitter<'_>, pool: &BufferPool) -> Self {
        let (start, len) = pool.arena();
        let iov_len = len.min(ARENA_BYTES_MAX);
        if iov_len == 0 {
            return Self::default();
        }
        let vector = libc::iovec { iov_base: start.cast(), iov_len };
        // SAFETY: the core keeps the pool, and with it the arena, until the ring is closed.
        match unsafe { submitter.register_buffers(&[vector]) } {
            Ok(()) => {
                let range = start as usize..start as usize + iov_len;
                let takes_parts = Cell::new(takes_parts(submitter));
                Self { range, takes_parts, is_refused: false }
            }
            Err(_) => Self { is_refused: true, ..Self::default() },
        }
    }

    /// Whether `buffer` is in registered memory.
    pub fn contains(&self, buffer: &Buffer) -> bool {
        let start = buffer.as_ptr() as usize;
        self.range.start <= start && start + buffer.len() <= self.range.end
    }

    /// Whether one operation can take all parts as registered memory.
    pub fn takes(&self, parts: &Buffers) -> bool {
        self.takes_parts.get() && parts.iter().all(|part| self.contains(part))
    }

    pub fn has_parts(&self) -> bool {
        self.takes_parts.get()
    }

    pub fn is_registered(&self) -> bool {
        !self.range.is_empty()
    }

    /// As on a kernel that takes one part in an operation.
    #[cfg(test)]
    pub fn take_no_parts(&self) {
        self.takes_parts.set(false);
    }
}

fn takes_parts(submitter: &Submitter<'_>) -> bool {
    let mut probe = Probe::new();
    let codes = [opcode::ReadvFixed::CODE, opcode::WritevFixed::CODE];
    submitter.register_probe(&mut probe).is_ok()
        && codes.iter().all(|code| probe.is_supported(*code))
}
