//! A stretch of requests, and whether those after a change are served better than those before.

use crate::sample::joined;
use crate::search::{Gain, Goal};
use headpond_trace::{Op, RecordFlags, TraceRecord};
use std::collections::BTreeMap;

/// Of a kind that only one side has, or has next to nothing of, nothing can be said.
const REQUESTS_MIN: usize = 20;

/// Requests of one stretch of time, in order of issue.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub records: Vec<TraceRecord>,
}

/// What is compared with each other: an operation, and the power of two below its length.
type Kind = (Op, u32);

impl Look {
    /// What was answered, and what failed or came twice aside.
    pub fn of(records: impl IntoIterator<Item = TraceRecord>) -> Self {
        let counts = |record: &TraceRecord| {
            let aside = RecordFlags::RETRIED | RecordFlags::FAILED;
            !record.flags.intersects(aside) && record.completed_ns.is_some()
        };
        let mut records: Vec<TraceRecord> = records.into_iter().filter(counts).collect();
        records.sort_by_key(|record| record.issued_ns);
        Self { records }
    }

    /// The requests of several looks, one after the other.
    pub fn joined(looks: &[Look]) -> Vec<TraceRecord> {
        let stretches: Vec<&[TraceRecord]> = looks.iter().map(|look| &*look.records).collect();
        joined(&stretches)
    }

    /// Responses in nanoseconds, sorted, by kind.
    fn responses(looks: &[&Look]) -> BTreeMap<Kind, Vec<u64>> {
        let mut responses: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        for record in looks.iter().flat_map(|look| &look.records) {
            let kind = (record.op, record.length_bytes.max(1).ilog2());
            responses.entry(kind).or_default().push(response_ns(record));
        }
        responses.values_mut().for_each(|of_kind| of_kind.sort_unstable());
        responses
    }
}

pub(super) fn response_ns(record: &TraceRecord) -> u64 {
    record.completed_ns.map_or(0, |end_ns| end_ns.saturating_sub(record.issued_ns))
}

/// How much better requests are served after a change than before it, in terms of the goal; none
/// where the two have too little in common.
///
/// Each kind of request is compared with its own, and weighs what it did before: another mix is
/// neither a gain nor a loss. Clients that keep their depth get as many more requests a second as
/// the mean response is shorter (Little's law), so that is what stands for throughput. The
/// interval is the jackknife's over the looks of both sides.
pub fn delivered(before: &[Look], after: &[Look], goal: Goal) -> Option<Gain> {
    let [before, after] = [before, after].map(|looks| looks.iter().collect::<Vec<&Look>>());
    let whole = gain(&before, &after, goal)?;
    let before_but = |left_out| gain(&without(&before, left_out), &after, goal);
    let after_but = |left_out| gain(&before, &without(&after, left_out), goal);
    let sides = [
        (0..before.len()).filter_map(before_but).collect(),
        (0..after.len()).filter_map(after_but).collect(),
    ];
    Some(Gain::of_jackknife(whole, &sides))
}

fn without<'a>(looks: &[&'a Look], left_out: usize) -> Vec<&'a Look> {
    let others = looks.iter().enumerate().filter(|(number, _)| *number != left_out);
    others.map(|(_, look)| *look).collect()
}

/// The logarithm of the factor.
fn gain(before: &[&Look], after: &[&Look], goal: Goal) -> Option<f64> {
    let (before, after) = (Look::responses(before), Look::responses(after));
    let cost = |of_kind: &[u64]| match goal {
        Goal::P99 => of_kind[(of_kind.len() * 99 / 100).min(of_kind.len() - 1)] as f64,
        _ => of_kind.iter().sum::<u64>() as f64 / of_kind.len() as f64,
    };
    let enough = |of_kind: &Vec<u64>| of_kind.len() >= REQUESTS_MIN;
    let (mut was, mut is, mut weighed) = (0.0, 0.0, 0);
    for (kind, old) in before.iter().filter(|(_, old)| enough(old)) {
        let Some(new) = after.get(kind).filter(|new| enough(new)) else { continue };
        was += cost(old) * old.len() as f64;
        is += cost(new) * old.len() as f64;
        weighed += old.len();
    }
    let all: usize = before.values().map(Vec::len).sum();
    let is_comparable = weighed > 0 && weighed * 2 >= all;
    is_comparable.then(|| (was.max(1.0) / f64::max(is, 1.0)).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of 4 KiB and writes of 64 KiB, so many of each, with these responses.
    fn look(reads: (u64, u64), writes: (u64, u64)) -> Look {
        let record = |number: u64, op, bytes, response_us: u64| {
            let mut record = TraceRecord::new(number * 1000, op, number * bytes, bytes);
            record.completed_ns = Some(number * 1000 + response_us * 1000);
            record
        };
        let reads = (0..reads.0).map(|number| record(number, Op::Read, 4096, reads.1));
        let writes = (0..writes.0).map(|number| record(number, Op::Write, 65536, writes.1));
        Look::of(reads.chain(writes))
    }

    #[test]
    fn what_is_answered_twice_as_soon_delivers_two() {
        let before = vec![look((100, 200), (100, 800)); 3];
        let after = vec![look((100, 100), (100, 400)); 3];
        let gain = delivered(&before, &after, Goal::Throughput).unwrap();
        assert!((gain.factor - 2.0).abs() < 1e-9 && gain.low > 1.99, "{gain:?}");
    }

    #[test]
    fn another_mix_alone_is_neither_gain_nor_loss() {
        let before = vec![look((1000, 200), (100, 800)); 3];
        let after = vec![look((100, 200), (1000, 800)); 3];
        for goal in [Goal::Throughput, Goal::Mean, Goal::P99] {
            let gain = delivered(&before, &after, goal).unwrap();
            assert!((gain.factor - 1.0).abs() < 1e-9, "{goal}: {gain:?}");
        }
    }

    #[test]
    fn looks_that_disagree_have_a_wide_interval() {
        let before = vec![look((100, 200), (0, 0)); 3];
        let after = [100, 200, 600].map(|us| look((100, us), (0, 0)));
        let gain = delivered(&before, &after, Goal::Mean).unwrap();
        assert!(gain.low < 0.4 && gain.high > 1.2, "{gain:?}");
    }

    #[test]
    fn nothing_is_said_of_what_has_nothing_in_common() {
        let reads = vec![look((100, 200), (0, 0)); 3];
        let writes = vec![look((0, 0), (100, 200)); 3];
        assert_eq!(delivered(&reads, &writes, Goal::Mean), None);
        assert_eq!(delivered(&reads, &[], Goal::Mean), None);
        assert_eq!(delivered(&[], &[], Goal::Mean), None);
    }

    #[test]
    fn the_slowest_in_a_hundred_are_told_from_the_mean() {
        let mut slow = look((100, 100), (0, 0));
        slow.records[0].completed_ns = Some(50_000_000);
        slow.records[1].completed_ns = Some(50_000_000);
        let (even, slow) = (vec![look((100, 600), (0, 0)); 3], vec![slow; 3]);
        let gain = |goal| delivered(&even, &slow, goal).unwrap().factor;
        assert!(gain(Goal::P99) < 0.02 && gain(Goal::Mean) > 0.5);
    }
}
