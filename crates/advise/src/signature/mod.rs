//! The signature of a workload: its streams, and its use of the volume.
//!
//! 1. Requests that a system call was cut into are joined (`fragments`).
//! 2. Reads and writes are placed in sequential runs or among the random ones (`runs`).
//! 3. Streams are told apart by process where known, and by address and time (`router`, `phases`).
//! 4. Each stream is summed up (`totals`, `sizes`, `depth`), and the volume (`volume`).
//!
//! **Invariants**: one pass, bounded memory, no clock and no randomness: the same trace always
//! gives the same signature.
//!
//! **Not here**: judgement (`advice`).

mod curve;
mod depth;
mod fragments;
mod histogram;
mod phases;
mod recency;
mod router;
mod runs;
mod sample;
mod sizes;
mod stream;
#[cfg(test)]
mod tests;
mod totals;
mod volume;

use headpond_trace::{Names, Op, RecordFlags, TraceError, TraceReader, TraceRecord};
use serde::Serialize;

pub use curve::CurvePoint;
pub use depth::{Depth, DepthShare};
pub use histogram::Bucket;
pub use sample::{BLOCK_BYTES, Sampling};
pub use sizes::{SizeShare, Sizes};
pub use stream::{Mix, Pattern, Runs, StreamSignature};
pub use volume::{HitShare, VolumeSignature};

use depth::DepthSweep;
use fragments::Fragments;
use router::Router;
use runs::{Found, RunDetector};
use volume::ReuseSampler;

/// What a trace says about its workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signature {
    /// Requests, those told to try again left out and fragments joined.
    pub requests: u64,
    pub bytes: u64,
    pub duration_ns: u64,
    /// Streams, the busiest first.
    pub streams: Vec<StreamSignature>,
    pub volume: VolumeSignature,
    /// Depth over all streams together, where completions are known.
    pub depth: Option<Depth>,
}

/// Draws a signature from records in order of issue.
pub struct SignatureBuilder {
    fragments: Fragments,
    runs: RunDetector,
    router: Router,
    reuse: ReuseSampler,
    depth: DepthSweep,
    found: Vec<Found>,
    requests: u64,
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Signature {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// The reader's first error.
    pub fn of(reader: &mut TraceReader) -> Result<Self, TraceError> {
        let mut builder = SignatureBuilder::new();
        while let Some(record) = reader.next_record()? {
            builder.add(&record);
        }
        Ok(builder.finish(reader.names()))
    }

    /// The signature of records in memory.
    pub fn of_records<'a>(records: impl IntoIterator<Item = &'a TraceRecord>) -> Self {
        let mut builder = SignatureBuilder::new();
        records.into_iter().for_each(|record| builder.add(record));
        builder.finish(&Names::default())
    }
}

impl Default for SignatureBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SignatureBuilder {
    /// Follows as many blocks as is usual.
    pub fn new() -> Self {
        Self::sampling(Sampling::default())
    }

    /// Follows so many blocks.
    ///
    /// # Panics
    /// When that is none at all.
    pub fn sampling(sampling: Sampling) -> Self {
        Self {
            fragments: Fragments::default(),
            runs: RunDetector::default(),
            router: Router::default(),
            reuse: ReuseSampler::new(sampling),
            depth: DepthSweep::default(),
            found: Vec::new(),
            requests: 0,
            bytes: 0,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    /// Adds one record.
    pub fn add(&mut self, record: &TraceRecord) {
        if record.flags.contains(RecordFlags::RETRIED) {
            return self.fragments.note_length(record);
        }
        if let Some(whole) = self.fragments.push(*record) {
            self.place(whole);
        }
    }

    /// The signature of everything added; `names` tells who the processes and devices are.
    pub fn finish(mut self, names: &Names) -> Signature {
        if let Some(whole) = self.fragments.finish() {
            self.place(whole);
        }
        self.runs.finish(&mut self.found);
        self.found.sort_by_key(|found| match found {
            Found::Placed(record, _) => record.issued_ns,
            Found::Ended { .. } => u64::MAX,
        });
        self.route();
        Signature {
            requests: self.requests,
            bytes: self.bytes,
            duration_ns: self.last_ns.saturating_sub(self.first_ns),
            streams: self.router.finish(names),
            volume: self.reuse.finish(),
            depth: self.depth.finish().summary(),
        }
    }

    fn place(&mut self, record: TraceRecord) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(record.length_bytes);
        self.first_ns = self.first_ns.min(record.issued_ns);
        self.last_ns = self.last_ns.max(record.completed_ns.unwrap_or(record.issued_ns));
        if let Some(completed_ns) = record.completed_ns {
            self.depth.add(record.issued_ns, completed_ns);
        }
        self.reuse.add(&record);
        if matches!(record.op, Op::Read | Op::Write) && record.length_bytes > 0 {
            self.runs.add(record, &mut self.found);
            self.route();
        } else {
            self.router.aside(&record);
        }
    }

    fn route(&mut self) {
        for found in self.found.drain(..) {
            self.router.take(found);
        }
    }
}
