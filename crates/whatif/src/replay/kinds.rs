//! What requests of each kind and size experienced.

use crate::measured::Kind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests of one kind whose sizes lie between two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KindShare {
    pub kind: Kind,
    /// The smaller power of two; 0 for requests without data.
    pub bytes: u64,
    pub requests: u64,
    /// From when they were due to their answers, in microseconds.
    pub mean_us: f64,
}

/// Counts under way.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<(Kind, u64), (u64, f64)>);

impl Kinds {
    pub fn note(&mut self, kind: Kind, bytes: u64, took: Duration) {
        let floor = bytes.checked_ilog2().map_or(0, |log| 1 << log);
        let (requests, us) = self.0.entry((kind, floor)).or_default();
        *requests += 1;
        *us += took.as_secs_f64() * 1e6;
    }

    pub fn summary(&self) -> Vec<KindShare> {
        let share = |(&(kind, bytes), &(requests, us)): (&(Kind, u64), &(u64, f64))| KindShare {
            kind,
            bytes,
            requests,
            mean_us: us / requests as f64,
        };
        self.0.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_between_two_powers_of_two_count_together() {
        let mut kinds = Kinds::default();
        for (bytes, micros) in [(4096, 10), (6144, 30), (8192, 5), (0, 7)] {
            let kind = if bytes == 0 { Kind::Flush } else { Kind::Write };
            kinds.note(kind, bytes, Duration::from_micros(micros));
        }
        let told = kinds.summary();
        let told: Vec<_> = told.iter().map(|it| (it.kind, it.bytes, it.requests)).collect();
        assert_eq!(told, [(Kind::Write, 4096, 2), (Kind::Write, 8192, 1), (Kind::Flush, 0, 1)]);
        assert!((kinds.summary()[0].mean_us - 20.0).abs() < 1e-9);
    }
}
