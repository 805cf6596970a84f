//! How far ahead of a sequential reader to read.
//!
//! A stream of reads that has shown itself gets a window in front of it. When what is left of the
//! window falls below its degree, the next piece of that length is read. A reader that catches up
//! with what is still on its way, or runs past it, doubles the degree; one that misses what had
//! been read ahead, because it was evicted unused or never got in, halves it.
//!
//! **Invariants**: nothing beyond the device, and at most two degrees ahead of the reader.
//!
//! **Not here**: recognising streams; carrying it out.
//!
//! **Source**: Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache",
//! FAST '07 (a degree for each stream, that grows when its reader is faster and shrinks when its
//! data leaves unused); Linux's on-demand readahead (windows that double, the next begun while the
//! last is read). AMP adapts degree and trigger distance one by one; here the distance is the
//! degree, and both are doubled or halved. AMP learns of unused data when it is evicted, ours when
//! it is missed.

use crate::Size;
use crate::streams::Sighting;
use headpond_block::ByteRange;
use headpond_cache::Coverage;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Contiguous requests after which a reader is believed to go on.
const REQUESTS_MIN: u32 = 4;
const DEGREE_MIN: u64 = 128 << 10;
const STREAMS_MAX: usize = 256;

/// Whether and how far to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadaheadPolicy {
    #[default]
    Adaptive,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, try_from = "Parameters")]
pub struct Readahead {
    pub policy: ReadaheadPolicy,
    /// Largest degree of a stream.
    pub degree_max: Size,
}

/// The same, unchecked.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parameters {
    policy: ReadaheadPolicy,
    degree_max: Size,
}

impl Default for Readahead {
    fn default() -> Self {
        Self { policy: ReadaheadPolicy::Adaptive, degree_max: Size(4 << 20) }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        let Readahead { policy, degree_max } = Readahead::default();
        Self { policy, degree_max }
    }
}

impl TryFrom<Parameters> for Readahead {
    type Error = String;

    fn try_from(from: Parameters) -> Result<Self, String> {
        let Parameters { policy, degree_max } = from;
        let (least, most) = (Size(DEGREE_MIN), Size(64 << 20));
        match (least..=most).contains(&degree_max) {
            true => Ok(Self { policy, degree_max }),
            false => Err(format!("the largest degree is {least} to {most}, not {degree_max}")),
        }
    }
}

/// What was done for the streams, and what it was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ReadaheadStats {
    /// Pieces that were read ahead.
    pub pieces: u64,
    pub bytes: u64,
    /// Times that a reader caught up, and its degree was doubled.
    pub caught_up: u64,
    /// Times that a reader missed what had been read ahead, and its degree was halved.
    pub missed: u64,
}

/// The windows of all streams.
#[derive(Default)]
pub(crate) struct Windows {
    of: HashMap<u64, Window, foldhash::fast::FixedState>,
    clock: u64,
    pub stats: ReadaheadStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Everything before this was read, or read ahead.
    end: u64,
    degree: u64,
    used_at: u64,
}

impl Windows {
    /// What to read ahead now that a stream has asked for `range`; `coverage` tells of a range
    /// that was read ahead how far it has come.
    pub fn advance(
        &mut self,
        range: ByteRange,
        run: Sighting,
        limits: Limits,
        coverage: impl FnOnce(ByteRange) -> Coverage,
    ) -> Option<ByteRange> {
        // A request that came out of order says nothing of where the reader is.
        if run.requests < REQUESTS_MIN || run.end != range.end() {
            return None;
        }
        self.clock += 1;
        let clock = self.clock;
        let begin = || {
            let degree = (2 * range.len()).clamp(DEGREE_MIN, limits.degree_max);
            Window { end: range.end(), degree, used_at: clock }
        };
        let known = self.of.get(&run.stream).copied();
        let mut window = match known {
            None => begin(),
            Some(window) => self.follow(window, range, limits, coverage),
        };
        window.used_at = clock;
        let left = window.end - range.end();
        let piece = (left < window.degree).then(|| {
            let end = window.end.saturating_add(window.degree).min(limits.device_bytes);
            ByteRange::between(window.end, end.max(window.end))
        });
        let piece = piece.filter(|piece| !piece.is_empty());
        if let Some(piece) = piece {
            window.end = piece.end();
            self.stats.pieces += 1;
            self.stats.bytes += piece.len();
        }
        self.keep(run.stream, window);
        piece
    }

    fn follow(
        &mut self,
        mut window: Window,
        range: ByteRange,
        limits: Limits,
        coverage: impl FnOnce(ByteRange) -> Coverage,
    ) -> Window {
        let is_past = range.end() > window.end;
        match coverage(range) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const LIMITS: Limits = Limits { degree_max: 4 << 20, device_bytes: 64 << 20 };

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
            self.windows.advance(range, run, LIMITS, |_| coverage)
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
        assert_eq!(reader.read(Coverage::Cached), Some(ByteRange::at(384 * KIB, 128 * KIB)));
        assert_eq!(reader.degree(), 128 * KIB);
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
    fn nothing_is_read_beyond_the_device_nor_far_ahead() {
        let mut reader = Reader::new(0);
        while reader.at < LIMITS.device_bytes {
            if let Some(piece) = reader.read(Coverage::OnTheWay) {
                assert!(piece.end() <= LIMITS.device_bytes && piece.start() >= reader.at);
                assert!(piece.end() - reader.at <= 2 * LIMITS.degree_max);
            }
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
