//! Sums over a part of a stream, which can be added to another part's.

use headpond_trace::{Op, RecordFlags, TraceRecord};
use serde::{Deserialize, Serialize};

use super::arrivals::Gaps;
use super::depth::TimeAtDepth;
use super::placement::Alignment;
use super::sizes::SizeCounts;

/// Everything that is known of a set of requests. Merging two gives what their union would give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub requests: [u64; Op::ALL.len()],
    pub bytes: [u64; Op::ALL.len()],
    pub sizes: SizeCounts,
    pub depth: TimeAtDepth,
    /// Times from one request of the stream to the next.
    pub gaps: Gaps,
    pub alignment: Alignment,
    /// Reads and writes that belong to no proven run.
    pub random: [u64; 2],
    pub sync_writes: u64,
    pub fua_writes: u64,
    pub metadata: u64,
    pub failed: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub response_ns: u128,
    pub responses: u64,
    pub runs: RunTotals,
}

/// Sums over the parts of sequential runs that lie here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunTotals {
    pub runs: u64,
    pub requests: u64,
    pub bytes: u64,
    pub longest_bytes: u64,
}

impl Totals {
    /// Adds one request; `is_random` for reads and writes outside of every run.
    #[inline]
    pub(crate) fn add(&mut self, record: &TraceRecord, is_random: bool) {
        let index = record.op.index();
        let is_first = self.total_requests() == 0;
        self.requests[index] += 1;
        self.bytes[index] = self.bytes[index].saturating_add(record.length_bytes);
        if record.length_bytes > 0 {
            self.sizes.add(record.length_bytes, 1);
            self.alignment.add(record.offset_bytes, record.length_bytes);
        }
        if is_random && index < self.random.len() {
            self.random[index] += 1;
        }
        if !record.flags.is_empty() {
            self.add_flags(record);
        }
        self.first_ns =
            if is_first { record.issued_ns } else { self.first_ns.min(record.issued_ns) };
        self.last_ns = self.last_ns.max(record.completed_ns.unwrap_or(record.issued_ns));
        if let Some(response) = record.response_ns() {
            self.response_ns += u128::from(response);
            self.responses += 1;
        }
    }

    fn add_flags(&mut self, record: &TraceRecord) {
        let has = |flag| u64::from(record.flags.contains(flag));
        if record.op == Op::Write {
            self.sync_writes += has(RecordFlags::SYNC);
            self.fua_writes += has(RecordFlags::FUA);
        }
        self.metadata += has(RecordFlags::METADATA);
        self.failed += has(RecordFlags::FAILED);
    }

    /// Forgets everything; the memory stays.
    pub(crate) fn clear(&mut self) {
        let Self { sizes, depth, gaps, .. } = std::mem::take(self);
        (self.sizes, self.depth, self.gaps) = (sizes, depth, gaps);
        self.sizes.clear();
        self.depth.clear();
        self.gaps.clear();
    }

    /// Adds another part.
    pub(crate) fn merge(&mut self, other: &Totals) {
        if other.total_requests() == 0 {
            return;
        }
        let is_first = self.total_requests() == 0;
        for index in 0..Op::ALL.len() {
            self.requests[index] += other.requests[index];
            self.bytes[index] = self.bytes[index].saturating_add(other.bytes[index]);
        }
        for index in 0..self.random.len() {
            self.random[index] += other.random[index];
        }
        self.sizes.merge(&other.sizes);
        self.depth.merge(&other.depth);
        self.gaps.merge(&other.gaps);
        self.alignment.merge(&other.alignment);
        self.sync_writes += other.sync_writes;
        self.fua_writes += other.fua_writes;
        self.metadata += other.metadata;
        self.failed += other.failed;
        self.first_ns = if is_first { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.response_ns += other.response_ns;
        self.responses += other.responses;
        self.runs.merge(&other.runs);
    }

    /// Time from the first issue to the last issue or completion.
    pub(crate) fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    #[inline]
    pub(crate) fn total_requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// Time with a request in flight; 0 where completions are not known.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.depth.total_ns()
    }

    /// Share of reads and writes outside of every run.
    pub(crate) fn random_share(&self) -> f64 {
        let data: u64 = self.requests[..2].iter().sum();
        self.random.iter().sum::<u64>() as f64 / data.max(1) as f64
    }

    /// Share of reads among reads and writes.
    pub(crate) fn read_share(&self) -> f64 {
        let (reads, writes) = (self.requests[Op::Read.index()], self.requests[Op::Write.index()]);
        reads as f64 / (reads + writes).max(1) as f64
    }
}

impl RunTotals {
    pub(crate) fn merge(&mut self, other: &RunTotals) {
        self.runs += other.runs;
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.longest_bytes = self.longest_bytes.max(other.longest_bytes);
    }
}
