//! The one record type: a request as the traced volume saw it.
//!
//! Every reader yields it and every analysis takes it, for all formats. Times are nanoseconds since
//! the start of the trace; values that a format lacks are `None`, never a guess.
//!
//! **Invariants**: `offset_bytes + length_bytes` does not overflow; `dispatched_ns` and
//! `completed_ns`, where known, are not before `issued_ns`.
//!
//! **Not here**: names of processes and devices (`names.rs`), statistics over records (`stats.rs`).

use serde::{Deserialize, Serialize};

/// One request: operation, range, times, and process, where known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When the request entered the queue, in nanoseconds since the start of the trace.
    pub issued_ns: u64,
    /// First byte addressed; 0 for a flush.
    pub offset_bytes: u64,
    /// Bytes addressed; 0 for a flush.
    pub length_bytes: u64,
    /// When the device was given the request (the last time, after requeues).
    pub dispatched_ns: Option<u64>,
    /// When the last part of the request completed.
    pub completed_ns: Option<u64>,
    /// Process that issued it; 0 where unknown.
    pub process: u32,
    /// Index into [`Names`](crate::Names) of the device or file.
    pub device: u16,
    /// Hardware or software queue (the CPU, for blktrace).
    pub queue: u16,
    pub op: Op,
    pub flags: RecordFlags,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
}

bitflags::bitflags! {
    /// What is known about a request beyond its operation.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RecordFlags: u16 {
        /// Stable when it completes.
        const FUA = 1 << 0;
        /// The issuer waits for it (`REQ_SYNC`).
        const SYNC = 1 << 1;
        /// File-system metadata.
        const METADATA = 1 << 2;
        /// A flush goes before the data.
        const PREFLUSH = 1 << 3;
        const READAHEAD = 1 << 4;
        /// Completed with an error.
        const FAILED = 1 << 5;
        /// Refused with "try again" before the device saw it; its issuer sends it once more.
        const RETRIED = 1 << 6;
        /// The kernel split it into several device operations.
        const SPLIT = 1 << 7;
        /// The kernel merged it with a neighbour.
        const MERGED = 1 << 8;
        /// Came from another device (a partition, a mapping).
        const REMAPPED = 1 << 9;
        /// The device requeued it.
        const REQUEUED = 1 << 10;
    }
}

impl TraceRecord {
    /// A request of which only issue time, operation and range are known.
    pub fn new(issued_ns: u64, op: Op, offset_bytes: u64, length_bytes: u64) -> Self {
        Self {
            issued_ns,
            offset_bytes,
            length_bytes,
            dispatched_ns: None,
            completed_ns: None,
            process: 0,
            device: 0,
            queue: 0,
            op,
            flags: RecordFlags::empty(),
        }
    }

    /// First byte after the request.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.length_bytes)
    }

    /// Time between issue and dispatch, where both are known.
    pub fn queue_ns(&self) -> Option<u64> {
        self.dispatched_ns.map(|at| at.saturating_sub(self.issued_ns))
    }

    /// Time between dispatch and completion, where both are known.
    pub fn service_ns(&self) -> Option<u64> {
        Some(self.completed_ns?.saturating_sub(self.dispatched_ns?))
    }

    /// Time between issue and completion, where known.
    pub fn response_ns(&self) -> Option<u64> {
        self.completed_ns.map(|at| at.saturating_sub(self.issued_ns))
    }

    /// True when the request asks the device to change what it stores.
    pub fn changes_data(&self) -> bool {
        matches!(self.op, Op::Write | Op::Discard | Op::WriteZeroes)
    }
}

impl Op {
    /// All operations, in the order used by tables and arrays.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// Position in [`Op::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word a table shows.
    pub fn word(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write-zeroes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_differences_of_the_points_that_are_known() {
        let mut record = TraceRecord::new(100, Op::Read, 4096, 4096);
        assert_eq!(record.response_ns(), None);
        record.dispatched_ns = Some(150);
        record.completed_ns = Some(400);
        assert_eq!(record.queue_ns(), Some(50));
        assert_eq!(record.service_ns(), Some(250));
        assert_eq!(record.response_ns(), Some(300));
        assert_eq!(record.end_bytes(), 8192);
    }

    #[test]
    fn index_follows_the_order_of_all() {
        for (position, op) in Op::ALL.iter().enumerate() {
            assert_eq!(op.index(), position);
        }
    }
}
