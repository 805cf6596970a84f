//! What a candidate was found to do, and what of it counts.

use super::GAIN_MIN;
use headpond_whatif::{Bins, KindShare, Lap, Outcome, Window};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// What the user wants most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The work of the trace done soonest, with as many requests in flight as there were.
    #[default]
    Throughput,
    /// The shortest mean response at the recorded times.
    Mean,
    /// Of a hundred requests the slowest answered soonest, at the recorded times.
    P99,
    /// Most of the throughput with the fewest writes to the cache.
    Endurance,
    /// The best throughput that loses nothing if the cache dies.
    Safety,
}

/// The laps with what each left to do, as if all had left alike: at recorded times a request waits
/// for what those before it have left.
fn in_the_long_run(outcome: &Outcome) -> Vec<Lap> {
    let requests: u64 = outcome.laps.iter().map(|lap| lap.requests).sum();
    let afterwards = outcome.afterwards.unwrap_or_default();
    let each_s = afterwards.counts_s / requests.max(1) as f64;
    let waits_us = if afterwards.behind_s > 0.0 { each_s * 1e6 } else { 0.0 };
    let mut before = 0.0;
    let longer = |lap: &Lap| {
        let of_lap = lap.requests as f64;
        let (half, end) = (before + of_lap / 2.0, before + of_lap);
        before = end;
        Lap {
            seconds: lap.seconds + each_s * of_lap,
            mean_us: lap.mean_us + waits_us * half,
            p99_us: lap.p99_us + waits_us * end,
            ..*lap
        }
    };
    outcome.laps.iter().map(longer).collect()
}

/// Of the time in which requests came at their own times, by so much the machine fell behind.
fn behind(outcome: &Outcome) -> f64 {
    let span_s = outcome.replay.map_or(0.0, |replay| replay.span_s);
    let behind_s = outcome.afterwards.map_or(0.0, |afterwards| afterwards.behind_s);
    behind_s / span_s.max(1e-9)
}

/// A name that is no goal.
#[derive(Debug, thiserror::Error)]
#[error("no goal is called {0}; there are throughput, mean, p99, endurance and safety")]
pub struct GoalError(String);

/// One replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub laps: Vec<Lap>,
    pub kinds: Vec<KindShare>,
    pub expected: Expected,
    pub cache_bytes_per_second: f64,
    pub errors: u64,
    /// Of the whole replay, the warm-up included.
    pub windows: Vec<Window>,
    /// In them, where the round that counts begins.
    pub measured_from_s: f64,
    /// How long reads and writes took.
    pub took: Bins,
    /// Of the time in which requests came, by so much the machine fell behind them.
    pub behind: f64,
}

/// What the models say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    pub requests_per_second: f64,
    pub mean_us: f64,
    pub p99_us: f64,
    pub read_hit_ratio: f64,
    /// In the end, of what may be dirty.
    pub dirty_ratio: f64,
    /// Written to the cache device.
    pub cache_bytes_per_request: f64,
}

/// How much better one trial is than another: a factor, and between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    pub factor: f64,
    /// Nine times in ten, as far as the parts of the trace differ.
    pub low: f64,
    /// Without end where there is too little to say.
    #[serde(deserialize_with = "unbounded")]
    pub high: f64,
}

/// JSON has no infinity and writes it as null.
fn unbounded<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Where the ends of an interval lie further apart, the parts have nothing in common, and its ends
/// say nothing.
const SPAN_MAX: f64 = 1e4;

/// Student's t for 90 % at 1, 2, ... degrees of freedom.
const T90: [f64; 8] = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86];

impl Goal {
    pub const ALL: [(&'static str, Goal); 5] = [
        ("throughput", Goal::Throughput),
        ("mean", Goal::Mean),
        ("p99", Goal::P99),
        ("endurance", Goal::Endurance),
        ("safety", Goal::Safety),
    ];

    /// Whether requests come at their recorded times.
    pub fn is_about_responses(self) -> bool {
        matches!(self, Goal::Mean | Goal::P99)
    }

    /// What a lap costs: less is better.
    fn cost(self, lap: &Lap) -> f64 {
        match self {
            Goal::Throughput | Goal::Endurance | Goal::Safety => lap.seconds,
            Goal::Mean => lap.mean_us * lap.requests as f64,
            Goal::P99 => lap.p99_us * lap.requests as f64,
        }
    }

    /// In words, what a gain of this goal is a gain of.
    pub fn what(self) -> &'static str {
        match self {
            Goal::Throughput | Goal::Endurance | Goal::Safety => "throughput",
            Goal::Mean => "mean response",
            Goal::P99 => "p99 response",
        }
    }
}

impl Expected {
    pub const NOTHING: Self = Self {
        requests_per_second: 0.0,
        mean_us: 0.0,
        p99_us: 0.0,
        read_hit_ratio: 0.0,
        dirty_ratio: 0.0,
        cache_bytes_per_request: 0.0,
    };
}

impl Trial {
    pub fn of(outcome: &Outcome) -> Self {
        let measured = outcome.jobs.first().map(|job| &job.measured);
        let laps = in_the_long_run(outcome);
        let requests: u64 = laps.iter().map(|lap| lap.requests).sum();
        let over = |pick: fn(&Lap) -> f64| {
            let sum: f64 = laps.iter().map(|lap| pick(lap) * lap.requests as f64).sum();
            sum / requests.max(1) as f64
        };
        let seconds: f64 = laps.iter().map(|lap| lap.seconds).sum();
        let measured_s: f64 = outcome.laps.iter().map(|lap| lap.seconds).sum();
        let total_s = outcome.windows.last().map_or(0.0, |window| window.at_s);
        let written = outcome.cache.map_or(0.0, |cache| cache.device.written_mb_per_s * 1e6);
        Self {
            expected: Expected {
                requests_per_second: requests as f64 / seconds.max(1e-9),
                mean_us: over(|lap| lap.mean_us),
                p99_us: over(|lap| lap.p99_us),
                read_hit_ratio: outcome.cache.map_or(0.0, |cache| cache.read_hit_ratio),
                dirty_ratio: outcome.cache.map_or(0.0, |cache| cache.dirty_ratio),
                cache_bytes_per_request: written * measured_s / requests.max(1) as f64,
            },
            cache_bytes_per_second: written * measured_s / seconds.max(1e-9),
            errors: measured.map_or(0, |measured| measured.errors),
            kinds: outcome.kinds.clone(),
            measured_from_s: (total_s - measured_s).max(0.0),
            windows: outcome.windows.clone(),
            took: outcome.took.clone(),
            behind: behind(outcome),
            laps,
        }
    }

    /// Whether anything is ever in the cache. Where nothing is, a gain is one of the array's moods.
    pub fn uses_cache(&self) -> bool {
        self.expected.cache_bytes_per_request > 0.0 || self.expected.read_hit_ratio > 0.0
    }

    /// Less is better.
    pub fn cost(&self, goal: Goal) -> f64 {
        self.laps.iter().map(|lap| goal.cost(lap)).sum()
    }

    /// How much better this is than `other`, which did the same work.
    ///
    /// The interval is over the laps.
    pub fn gain_over(&self, other: &Trial, goal: Goal) -> Gain {
        let pairs: Vec<(f64, f64)> = other
            .laps
            .iter()
            .zip(&self.laps)
            .map(|(theirs, ours)| (goal.cost(theirs), goal.cost(ours)))
            .collect();
        let sums = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let log = |(theirs, ours): (f64, f64)| (theirs.max(1e-12) / ours.max(1e-12)).ln();
        let without = |pair: &(f64, f64)| log((sums.0 - pair.0, sums.1 - pair.1));
        let whole = log(sums);
        let left_out: Vec<f64> = pairs.iter().map(without).collect();
        Gain::of_jackknife(whole, &[left_out])
    }
}

impl Gain {
    pub const NONE: Self = Self { factor: 1.0, low: 1.0, high: 1.0 };

    /// From where to where it lies, where there is enough to say.
    pub fn interval(self) -> Option<(f64, f64)> {
        let is_told = self.has_parts() && self.high / self.low <= SPAN_MAX;
        is_told.then_some((self.low, self.high))
    }

    /// Whether there were parts enough to compare.
    pub fn has_parts(self) -> bool {
        self.low > 0.0 && self.high.is_finite()
    }

    /// Whether there is a gain, rather than chance: by about five to one, which is where half the
    /// interval lies above 1.
    pub fn is_likely(self) -> bool {
        self.factor.ln() > (self.high / self.low).ln() / 4.0
    }

    /// Whether a cache that gains this over none is worth its risk.
    pub fn is_worth_a_cache(self) -> bool {
        self.factor >= GAIN_MIN && self.is_likely()
    }

    /// Of the logarithm of a factor, and what it would be without each of the parts; of several
    /// sides that vary by themselves, the parts of each.
    ///
    /// The interval is the jackknife's (Efron and Stein 1981).
    pub fn of_jackknife(whole: f64, sides: &[Vec<f64>]) -> Self {
        let count = sides.iter().map(Vec::len).min().unwrap_or(0);
        if count < 3 {
            return Self { factor: whole.exp(), low: 0.0, high: f64::INFINITY };
        }
        let variance = |left_out: &Vec<f64>| {
            let count = left_out.len() as f64;
            let mean = left_out.iter().sum::<f64>() / count;
            let squares: f64 = left_out.iter().map(|it| (it - mean).powi(2)).sum();
            (count - 1.0) / count * squares
        };
        let error = sides.iter().map(variance).sum::<f64>().sqrt();
        let half = T90[(count - 2).min(T90.len() - 1)] * error;
        let low = (whole - half).exp().max(f64::MIN_POSITIVE);
        Self { factor: whole.exp(), low, high: (whole + half).exp().min(f64::MAX) }
    }
}

impl FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Self, GoalError> {
        let named = Self::ALL.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, goal)| goal).ok_or_else(|| GoalError(text.to_owned()))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.into_iter().find(|(_, goal)| goal == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}
