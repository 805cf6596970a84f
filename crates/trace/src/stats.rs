//! Statistics of a trace.

use serde::{Deserialize, Serialize};

use crate::record::{Op, TraceRecord};

/// Sums over all records of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStats {
    /// Requests, without those refused with "try again".
    pub requests: u64,
    /// Time from the first issue to the last issue or completion.
    pub duration_ns: u64,
    /// One entry per operation that occurs.
    pub operations: Vec<OpStats>,
    /// Requests that completed with an error.
    pub failed: u64,
    /// Requests refused with "try again", and sent again.
    pub retried: u64,
    pub fua: u64,
    pub sync: u64,
    pub metadata: u64,
    /// Lowest and highest byte addressed.
    pub range_bytes: Option<(u64, u64)>,
}

/// Sums over one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpStats {
    pub op: Op,
    pub requests: u64,
    pub bytes: u64,
    pub smallest_bytes: u64,
    pub largest_bytes: u64,
    /// Mean time in the queue over the requests where it is known.
    pub mean_queue_ns: Option<u64>,
    /// Mean time at the device, likewise.
    pub mean_service_ns: Option<u64>,
    /// Mean time from issue to completion, likewise.
    pub mean_response_ns: Option<u64>,
}

/// Adds records up.
#[derive(Clone, Debug, Default)]
pub struct StatsBuilder {
    stats: TraceStats,
    operations: [OpSums; Op::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct OpSums {
    requests: u64,
    bytes: u64,
    smallest_bytes: u64,
    largest_bytes: u64,
    queue: Mean,
    service: Mean,
    response: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u128,
    count: u64,
}

impl TraceStats {
    /// Sums up all records that `records` yields.
    ///
    /// # Errors
    /// The first error of `records`.
    pub fn collect<E>(records: impl Iterator<Item = Result<TraceRecord, E>>) -> Result<Self, E> {
        let mut builder = StatsBuilder::default();
        for record in records {
            builder.add(&record?);
        }
        Ok(builder.finish())
    }

    /// The sums of one operation, where it occurs.
    pub fn operation(&self, op: Op) -> Option<&OpStats> {
        self.operations.iter().find(|stats| stats.op == op)
    }
}

impl StatsBuilder {
    /// Adds one record.
    pub fn add(&mut self, record: &TraceRecord) {
        use crate::record::RecordFlags as Flags;
        let stats = &mut self.stats;
        let last_ns = record.completed_ns.unwrap_or(record.issued_ns);
        stats.duration_ns = stats.duration_ns.max(last_ns);
        if record.flags.contains(Flags::RETRIED) {
            stats.retried += 1;
            return;
        }
        stats.requests += 1;
        stats.failed += u64::from(record.flags.contains(Flags::FAILED));
        stats.fua += u64::from(record.flags.contains(Flags::FUA));
        stats.sync += u64::from(record.flags.contains(Flags::SYNC));
        stats.metadata += u64::from(record.flags.contains(Flags::METADATA));
        if record.length_bytes > 0 {
            let (low, high) = stats.range_bytes.unwrap_or((u64::MAX, 0));
            let range = (low.min(record.offset_bytes), high.max(record.end_bytes()));
            stats.range_bytes = Some(range);
        }
        self.operations[record.op.index()].add(record);
    }

    /// The sums.
    pub fn finish(mut self) -> TraceStats {
        let occurring = Op::ALL.iter().zip(&self.operations).filter(|(_, sums)| sums.requests > 0);
        self.stats.operations = occurring.map(|(&op, sums)| sums.finish(op)).collect();
        self.stats
    }
}

impl OpSums {
    fn add(&mut self, record: &TraceRecord) {
        let first = self.requests == 0;
        let length = record.length_bytes;
        self.smallest_bytes = if first { length } else { self.smallest_bytes.min(length) };
        self.largest_bytes = self.largest_bytes.max(length);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(length);
        self.queue.add(record.queue_ns());
        self.service.add(record.service_ns());
        self.response.add(record.response_ns());
    }

    fn finish(&self, op: Op) -> OpStats {
        OpStats {
            op,
            requests: self.requests,
            bytes: self.bytes,
            smallest_bytes: self.smallest_bytes,
            largest_bytes: self.largest_bytes,
            mean_queue_ns: self.queue.value(),
            mean_service_ns: self.service.value(),
            mean_response_ns: self.response.value(),
        }
    }
}

impl Mean {
    fn add(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.sum += u128::from(value);
            self.count += 1;
        }
    }

    fn value(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum / u128::from(self.count)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordFlags;
    use std::convert::Infallible;

    #[test]
    fn sums_leave_out_what_was_told_to_try_again() {
        let mut first = TraceRecord::new(0, Op::Write, 0, 4096);
        first.completed_ns = Some(100);
        let mut retried = TraceRecord::new(10, Op::Write, 8192, 8192);
        retried.flags = RecordFlags::FAILED | RecordFlags::RETRIED;
        let second = TraceRecord::new(20, Op::Write, 8192, 8192);
        let records = [first, retried, second].map(Ok::<_, Infallible>);
        let Ok(stats) = TraceStats::collect(records.into_iter());
        assert_eq!((stats.requests, stats.retried, stats.failed), (2, 1, 0));
        assert_eq!(stats.duration_ns, 100);
        assert_eq!(stats.range_bytes, Some((0, 16384)));
        let writes = stats.operation(Op::Write).unwrap();
        assert_eq!((writes.bytes, writes.smallest_bytes), (12288, 4096));
        assert_eq!(writes.mean_response_ns, Some(100));
        assert_eq!(writes.mean_service_ns, None);
    }
}
