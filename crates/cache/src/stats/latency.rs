//! Latency of requests, by path.
//!
//! Reading the clock costs a tenth of completing a request from memory. So requests that complete
//! without yielding are sampled, and those that wait for the core, or for a flush, are all timed.
//! Where a path has both, each sample counts for those that were not timed.

use crate::bypass::Balance;
use crate::types::{CoreBlock, CorePlace};
use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;
use headpond_block::{BLOCK_BYTES, ByteRange, Instant, Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::ops::AddAssign;
use std::time::Duration;

/// Sampling of requests that the cache alone serves: one of so many is timed.
const SAMPLE_EVERY: u32 = 32;
/// The maximum that is recorded: an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;
/// Buckets are a sixteenth of their value wide, or less.
const DIGITS: u8 = 1;

/// The path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// All of it came from the cache.
    ReadHit,
    /// Some of it came from the core.
    ReadMiss,
    ReadPastCache,
    /// Written to the cache only.
    WriteToCache,
    WriteThrough,
    WritePastCache,
    Flush,
    Discard,
}

impl Way {
    pub const ALL: [Way; 8] = [
        Way::ReadHit,
        Way::ReadMiss,
        Way::ReadPastCache,
        Way::WriteToCache,
        Way::WriteThrough,
        Way::WritePastCache,
        Way::Flush,
        Way::Discard,
    ];

    /// Whether requests of this path are sampled.
    pub fn is_sampled(self) -> bool {
        matches!(self, Way::ReadHit | Way::WriteToCache)
    }
}

/// When a request began, and whether it is sampled.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub at: Instant,
    pub is_sampled: bool,
}

/// Histograms of all paths, with all buckets allocated at the start.
pub(crate) struct Latencies {
    runtime: Runtime,
    all: RefCell<LatencyStats>,
    /// Of each of several cores, in order of address.
    by_core: RefCell<Vec<(CorePlace, LatencyStats)>>,
    pub reads: Turns,
    pub writes: Turns,
    /// Who compares the times with the core's, of reads and of writes.
    pub read_balance: Balance,
    pub write_balance: Balance,
}

/// Sampling counters: separate for reads and writes, or a client that alternates would always have
/// the same kind timed.
#[derive(Default)]
pub(crate) struct Turns(Cell<u32>);

impl Latencies {
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            all: RefCell::default(),
            by_core: RefCell::default(),
            reads: Turns::default(),
            writes: Turns::default(),
            read_balance: Balance::default(),
            write_balance: Balance::default(),
        }
    }

    /// The time, if this request is sampled.
    #[inline]
    pub fn sample(&self, turns: &Turns) -> Option<Instant> {
        turns.take().then(|| self.runtime.now())
    }

    /// The start of a request that waits, sampled or not.
    pub fn begin(&self, sampled: Option<Instant>) -> Begun {
        let at = sampled.unwrap_or_else(|| self.runtime.now());
        Begun { at, is_sampled: sampled.is_some() }
    }

    /// Records per core from now on, where there are several.
    pub fn divide(&self, places: &[CorePlace]) {
        let places = if places.len() > 1 { places } else { &[] };
        let each = places.iter().map(|place| (*place, LatencyStats::default()));
        self.by_core.replace(each.collect());
    }

    /// Records the completion of a request for `range`.
    pub fn note(&self, way: Way, range: ByteRange, begun: Begun) {
        if begun.is_sampled || !way.is_sampled() {
            self.record(way, range, begun.at, 1);
        }
    }

    fn record(&self, way: Way, range: ByteRange, begun: Instant, requests: u32) {
        let took = self.runtime.now().since(begun);
        self.all.borrow_mut().record(way, took, requests);
        let first = CoreBlock(range.start() / BLOCK_BYTES);
        let mut by_core = self.by_core.borrow_mut();
        let behind = by_core.partition_point(|(place, _)| place.first <= first);
        if let Some((_, times)) = behind.checked_sub(1).map(|index| &mut by_core[index]) {
            times.record(way, took, requests);
        }
        match way {
            Way::ReadHit => self.read_balance.note_cache(took),
            Way::WriteToCache => self.write_balance.note_cache(took),
            _ => {}
        }
    }

    /// Records the completion of a flush, which is for all cores.
    pub fn note_flush(&self, begun: Begun) {
        self.all.borrow_mut().record(Way::Flush, self.runtime.now().since(begun.at), 1);
    }

    /// The same of one that is timed only in its turn. On a way of which otherwise all are, it
    /// counts for those whose turn it was not.
    #[inline]
    pub fn note_sampled(&self, way: Way, range: ByteRange, sampled: Option<Instant>) {
        if let Some(at) = sampled {
            self.record(way, range, at, if way.is_sampled() { 1 } else { SAMPLE_EVERY });
        }
    }

    /// Records a bypassed request.
    pub fn note_around(&self, way: Way, range: ByteRange, begun: Begun) {
        self.note(way, range, begun);
        let now = self.runtime.now();
        let balance = match way {
            Way::ReadPastCache => &self.read_balance,
            _ => &self.write_balance,
        };
        balance.note_core(now.since(begun.at), now);
    }

    pub fn reset(&self) {
        self.all.borrow_mut().reset();
        self.by_core.borrow_mut().iter_mut().for_each(|(_, times)| times.reset());
    }

    pub fn snapshot(&self) -> LatencyStats {
        self.all.borrow().clone()
    }

    /// Of one of several cores.
    pub fn snapshot_of(&self, core: u16) -> Option<LatencyStats> {
        let by_core = self.by_core.borrow();
        by_core.iter().find(|(place, _)| place.core == core).map(|(_, times)| times.clone())
    }

    pub fn memory_bytes(&self) -> u64 {
        let by_core = self.by_core.borrow();
        let cores: u64 = by_core.iter().map(|(_, times)| times.memory_bytes()).sum();
        self.all.borrow().memory_bytes() + cores
    }
}

impl Turns {
    #[inline]
    fn take(&self) -> bool {
        let turn = self.0.get();
        self.0.set(turn.wrapping_add(1));
        turn.is_multiple_of(SAMPLE_EVERY)
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NANOS, DIGITS).expect("bounds that a histogram can have")
}

/// Latencies until now.
#[derive(Clone, Debug)]
pub struct LatencyStats(Vec<Histogram<u64>>);

/// Latencies of one path, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WayLatency {
    pub way: Way,
    /// Requests that were timed, or that a sample represents.
    pub timed: u64,
    /// One of so many requests is timed.
    pub one_of: u32,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
    /// Longest time of a bucket, and how many requests took that long; empty ones are left out.
    pub buckets: Vec<(f64, u64)>,
}

/// How long the requests of one path took, where a sample counts for all requests that it
/// represents.
#[derive(Clone, Debug, PartialEq)]
pub struct WayTimes {
    pub way: Way,
    pub requests: u64,
    pub sum_nanos: u128,
    /// Requests that took at most so long, for each bound that was asked for. A bound is a
    /// sixteenth off at most.
    pub at_most: Vec<u64>,
}

impl Default for LatencyStats {
    fn default() -> Self {
        Self(Way::ALL.map(|_| empty()).into())
    }
}

impl AddAssign<&LatencyStats> for LatencyStats {
    fn add_assign(&mut self, other: &LatencyStats) {
        for (sum, other) in self.0.iter_mut().zip(&other.0) {
            sum.add(other).expect("all have the same bounds");
        }
    }
}

impl LatencyStats {
    fn record(&mut self, way: Way, took: Duration, requests: u32) {
        let times = &mut self.0[way as usize];
        times.saturating_record_n(took.as_nanos() as u64, u64::from(requests));
    }

    fn reset(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }

    fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|way| (way.distinct_values() * size_of::<u64>()) as u64).sum()
    }

    /// The paths of requests.
    pub fn ways(&self) -> Vec<WayLatency> {
        let used = Way::ALL.into_iter().zip(&self.0).filter(|(_, times)| !times.is_empty());
        used.map(|(way, times)| told(way, times)).collect()
    }

    /// Every path, the unused ones as well, by these bounds.
    pub fn times(&self, bounds: &[Duration]) -> Vec<WayTimes> {
        let times = |(way, times)| times_by(way, times, bounds);
        Way::ALL.into_iter().zip(&self.0).map(times).collect()
    }

    /// Requests that took at least so long, or that a sample represents.
    pub fn as_long_as(&self, time: Duration) -> Vec<(Way, u64)> {
        let nanos = (time.as_nanos() as u64).min(LONGEST_NANOS);
        let count = |times: &Histogram<u64>| times.count_between(nanos, LONGEST_NANOS);
        Way::ALL.into_iter().zip(self.0.iter().map(count)).collect()
    }
}

/// Whole numbers: sums that only ever rise must not fall by a rounding error.
fn times_by(way: Way, times: &Histogram<u64>, bounds: &[Duration]) -> WayTimes {
    let each = if way.is_sampled() { u64::from(SAMPLE_EVERY) } else { 1 };
    let sum = |at: IterationValue<u64>| {
        let middle = times.median_equivalent(at.value_iterated_to());
        u128::from(middle) * u128::from(at.count_at_value())
    };
    let at_most = |bound: &Duration| {
        let nanos = (bound.as_nanos() as u64).min(LONGEST_NANOS);
        times.count_between(0, nanos) * each
    };
    WayTimes {
        way,
        requests: times.len() * each,
        sum_nanos: times.iter_recorded().map(sum).sum::<u128>() * u128::from(each),
        at_most: bounds.iter().map(at_most).collect(),
    }
}

fn told(way: Way, times: &Histogram<u64>) -> WayLatency {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let quantile = |share| micros(times.value_at_quantile(share).min(times.max()));
    let buckets = times.iter_recorded();
    WayLatency {
        way,
        timed: times.len(),
        one_of: if way.is_sampled() { SAMPLE_EVERY } else { 1 },
        mean_us: times.mean() / 1000.0,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p99_9_us: quantile(0.999),
        max_us: micros(times.max()),
        buckets: buckets
            .map(|at| (micros(at.value_iterated_to()), at.count_since_last_iteration()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_that_alternate_are_both_timed() {
        let (reads, writes) = (Turns::default(), Turns::default());
        let mut timed = [0, 0];
        for _ in 0..10 * SAMPLE_EVERY {
            timed[0] += u32::from(reads.take());
            timed[1] += u32::from(writes.take());
        }
        assert_eq!(timed, [10, 10]);
    }

    #[test]
    fn requests_that_took_long_are_counted_by_their_path() {
        let mut all = LatencyStats::default();
        for (way, millis) in [(Way::Flush, 1), (Way::Flush, 1500), (Way::ReadMiss, 20_000_000)] {
            all.record(way, Duration::from_millis(millis), 1);
        }
        let long = all.as_long_as(Duration::from_secs(1));
        let found: Vec<_> = long.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [(Way::ReadMiss, 1), (Way::Flush, 1)], "the first is past the maximum");
    }

    #[test]
    fn times_are_counted_up_to_each_bound_and_a_sample_counts_for_those_it_represents() {
        let mut all = LatencyStats::default();
        for (way, micros, requests) in
            [(Way::ReadMiss, 500, 1), (Way::ReadMiss, 20_000, 32), (Way::ReadHit, 20, 1)]
        {
            all.record(way, Duration::from_micros(micros), requests);
        }
        let bounds = [10, 1000, 100_000].map(Duration::from_micros);
        let times = all.times(&bounds);
        assert_eq!(times.len(), Way::ALL.len());
        let of = |way| times.iter().find(|it| it.way == way).unwrap();
        assert_eq!(
            (of(Way::ReadMiss).requests, &of(Way::ReadMiss).at_most[..]),
            (33, &[0, 1, 33][..])
        );
        assert_eq!(
            (of(Way::ReadHit).requests, &of(Way::ReadHit).at_most[..]),
            (32, &[0, 32, 32][..])
        );
        assert_eq!((of(Way::Flush).requests, of(Way::Flush).sum_nanos), (0, 0));
        let seconds = of(Way::ReadMiss).sum_nanos as f64 / 1e9;
        assert!((seconds / 0.6405 - 1.0).abs() < 1.0 / 16.0, "{seconds}");
    }

    #[test]
    fn quantiles_are_a_sixteenth_off_at_most_and_buckets_add_up() {
        let mut all = LatencyStats::default();
        for nanos in 1..=100_000_u64 {
            all.0[Way::Flush as usize].record(nanos).unwrap();
        }
        let both = all.clone();
        all += &both;
        let [flush] = &all.ways()[..] else { panic!("one way") };
        assert_eq!((flush.way, flush.timed), (Way::Flush, 200_000));
        for (found, right) in [(flush.p50_us, 50.0), (flush.p99_us, 99.0), (flush.mean_us, 50.0)] {
            assert!((found / right - 1.0).abs() < 1.0 / 16.0, "{found} is not {right}");
        }
        assert!(flush.p99_us <= flush.max_us);
        assert_eq!(flush.buckets.iter().map(|bucket| bucket.1).sum::<u64>(), 200_000);
    }
}
