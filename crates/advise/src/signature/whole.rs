//! What is counted of all streams together: how much there is, its depth, and the volume.

use headpond_trace::TraceRecord;

use super::depth::{DepthSweep, TimeAtDepth};
use super::spatial_sample::Sampling;
use super::step::Step;
use super::volume::{VolumeCounts, VolumeTracker};

/// Looks at requests in order of issue.
#[derive(Debug)]
pub(super) struct Whole {
    tracker: VolumeTracker,
    depth: DepthSweep,
    requests: u64,
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
}

/// What was counted.
pub(super) struct WholeCounts {
    pub requests: u64,
    pub bytes: u64,
    pub duration_ns: u64,
    pub volume: VolumeCounts,
    pub depth: TimeAtDepth,
}

impl Whole {
    /// Blocks of traces with the same `source` are the same.
    pub(super) fn new(sampling: Sampling, source: &str) -> Self {
        Self {
            tracker: VolumeTracker::new(sampling, source),
            depth: DepthSweep::default(),
            requests: 0,
            bytes: 0,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    /// Adds a batch of requests, and tells when each step is done.
    pub(super) fn add(&mut self, batch: &[TraceRecord], done: &mut impl FnMut(Step)) {
        for record in batch {
            self.requests += 1;
            self.bytes = self.bytes.saturating_add(record.length_bytes);
            self.first_ns = self.first_ns.min(record.issued_ns);
            self.last_ns = self.last_ns.max(record.completed_ns.unwrap_or(record.issued_ns));
            if let Some(completed_ns) = record.completed_ns {
                self.depth.add(record.issued_ns, completed_ns);
            }
        }
        done(Step::Depth);
        self.tracker.add(batch, done);
    }

    pub(super) fn finish(mut self) -> WholeCounts {
        WholeCounts {
            requests: self.requests,
            bytes: self.bytes,
            duration_ns: self.last_ns.saturating_sub(self.first_ns),
            volume: self.tracker.finish(),
            depth: self.depth.finish(),
        }
    }
}
