//! Memory for old data and parity, within a limit.

use headpond_block::sync::{Permit, Semaphore};
use headpond_block::{Buffer, BufferPool, Buffers, PoolConfig};

use crate::deadlines::Deadlines;
use crate::history::History;
use crate::layout::Layout;

/// What an array may use of the machine, and how long it waits.
#[derive(Clone)]
pub struct Tuning {
    /// Where scratch memory comes from; what it lacks comes from the heap.
    pub pool: BufferPool,
    /// The most scratch memory in use at a time, in bytes; distributed spare space comes with some
    /// on top, for what is rebuilt onto it.
    pub scratch_bytes_max: u64,
    /// How long members are waited for; `None`: until they answer.
    pub deadlines: Option<Deadlines>,
    pub when_full: WhenFull,
    /// Where errors and scrubs are counted.
    pub history: History,
}

/// What becomes of a write to copies that a member has no space left for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails, and the member stays: space is nothing that it has lost.
    FailWrite,
    /// Where all members are copies of each other, this one is failed once another has the write:
    /// for arrays whose writes may not fail for what one copy lacks.
    FailMember,
}

impl Tuning {
    /// The usual limits, with memory from this pool.
    pub fn with_pool(pool: BufferPool) -> Self {
        Tuning {
            pool,
            scratch_bytes_max: 64 << 20,
            deadlines: Some(Deadlines::default()),
            when_full: WhenFull::FailWrite,
            history: History::default(),
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::with_pool(BufferPool::new(&PoolConfig::default()))
    }
}

/// Whether the memory of a request holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Bytes,
    /// Lengths only: nothing is computed.
    Free,
}

impl Payload {
    pub(super) fn of(buffers: &Buffers) -> Payload {
        let free = buffers.iter().any(Buffer::is_payload_free);
        if free { Payload::Free } else { Payload::Bytes }
    }
}

/// What a member is worth of the memory for rebuilding onto distributed spare space, and all
/// together at most: enough for each to read on while what it has read waits for the others.
const SPREAD_BYTES_OF_MEMBER: u64 = 4 << 20;
const SPREAD_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Scratch {
    tuning: Tuning,
    /// On top of what is tuned.
    spread_bytes: u64,
    budget: Semaphore,
}

/// The right to some bytes of scratch memory.
pub(super) struct Allowance<'a> {
    scratch: &'a Scratch,
    payload: Payload,
    _permit: Permit,
}

impl Scratch {
    pub(super) fn new(tuning: Tuning, layout: &Layout) -> Scratch {
        let spread_bytes = match layout.spare_slots() {
            0 => 0,
            _ => (layout.members() as u64 * SPREAD_BYTES_OF_MEMBER).min(SPREAD_BYTES_MAX),
        };
        let budget = Semaphore::new(tuning.scratch_bytes_max + spread_bytes);
        Scratch { tuning, spread_bytes, budget }
    }

    /// What rebuilding onto distributed spare space may take alone.
    pub(super) fn spread_bytes(&self) -> u64 {
        self.spread_bytes
    }

    pub(super) fn pool(&self) -> &BufferPool {
        &self.tuning.pool
    }

    /// The most that is in use at a time.
    pub(super) fn bytes_max(&self) -> u64 {
        self.tuning.scratch_bytes_max
    }

    pub(super) fn when_full(&self) -> WhenFull {
        self.tuning.when_full
    }

    /// Memory for a read. It is no more than that of the read's client, which was admitted with
    /// that.
    pub(super) fn landing(&self, len: usize) -> Buffer {
        self.tuning.pool.take(len)
    }

    /// Waits until `bytes` may be used; more than the limit counts as the limit.
    pub(super) async fn allow(&self, bytes: usize, payload: Payload) -> Allowance<'_> {
        let count = (bytes as u64).min(self.tuning.scratch_bytes_max);
        let count = if payload == Payload::Free { 0 } else { count };
        Allowance { scratch: self, payload, _permit: self.budget.acquire(count).await }
    }
}

impl Allowance<'_> {
    /// Memory with whatever content.
    pub(super) fn take(&self, len: usize) -> Buffer {
        match self.payload {
            Payload::Bytes => self.scratch.tuning.pool.take(len),
            Payload::Free => Buffer::payload_free(len),
        }
    }

    pub(super) fn payload(&self) -> Payload {
        self.payload
    }
}
