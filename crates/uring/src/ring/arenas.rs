//! The buffer pool's memory, registered with the ring so that the kernel need not pin it each time.

use headpond_block::{Buffer, BufferPool};
use io_uring::Submitter;
use std::ops::Range;

/// The kernel accepts at most this much in one registered buffer, in bytes.
const ARENA_BYTES_MAX: usize = 1 << 30;

#[derive(Default)]
pub(super) struct Arenas {
    /// Addresses, by number of the arena; empty where nothing is registered.
    ranges: Vec<Range<usize>>,
    pub is_refused: bool,
}

impl Arenas {
    /// Registers all arenas, or none: where RLIMIT_MEMLOCK forbids it, requests use unregistered
    /// buffers.
    pub fn register(submitter: &Submitter<'_>, pool: &BufferPool) -> Self {
        let arenas = pool.arenas();
        let vector = |&(start, len): &(*mut u8, usize)| libc::iovec {
            iov_base: start.cast(),
            iov_len: len.min(ARENA_BYTES_MAX),
        };
        let vectors: Vec<_> = arenas.iter().map(vector).collect();
        if vectors.is_empty() {
            return Self::default();
        }
        // SAFETY: the core keeps the pool, and with it the arenas, until the ring is closed.
        match unsafe { submitter.register_buffers(&vectors) } {
            Ok(()) => Self { ranges: vectors.iter().map(addresses).collect(), is_refused: false },
            Err(_) => Self { ranges: Vec::new(), is_refused: true },
        }
    }

    /// The registered buffer that contains `buffer`. Another pool's arenas have the same numbers,
    /// so the address decides.
    pub fn index(&self, buffer: &Buffer) -> Option<u16> {
        let arena = buffer.arena()?;
        let range = self.ranges.get(usize::from(arena))?;
        let start = buffer.as_ptr() as usize;
        (range.start <= start && start + buffer.len() <= range.end).then_some(arena)
    }

    pub fn is_registered(&self) -> bool {
        !self.ranges.is_empty()
    }
}

fn addresses(vector: &libc::iovec) -> Range<usize> {
    let start = vector.iov_base as usize;
    start..start + vector.iov_len
}
