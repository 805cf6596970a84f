//! The working set: how much of the volume is used in one stretch of time after another.
//!
//! Windows begin short; when there are too many, two and two become one.
//!
//! **Invariants**: at most `WINDOWS_MAX` windows; merging two traces gives what one pass over both
//! would give.

use serde::{Deserialize, Serialize};

use super::distinct::Distinct;
use super::spatial_sample::{BLOCK_BYTES, BlockHash};

const WINDOWS_MAX: u64 = 128;

/// The shortest window: 2^20 ns, about a millisecond.
const WINDOW_EXPONENT_MIN: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkingSetCounts {
    /// A window lasts two to the power of this, in nanoseconds.
    exponent: u32,
    windows: Vec<Window>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Window {
    all: Distinct,
    written: Distinct,
}

/// How much is used over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    pub window_ns: u64,
    /// Windows from the start of the trace on.
    pub windows: Vec<WorkingSetWindow>,
    pub mean_bytes: u64,
    pub peak_bytes: u64,
}

/// Different bytes used in a window, in blocks of 4 KiB, within a few percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkingSetWindow {
    pub bytes: u64,
    pub written_bytes: u64,
}

impl Default for WorkingSetCounts {
    fn default() -> Self {
        Self { exponent: WINDOW_EXPONENT_MIN, windows: Vec::new() }
    }
}

impl WorkingSetCounts {
    /// The window of a time; what is used then goes there.
    #[inline]
    fn window(&mut self, at_ns: u64) -> &mut Window {
        while at_ns >> self.exponent >= WINDOWS_MAX {
            self.lengthen();
        }
        let index = (at_ns >> self.exponent) as usize;
        if index >= self.windows.len() {
            self.windows.resize(index + 1, Window::default());
        }
        &mut self.windows[index]
    }

    /// Blocks read or written at a time.
    #[inline]
    pub(crate) fn add(
        &mut self,
        at_ns: u64,
        is_write: bool,
        blocks: impl Iterator<Item = BlockHash>,
    ) {
        let window = self.window(at_ns);
        if is_write {
            window.written.add_to_both(&mut window.all, blocks);
        } else {
            window.all.add(blocks);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        while self.exponent < other.exponent {
            self.lengthen();
        }
        for (index, window) in (0u64..).zip(&other.windows) {
            self.window(index << other.exponent).merge(window);
        }
    }

    fn lengthen(&mut self) {
        self.exponent += 1;
        let pairs = self.windows.chunks(2).map(|pair| {
            let mut joined = pair[0].clone();
            pair[1..].iter().for_each(|window| joined.merge(window));
            joined
        });
        self.windows = pairs.collect();
    }

    pub(crate) fn summary(&self) -> WorkingSet {
        let bytes = |distinct: &Distinct| (distinct.estimate() * BLOCK_BYTES as f64) as u64;
        let windows: Vec<_> = self
            .windows
            .iter()
            .map(|it| WorkingSetWindow { bytes: bytes(&it.all), written_bytes: bytes(&it.written) })
            .collect();
        let sum: u128 = windows.iter().map(|window| u128::from(window.bytes)).sum();
        WorkingSet {
            window_ns: 1 << self.exponent,
            mean_bytes: (sum / windows.len().max(1) as u128) as u64,
            peak_bytes: windows.iter().map(|window| window.bytes).max().unwrap_or(0),
            windows,
        }
    }

    /// False where damage has left what no trace gives.
    pub(crate) fn is_sound(&self) -> bool {
        (WINDOW_EXPONENT_MIN..64).contains(&self.exponent)
            && self.windows.len() as u64 <= WINDOWS_MAX
    }
}

impl Window {
    fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.written.merge(&other.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(times_and_blocks: impl IntoIterator<Item = (u64, u64)>) -> WorkingSetCounts {
        let mut counts = WorkingSetCounts::default();
        for (at_ns, block) in times_and_blocks {
            counts.add(at_ns, block % 2 == 0, [BlockHash::of(0, block)].into_iter());
        }
        counts
    }

    #[test]
    fn a_phase_that_uses_more_is_seen_in_its_windows() {
        let second = 1_000_000_000;
        let small = (0..2000).map(|n| (n * second / 100, n % 50));
        let large = (2000..4000).map(|n| (n * second / 100, n));
        let set = used(small.chain(large)).summary();
        assert!(set.windows.len() > 64 && set.windows.len() <= 128, "{}", set.windows.len());
        let blocks = |at: usize| set.windows[at].bytes as f64 / 4096.0;
        let each = set.window_ns as f64 / second as f64 * 100.0;
        assert!((blocks(3) - each.min(50.0)).abs() < each * 0.1, "{}", blocks(3));
        let last = set.windows.len() - 2;
        assert!((blocks(last) - each).abs() < each * 0.1, "{}", blocks(last));
        assert!((set.windows[last].written_bytes as f64 / 4096.0 - each / 2.0).abs() < each * 0.1);
    }

    #[test]
    fn merging_short_and_long_traces_is_one_pass_over_both() {
        let short: Vec<_> = (0..500).map(|n| (n * 1_000_000, n * 3)).collect();
        let long: Vec<_> = (0..500).map(|n| (n * 1_000_000_000_000, n * 5)).collect();
        let whole = used([short.clone(), long.clone()].concat());
        for (one, other) in [(&short, &long), (&long, &short)] {
            let mut merged = used(one.iter().copied());
            merged.merge(&used(other.iter().copied()));
            assert_eq!(merged, whole);
        }
        assert!(used([(u64::MAX, 1)]).is_sound());
    }
}
