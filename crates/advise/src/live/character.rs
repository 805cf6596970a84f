//! What a workload is like, in few figures, and whether it has become another one.

use super::look::{Look, response_ns};
use foldhash::HashSet;
use headpond_trace::{Op, TraceRecord};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// So much of the requests must be others for a workload to be another one. Looks at a steady
/// mix of a thousand requests differ by some hundredths.
const SHARE_MIN: f64 = 0.2;
/// The depth must differ by so many times.
const DEPTH_FACTOR: f64 = 2.0;
/// Ends of requests that are remembered, to see what goes on from there: streams at a time.
const ENDS_MAX: usize = 64;
/// Requests within which a block that comes back counts.
const AGAIN_REQUESTS: usize = 200;
const BLOCK_BYTES: u64 = 4096;

/// The make-up of a stretch of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Character {
    /// Shares of the requests by operation, power of two below the length, and whether it goes on
    /// where another ended.
    shares: BTreeMap<(Op, u32, bool), f64>,
    /// Requests in flight, on average.
    depth: f64,
    /// Of the requests, those to a block that a few hundred requests had met before: of a fixed
    /// number, so that a look with more requests in it is no other workload.
    again: f64,
}

/// In what a workload has become another one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// So much of the requests is of other kinds.
    Mix(f64),
    Depth {
        before: f64,
        after: f64,
    },
    /// Share of the requests that come back to a block.
    Again {
        before: f64,
        after: f64,
    },
}

impl Character {
    /// Of looks, one after the other.
    pub fn of(looks: &[Look]) -> Self {
        let mut shares: BTreeMap<(Op, u32, bool), f64> = BTreeMap::new();
        let (mut waited_ns, mut span_ns, mut again, mut count) = (0.0, 0.0, 0.0, 0.0);
        for look in looks {
            let mut seen = SeenRequests::default();
            for (number, record) in look.records.iter().enumerate() {
                if number % AGAIN_REQUESTS == 0 {
                    seen.blocks.clear();
                }
                let (goes_on, is_again) = seen.next(record);
                let kind = (record.op, record.length_bytes.max(1).ilog2(), goes_on);
                *shares.entry(kind).or_default() += 1.0;
                waited_ns += response_ns(record) as f64;
                again += f64::from(u8::from(is_again));
                count += 1.0;
            }
            span_ns += span(&look.records) as f64;
        }
        shares.values_mut().for_each(|share| *share /= f64::max(count, 1.0));
        Self {
            shares,
            depth: waited_ns / f64::max(span_ns, 1.0),
            again: again / f64::max(count, 1.0),
        }
    }

    /// What has changed most since `before`, where that is much.
    pub fn change_since(&self, before: &Self) -> Option<Change> {
        let others = self.others_than(before);
        let depths = (before.depth.max(0.1), self.depth.max(0.1));
        let ratio = f64::max(depths.0 / depths.1, depths.1 / depths.0);
        if others >= SHARE_MIN {
            return Some(Change::Mix(others));
        }
        if ratio >= DEPTH_FACTOR && f64::max(depths.0, depths.1) >= DEPTH_FACTOR {
            return Some(Change::Depth { before: before.depth, after: self.depth });
        }
        let moved = (self.again - before.again).abs() >= SHARE_MIN;
        moved.then_some(Change::Again { before: before.again, after: self.again })
    }

    /// Requests that would have to be others to make one mix of the other (total variation).
    fn others_than(&self, before: &Self) -> f64 {
        let share = |of: &Self, kind| of.shares.get(kind).copied().unwrap_or(0.0);
        let kinds = self.shares.keys().chain(before.shares.keys());
        let more = kinds.collect::<std::collections::BTreeSet<_>>();
        more.into_iter().map(|kind| (share(self, kind) - share(before, kind)).max(0.0)).sum()
    }
}

/// From the first request to the last answer.
fn span(records: &[TraceRecord]) -> u64 {
    let end = records.iter().filter_map(|record| record.completed_ns).max();
    let begin = records.first().map_or(0, |record| record.issued_ns);
    end.unwrap_or(0).saturating_sub(begin)
}

#[derive(Default)]
struct SeenRequests {
    ends: Vec<u64>,
    oldest: usize,
    blocks: HashSet<u64>,
}

impl SeenRequests {
    /// Whether a request goes on where another ended, and whether its first block was met before.
    fn next(&mut self, record: &TraceRecord) -> (bool, bool) {
        let end = record.offset_bytes.saturating_add(record.length_bytes);
        let is_again = !self.blocks.insert(record.offset_bytes / BLOCK_BYTES);
        if let Some(place) = self.ends.iter().position(|it| *it == record.offset_bytes) {
            self.ends[place] = end;
            return (true, is_again);
        }
        if self.ends.len() < ENDS_MAX {
            self.ends.push(end);
        } else {
            self.ends[self.oldest] = end;
            self.oldest = (self.oldest + 1) % ENDS_MAX;
        }
        (false, is_again)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mix(share) => {
                write!(f, "{:.0} % of the requests are of other kinds", share * 100.0)
            }
            Self::Depth { before, after } => {
                write!(f, "{after:.1} requests are in flight where there were {before:.1}")
            }
            Self::Again { before, after } => write!(
                f,
                "{:.0} % of the requests come back to a block where {:.0} % did",
                after * 100.0,
                before * 100.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scattered;

    /// Requests with so many in flight: reads at random, of which so many in a hundred are writes.
    fn look(seed: u64, writes: u64, depth: u64, blocks: u64) -> Look {
        let record = |number: u64| {
            let drawn = scattered(seed * 10_000 + number, 1);
            let op = if drawn % 100 < writes { Op::Write } else { Op::Read };
            let place = scattered(seed * 10_000 + number, 2) % blocks * 4096;
            let mut record = TraceRecord::new(number * 1000, op, place, 4096);
            record.completed_ns = Some((number + depth) * 1000);
            record
        };
        Look::of((0..1000).map(record))
    }

    const WIDE: u64 = 1 << 30;

    #[test]
    fn looks_at_a_steady_workload_differ_by_nothing_to_speak_of() {
        let steady: Vec<Character> =
            (1..20).map(|seed| Character::of(&[look(seed, 30, 8, WIDE)])).collect();
        for pair in steady.windows(2) {
            assert_eq!(pair[1].change_since(&pair[0]), None);
            assert!(pair[1].others_than(&pair[0]) < 0.1);
        }
    }

    #[test]
    fn another_mix_another_depth_and_another_working_set_are_changes() {
        let before = Character::of(&[look(1, 30, 8, WIDE)]);
        let change = |look| Character::of(&[look]).change_since(&before);
        assert!(matches!(change(look(2, 70, 8, WIDE)), Some(Change::Mix(share)) if share > 0.3));
        assert!(
            matches!(change(look(2, 30, 32, WIDE)), Some(Change::Depth { after, .. }) if after > 20.0)
        );
        assert!(
            matches!(change(look(2, 30, 8, 100)), Some(Change::Again { after, .. }) if after > 0.4)
        );
    }

    #[test]
    fn a_look_with_more_requests_in_it_is_no_other_workload() {
        let records = |count: u64| {
            Look::of((0..count).map(|number| {
                let place = scattered(number, 3) % 8192 * 4096;
                let mut record = TraceRecord::new(number * 1000, Op::Read, place, 4096);
                record.completed_ns = Some((number + 8) * 1000);
                record
            }))
        };
        let (few, many) = (Character::of(&[records(4000)]), Character::of(&[records(16_000)]));
        assert_eq!(many.change_since(&few), None);
    }

    #[test]
    fn sequential_requests_are_told_from_random_ones_of_the_same_size() {
        let in_order = Look::of((0..1000).map(|number| {
            let mut record = TraceRecord::new(number * 1000, Op::Read, number * 4096, 4096);
            record.completed_ns = Some((number + 8) * 1000);
            record
        }));
        let random = Character::of(&[look(1, 0, 8, WIDE)]);
        let change = Character::of(&[in_order]).change_since(&random);
        assert!(matches!(change, Some(Change::Mix(share)) if share > 0.9), "{change:?}");
    }

    #[test]
    fn nothing_is_no_change_of_nothing() {
        let nothing = Character::of(&[]);
        assert_eq!(nothing.change_since(&Character::of(&[Look::default()])), None);
    }
}
