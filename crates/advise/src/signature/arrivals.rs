//! How requests arrive: how often, how evenly, in what bursts.
//!
//! Gaps between requests are counted, and requests in windows of several lengths. The index of
//! dispersion of a length is variance over mean of the requests in such a window: 1 where they come
//! at random, 0 where they come evenly, many where they come in bursts of that length.
//!
//! **Invariants**: a request that seems to come before the one before it comes with it; merging
//! adds windows up, so that two traces stay apart in time.
//!
//! **Source**: Gusella, *Characterizing the variability of arrival processes with indexes of
//! dispersion*, IEEE JSAC 9 (1991).

use serde::{Deserialize, Serialize};

use super::histogram::{Bucket, LogHistogram};

/// Lengths of the windows, two to the power of these, in nanoseconds: about 1 ms, 8 ms, 134 ms,
/// 1 s, 9 s and 2 min.
const WINDOW_EXPONENTS: [u32; 6] = [20, 23, 27, 30, 33, 37];

/// The longest that the highest rate is taken from, about a second.
const PEAK_WINDOW: usize = 3;

/// Gaps and windows, and where the counting is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArrivalCounts {
    pub gaps: Gaps,
    windows: [WindowCounts; WINDOW_EXPONENTS.len()],
}

/// Times between one request and the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gaps {
    gaps: LogHistogram<2>,
    sum_ns: u128,
    squares: u128,
}

/// Requests in windows of one length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct WindowCounts {
    windows: u64,
    requests: u64,
    squares: u128,
    most: u64,
    /// The window that is counted, and the requests in it.
    #[serde(skip)]
    now: (u64, u64),
}

/// The arrival process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    pub gaps: Option<GapSummary>,
    /// The most requests in a window of about a second, as a rate; the window is shorter where the
    /// trace is.
    pub peak_per_second: f64,
    pub peak_window_ns: u64,
    /// By length of the window, of those that the trace is at least eight long of.
    pub dispersion: Vec<Dispersion>,
}

/// Times between one request and the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapSummary {
    pub mean_ns: u64,
    pub median_ns: u64,
    /// Standard deviation over mean: 0 where requests come evenly, 1 at random, more in bursts.
    pub variation: f64,
    /// By doubling, in nanoseconds.
    pub distribution: Vec<Bucket>,
}

/// Burstiness at one length of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dispersion {
    pub window_ns: u64,
    /// Variance over mean of the requests in a window.
    pub index: f64,
}

impl ArrivalCounts {
    /// A request, and the one before it.
    #[inline]
    pub(crate) fn add(&mut self, issued_ns: u64, gap_ns: Option<u64>) {
        if let Some(gap_ns) = gap_ns {
            self.gaps.add(gap_ns);
        }
        let window = issued_ns >> WINDOW_EXPONENTS[0];
        let now = &mut self.windows[0].now;
        if window <= now.0 {
            now.1 += 1;
            return;
        }
        let over = std::mem::replace(now, (window, 1));
        self.close(0, over, window);
    }

    /// The window of a length is over, and `next` is begun.
    fn close(&mut self, length: usize, (window, requests): (u64, u64), next: u64) {
        self.windows[length].note(requests, next - window);
        let Some(longer) = self.windows.get_mut(length + 1) else {
            return;
        };
        let joined = WINDOW_EXPONENTS[length + 1] - WINDOW_EXPONENTS[length];
        // The longer window may be one that began while nothing came.
        let over = longer.now;
        let window = window >> joined;
        if window > over.0 {
            longer.now = (window, requests);
            return self.close(length + 1, over, window);
        }
        longer.now.1 += requests;
    }

    /// Closes the windows that are open: the trace is over.
    pub(crate) fn finish(&mut self) {
        for length in 0..WINDOW_EXPONENTS.len() {
            let over = std::mem::take(&mut self.windows[length].now);
            if over.1 > 0 {
                self.close(length, over, over.0 + 1);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.gaps.merge(&other.gaps);
        for (one, other) in self.windows.iter_mut().zip(&other.windows) {
            one.windows = one.windows.saturating_add(other.windows);
            one.requests += other.requests;
            one.squares = one.squares.saturating_add(other.squares);
            one.most = one.most.max(other.most);
        }
    }

    pub(crate) fn summary(&self) -> Arrivals {
        let long_enough = WINDOW_EXPONENTS.into_iter().zip(&self.windows);
        let dispersion = long_enough.filter(|(_, counts)| counts.windows >= 8);
        let is_long_enough = |&length: &usize| self.windows[length].windows >= 4;
        let length = (0..=PEAK_WINDOW).rev().find(is_long_enough).unwrap_or(0);
        let peak_window_ns = 1u64 << WINDOW_EXPONENTS[length];
        Arrivals {
            gaps: self.gaps.summary(),
            peak_per_second: self.windows[length].most as f64 * 1e9 / peak_window_ns as f64,
            peak_window_ns,
            dispersion: dispersion
                .map(|(exponent, counts)| Dispersion {
                    window_ns: 1 << exponent,
                    index: counts.dispersion(),
                })
                .collect(),
        }
    }
}

impl WindowCounts {
    /// A window with so many requests, and those without any that follow it.
    fn note(&mut self, requests: u64, windows: u64) {
        self.windows = self.windows.saturating_add(windows);
        self.requests += requests;
        self.squares = self.squares.saturating_add(u128::from(requests).pow(2));
        self.most = self.most.max(requests);
    }

    fn dispersion(&self) -> f64 {
        let windows = self.windows.max(1) as f64;
        let mean = self.requests as f64 / windows;
        let variance = self.squares as f64 / windows - mean * mean;
        if mean > 0.0 { (variance / mean).max(0.0) } else { 0.0 }
    }
}

impl Gaps {
    #[inline]
    pub(crate) fn add(&mut self, gap_ns: u64) {
        self.gaps.add(gap_ns, 1);
        let gap_ns = u128::from(gap_ns);
        self.sum_ns += gap_ns;
        self.squares = self.squares.saturating_add(gap_ns * gap_ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.gaps.merge(&other.gaps);
        self.sum_ns += other.sum_ns;
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Forgets everything; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.gaps.clear();
        (self.sum_ns, self.squares) = (0, 0);
    }

    pub(crate) fn summary(&self) -> Option<GapSummary> {
        let median_ns = self.gaps.quantile(0.5)?;
        let count = self.gaps.total() as f64;
        let mean = self.sum_ns as f64 / count;
        let variance = (self.squares as f64 / count - mean * mean).max(0.0);
        Some(GapSummary {
            mean_ns: mean as u64,
            median_ns,
            variation: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            distribution: self.gaps.doublings(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(times: impl IntoIterator<Item = u64>) -> Arrivals {
        let mut counts = ArrivalCounts::default();
        let mut before = None;
        for at in times {
            counts.add(at, before.map(|before| at - before));
            before = Some(at);
        }
        counts.finish();
        counts.summary()
    }

    fn index(arrivals: &Arrivals, exponent: u32) -> f64 {
        let found = arrivals.dispersion.iter().find(|it| it.window_ns == 1 << exponent);
        found.expect("long enough").index
    }

    #[test]
    fn even_random_and_bursty_arrivals_are_told_apart() {
        let even = arrived((0..40_000).map(|n| n << 18));
        assert!(index(&even, 23) < 0.01, "{even:?}");
        assert!(even.gaps.as_ref().unwrap().variation < 0.01);
        let (mut at, mut state) = (0u64, 1u64);
        let random = arrived((0..40_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            at += (-(1.0 - uniform).ln() * 262_144.0) as u64;
            at
        }));
        assert!((0.9..1.1).contains(&index(&random, 23)), "{random:?}");
        assert!((0.9..1.1).contains(&random.gaps.as_ref().unwrap().variation));
        let bursts = arrived((0..40_000).map(|n| n / 400 * (400 << 18) + n % 400 * 1000));
        assert!(index(&bursts, 23) > 100.0, "{bursts:?}");
        assert!(bursts.gaps.unwrap().variation > 5.0);
    }

    #[test]
    fn the_highest_rate_of_a_short_trace_is_that_of_shorter_windows() {
        let short = arrived((0..100_000).map(|n| n * 1000));
        assert!((0.9e6..1.1e6).contains(&short.peak_per_second), "{short:?}");
        assert_eq!(short.peak_window_ns, 1 << 23);
        let long = arrived((0..100_000).map(|n| n * 1_000_000));
        assert_eq!(long.peak_window_ns, 1 << 30);
        assert!((900.0..1100.0).contains(&long.peak_per_second), "{long:?}");
    }

    #[test]
    fn windows_without_requests_count_and_late_requests_do_no_harm() {
        let mut counts = ArrivalCounts::default();
        for at in [0, 100 << 20, 99 << 20, 1 << 40] {
            counts.add(at, None);
        }
        counts.finish();
        let (first, last) = (&counts.windows[0], &counts.windows[5]);
        assert_eq!((first.windows, first.requests), ((1 << 20) + 1, 4));
        assert_eq!((last.windows, last.requests), (9, 4));
        assert_eq!(arrived([]).gaps, None);
    }
}
