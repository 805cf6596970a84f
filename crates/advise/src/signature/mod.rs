//! The signature of a workload: its streams, and its use of the volume.
//!
//! 1. Requests that a system call was cut into are joined (`fragments`), and gathered in batches.
//! 2. Reads and writes are placed in sequential runs or among the random ones (`runs`).
//! 3. Streams are told apart by process where known, and by address and time (`router`, `phases`).
//! 4. Each stream is summed up (`totals`, `sizes`, `depth`), and all of them together (`whole`,
//!    `volume`), on a thread of its own where that is asked for (`helper`).
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
mod figures;
mod fragments;
mod heat_map;
mod helper;
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
mod sizes;
mod spatial_sample;
mod step;
mod stored;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod totals;
mod use_order;
mod volume;
mod waiting;
mod whole;
mod working_set;

use headpond_trace::{Names, RecordFlags, TraceError, TraceReader, TraceRecord};
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
pub use sizes::{SizeShare, Sizes};
pub use spatial_sample::{BLOCK_BYTES, Sampling};
pub use step::Step;
pub use stored::StoredError;
pub use stream::{Mix, Pattern, Runs, StreamSignature};
pub use volume::{HitShare, VolumeSignature};
pub use working_set::{WorkingSet, WorkingSetWindow};

use fragments::Fragments;
use helper::{HANDED, Helper};
use partial::Counted;
use streams::Streams;
use whole::Whole;

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
    sampling: Sampling,
    fragments: Fragments,
    batch: Vec<TraceRecord>,
    streams: Streams,
    whole: Counter,
}

/// Where is counted what is of all streams together.
enum Counter {
    Here(Box<Whole>),
    Elsewhere(Helper),
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

    /// Of all requests, those that the trace marks as metadata.
    pub fn metadata_share(&self) -> f64 {
        self.streams.iter().map(|it| it.request_share * it.metadata_share).sum()
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
            sampling,
            fragments: Fragments::default(),
            batch: Vec::new(),
            streams: Streams::default(),
            whole: Counter::Here(Box::new(Whole::new(sampling, source))),
        }
    }

    /// Shares the work with a second thread, where the machine has room for one. The signature is
    /// the same.
    ///
    /// # Panics
    /// When something was added before.
    pub fn on_two_threads(self) -> Self {
        assert!(self.fragments.is_empty(), "both threads see all records");
        if std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1)
            && let Ok(helper) = Helper::start(self.sampling, &self.source)
        {
            return Self { whole: Counter::Elsewhere(helper), ..self };
        }
        self
    }

    /// Adds one record.
    #[inline]
    pub fn add(&mut self, record: &TraceRecord) {
        self.add_watched(record, &mut |_| {});
    }

    /// Adds one record, and tells when a step is done with those that were gathered; not of the
    /// steps that another thread does.
    #[inline]
    pub fn add_watched(&mut self, record: &TraceRecord, done: &mut impl FnMut(Step)) {
        if record.flags.contains(RecordFlags::RETRIED) {
            return self.fragments.note_length(record.process, record.length_bytes);
        }
        self.fragments.push(record);
        if self.fragments.whole() == self.whole.batch() {
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
        let whole = match self.whole {
            Counter::Here(whole) => whole.finish(),
            Counter::Elsewhere(helper) => helper.finish(),
        };
        let parts = self.streams.finish(names, &self.source);
        Partial::new(Counted { source: self.source, parts, whole })
    }

    /// Counts the requests of the batch.
    fn draw(&mut self, done: &mut impl FnMut(Step)) {
        for chunk in self.batch.chunks(BATCH) {
            if let Counter::Here(whole) = &mut self.whole {
                whole.add(chunk, done);
            }
            self.streams.add(chunk, done);
        }
        match &mut self.whole {
            Counter::Here(_) => self.batch.clear(),
            Counter::Elsewhere(helper) => helper.hand(&mut self.batch),
        }
    }
}

impl Counter {
    /// Requests that are gathered.
    #[inline]
    fn batch(&self) -> usize {
        match self {
            Counter::Here(_) => BATCH,
            Counter::Elsewhere(_) => HANDED,
        }
    }
}
