//! Workloads for tests: closed-loop jobs in virtual time.

use headpond_trace::{Op, TraceRecord};

use crate::signature::Signature;

/// A closed-loop job in virtual time: `depth` requests in flight, each served in `service_ns`.
pub(crate) struct Job {
    pub depth: u64,
    pub count: u64,
    pub bytes: u64,
    pub start_ns: u64,
    pub service_ns: u64,
    pub process: u32,
}

impl Job {
    pub(crate) fn new(depth: u64, count: u64, bytes: u64) -> Self {
        Self { depth, count, bytes, start_ns: 0, service_ns: 1_000_000, process: 0 }
    }

    /// Request n starts when a slot of the queue is free and takes the service time.
    pub(crate) fn run(&self, request: impl Fn(u64) -> (Op, u64)) -> Vec<TraceRecord> {
        let step_ns = self.service_ns / self.depth;
        (0..self.count)
            .map(|n| {
                let issued_ns = self.start_ns + n * step_ns;
                let (op, offset) = request(n);
                let mut record = TraceRecord::new(issued_ns, op, offset, self.bytes);
                record.completed_ns = Some(issued_ns + self.service_ns);
                record.process = self.process;
                record
            })
            .collect()
    }
}

pub(crate) fn scattered(n: u64, bytes: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 17);
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 24) % 100_000_000 * bytes
}

pub(crate) fn sorted(jobs: Vec<Vec<TraceRecord>>) -> Vec<TraceRecord> {
    let mut records: Vec<TraceRecord> = jobs.into_iter().flatten().collect();
    records.sort_by_key(|record| record.issued_ns);
    records
}

pub(crate) fn together(jobs: Vec<Vec<TraceRecord>>) -> Signature {
    Signature::of_records(&sorted(jobs))
}

pub(crate) fn half_reads(n: u64) -> Op {
    if scattered(n + 7, 1).is_multiple_of(2) { Op::Read } else { Op::Write }
}
