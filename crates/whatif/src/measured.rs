//! What a job, or a trace, experienced.

use crate::latency_windows::Doublings;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The requests of one job, in its measured time.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Side {
    pub requests: u64,
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    pub latency: Latency,
}

/// From submission to answer, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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

/// How often which latency was seen: bins of nanoseconds, two digits wide, in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bins(pub Vec<(u64, u64)>);

/// What takes longer is counted as this: an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// Counts while the job runs.
pub(crate) struct JobTally {
    read: SideTally,
    write: SideTally,
    flush: SideTally,
    /// Writes with the flush that made them stable, from when the write was wanted.
    stable: Histogram<u64>,
    /// Requests of the window that is under way.
    recent: Doublings,
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

impl Bins {
    /// From latencies with their counts, in any order.
    pub fn of(seen: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut bins = BTreeMap::new();
        for (nanos, count) in seen {
            *bins.entry(two_digits(nanos)).or_insert(0) += count;
        }
        Self(bins.into_iter().collect())
    }

    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Bins>) -> Self {
        Self::of(parts.into_iter().flat_map(|part| part.0.iter().copied()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The latency that so much of all does not exceed, in nanoseconds; 0 where there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        reached.or(self.0.last()).map_or(0, |(nanos, _)| *nanos)
    }

    /// In nanoseconds; 0 where there is none.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.0.iter().map(|(nanos, count)| *nanos as f64 * *count as f64).sum();
        sum / self.count().max(1) as f64
    }
}

/// Rounded up to a number of two digits and zeros.
fn two_digits(nanos: u64) -> u64 {
    let unit = 10_u64.pow(nanos.max(1).ilog10().saturating_sub(1));
    nanos.next_multiple_of(unit)
}

struct SideTally {
    bytes: u64,
    nanos: Histogram<u64>,
}

impl JobTally {
    pub fn new() -> Self {
        let nanos = || Histogram::new_with_bounds(1, LONGEST_NANOS, 3).expect("three digits");
        let side = || SideTally { bytes: 0, nanos: nanos() };
        let (read, write, flush) = (side(), side(), side());
        Self { read, write, flush, stable: nanos(), recent: Doublings::new(), errors: 0 }
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

    /// A write and its flush, together.
    pub fn note_stable(&mut self, took: Duration) {
        self.stable.saturating_record(took.as_nanos() as u64);
    }

    /// What the window that is under way shows.
    pub fn note_recent(&mut self, took: Duration) {
        self.recent.note(took.as_nanos() as u64, 1);
    }

    /// Latencies since the last time.
    pub fn take_recent(&mut self) -> Vec<(u64, u64)> {
        self.recent.take()
    }

    /// Latencies of reads, writes and flushes.
    pub fn bins(&self) -> [Bins; 3] {
        [&self.read, &self.write, &self.flush].map(|side| bins(&side.nanos))
    }

    /// Likewise, of writes with their flushes.
    pub fn stable(&self) -> Bins {
        bins(&self.stable)
    }

    pub fn measured(&self, time: Duration) -> Measured {
        let seconds = time.as_secs_f64();
        let (read, write) = (self.read.over(seconds), self.write.over(seconds));
        let flush = self.flush.over(seconds);
        Measured { seconds, read, write, flush, errors: self.errors }
    }
}

fn bins(nanos: &Histogram<u64>) -> Bins {
    let seen = nanos.iter_recorded();
    Bins::of(seen.map(|value| (value.value_iterated_to(), value.count_at_value())))
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
