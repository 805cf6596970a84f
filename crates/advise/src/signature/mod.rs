//! The signature of a workload: its streams, and its use of the volume.
//!
//! 1. Requests that a system call was cut into are joined (`fragments`), and gathered in batches.
//! 2. Reads and writes are placed in sequential runs or among the random ones (`runs`).
//! 3. Streams are told apart by process where known, and by address and time (`router`, `phases`).
//! 4. Each stream is summed up (`totals`, `sizes`, `depth`), and the volume (`volume`).
//!
//! **Invariants**: one pass, bounded memory, no clock and no randomness: the same trace always
//! gives the same signature, however it is cut into batches.
//!
//! **Not here**: judgement (`advice`).

mod arrivals;
mod curve;
mod depth;
mod distinct;
mod edges;
mod extents;
mod fragments;
mod heat_map;
mod histogram;
mod in_flight;
mod partial;
mod phases;
mod placement;
mod policies;
mod recency;
mod reorder;
mod reuse;
mod router;
mod runs;
mod sample;
mod sizes;
mod step;
mod stored;
mod stream;
#[cfg(test)]
mod tests;
mod totals;
mod use_order;
mod volume;
mod waiting;
mod working_set;

use headpond_trace::{Names, Op, RecordFlags, TraceError, TraceReader, TraceRecord};
use serde::Serialize;

pub use arrivals::{Arrivals, Dispersion, GapSummary};
pub use curve::CurvePoint;
pub use depth::{Depth, DepthShare};
pub use extents::{HotExtent, HotSpots};
pub use heat_map::{HeatCell, HeatMap};
pub use histogram::Bucket;
pub use partial::Partial;
pub use placement::{Aligned, Seeks};
pub use policies::{PolicyCurve, PolicyPoint};
pub use reuse::ReuseTracker;
pub use sample::{BLOCK_BYTES, Sampling};
pub use sizes::{SizeShare, Sizes};
pub use step::Step;
pub use stored::StoredError;
pub use stream::{Mix, Pattern, Runs, StreamSignature};
pub use volume::{HitShare, VolumeSignature};
pub use working_set::{WorkingSet, WorkingSetWindow};

use depth::DepthSweep;
use fragments::Fragments;
use partial::Counted;
use router::Router;
use runs::{Found, RunDetector};
use volume::VolumeTracker;

/// Requests that go from step to step together: enough that a step finds its counters near, few
/// enough that they are near themselves.
const BATCH: usize = 256;

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
    source: String,
    fragments: Fragments,
    batch: Vec<TraceRecord>,
    runs: RunDetector,
    router: Router,
    tracker: VolumeTracker,
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
        Self::of_source("", sampling)
    }

    /// Of a trace among others: blocks of the same number are the same where the source is.
    ///
    /// # Panics
    /// When no blocks are followed at all.
    pub fn of_source(source: &str, sampling: Sampling) -> Self {
        Self {
            source: source.to_owned(),
            fragments: Fragments::default(),
            batch: Vec::with_capacity(BATCH + 1),
            runs: RunDetector::default(),
            router: Router::default(),
            tracker: VolumeTracker::new(sampling, source),
            depth: DepthSweep::default(),
            found: Vec::new(),
            requests: 0,
            bytes: 0,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    /// Adds one record.
    #[inline]
    pub fn add(&mut self, record: &TraceRecord) {
        self.add_watched(record, &mut |_| {});
    }

    /// Adds one record, and tells when a step is done with those that were gathered.
    #[inline]
    pub fn add_watched(&mut self, record: &TraceRecord, done: &mut impl FnMut(Step)) {
        if record.flags.contains(RecordFlags::RETRIED) {
            return self.fragments.note_length(record.process, record.length_bytes);
        }
        self.fragments.push(record);
        if self.fragments.whole() == BATCH {
            self.fragments.take_whole(&mut self.batch);
            done(Step::Gather);
            self.draw(done);
        }
    }

    /// The signature of everything added; `names` tells who the processes and devices are.
    pub fn finish(self, names: &Names) -> Signature {
        self.count(names).signature()
    }

    /// What was counted of everything added, to be merged with what was counted of other traces.
    pub fn count(mut self, names: &Names) -> Partial {
        self.fragments.take_whole(&mut self.batch);
        self.batch.extend(self.fragments.finish());
        self.draw(&mut |_| {});
        self.runs.finish(&mut self.found);
        self.found.sort_by_key(|found| match found {
            Found::Placed(record, _) => record.issued_ns,
            _ => u64::MAX,
        });
        self.route();
        Partial::new(Counted {
            requests: self.requests,
            bytes: self.bytes,
            duration_ns: self.last_ns.saturating_sub(self.first_ns),
            parts: self.router.finish(names, &self.source),
            volume: self.tracker.finish(),
            depth: self.depth.finish(),
            source: self.source,
        })
    }

    /// Counts the requests of the batch.
    fn draw(&mut self, done: &mut impl FnMut(Step)) {
        for record in &self.batch {
            self.requests += 1;
            self.bytes = self.bytes.saturating_add(record.length_bytes);
            self.first_ns = self.first_ns.min(record.issued_ns);
            self.last_ns = self.last_ns.max(record.completed_ns.unwrap_or(record.issued_ns));
            if let Some(completed_ns) = record.completed_ns {
                self.depth.add(record.issued_ns, completed_ns);
            }
        }
        done(Step::Depth);
        self.tracker.add(&self.batch, done);
        for record in &self.batch {
            if matches!(record.op, Op::Read | Op::Write) && record.length_bytes > 0 {
                self.runs.add(record, &mut self.found);
            } else {
                self.found.push(Found::Aside(*record));
            }
        }
        self.batch.clear();
        done(Step::Runs);
        self.route();
        done(Step::Streams);
    }

    fn route(&mut self) {
        self.found.iter().for_each(|found| self.router.take(found));
        self.found.clear();
    }
}
