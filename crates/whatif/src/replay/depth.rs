//! How many requests were in flight when one was recorded.

use headpond_trace::TraceRecord;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Follows a recording in order of issue.
#[derive(Debug, Default)]
pub(super) struct RecordedDepth {
    /// When those that are in flight were answered, the earliest first.
    answers: BinaryHeap<Reverse<u64>>,
}

impl RecordedDepth {
    /// In flight when this one was issued, itself included; nothing where nobody knows when it was
    /// answered.
    pub fn at(&mut self, record: &TraceRecord) -> Option<u32> {
        let completed_ns = record.completed_ns?;
        while self.answers.peek().is_some_and(|Reverse(answer)| *answer <= record.issued_ns) {
            self.answers.pop();
        }
        self.answers.push(Reverse(completed_ns));
        Some(self.answers.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_trace::Op;

    fn record(issued_ns: u64, completed_ns: Option<u64>) -> TraceRecord {
        TraceRecord { completed_ns, ..TraceRecord::new(issued_ns, Op::Read, 0, 4096) }
    }

    #[test]
    fn what_was_answered_in_time_is_not_in_flight() {
        let mut depth = RecordedDepth::default();
        let told = [(0, 10), (1, 5), (2, 9), (5, 20), (9, 11), (30, 31)];
        let depths = told.map(|(from, to)| depth.at(&record(from, Some(to))).unwrap());
        assert_eq!(depths, [1, 2, 3, 3, 3, 1]);
        assert_eq!(depth.at(&record(40, None)), None);
    }
}
