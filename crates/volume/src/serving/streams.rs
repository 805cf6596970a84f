//! Recognising sequential streams among interleaved requests.
//!
//! Streams are told apart by address and direction alone: a request that starts where an earlier
//! one ended continues its run, whoever sent it. Requests of one stream may come slightly out of
//! order, as they do at queue depth: a request that fits before a young run joins it from below,
//! and one that closes the gap between two runs makes one of them.
//!
//! A run is young until it has had so many requests as the promotion count says, or is longer than
//! the cutoff. Every random request begins a run, so the young ones displace each other, the one
//! silent longest first; a run that is grown is displaced by grown ones only.
//!
//! **Source**: the two tables, promotion by count or length and the sizes follow Open CAS's
//! sequential cutoff; it keeps the young streams for each queue and knows no reordering.

mod ages;
mod index;
#[cfg(test)]
mod twin;

use crate::description::cutoff::StreamPromotion;
use ages::{Ages, Links};
use headpond_block::ByteRange;
use index::{Edge, Index, Key};
use std::collections::BTreeSet;

/// Runs of each age followed at a time.
const YOUNG_MAX: usize = 256;
const GROWN_MAX: usize = 256;
const RUNS_MAX: usize = YOUNG_MAX + GROWN_MAX;
/// Requests that a run may have had when one still joins it from below: what is further out of
/// order, or a reader that goes backwards, is no stream.
const REORDERED_MAX: u32 = 16;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Read,
    Write,
}

/// The run that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The same number for all requests of a run that come in order, and for no other run.
    pub stream: u64,
    /// Length of the contiguous run, the request included.
    pub bytes: u64,
    pub requests: u32,
    /// Where the run ends by now.
    pub end: u64,
}

/// Remembers where recent requests ended, and how long each contiguous run is by now.
#[derive(Default)]
pub struct StreamTable {
    runs: Vec<Run>,
    free: Vec<usize>,
    index: Index,
    young: Ages,
    grown: Ages,
    clock: u64,
}

#[derive(Clone, Copy)]
struct Run {
    range: ByteRange,
    stream: u64,
    requests: u32,
    direction: Direction,
    is_grown: bool,
    /// Its neighbours among the runs of its age.
    links: Links,
}

impl StreamTable {
    /// The run that `range` belongs to, itself included.
    pub fn observe(
        &mut self,
        range: ByteRange,
        direction: Direction,
        stream_promotion: StreamPromotion,
    ) -> Sighting {
        self.clock += 1;
        let [start, end] = [range.start(), range.end()].map(|at| Key::new(at, direction));
        let before = self.index.find(start, Edge::End, &self.runs);
        let is_young = |at: &usize| {
            let run = &self.runs[*at];
            run.requests <= REORDERED_MAX && !run.is_grown && Some(*at) != before
        };
        let after = self.index.find(end, Edge::Start, &self.runs).filter(is_young);
        let mut run = Run {
            range,
            stream: self.clock,
            requests: 1,
            direction,
            is_grown: false,
            links: Links::default(),
        };
        let has_neighbour = before.is_some() || after.is_some();
        if !has_neighbour && let Some(known) = self.index.find(end, Edge::End, &self.runs) {
            // The end of a run once more: the run itself goes on from there.
            let known = self.remove(known);
            self.insert(known);
            return run.sighting();
        }
        for part in [after, before].into_iter().flatten() {
            run = run.joined(self.remove(part));
        }
        if has_neighbour {
            let end = Key::new(run.range.end(), direction);
            if let Some(same) = self.index.find(end, Edge::End, &self.runs) {
                self.remove(same);
            }
        }
        run.is_grown |=
            run.requests >= stream_promotion.requests || run.range.len() > stream_promotion.bytes;
        self.insert(run);
        run.sighting()
    }

    /// Checks that each run is found by where it ends, and by its age; for tests and simulation.
    ///
    /// # Panics
    /// Where one is not.
    pub fn self_check(&self) {
        let mut used = BTreeSet::new();
        for (ages, is_grown, most) in
            [(&self.young, false, YOUNG_MAX), (&self.grown, true, GROWN_MAX)]
        {
            assert!(ages.len() <= most, "so many runs are followed and no more");
            let mut count = 0;
            for at in ages.oldest_first(&self.runs) {
                let run = &self.runs[at];
                assert!(used.insert(at), "a run has one age");
                let is_it = run.is_grown == is_grown && run.stream <= self.clock;
                assert!(is_it, "a run is of its age, and has begun");
                let end = Key::new(run.range.end(), run.direction);
                let found = self.index.find(end, Edge::End, &self.runs);
                assert_eq!(found, Some(at), "a run is found by its end");
                count += 1;
            }
            assert_eq!(count, ages.len(), "runs of an age are counted");
        }
        assert_eq!(self.index.runs(Edge::End).count(), used.len(), "an end has a run");
        let mut started = BTreeSet::new();
        for at in self.index.runs(Edge::Start) {
            let start = Key::new(self.runs[at].range.start(), self.runs[at].direction);
            let is_found = self.index.find(start, Edge::Start, &self.runs) == Some(at);
            let is_it = used.contains(&at) && started.insert(at) && is_found;
            assert!(is_it, "a start has a run");
        }
        let free: BTreeSet<usize> = self.free.iter().copied().collect();
        let is_whole = free.len() == self.free.len() && free.is_disjoint(&used);
        assert!(is_whole && free.len() + used.len() == self.runs.len(), "a place is free or used");
    }

    fn insert(&mut self, run: Run) {
        let (ages, most) = match run.is_grown {
            true => (&self.grown, GROWN_MAX),
            false => (&self.young, YOUNG_MAX),
        };
        if ages.len() == most {
            self.remove(ages.oldest().expect("it is full"));
        }
        let at = self.free.pop().unwrap_or(self.runs.len());
        match self.runs.get_mut(at) {
            Some(place) => *place = run,
            None => self.runs.push(run),
        }
        let [start, end] = run.edges();
        self.index.insert_new(end, Edge::End, at);
        // Of two runs with one start, the later one may still be joined from below.
        self.index.insert(start, Edge::Start, at, &self.runs);
        let ages = if run.is_grown { &mut self.grown } else { &mut self.young };
        ages.push(at, &mut self.runs);
    }

    fn remove(&mut self, at: usize) -> Run {
        let run = self.runs[at];
        let [start, end] = run.edges();
        assert!(self.index.remove(end, Edge::End, at), "a run is found by its end");
        self.index.remove(start, Edge::Start, at);
        let ages = if run.is_grown { &mut self.grown } else { &mut self.young };
        ages.remove(at, &mut self.runs);
        self.free.push(at);
        run
    }
}

impl Run {
    fn edges(&self) -> [Key; 2] {
        [self.range.start(), self.range.end()].map(|at| Key::new(at, self.direction))
    }

    /// This run and an earlier one beside it, as one.
    fn joined(self, other: Run) -> Run {
        let start = self.range.start().min(other.range.start());
        let end = self.range.end().max(other.range.end());
        Run {
            range: ByteRange::between(start, end),
            stream: other.stream,
            requests: self.requests.saturating_add(other.requests),
            is_grown: self.is_grown || other.is_grown,
            ..self
        }
    }

    fn sighting(&self) -> Sighting {
        let Run { stream, requests, range, .. } = *self;
        Sighting { stream, bytes: range.len(), requests, end: range.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::twin::NaiveTable;
    use super::*;
    use headpond_testkit::{Break, assert_trips};
    use headpond_trace::{Damage, Op, ReadOptions, TraceReader};
    use proptest::prelude::*;

    const PROMOTION: StreamPromotion = StreamPromotion { requests: 8, bytes: 1 << 20 };
    const KIB: u64 = 1 << 10;
    /// The twin searches hundreds of runs for each.
    const TRACE_REQUESTS_MAX: usize = 100_000;
    const TRACES: [&str; 6] = [
        "headpond-vm/vda.bin",
        "blktrace/takeoverjp-sample.blktrace.0",
        "cloudphysics/cloudPhysicsIO.vscsi.zst",
        "disksim-valid/atlas_III.trace.zst",
        "blkreplay/linux-webserver-2.load.gz",
        "mqsim/tpcc-small.trace.zst",
    ];

    fn bytes(table: &mut StreamTable, start: u64, len: u64) -> u64 {
        table.observe(ByteRange::at(start, len), Direction::Read, PROMOTION).bytes
    }

    #[test]
    fn check_notices_what_is_wrong_with_runs() {
        let make = || {
            let mut table = StreamTable::default();
            (0..10).for_each(|step| _ = bytes(&mut table, step * 4096, 4096));
            (1..4).for_each(|random| _ = bytes(&mut table, random << 30, 4096));
            table
        };
        fn key() -> Key {
            Key::new(7, Direction::Write)
        }
        let breaks: [Break<StreamTable>; 7] = [
            ("a run has one age", |it| it.grown = it.young),
            ("has begun", |it| it.clock = 1),
            ("found by its end", |it| it.index = Index::default()),
            ("are counted", |it| it.young = it.young.counted_as(2)),
            ("an end has a run", |it| it.index.insert(key(), Edge::End, 0, &it.runs)),
            ("a start has a run", |it| it.index.insert(key(), Edge::Start, 0, &it.runs)),
            ("a place is free or used", |it| it.free.push(it.runs.len() - 1)),
        ];
        assert_trips(make, StreamTable::self_check, &breaks);
    }

    #[test]
    fn interleaved_streams_are_told_apart_from_random_requests() {
        let mut table = StreamTable::default();
        for step in 0..10 {
            let first = bytes(&mut table, step * 4096, 4096);
            let second = bytes(&mut table, (1 << 30) + step * 65536, 65536);
            let random = bytes(&mut table, (1 << 40) + step * 999_424, 4096);
            assert_eq!((first, second), ((step + 1) * 4096, (step + 1) * 65536));
            assert_eq!(random, 4096);
        }
    }

    #[test]
    fn a_young_stream_that_fell_silent_makes_room() {
        let mut table = StreamTable::default();
        bytes(&mut table, 0, 4096);
        for other in 1..=YOUNG_MAX as u64 {
            bytes(&mut table, other << 30, 4096);
        }
        assert_eq!(bytes(&mut table, 4096, 4096), 4096);
    }

    #[test]
    fn a_grown_stream_survives_any_number_of_random_requests() {
        let mut table = StreamTable::default();
        (0..8).for_each(|step| assert!(bytes(&mut table, step * 4096, 4096) > 0));
        bytes(&mut table, 1 << 50, 2 << 20);
        for other in 1..10_000u64 {
            bytes(&mut table, other << 30, 4096);
        }
        assert_eq!(bytes(&mut table, 8 * 4096, 4096), 9 * 4096, "by its requests");
        assert_eq!(
            bytes(&mut table, (1 << 50) + (2 << 20), 4096),
            (2 << 20) + 4096,
            "by its bytes"
        );
    }

    #[test]
    fn two_hundred_streams_at_once_are_all_followed() {
        let mut table = StreamTable::default();
        for step in 0..20 {
            for stream in 0..200 {
                assert_eq!(
                    bytes(&mut table, (stream << 30) + step * 4096, 4096),
                    (step + 1) * 4096
                );
            }
        }
    }

    #[test]
    fn requests_slightly_out_of_order_are_one_stream() {
        let mut table = StreamTable::default();
        let order = [0, 1, 4, 2, 3, 7, 6, 5, 9, 8];
        let seen: Vec<u64> =
            order.iter().map(|at| bytes(&mut table, at * 64 * KIB, 64 * KIB)).collect();
        assert_eq!(*seen.last().unwrap(), 10 * 64 * KIB);
        assert_eq!(bytes(&mut table, 640 * KIB, KIB), 641 * KIB);
    }

    #[test]
    fn a_reader_that_goes_backwards_is_no_stream() {
        let mut table = StreamTable::default();
        let longest =
            (0..1000u64).rev().map(|at| bytes(&mut table, at * 4096, 4096)).max().unwrap();
        assert!(longest <= (u64::from(REORDERED_MAX) + 1) * 4096, "{longest}");
    }

    #[test]
    fn reads_and_writes_of_the_same_place_are_two_streams() {
        let mut table = StreamTable::default();
        let mut observe = |start, direction| {
            table.observe(ByteRange::at(start, 4096), direction, PROMOTION).bytes
        };
        assert_eq!(observe(0, Direction::Read), 4096);
        assert_eq!(observe(4096, Direction::Write), 4096);
        assert_eq!(observe(4096, Direction::Read), 8192);
    }

    #[test]
    fn asking_for_the_last_request_again_does_not_end_a_stream() {
        let mut table = StreamTable::default();
        (0..4).for_each(|step| assert!(bytes(&mut table, step * 4096, 4096) > 0));
        assert_eq!(bytes(&mut table, 3 * 4096, 4096), 4096);
        assert_eq!(bytes(&mut table, 4 * 4096, 4096), 5 * 4096);
    }

    #[test]
    fn streams_of_real_traces_are_those_of_the_naive_twin() {
        for name in TRACES {
            let Some(path) = headpond_testkit::shared(format!("traces/{name}")) else {
                headpond_testkit::skip!("streams of real traces", "the traces are absent");
            };
            let (mut table, mut twin) = (StreamTable::default(), NaiveTable::default());
            let options = ReadOptions { damage: Damage::Skip, ..ReadOptions::default() };
            let mut reader = TraceReader::open(&path, options).unwrap();
            let mut requests = 0;
            for record in reader.by_ref().map(Result::unwrap).take(TRACE_REQUESTS_MAX) {
                let direction = match record.op {
                    Op::Read => Direction::Read,
                    Op::Write => Direction::Write,
                    _ => continue,
                };
                let range = ByteRange::at(record.offset_bytes, record.length_bytes);
                let seen = table.observe(range, direction, PROMOTION);
                assert_eq!(seen, twin.observe(range, direction, PROMOTION), "{name}: {range}");
                requests += 1;
            }
            assert!(requests > 100, "{name} has {requests} reads and writes");
            table.self_check();
        }
    }

    proptest! {
        /// In order, and with fewer streams than are followed, the answer is the sum.
        #[test]
        fn lengths_agree_with_plain_sums(
            steps in prop::collection::vec((0u64..40, 1u64..64), 0..400),
        ) {
            let mut table = StreamTable::default();
            let mut sums = [0u64; 40];
            for (stream, blocks) in steps {
                let start = (stream << 40) + sums[stream as usize];
                sums[stream as usize] += blocks * 4096;
                prop_assert_eq!(bytes(&mut table, start, blocks * 4096), sums[stream as usize]);
            }
        }

        /// Whatever comes, in whatever order: the table stays in order and within its bounds.
        #[test]
        fn any_requests_keep_the_table_sound(
            steps in prop::collection::vec((0u64..60, 1u64..5, any::<bool>()), 0..2000),
        ) {
            let mut table = StreamTable::default();
            for (start, len, writes) in steps {
                let direction = if writes { Direction::Write } else { Direction::Read };
                let range = ByteRange::at(start * 512, len * 512);
                let seen = table.observe(range, direction, StreamPromotion { requests: 3, bytes: 8192 });
                prop_assert!(seen.bytes >= range.len() && seen.end >= range.end());
            }
            table.self_check();
        }

        /// Streams, their neighbours and random requests, more than are followed.
        #[test]
        fn streams_are_those_of_the_naive_twin(
            steps in prop::collection::vec((0u64..400, 0u64..6, 0u64..4, any::<bool>()), 0..6000),
        ) {
            let (mut table, mut twin) = (StreamTable::default(), NaiveTable::default());
            let mut ends = [0u64; 400];
            for (stream, back, blocks, writes) in steps {
                let direction = if writes { Direction::Write } else { Direction::Read };
                let place = &mut ends[stream as usize];
                let start = (stream << 30) + place.saturating_sub(back) * 512;
                let range = ByteRange::at(start, (blocks + 1) * 512);
                *place += if back == 0 { blocks + 1 } else { back };
                let promotion = StreamPromotion { requests: 5, bytes: 20 << 10 };
                prop_assert_eq!(
                    table.observe(range, direction, promotion),
                    twin.observe(range, direction, promotion)
                );
            }
            table.self_check();
        }
    }
}
