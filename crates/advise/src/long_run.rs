//! What a workload does in the long run: the requests of a sample again and again, as they would
//! come if the trace went on.
//!
//! A cache is empty once and then full for years, so what counts is how it serves when it has the
//! state that the workload leaves it in. That takes more requests than a trace has. Addresses lie
//! in *places*, stretches of the volume with nothing between them and the next; in each,
//!
//! - what came back in the second half of the sample, to blocks of anywhere in the trace, comes
//!   back in every round;
//! - where the second half went on to new blocks, the next round goes on to new ones too: elsewhere
//!   on the volume where the place is full (a stream that writes on and on), and within the place
//!   where there is room (random blocks of a file).
//!
//! The cache of a replay need not be as large as the real one: it holds a round and what is new in
//! the next, so whatever comes back in each round is found; and where the blocks that will be
//! touched have no room in the real one, it is so small that some rounds fill it.
//!
//! Who cleans nothing, or only what is old, has a cache full of dirty data in the long run, and not
//! after some rounds of which a part is writes. For them it is *filled*: there are more rounds.
//!
//! **Invariants**: rounds are in order of issue; the one that counts, the last, has the addresses
//! of the sample.

use crate::sample::{Sample, at};
use foldhash::fast::FixedState;
use headpond_trace::{Op, TraceRecord};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const BLOCK_BYTES: u64 = 4096;
/// What lies nearer than this belongs to one place.
const PLACE_BYTES: u64 = 64 << 20;
/// A place with more of its blocks touched is full.
const FULL_SHARE: f64 = 0.5;
/// Of what the second half touched in a place, so much was new where a workload goes on.
const NEW_SHARE: f64 = 0.5;
/// Of a place, what it moves by in each round: multiples of it, modulo one, never come back.
const STEP: f64 = std::f64::consts::SQRT_2 - 1.0;

/// Blocks that are remembered one by one.
const GRAINS_MAX: u64 = 4 << 20;

/// A place of more rows is large enough to move by whole ones.
const ROWS_MIN: u64 = 64;

/// Smallest cache that is replayed.
const CACHE_BYTES_MIN: u64 = 16 << 20;
const WARM_ROUNDS_MIN: u64 = 2;
const WARM_ROUNDS_MAX: u64 = 4;
/// Where the cache is filled with what is written.
const FILLING_ROUNDS_MAX: u64 = 16;

/// A sample, and how it goes on.
#[derive(Clone, Debug)]
pub struct LongRun {
    sample: Sample,
    places: BTreeMap<u64, VolumeRange>,
    volume: Volume,
    sums: Sums,
    /// What is touched when the sample has gone on for long; nothing where there is no end.
    reach_bytes: Option<u64>,
}

/// Blocks of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    touched_bytes: u64,
    /// Of that, what no earlier round had.
    new_bytes: u64,
    /// Of the latter, what is written.
    new_written_bytes: u64,
}

/// The volume that a workload runs on.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub bytes: u64,
    /// Of a row of full stripes: what is moved keeps its place in them.
    pub row_bytes: u64,
}

/// A replay of some rounds.
#[derive(Clone, Debug)]
pub struct Rounds {
    pub records: Arc<[TraceRecord]>,
    /// Before the round that counts.
    pub warm_up: usize,
    /// Of the cache, where there is one.
    pub cache_bytes: u64,
    /// All that the workload will ever touch has room in the cache: what is dirty need not be
    /// cleaned for anything.
    pub has_room: bool,
}

/// How much comes before the round that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmUp {
    /// What brings a cache that is cleaned into its state.
    #[default]
    Usual,
    /// As much as fills it with dirty data.
    Filling,
}

/// A stretch of the volume.
#[derive(Clone, Copy, Debug, PartialEq)]
struct VolumeRange {
    start: u64,
    end: u64,
    goes_on: GoesOn,
}

/// What a place has in the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoesOn {
    Same,
    Within,
    Elsewhere,
}

/// What was seen of a place.
#[derive(Clone, Copy, Debug, Default)]
struct RangeTotals {
    start: u64,
    end: u64,
    touched: u64,
    /// Of that, by writes before anything else.
    written: u64,
    /// Of the second half.
    asked: u64,
    new: u64,
    /// In which all that is counted.
    grain_bytes: u64,
}

impl LongRun {
    /// Of a sample, on a volume.
    pub fn of(sample: Sample, volume: Volume) -> Self {
        let volume_bytes = volume.bytes;
        let seen = look(&sample, volume_bytes);
        let sum = |pick: fn(&RangeTotals) -> u64| seen.iter().map(pick).sum::<u64>();
        let is_new = sum(|it| it.new) as f64 > NEW_SHARE * sum(|it| it.asked) as f64;
        let (mut sums, mut reach_bytes) = (Sums::default(), Some(0_u64));
        let mut places = BTreeMap::new();
        for it in &seen {
            let goes_on = it.goes_on(is_new);
            sums.add(it, goes_on);
            let reach = match goes_on {
                GoesOn::Same => Some(it.touched * it.grain_bytes),
                GoesOn::Within => Some(it.end - it.start),
                GoesOn::Elsewhere => None,
            };
            reach_bytes = reach_bytes.zip(reach).map(|(sum, more)| sum + more);
            places.insert(it.start, VolumeRange { start: it.start, end: it.end, goes_on });
        }
        Self { sample, places, volume, sums, reach_bytes }
    }

    /// Requests of one round.
    pub fn requests(&self) -> usize {
        self.sample.records.len()
    }

    /// Of what is touched in a round, so much no earlier round touched.
    pub fn new_share(&self) -> f64 {
        self.sums.new_bytes as f64 / self.sums.touched_bytes.max(1) as f64
    }

    /// What is touched when it has gone on for long; nothing where there is no end.
    pub fn reach_bytes(&self) -> Option<u64> {
        self.reach_bytes
    }

    /// The same over fewer requests, which go on as those of the whole.
    pub fn shorter(&self, requests: usize) -> Self {
        let sample = self.sample.thinned(requests);
        let mut sums = Sums::default();
        for it in look(&sample, self.volume.bytes) {
            let place = self.places.range(..=it.start).next_back();
            sums.add(&it, place.map_or(GoesOn::Same, |(_, place)| place.goes_on));
        }
        Self { sample, places: self.places.clone(), sums, ..*self }
    }

    /// So many rounds that a cache of this size is in the state that it stays in, and one more,
    /// which counts; `of_bytes` is what the whole trace touches. However much comes before it, the
    /// round that counts is the same.
    pub fn rounds(&self, cache_bytes: u64, of_bytes: u64, warm_up: WarmUp) -> Rounds {
        let Sums { touched_bytes: round, new_bytes, new_written_bytes } = self.sums;
        let reach_bytes = self.reach_bytes.map(|reach| reach.max(of_bytes));
        let has_room = reach_bytes.is_some_and(|reach| reach < cache_bytes / 10 * 8);
        // A sample touches less than the trace, and so a cache of the same share must be smaller.
        let share = (round as f64 / of_bytes.max(1) as f64).min(1.0);
        let scaled = (cache_bytes as f64 * share) as u64;
        let (bytes, rounds) = if has_room {
            (5 * round + CACHE_BYTES_MIN, WARM_ROUNDS_MIN)
        } else {
            let bytes = (round + new_bytes + CACHE_BYTES_MIN).min(scaled.max(CACHE_BYTES_MIN));
            let rounds = bytes.div_ceil(new_bytes.max(1));
            (bytes, rounds.clamp(WARM_ROUNDS_MIN, WARM_ROUNDS_MAX))
        };
        let rounds = match warm_up {
            WarmUp::Filling if !has_room && new_written_bytes > 0 => {
                bytes.div_ceil(new_written_bytes).min(FILLING_ROUNDS_MAX).max(rounds)
            }
            _ => rounds,
        };
        Rounds {
            records: self.records(rounds + 1),
            warm_up: rounds as usize * self.requests(),
            cache_bytes: bytes.min(cache_bytes).next_multiple_of(1 << 20),
            has_room,
        }
    }

    /// So many rounds. Those before the last are elsewhere: which disks' zones the one that counts
    /// is in, and how far its requests lie apart, does not depend on how many there are.
    fn records(&self, rounds: u64) -> Arc<[TraceRecord]> {
        let records = &self.sample.records;
        // Clocks go back where a trace is not in order.
        let last_ns = records.iter().map(|record| record.issued_ns).max().unwrap_or(0);
        let round_ns = last_ns.saturating_add(last_ns / records.len().max(1) as u64);
        let moved = |number: u64, round: u64, record: &TraceRecord| {
            let issued_ns = record.issued_ns.saturating_add(number.saturating_mul(round_ns));
            let moved = at(record, issued_ns);
            TraceRecord { offset_bytes: self.offset(round, record), ..moved }
        };
        (0..)
            .zip((0..rounds).rev())
            .flat_map(|(number, round)| {
                records.iter().map(move |record| moved(number, round, record))
            })
            .collect()
    }

    /// Where a request goes in a round.
    fn offset(&self, round: u64, record: &TraceRecord) -> u64 {
        let (start, length) = placed(record, self.volume.bytes);
        let place = self.places.range(..=start).next_back().map(|(_, place)| place);
        let Some(place) = place.filter(|place| start < place.end) else { return start };
        let (from, span) = match place.goes_on {
            GoesOn::Same => return start,
            GoesOn::Within => (place.start, place.end - place.start),
            GoesOn::Elsewhere => (0, self.volume.bytes),
        };
        let row_bytes = self.volume.row_bytes.max(BLOCK_BYTES);
        let step = if span > ROWS_MIN * row_bytes { row_bytes } else { BLOCK_BYTES };
        let steps = (span / step).max(1);
        let moved = ((steps as f64 * STEP) as u64).wrapping_mul(round) % steps * step;
        let whole = steps * step;
        let offset = (start - from) % whole;
        let offset =
            if offset >= whole - moved { offset - (whole - moved) } else { offset + moved };
        from + offset.min(span.saturating_sub(length))
    }
}

impl Sums {
    fn add(&mut self, seen: &RangeTotals, goes_on: GoesOn) {
        self.touched_bytes += seen.touched * seen.grain_bytes;
        if goes_on != GoesOn::Same {
            self.new_bytes += seen.touched * seen.grain_bytes;
            self.new_written_bytes += seen.written * seen.grain_bytes;
        }
    }
}

impl RangeTotals {
    /// `is_new` is what holds of all places together, and so of one that the second half left out.
    fn goes_on(&self, is_new: bool) -> GoesOn {
        let is_new = match self.asked {
            0 => is_new,
            asked => self.new as f64 > NEW_SHARE * asked as f64,
        };
        let blocks = (self.end - self.start) / self.grain_bytes.max(1);
        match (is_new, self.touched as f64 > FULL_SHARE * blocks as f64) {
            (false, _) => GoesOn::Same,
            (true, false) => GoesOn::Within,
            (true, true) => GoesOn::Elsewhere,
        }
    }
}

/// The range of a request, on a volume that may be smaller than the one it was recorded on.
fn placed(record: &TraceRecord, volume_bytes: u64) -> (u64, u64) {
    let volume = volume_bytes.max(BLOCK_BYTES);
    let length = record.length_bytes.min(volume);
    let is_inside = record.end_bytes() <= volume;
    let start = if is_inside { record.offset_bytes } else { record.offset_bytes % volume };
    (start.min(volume - length), length)
}

/// The places of some requests, in order of address; what is discarded is not asked for.
fn look(sample: &Sample, volume_bytes: u64) -> Vec<RangeTotals> {
    let records = &sample.records;
    let grain_bytes = grain_bytes(records);
    let mut grains: HashSet<u64, FixedState> = HashSet::default();
    let mut regions: BTreeMap<u64, RangeTotals> = BTreeMap::new();
    let numbered = records.iter().zip(&sample.again).enumerate();
    let touches = |it: &TraceRecord| it.length_bytes > 0 && it.op != Op::Discard;
    for (number, (record, again)) in numbered.filter(|(_, (it, _))| touches(it)) {
        let (start, length) = placed(record, volume_bytes);
        let is_second_half = number * 2 >= records.len();
        for grain in start / grain_bytes..(start + length).div_ceil(grain_bytes) {
            let is_new = grains.insert(grain);
            let offset = grain * grain_bytes;
            let seen = regions.entry(offset / PLACE_BYTES).or_insert(RangeTotals {
                start: offset,
                end: offset,
                grain_bytes,
                ..RangeTotals::default()
            });
            seen.start = seen.start.min(offset);
            seen.end = seen.end.max(offset + grain_bytes);
            seen.touched += u64::from(is_new);
            seen.written += u64::from(is_new && record.op == Op::Write);
            seen.asked += u64::from(is_second_half);
            seen.new += u64::from(is_second_half && is_new && !again);
        }
    }
    join(regions.into_values())
}

/// Blocks, or more where so many of them are asked for that they could not all be remembered.
fn grain_bytes(records: &[TraceRecord]) -> u64 {
    let bytes = records.iter().fold(0_u64, |sum, record| sum.saturating_add(record.length_bytes));
    (bytes / GRAINS_MAX).next_power_of_two().max(BLOCK_BYTES)
}

/// Neighbours as one place.
fn join(regions: impl Iterator<Item = RangeTotals>) -> Vec<RangeTotals> {
    let mut places: Vec<RangeTotals> = Vec::new();
    for region in regions {
        match places.last_mut() {
            Some(last) if region.start - last.end < PLACE_BYTES => {
                last.end = region.end;
                last.touched += region.touched;
                last.written += region.written;
                last.asked += region.asked;
                last.new += region.new;
            }
            _ => places.push(region),
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Volume = Volume { bytes: 1 << 42, row_bytes: 640 << 10 };
    const HUGE: u64 = 1 << 50;

    fn run(blocks: impl IntoIterator<Item = u64>) -> LongRun {
        let records: Vec<TraceRecord> = blocks
            .into_iter()
            .enumerate()
            .map(|(n, block)| TraceRecord::new(n as u64 * 1000, Op::Write, block * 4096, 4096))
            .collect();
        let of_requests = records.len() as u64;
        let again = vec![false; records.len()];
        LongRun::of(Sample { records, again, of_requests, shortened: 0 }, VOLUME)
    }

    fn rounds_of(run: &LongRun) -> Vec<Vec<u64>> {
        let rounds = run.rounds(HUGE, run.sums.touched_bytes, WarmUp::Usual);
        let chunks = rounds.records.chunks(run.requests());
        chunks.map(|round| round.iter().map(|it| it.offset_bytes / 4096).collect()).collect()
    }

    fn scattered(count: u64, within: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % within)
    }

    #[test]
    fn what_came_back_comes_back_in_each_round() {
        let run = run((0..2000).map(|n| n % 500));
        assert_eq!(run.new_share(), 0.0);
        assert_eq!(run.reach_bytes(), Some(500 * 4096));
        let rounds = rounds_of(&run);
        assert!(rounds.len() >= 3 && rounds.iter().all(|round| *round == rounds[0]));
    }

    #[test]
    fn a_stream_goes_on_elsewhere_and_keeps_its_place_in_the_stripes() {
        let run = run(0..2000);
        assert_eq!((run.new_share(), run.reach_bytes()), (1.0, None));
        let rounds = rounds_of(&run);
        let mut starts: Vec<u64> = rounds.iter().map(|round| round[0]).collect();
        assert!(starts.iter().all(|start| start % 160 == 0), "rows of 640 KiB: {starts:?}");
        assert!(rounds.iter().all(|round| round.windows(2).all(|pair| pair[1] == pair[0] + 1)));
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > 2000), "{starts:?}");
    }

    #[test]
    fn random_blocks_of_a_file_stay_in_it_and_are_others_in_each_round() {
        let file = 100_000;
        let run = run(scattered(2000, file));
        assert!(run.new_share() > 0.99);
        let rounds = rounds_of(&run);
        assert!(rounds.iter().flatten().all(|block| *block < file));
        let first: HashSet<u64> = rounds[0].iter().copied().collect();
        let again = rounds[1].iter().filter(|block| first.contains(block)).count();
        assert!(again < 200, "{again}");
    }

    #[test]
    fn random_blocks_all_over_the_volume_do_not_come_back() {
        let rounds = rounds_of(&run(scattered(2000, VOLUME.bytes / 4096)));
        let all: Vec<u64> = rounds.iter().flatten().copied().collect();
        let distinct: HashSet<u64> = all.iter().copied().collect();
        assert!(distinct.len() > all.len() * 99 / 100, "{} of {}", distinct.len(), all.len());
    }

    #[test]
    fn a_cache_with_room_is_never_full_and_one_without_is_filled_by_the_warm_rounds() {
        let roomy = run((0..2000).map(|n| n % 500)).rounds(1 << 30, 500 * 4096, WarmUp::Usual);
        assert!(roomy.cache_bytes > 2 * 500 * 4096 && roomy.cache_bytes <= 1 << 30);
        let endless = run(0..50_000);
        let rounds = endless.rounds(1 << 40, endless.sums.touched_bytes, WarmUp::Usual);
        let warm_bytes = rounds.warm_up as u64 * 4096;
        assert!(warm_bytes >= rounds.cache_bytes, "{warm_bytes} {}", rounds.cache_bytes);
        let small = endless.rounds(100 << 20, endless.sums.touched_bytes, WarmUp::Usual);
        assert_eq!(small.cache_bytes, 100 << 20);
        let part =
            endless.shorter(5000).rounds(1 << 30, 100 * endless.sums.touched_bytes, WarmUp::Usual);
        assert!(part.cache_bytes <= 17 << 20, "a part of a part: {}", part.cache_bytes);
    }

    #[test]
    fn a_cache_is_filled_by_writes_alone_before_the_same_round() {
        let records: Vec<TraceRecord> = scattered(4000, VOLUME.bytes / 4096)
            .enumerate()
            .map(|(n, block)| {
                let op = if n.is_multiple_of(5) { Op::Write } else { Op::Read };
                TraceRecord::new(n as u64 * 1000, op, block * 4096, 4096)
            })
            .collect();
        let again = vec![false; 4000];
        let run = LongRun::of(Sample { records, again, of_requests: 4000, shortened: 0 }, VOLUME);
        let rounds = |warm_up| run.rounds(HUGE, run.sums.touched_bytes, warm_up);
        let (usual, filling) = (rounds(WarmUp::Usual), rounds(WarmUp::Filling));
        let written = |rounds: &Rounds| {
            let warm = rounds.records[..rounds.warm_up].iter().filter(|it| it.op == Op::Write);
            warm.map(|it| it.length_bytes).sum::<u64>()
        };
        assert!(written(&usual) < usual.cache_bytes / 2, "{}", written(&usual));
        assert!(written(&filling) >= filling.cache_bytes * 99 / 100, "{}", written(&filling));
        assert_eq!(usual.cache_bytes, filling.cache_bytes);
        let offsets = |rounds: &Rounds| -> Vec<u64> {
            rounds.records[rounds.warm_up..].iter().map(|it| it.offset_bytes).collect()
        };
        assert_eq!(offsets(&usual), offsets(&filling));
        assert!(filling.records.is_sorted_by_key(|record| record.issued_ns));
        let recorded = run.sample.records.iter().map(|record| record.offset_bytes);
        assert!(recorded.eq(offsets(&usual)), "as they were recorded");
    }

    #[test]
    fn what_is_discarded_is_not_asked_for() {
        let mut run = run((0..100).map(|n| n % 50));
        let mut sample = run.sample.clone();
        sample.records.push(TraceRecord::new(100_000, Op::Discard, 1 << 40, 16 << 20));
        sample.again.push(false);
        let with = LongRun::of(sample, VOLUME);
        assert_eq!((with.sums.touched_bytes, with.reach_bytes), (50 * 4096, Some(50 * 4096)));
        let rounds = with.rounds(HUGE, 50 * 4096, WarmUp::Usual);
        assert_eq!(rounds.records.last().unwrap().offset_bytes, 1 << 40);
        run.sample.records.clear();
        assert!(!run.sample.asks_for_data() && with.sample.asks_for_data());
    }

    #[test]
    fn a_clock_that_goes_back_or_to_its_end_does_no_harm() {
        let at = |ns| TraceRecord::new(ns, Op::Write, 0, 4096);
        for records in [vec![at(5), at(0)], vec![at(0), at(u64::MAX)]] {
            let sample = Sample { records, again: vec![false; 2], of_requests: 2, shortened: 0 };
            let rounds = LongRun::of(sample, VOLUME).rounds(HUGE, 4096, WarmUp::Usual);
            let times: Vec<u64> = rounds.records.iter().map(|it| it.issued_ns).collect();
            assert!(times[2] >= times[0].max(times[1]), "{times:?}");
        }
    }

    #[test]
    fn addresses_beyond_the_volume_and_no_requests_do_no_harm() {
        let far = run([u64::MAX / 4096 - 1, 0, u64::MAX / 8192]);
        assert!(rounds_of(&far).iter().flatten().all(|block| block * 4096 < VOLUME.bytes));
        let none = run([]);
        assert!(none.rounds(1 << 30, 0, WarmUp::Usual).records.is_empty());
    }
}
