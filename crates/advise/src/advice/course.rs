//! How replays went: what was dirty over time, and how long requests took.

use crate::search::{SearchResult, Trial, Tried};
use serde::Serialize;

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Course {
    /// `no cache`, `as it is set` or `as advised`.
    pub name: &'static str,
    /// Seconds from the beginning of the replay, and what was dirty then, of what may be. Empty
    /// without a cache.
    pub dirty: Vec<(f64, f64)>,
    /// The warm-up was over then.
    pub measured_from_s: f64,
    /// Microseconds, and the share of requests that took no longer; in rising order.
    pub took: Vec<(f64, f64)>,
}

/// Of what is compared in the end: the array by itself, what is set now, what is advised.
pub(super) fn all(found: &SearchResult) -> Vec<Course> {
    let of = |name, tried: &Tried| Course::of(name, &tried.trial, tried.candidate.has_cache());
    let standing = found.standing.as_ref();
    let is_other = |it: &&Tried| it.candidate != found.chosen.candidate;
    let mut courses = vec![of("no cache", &found.without_cache)];
    courses.extend(standing.filter(is_other).map(|it| of("as it is set", it)));
    if found.chosen.candidate.has_cache() {
        courses.push(of("as advised", &found.chosen));
    }
    courses
}

impl Course {
    fn of(name: &'static str, trial: &Trial, has_cache: bool) -> Self {
        let windows = trial.windows.iter().filter(|_| has_cache);
        let mut answered = 0;
        let all = trial.took.count().max(1) as f64;
        let took = trial.took.0.iter().map(|&(nanos, count)| {
            answered += count;
            (nanos as f64 / 1e3, answered as f64 / all)
        });
        Self {
            name,
            dirty: windows.map(|window| (window.at_s, window.dirty_ratio)).collect(),
            measured_from_s: trial.measured_from_s,
            took: took.collect(),
        }
    }
}
