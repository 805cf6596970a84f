//! As many requests of a trace as can be replayed often: all of a short one, stretches of equal
//! length and evenly spread of a long one. Of each it is known whether its block was met before
//! anywhere in the trace: what comes back after a while seldom does so within a sample.
//!
//! **Invariants**: one pass, bounded memory; what is kept of a trace depends on nothing but the
//! trace and the bound. What a sample asks for is bounded as well, in each request and in all.

use foldhash::fast::FixedState;
use headpond_report::{count, size};
use headpond_trace::{Op, RecordFlags, TraceRecord};
use std::hash::BuildHasher;

/// Stretches of which a sample has at most so many, and at least half as many where it is not the
/// whole trace.
const STRETCHES_MAX: usize = 20;

const BLOCK_BYTES: u64 = 4096;

/// A longer request is played as if it were that long. No kernel sends longer reads and writes to a
/// device; discards are as long as the device, and of those a replay sees no more than this.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// A sample asks for so much for each request that it may have. Where requests are longer it has
/// fewer: what a replay takes goes by blocks.
const MEAN_BYTES_MAX: u64 = 1 << 20;

/// 16 MiB: room for some forty million blocks.
const MET_WORDS: usize = 1 << 21;

/// Of a longer request no more blocks are remembered.
const MET_BLOCKS_MAX: u64 = 256;

/// Takes a sample.
pub struct Sampler {
    stretch_requests: usize,
    bytes_max: u64,
    /// With the place of each among all stretches of the trace.
    kept: Vec<(u64, Stretch)>,
    met: Met,
    /// Each how-many-th stretch is kept.
    stride: u64,
    seen: u64,
    shortened: u64,
}

/// Requests that follow each other in the trace.
#[derive(Clone, Debug, Default)]
struct Stretch {
    records: Vec<TraceRecord>,
    again: Vec<bool>,
}

/// Requests of a trace, in order of issue.
#[derive(Clone, Debug)]
pub struct Sample {
    pub records: Vec<TraceRecord>,
    /// Of each, whether the trace had met its first block before.
    pub again: Vec<bool>,
    /// Requests of the trace.
    pub of_requests: u64,
    /// Of those, what is longer than a replay plays.
    pub shortened: u64,
}

impl Sample {
    /// Whether there is anything that a cache could hold.
    pub fn asks_for_data(&self) -> bool {
        self.records.iter().any(|record| !matches!(record.op, Op::Flush | Op::Discard))
    }

    /// What a reader of the figures must know of.
    pub fn remarks(&self) -> Vec<String> {
        let remark = format!(
            "{} requests are longer than {}, and were played as if they were that long",
            count(self.shortened),
            size(REQUEST_BYTES_MAX)
        );
        (self.shortened > 0).then_some(remark).into_iter().collect()
    }

    /// About so many of its requests: the beginnings of stretches of equal length.
    #[must_use]
    pub fn thinned(&self, requests: usize) -> Self {
        let count = self.records.len();
        if requests >= count {
            return self.clone();
        }
        let stretches = STRETCHES_MAX.min(requests.max(1));
        let kept = requests.div_ceil(stretches);
        let bounds = |number: usize| number * count / stretches;
        let range = |number| {
            let (from, end) = (bounds(number), bounds(number + 1));
            from..(from + kept).min(end)
        };
        let ranges = || (0..stretches).map(range);
        let stretches: Vec<&[TraceRecord]> = ranges().map(|range| &self.records[range]).collect();
        let again = ranges().flat_map(|range| self.again[range].iter().copied());
        let again = again.collect();
        Self { records: joined(&stretches), again, ..*self }
    }

    /// With so few requests that they do not ask for more.
    fn within(mut self, bytes_max: u64) -> Self {
        loop {
            let bytes: u64 = self.records.iter().map(|record| record.length_bytes).sum();
            let requests = self.records.len();
            if bytes <= bytes_max || requests <= 1 {
                return self;
            }
            let share = bytes_max as f64 / bytes as f64;
            let fewer = ((requests as f64 * share) as usize).clamp(1, requests - 1);
            // As many of each stretch, or one of each: always fewer than before.
            let whole = fewer / STRETCHES_MAX * STRETCHES_MAX;
            self = self.thinned(if whole > 0 { whole } else { fewer });
            assert!(self.records.len() < requests, "it ends");
        }
    }
}

/// Stretches one after the other, with the mean gap of their requests in between.
pub(crate) fn joined(stretches: &[&[TraceRecord]]) -> Vec<TraceRecord> {
    let span = |records: &[TraceRecord]| match (records.first(), records.last()) {
        (Some(first), Some(last)) => last.issued_ns.saturating_sub(first.issued_ns),
        _ => 0,
    };
    let spans = stretches.iter().map(|records| span(records)).fold(0_u64, u64::saturating_add);
    let gaps: usize = stretches.iter().map(|records| records.len().saturating_sub(1)).sum();
    let gap_ns = spans / gaps.max(1) as u64;
    let mut all: Vec<TraceRecord> = Vec::new();
    for stretch in stretches {
        let first_ns = stretch.first().map_or(0, |record| record.issued_ns);
        let from_ns = all.last().map_or(0, |last| last.issued_ns.saturating_add(gap_ns));
        let moved = |record: &TraceRecord| {
            at(record, from_ns.saturating_add(record.issued_ns.saturating_sub(first_ns)))
        };
        all.extend(stretch.iter().map(moved));
    }
    all
}

impl Sampler {
    /// Of at most about so many requests.
    pub fn new(requests_max: usize) -> Self {
        let stretch_requests = (requests_max / STRETCHES_MAX).max(1);
        let bytes_max = requests_max as u64 * MEAN_BYTES_MAX;
        let (kept, met) = (Vec::new(), Met::default());
        Self { stretch_requests, bytes_max, kept, met, stride: 1, seen: 0, shortened: 0 }
    }

    /// Looks at the next request of the trace; what is told to come again, or asks for nothing,
    /// does not count.
    pub fn add(&mut self, record: &TraceRecord) {
        let is_empty = record.length_bytes == 0 && record.op != Op::Flush;
        if is_empty || record.flags.contains(RecordFlags::RETRIED) {
            return;
        }
        self.shortened += u64::from(record.length_bytes > REQUEST_BYTES_MAX);
        let length_bytes = record.length_bytes.min(REQUEST_BYTES_MAX);
        let record = &TraceRecord { length_bytes, ..*record };
        let stretch = self.seen / self.stretch_requests as u64;
        self.seen += 1;
        let again = self.met.insert(record);
        if !stretch.is_multiple_of(self.stride) {
            return;
        }
        match self.kept.last_mut() {
            Some((last, kept)) if *last == stretch => kept.push(*record, again),
            _ => self.begin(stretch, *record, again),
        }
    }

    pub fn finish(self) -> Sample {
        let stretches: Vec<&[TraceRecord]> =
            self.kept.iter().map(|(_, stretch)| stretch.records.as_slice()).collect();
        let again = self.kept.iter().flat_map(|(_, stretch)| stretch.again.iter().copied());
        let (of_requests, shortened) = (self.seen, self.shortened);
        let records = joined(&stretches);
        let whole = Sample { records, again: again.collect(), of_requests, shortened };
        whole.within(self.bytes_max)
    }

    fn begin(&mut self, stretch: u64, record: TraceRecord, again: bool) {
        if self.kept.len() == STRETCHES_MAX {
            self.stride *= 2;
            let stride = self.stride;
            self.kept.retain(|(kept, _)| kept % stride == 0);
        }
        if stretch.is_multiple_of(self.stride) {
            let mut begun = Stretch::default();
            begun.push(record, again);
            self.kept.push((stretch, begun));
        }
    }
}

impl Stretch {
    fn push(&mut self, record: TraceRecord, again: bool) {
        self.records.push(record);
        self.again.push(again);
    }
}

/// The blocks that a trace has met: a Bloom filter of two bits in one word (Putze, Sanders and
/// Singler 2007), so that it may be of any length in little memory. One block in some hundred
/// seems to have been met that was not, and one in four when it is full; then it says no more.
struct Met {
    words: Vec<u64>,
    bits: u64,
}

impl Default for Met {
    fn default() -> Self {
        Self { words: vec![0; MET_WORDS], bits: 0 }
    }
}

impl Met {
    /// Whether the first block of a request was met before.
    fn insert(&mut self, record: &TraceRecord) -> bool {
        let first = record.offset_bytes / BLOCK_BYTES;
        let blocks = record.length_bytes.div_ceil(BLOCK_BYTES).min(MET_BLOCKS_MAX);
        if self.bits > MET_WORDS as u64 * u64::from(u64::BITS) / 2 || blocks == 0 {
            return false;
        }
        let is_again = self.insert_block(first);
        (1..blocks).for_each(|block| {
            self.insert_block(first.wrapping_add(block));
        });
        is_again
    }

    fn insert_block(&mut self, block: u64) -> bool {
        let hash = FixedState::default().hash_one(block);
        let word = &mut self.words[(hash >> 32) as usize % MET_WORDS];
        let mask = 1 << (hash & 63) | 1 << (hash >> 6 & 63);
        let is_again = *word & mask == mask;
        self.bits += u64::from((mask & !*word).count_ones());
        *word |= mask;
        is_again
    }
}

/// The record, issued at another time.
pub(crate) fn at(record: &TraceRecord, issued_ns: u64) -> TraceRecord {
    let moved = |at_ns: u64| at_ns.saturating_sub(record.issued_ns).saturating_add(issued_ns);
    TraceRecord {
        issued_ns,
        dispatched_ns: record.dispatched_ns.map(moved),
        completed_ns: record.completed_ns.map(moved),
        ..*record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_trace::Op;

    fn sample(requests: u64, max: usize) -> Sample {
        let mut sampler = Sampler::new(max);
        for number in 0..requests {
            let mut record = TraceRecord::new(number * 1000, Op::Read, number * 4096, 4096);
            record.completed_ns = Some(number * 1000 + 500);
            sampler.add(&record);
        }
        sampler.finish()
    }

    #[test]
    fn a_short_trace_is_its_own_sample() {
        let sample = sample(150, 200);
        assert_eq!((sample.records.len(), sample.of_requests), (150, 150));
        let is_same = |(number, record): (usize, &TraceRecord)| {
            let issued_ns = number as u64 * 1000;
            (record.issued_ns, record.completed_ns) == (issued_ns, Some(issued_ns + 500))
        };
        assert!(sample.records.iter().enumerate().all(is_same));
    }

    #[test]
    fn of_a_long_trace_there_are_stretches_from_beginning_to_end_without_gaps() {
        let sample = sample(100_000, 200);
        assert!((100..=200).contains(&sample.records.len()), "{}", sample.records.len());
        assert_eq!(sample.of_requests, 100_000);
        let places: Vec<u64> = sample.records.iter().map(|it| it.offset_bytes / 4096).collect();
        assert!(places[0] == 0 && *places.last().unwrap() > 80_000);
        assert!(places.chunks(10).all(|stretch| stretch[0] + 9 == stretch[9]));
        let times: Vec<u64> = sample.records.iter().map(|record| record.issued_ns).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1000));
    }

    #[test]
    fn a_thinner_sample_is_of_all_of_it() {
        let whole = sample(1000, 1000);
        let thin = whole.thinned(100);
        assert_eq!((thin.records.len(), thin.of_requests), (100, 1000));
        let places: Vec<u64> = thin.records.iter().map(|it| it.offset_bytes / 4096).collect();
        assert_eq!((places[0], places[5], places[99]), (0, 50, 954));
        assert_eq!(whole.thinned(5000).records, whole.records);
        assert!(thin.thinned(0).records.len() <= 1);
    }

    #[test]
    fn what_comes_back_after_long_is_known_to_come_back() {
        let mut sampler = Sampler::new(200);
        for number in 0..40_000_u64 {
            let block = number * 7919 % 20_000;
            sampler.add(&TraceRecord::new(number * 1000, Op::Read, block * 4096, 4096));
        }
        let sample = sampler.finish();
        let again = |half: &[bool]| half.iter().filter(|again| **again).count();
        let (first, second) = sample.again.split_at(sample.again.len() / 2);
        assert_eq!(again(second), second.len());
        assert!(again(first) < first.len() / 20, "{}", again(first));
        let thin = sample.thinned(20);
        assert_eq!((thin.again.len(), again(&thin.again[..9])), (thin.records.len(), 0));
    }

    #[test]
    fn a_filter_that_is_full_says_nothing_comes_back() {
        let mut met = Met { words: vec![u64::MAX; MET_WORDS], bits: MET_WORDS as u64 * 64 };
        assert!(!met.insert(&TraceRecord::new(0, Op::Read, 0, 4096)));
        assert!(!met.insert(&TraceRecord::new(0, Op::Flush, 0, 0)));
    }

    #[test]
    fn requests_without_end_are_cut_and_long_ones_are_fewer() {
        let mut sampler = Sampler::new(2000);
        sampler.add(&TraceRecord::new(0, Op::Write, 4096, u64::MAX - 4096));
        sampler.add(&TraceRecord::new(1, Op::Discard, 0, 100 << 30));
        sampler.add(&TraceRecord::new(2, Op::Read, 0, 0));
        let sample = sampler.finish();
        let lengths: Vec<u64> = sample.records.iter().map(|it| it.length_bytes).collect();
        assert_eq!((lengths, sample.shortened), (vec![16 << 20; 2], 2));
        assert!(sample.remarks()[0].starts_with("2 requests are longer than 16 MiB"));
        let mut sampler = Sampler::new(2000);
        (0..2000).for_each(|n| sampler.add(&TraceRecord::new(n, Op::Write, n << 23, 8 << 20)));
        let sample = sampler.finish();
        let bytes: u64 = sample.records.iter().map(|it| it.length_bytes).sum();
        assert!((1000 << 20..=2000 << 20).contains(&bytes), "{bytes}");
        assert_eq!((sample.records.len(), sample.of_requests), (sample.again.len(), 2000));
        assert!(sample.remarks().is_empty());
    }

    #[test]
    fn what_comes_again_and_a_clock_at_its_end_do_no_harm() {
        let mut sampler = Sampler::new(100);
        let mut retried = TraceRecord::new(u64::MAX - 5, Op::Read, 0, 4096);
        retried.flags = RecordFlags::RETRIED;
        sampler.add(&retried);
        sampler.add(&TraceRecord::new(u64::MAX - 1, Op::Read, 0, 4096));
        sampler.add(&TraceRecord::new(u64::MAX, Op::Read, 0, 4096));
        assert_eq!(sampler.finish().records.len(), 2);
        assert!(Sampler::new(100).finish().records.is_empty());
    }
}
