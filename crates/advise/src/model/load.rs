//! What the model needs to know of a stream.

use serde::Serialize;

use crate::signature::{Pattern, StreamSignature};

/// A stream as a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    pub is_sequential: bool,
    /// Share of reads among reads and writes.
    pub read_share: f64,
    pub bytes: u64,
    /// Requests in flight.
    pub depth: f64,
    /// Share of reads that the cache would answer.
    pub read_hits: f64,
    /// Share of written blocks that replace one that is still in the cache.
    pub overwrites: f64,
    /// Bytes over which the stream's writes are spread.
    pub footprint_bytes: f64,
    /// Length of the address range they are spread over.
    pub range_bytes: f64,
    /// Mean length of its sequential runs; 0 for random requests.
    pub run_bytes: f64,
}

impl Load {
    /// The load that a stream of this signature is; what the volume says about reuse is added by
    /// the caller.
    pub fn of(stream: &StreamSignature) -> Self {
        let depth = stream.depth.as_ref().map_or(1.0, |depth| depth.mean.max(1.0));
        Self {
            is_sequential: stream.pattern == Pattern::Sequential,
            read_share: stream.read_share(),
            bytes: stream.typical_bytes(),
            depth,
            read_hits: 0.0,
            overwrites: 0.0,
            footprint_bytes: stream.bytes as f64,
            range_bytes: stream.bytes as f64,
            run_bytes: stream.runs.map_or(0.0, |runs| runs.mean_bytes),
        }
    }

    /// Random requests of one kind, for comparisons with published cells.
    pub fn random(read_share: f64, bytes: u64, depth: f64, range_bytes: f64) -> Self {
        Self {
            is_sequential: false,
            read_share,
            bytes,
            depth,
            read_hits: 0.0,
            overwrites: 0.0,
            footprint_bytes: range_bytes,
            range_bytes,
            run_bytes: 0.0,
        }
    }

    /// A sequential stream.
    pub fn sequential(read_share: f64, bytes: u64, depth: f64) -> Self {
        let far = 1e15;
        Self { is_sequential: true, run_bytes: far, ..Self::random(read_share, bytes, depth, far) }
    }
}
