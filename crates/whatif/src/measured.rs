//! What a job, or a trace, experienced.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The requests of one job, in its measured time.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub seconds: f64,
    pub read: Side,
    pub write: Side,
    pub flush: Side,
    pub errors: u64,
}

impl Measured {
    /// Whether nothing was answered, well or not.
    pub fn is_empty(&self) -> bool {
        self.read.requests + self.write.requests + self.flush.requests + self.errors == 0
    }
}

/// One kind of request; discards and zeroes count as writes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Side {
    pub requests: u64,
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    pub latency: Latency,
}

/// From submission to answer, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub mean_us: f64,
    /// Standard deviation from it.
    pub deviation_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
}

/// What takes longer is counted as this: an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// Counts while the job runs.
pub(crate) struct Tally {
    read: SideTally,
    write: SideTally,
    flush: SideTally,
    pub errors: u64,
}

/// What a request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Read,
    Write,
    Flush,
}

/// Requests that were answered so far, measured or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    pub reads: u64,
    pub writes: u64,
}

impl Answered {
    pub fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Read => self.reads += 1,
            Kind::Write => self.writes += 1,
            Kind::Flush => {}
        }
    }
}

struct SideTally {
    bytes: u64,
    nanos: Histogram<u64>,
}

impl Tally {
    pub fn new() -> Self {
        let side = || SideTally {
            bytes: 0,
            nanos: Histogram::new_with_bounds(1, LONGEST_NANOS, 3).expect("three digits"),
        };
        Self { read: side(), write: side(), flush: side(), errors: 0 }
    }

    pub fn note(&mut self, kind: Kind, bytes: u64, took: Duration) {
        let side = match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Flush => &mut self.flush,
        };
        side.bytes += bytes;
        side.nanos.saturating_record(took.as_nanos() as u64);
    }

    pub fn measured(&self, time: Duration) -> Measured {
        let seconds = time.as_secs_f64();
        let (read, write) = (self.read.over(seconds), self.write.over(seconds));
        let flush = self.flush.over(seconds);
        Measured { seconds, read, write, flush, errors: self.errors }
    }
}

impl SideTally {
    fn over(&self, seconds: f64) -> Side {
        let requests = self.nanos.len();
        if requests == 0 || seconds <= 0.0 {
            return Side::default();
        }
        let at = |quantile| self.nanos.value_at_quantile(quantile) as f64 / 1e3;
        Side {
            requests,
            iops: requests as f64 / seconds,
            mb_per_s: self.bytes as f64 / 1e6 / seconds,
            latency: Latency {
                mean_us: self.nanos.mean() / 1e3,
                deviation_us: self.nanos.stdev() / 1e3,
                p50_us: at(0.5),
                p90_us: at(0.9),
                p99_us: at(0.99),
                p99_9_us: at(0.999),
                p99_99_us: at(0.9999),
                max_us: self.nanos.max() as f64 / 1e3,
            },
        }
    }
}
