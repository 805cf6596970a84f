//! How far ahead of a sequential reader to read.
//!
//! A stream of reads that has shown itself gets a window in front of it, which is as long as its
//! degree and moves along with the reader, piece by piece: drives that are asked for a whole window
//! at a time stand still in between, and wait for their disks to come round again. A reader that
//! catches up with what is still on its way, or runs past it, doubles the degree; one that misses
//! what had been read ahead, because it was evicted unused or never got in, halves it. A reader
//! that has enough in flight itself is left alone: all drives work for it, and the cache device
//! would only have to take what it reads and give it back.
//!
//! **Invariants**: nothing beyond the device, nor more than a degree ahead of the reader.
//!
//! **Not here**: recognising streams; carrying it out.
//!
//! **Source**: Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache",
//! FAST '07 (a degree for each stream, that grows when its reader is faster and shrinks when its
//! data leaves unused); Linux's on-demand readahead (windows that double). AMP adapts how much is
//! read and when it is triggered one by one; here the trigger is every piece of the least degree,
//! and the degree is doubled or halved. AMP learns of unused data when it is evicted, ours when it
//! is missed.

use crate::description::readahead::DEGREE_MIN;
use crate::serving::streams::Sighting;
use headpond_block::ByteRange;
use headpond_cache::Coverage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Contiguous requests after which a reader is believed to go on.
const REQUESTS_MIN: u32 = 4;
const STREAMS_MAX: usize = 256;
/// What a reader has in flight so that nothing is read ahead of it, unless a quarter of a stripe is
/// more: where modelled arrays of 12 and 40 drives, which read ahead themselves, give more than a
/// cache device of 2 GB/s that has to take everything first.
const OWN_BYTES_MIN: u64 = 256 << 10;

/// What was done for the streams, and what it was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReadaheadStats {
    /// Pieces that were read ahead.
    pub pieces: u64,
    pub bytes: u64,
    /// Of them, what its reader then asked for: in the cache, or on its way there.
    pub used_bytes: u64,
    /// Times that a reader caught up, and its degree was doubled.
    pub caught_up: u64,
    /// Times that a reader missed what had been read ahead, and its degree was halved.
    pub missed: u64,
    /// Requests of readers that had enough in flight themselves.
    pub left_alone: u64,
}

/// The windows of all streams.
#[derive(Default)]
pub(crate) struct Windows {
    of: HashMap<u64, Window, foldhash::fast::FixedState>,
    clock: u64,
    pub stats: ReadaheadStats,
}

#[derive(Clone)]
struct Window {
    /// Everything before this was read, or read ahead.
    end: u64,
    degree: u64,
    used_at: u64,
    own: Rc<Cell<u64>>,
    /// The most of late: what its reader has in flight, answers come in bursts.
    own_peak: u64,
}

/// A request of a stream, in flight until this is dropped.
pub(crate) struct InFlight {
    own: Rc<Cell<u64>>,
    bytes: u64,
}

impl InFlight {
    fn begin(own: &Rc<Cell<u64>>, bytes: u64) -> Self {
        own.set(own.get() + bytes);
        Self { own: Rc::clone(own), bytes }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.own.set(self.own.get() - self.bytes);
    }
}

/// What follows from a request of a stream.
pub(crate) struct Advance {
    pub in_flight: InFlight,
    /// What to read ahead.
    pub piece: Option<ByteRange>,
}

impl Windows {
    /// What follows now that a stream has asked for `range`; `coverage` tells of a range that was
    /// read ahead how far it has come. Nothing for who is no reader in a row yet.
    pub fn advance(
        &mut self,
        range: ByteRange,
        run: Sighting,
        limits: Limits,
        coverage: impl FnOnce(ByteRange) -> Coverage,
    ) -> Option<Advance> {
        // A request that came out of order says nothing of where the reader is.
        if run.requests < REQUESTS_MIN || run.end != range.end() {
            return None;
        }
        self.clock += 1;
        let clock = self.clock;
        let begin = || {
            let degree = (2 * range.len()).clamp(DEGREE_MIN, limits.degree_max);
            Window { end: range.end(), degree, used_at: clock, own: Rc::default(), own_peak: 0 }
        };
        let known = self.of.get(&run.stream).cloned();
        let mut window = match known {
            None => begin(),
            Some(window) => self.follow(window, range, limits, coverage),
        };
        window.used_at = clock;
        let in_flight = InFlight::begin(&window.own, range.len());
        window.own_peak = window.own.get().max(window.own_peak - window.own_peak / 8);
        let piece = self.piece(&mut window, range, limits);
        self.keep(run.stream, window);
        Some(Advance { in_flight, piece })
    }

    fn piece(
        &mut self,
        window: &mut Window,
        range: ByteRange,
        limits: Limits,
    ) -> Option<ByteRange> {
        if window.own_peak >= limits.own_bytes() {
            self.stats.left_alone += 1;
            return None;
        }
        let end = range.end().saturating_add(window.degree).min(limits.device_bytes);
        let is_enough = end >= window.end + DEGREE_MIN || end == limits.device_bytes;
        if end <= window.end || !is_enough {
            return None;
        }
        let piece = ByteRange::between(window.end, end);
        window.end = end;
        self.stats.pieces += 1;
        self.stats.bytes += piece.len();
        Some(piece)
    }

    fn follow(
        &mut self,
        mut window: Window,
        range: ByteRange,
        limits: Limits,
        coverage: impl FnOnce(ByteRange) -> Coverage,
    ) -> Window {
        let is_past = range.end() > window.end;
        let coverage = coverage(range);
        if coverage != Coverage::Missing {
            let within = range.end().min(window.end);
            self.stats.used_bytes += within.saturating_sub(range.start());
        }
        match coverage {
            Coverage::Cached if !is_past => {}
            Coverage::Missing if !is_past => {
                self.stats.missed += 1;
                window.degree = (window.degree / 2).max(DEGREE_MIN);
                window.end = range.end();
            }
            _ => {
                self.stats.caught_up += 1;
                window.degree = (window.degree * 2).min(limits.degree_max);
            }
        }
        window.end = window.end.max(range.end());
        window
    }

    /// Checks what each window is worth; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        assert!(self.of.len() <= STREAMS_MAX, "so many streams have windows and no more");
        let mut used: Vec<u64> = self.of.values().map(|window| window.used_at).collect();
        used.sort_unstable();
        let is_in_turn = used.is_sorted_by(|one, next| one < next);
        assert!(is_in_turn && used.last().is_none_or(|last| *last <= self.clock), "one at a time");
        for window in self.of.values() {
            assert!(window.own.get() <= window.own_peak, "what is in flight is within the peak");
            assert!(window.degree >= DEGREE_MIN, "a window is as long as a piece");
        }
    }

    fn keep(&mut self, stream: u64, window: Window) {
        if self.of.len() >= STREAMS_MAX && !self.of.contains_key(&stream) {
            let oldest = self.of.iter().min_by_key(|(_, window)| window.used_at);
            let oldest = oldest.map(|(stream, _)| *stream).expect("there are some");
            self.of.remove(&oldest);
        }
        self.of.insert(stream, window);
    }
}

/// What a window must not pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub degree_max: u64,
    pub device_bytes: u64,
    /// Data of a full stripe; 0 where there are none.
    pub stripe_bytes: u64,
}

impl Limits {
    /// What a reader has in flight who needs nobody to read ahead.
    fn own_bytes(self) -> u64 {
        OWN_BYTES_MIN.max(self.stripe_bytes / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    const KIB: u64 = 1 << 10;
    const LIMITS: Limits =
        Limits { degree_max: 4 << 20, device_bytes: 64 << 20, stripe_bytes: 640 << 10 };

    #[test]
    fn check_notices_what_is_wrong_with_windows() {
        let make = || {
            let mut windows = Windows::default();
            for stream in 1..3u64 {
                let range = ByteRange::at(stream << 30, 4096);
                let run = Sighting { stream, bytes: 0, requests: 9, end: range.end() };
                drop(windows.advance(range, run, LIMITS, |_| Coverage::Missing));
            }
            windows
        };
        fn first(windows: &mut Windows) -> &mut Window {
            windows.of.get_mut(&1).expect("it is followed")
        }
        let breaks: [Break<Windows>; 4] = [
            ("one at a time", |it| first(it).used_at = 2),
            ("one at a time", |it| it.clock = 1),
            ("within the peak", |it| first(it).own.set(4097)),
            ("as long as a piece", |it| first(it).degree = 0),
        ];
        assert_trips(make, Windows::self_check, &breaks);
    }

    struct Reader {
        windows: Windows,
        at: u64,
        requests: u32,
    }

    impl Reader {
        fn new(at: u64) -> Self {
            Self { windows: Windows::default(), at, requests: 0 }
        }

        /// The reader's next 64 KiB.
        fn read(&mut self, coverage: Coverage) -> Option<ByteRange> {
            let range = ByteRange::at(self.at, 64 * KIB);
            self.at = range.end();
            self.requests += 1;
            let run = Sighting { stream: 1, bytes: 0, requests: self.requests, end: self.at };
            self.windows.advance(range, run, LIMITS, |_| coverage)?.piece
        }

        fn degree(&self) -> u64 {
            self.windows.of[&1].degree
        }
    }

    #[test]
    fn a_reader_that_has_shown_itself_is_read_ahead_of() {
        let mut reader = Reader::new(0);
        let begun: Vec<_> = (0..4).map(|_| reader.read(Coverage::Missing)).collect();
        assert_eq!(begun[..3], [None; 3]);
        assert_eq!(begun[3], Some(ByteRange::at(256 * KIB, 128 * KIB)));
        assert_eq!(reader.read(Coverage::Cached), None, "half a piece has been read of the window");
        assert_eq!(reader.read(Coverage::Cached), Some(ByteRange::at(384 * KIB, 128 * KIB)));
        assert_eq!(reader.degree(), 128 * KIB);
    }

    #[test]
    fn a_window_moves_with_its_reader_in_small_pieces() {
        let mut reader = Reader::new(0);
        for _ in 0..20 {
            reader.read(Coverage::OnTheWay);
        }
        let pieces: Vec<_> = (0..8).map(|_| reader.read(Coverage::Cached)).collect();
        let lens: Vec<u64> = pieces.iter().flatten().map(|piece| piece.len() / KIB).collect();
        assert_eq!(lens, [128; 4], "{pieces:?}");
        let ahead = reader.windows.of[&1].end - reader.at;
        assert!((3968 * KIB..=4096 * KIB).contains(&ahead), "{ahead}");
    }

    #[test]
    fn a_reader_with_enough_in_flight_is_left_alone() {
        let mut windows = Windows::default();
        // A quarter of a stripe: four requests.
        let limits = Limits { stripe_bytes: 2 << 20, ..LIMITS };
        let mut read = |index: u64| {
            let range = ByteRange::at(index * 128 * KIB, 128 * KIB);
            let run = Sighting { stream: 1, bytes: 0, requests: 9, end: range.end() };
            windows.advance(range, run, limits, |_| Coverage::Missing).expect("a reader in a row")
        };
        let mut in_flight: Vec<Advance> = (0..4).map(&mut read).collect();
        let piece = |advance: &Advance| advance.piece.is_some();
        assert_eq!(in_flight.iter().map(piece).collect::<Vec<_>>(), [true, true, true, false]);
        in_flight.push(read(4));
        in_flight.drain(..4);
        assert!(read(5).piece.is_none(), "answers come in bursts");
        assert!(read(6).piece.is_some(), "two in flight are not enough");
    }

    #[test]
    fn the_degree_follows_who_is_faster() {
        let mut reader = Reader::new(0);
        let begun = (0..4).filter_map(|_| reader.read(Coverage::Missing));
        assert_eq!(begun.count(), 1);
        let degrees: Vec<u64> = (0..8)
            .map(|_| {
                reader.read(Coverage::OnTheWay);
                reader.degree() / KIB
            })
            .collect();
        assert_eq!(degrees, [256, 512, 1024, 2048, 4096, 4096, 4096, 4096]);
        reader.read(Coverage::Missing);
        reader.read(Coverage::Missing);
        assert_eq!(reader.degree(), 1024 * KIB, "evicted unused");
        assert_eq!(reader.windows.stats.missed, 2);
        assert_eq!(reader.windows.stats.caught_up, 8);
    }

    #[test]
    fn what_a_reader_finds_of_what_was_read_ahead_counts_as_used() {
        let mut reader = Reader::new(0);
        let begun = (0..4).filter_map(|_| reader.read(Coverage::Missing));
        assert_eq!(begun.count(), 1);
        for coverage in [Coverage::Cached, Coverage::OnTheWay, Coverage::Missing] {
            reader.read(coverage);
        }
        let stats = reader.windows.stats;
        assert_eq!(stats.used_bytes, 128 * KIB);
        assert!(stats.used_bytes <= stats.bytes);
    }

    #[test]
    fn nothing_is_read_beyond_the_device_nor_far_ahead() {
        let mut reader = Reader::new(0);
        while reader.at < LIMITS.device_bytes {
            if let Some(piece) = reader.read(Coverage::OnTheWay) {
                assert!(piece.end() <= LIMITS.device_bytes && piece.start() >= reader.at);
                assert!(piece.end() - reader.at <= LIMITS.degree_max);
            }
            reader.windows.self_check();
        }
        assert!(reader.windows.stats.bytes <= LIMITS.device_bytes);
    }

    #[test]
    fn the_stream_silent_longest_makes_room() {
        let mut windows = Windows::default();
        for stream in 0..300u64 {
            let range = ByteRange::at(stream << 16, 4096);
            let run = Sighting { stream, bytes: 0, requests: 9, end: range.end() };
            windows.advance(range, run, LIMITS, |_| Coverage::Missing);
        }
        assert_eq!(windows.of.len(), STREAMS_MAX);
        assert!(!windows.of.contains_key(&0) && windows.of.contains_key(&299));
    }
}
