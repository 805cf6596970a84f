//! Stories of requests on their way through the kernel.

use super::*;
use crate::event::Category;

const WRITE: Category = Category::WRITE;

struct Story {
    pairer: Pairer,
    names: Names,
    tally: Tally,
    records: Vec<TraceRecord>,
}

impl Story {
    fn new() -> Self {
        let (names, tally) = (Names::default(), Tally::default());
        Self { pairer: Pairer::new(), names, tally, records: Vec::new() }
    }

    fn event(&mut self, time_ns: u64, action: Action, category: Category, range: (u64, u32)) {
        self.event_with_error(time_ns, action, category, range, 0);
    }

    fn event_with_error(
        &mut self,
        time_ns: u64,
        action: Action,
        category: Category,
        (sector, sectors): (u64, u32),
        error: u16,
    ) {
        let event = BlockEvent {
            time_ns,
            sector,
            bytes: sectors * 512,
            pid: 1,
            device: 254 << 20,
            cpu: 0,
            category,
            action,
            error,
        };
        self.pairer.take(&event, &mut self.names, &mut self.tally);
        while let Some(record) = self.pairer.ready(&mut self.tally) {
            self.records.push(record);
        }
    }

    fn end(mut self) -> (Vec<TraceRecord>, Tally) {
        self.pairer.end(&mut self.tally);
        while let Some(record) = self.pairer.leave(&mut self.tally) {
            self.records.push(record);
        }
        assert!(self.pairer.index.is_empty() && self.pairer.flushes.is_empty());
        (self.records, self.tally)
    }
}

#[test]
fn queue_dispatch_complete_become_one_request() {
    let mut story = Story::new();
    story.event(100, Action::Queue, WRITE | Category::SYNC, (8, 8));
    story.event(130, Action::Issue, WRITE, (8, 8));
    story.event(200, Action::Complete, WRITE, (8, 8));
    let (records, tally) = story.end();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].issued_ns, 0);
    assert_eq!((records[0].queue_ns(), records[0].service_ns()), (Some(30), Some(70)));
    assert_eq!((records[0].offset_bytes, records[0].length_bytes), (4096, 4096));
    assert_eq!(records[0].flags, RecordFlags::SYNC);
    assert_eq!(tally, Tally::default());
}

#[test]
fn split_request_ends_with_its_last_part() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 4096));
    story.event(1, Action::Split, WRITE, (0, 4096));
    story.event(2, Action::Issue, WRITE, (0, 2560));
    story.event(3, Action::Issue, WRITE, (2560, 1536));
    story.event(50, Action::Complete, WRITE, (2560, 1536));
    assert!(story.records.is_empty(), "one part is still on its way");
    story.event(90, Action::Complete, WRITE, (0, 2560));
    let (records, tally) = story.end();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].dispatched_ns, records[0].completed_ns), (Some(2), Some(90)));
    assert!(records[0].flags.contains(RecordFlags::SPLIT));
    assert_eq!(tally.splits, 1);
}

#[test]
fn merged_requests_end_together() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 8));
    story.event(5, Action::Queue, WRITE, (8, 8));
    story.event(6, Action::BackMerge, WRITE, (8, 8));
    story.event(9, Action::Issue, WRITE, (0, 16));
    story.event(30, Action::Complete, WRITE, (0, 16));
    let (records, tally) = story.end();
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.completed_ns == Some(30)));
    assert_eq!(records[1].flags, RecordFlags::MERGED);
    assert_eq!((tally.merges, tally.incomplete), (1, 0));
}

#[test]
fn two_requests_for_the_same_range_end_one_after_the_other() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 8));
    story.event(1, Action::Queue, WRITE, (0, 8));
    story.event(10, Action::Complete, WRITE, (0, 8));
    story.event(20, Action::Complete, WRITE, (0, 8));
    let (records, _) = story.end();
    assert_eq!(records[0].completed_ns, Some(10));
    assert_eq!(records[1].completed_ns, Some(20));
}

#[test]
fn request_told_to_try_again_is_marked_and_its_repetition_is_not() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 4096));
    story.event_with_error(1, Action::Complete, WRITE, (0, 4096), 11);
    story.event(5, Action::Queue, WRITE, (0, 4096));
    story.event(9, Action::Complete, WRITE, (0, 4096));
    let (records, _) = story.end();
    assert!(records[0].flags.contains(RecordFlags::RETRIED));
    assert_eq!(records[1].flags, RecordFlags::empty());
    assert_eq!(records[1].completed_ns, Some(9));
}

#[test]
fn requeued_request_counts_its_last_dispatch() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 8));
    story.event(1, Action::Issue, WRITE, (0, 8));
    story.event(2, Action::Requeue, WRITE, (0, 8));
    story.event(7, Action::Issue, WRITE, (0, 8));
    story.event(9, Action::Complete, WRITE, (0, 8));
    let (records, tally) = story.end();
    assert_eq!((records[0].queue_ns(), records[0].service_ns()), (Some(7), Some(2)));
    assert_eq!(tally.requeues, 1);
}

#[test]
fn flushes_that_share_one_end_each() {
    let flush = Category::FLUSH | Category::WRITE;
    let mut story = Story::new();
    story.event(0, Action::Queue, flush, (0, 0));
    story.event(1, Action::Queue, flush, (0, 0));
    story.event(2, Action::Issue, Category::FLUSH, (0, 0));
    story.event(8, Action::Complete, Category::FLUSH, (0, 0));
    story.event(9, Action::Complete, flush, (0, 0));
    let (records, tally) = story.end();
    assert!(records.iter().all(|record| record.op == Op::Flush && record.service_ns().is_some()));
    assert_eq!(tally.incomplete, 0);
}

#[test]
fn requests_leave_in_the_order_they_came() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 8));
    story.event(1, Action::Queue, WRITE, (64, 8));
    story.event(2, Action::Complete, WRITE, (64, 8));
    assert!(story.records.is_empty());
    story.event(3, Action::Complete, WRITE, (0, 8));
    let (records, _) = story.end();
    assert_eq!(records[0].offset_bytes, 0);
    assert_eq!(records[1].offset_bytes, 64 * 512);
}

#[test]
fn lost_completions_stay_bounded_and_are_counted() {
    let mut story = Story::new();
    for number in 0..(OUTSTANDING_MAX as u64 + 100) {
        story.event(number, Action::Queue, WRITE, (number * 8, 8));
    }
    assert_eq!(story.records.len(), 100);
    let (records, tally) = story.end();
    assert_eq!(records.len(), OUTSTANDING_MAX + 100);
    assert_eq!(tally.incomplete, records.len() as u64);
}

#[test]
fn trace_of_dispatches_alone_still_gives_requests() {
    let mut story = Story::new();
    story.event(0, Action::Issue, Category::READ, (0, 8));
    story.event(4, Action::Complete, Category::READ, (0, 8));
    let (records, tally) = story.end();
    assert_eq!((records[0].queue_ns(), records[0].service_ns()), (Some(0), Some(4)));
    assert_eq!(tally.dispatched_unqueued, 1);
}

#[test]
fn completions_alone_are_the_requests_and_before_others_they_are_not() {
    for is_followed in [false, true] {
        let mut story = Story::new();
        story.event(5, Action::Complete, WRITE, (0, 8));
        story.event(9, Action::Complete, Category::FLUSH, (0, 0));
        story.event(9, Action::Complete, WRITE, (0, 8));
        if is_followed {
            story.event(10, Action::Queue, WRITE, (64, 8));
        }
        let (records, tally) = story.end();
        let told: Vec<_> = records.iter().map(|it| (it.issued_ns, it.completed_ns)).collect();
        let counts = (tally.completed_unqueued, tally.unmatched_completions, tally.incomplete);
        match is_followed {
            false => {
                assert_eq!(told, [(0, None), (4, None), (4, None)]);
                assert_eq!(counts, (3, 0, 0));
            }
            true => {
                assert_eq!(told, [(5, None)]);
                assert_eq!(counts, (0, 2, 1));
            }
        }
    }
}

#[test]
fn many_completions_alone_are_not_kept_until_the_end() {
    let mut story = Story::new();
    for number in 0..ORPHANS_MAX as u64 + 10 {
        story.event(number, Action::Complete, WRITE, (number, 8));
    }
    assert_eq!(story.records.len(), ORPHANS_MAX + 10);
    let (records, tally) = story.end();
    assert_eq!(records.len() as u64, tally.completed_unqueued);
}

/// Without queue events each dispatch is one, also of what has not completed.
#[test]
fn dispatches_alone_are_a_request_each_but_for_what_is_requeued() {
    let mut story = Story::new();
    story.event(0, Action::Issue, WRITE, (0, 8));
    story.event(1, Action::Issue, WRITE, (0, 8));
    story.event(2, Action::Issue, Category::FLUSH, (0, 0));
    story.event(3, Action::Requeue, WRITE, (0, 8));
    story.event(4, Action::Issue, WRITE, (0, 8));
    let (records, tally) = story.end();
    assert_eq!((records.len(), tally.dispatched_unqueued), (3, 3));
    assert_eq!(records[2].op, Op::Flush);
    assert_eq!(records[0].dispatched_ns, Some(4));
}

#[test]
fn overlapping_requests_end_each_by_its_own_completion() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (0, 8));
    story.event(1, Action::Queue, WRITE, (4, 8));
    story.event(2, Action::Issue, WRITE, (4, 8));
    story.event(3, Action::Issue, WRITE, (0, 8));
    story.event(7, Action::Complete, WRITE, (4, 8));
    story.event(8, Action::Complete, WRITE, (0, 8));
    let (records, _) = story.end();
    let told: Vec<_> = records.iter().map(|it| (it.dispatched_ns, it.completed_ns)).collect();
    assert_eq!(told, [(Some(3), Some(8)), (Some(2), Some(7))]);
}

#[test]
fn remap_marks_the_request_that_follows_it() {
    let mut story = Story::new();
    story.event(0, Action::Remap, Category::READ, (800, 8));
    story.event(1, Action::Queue, Category::READ, (800, 8));
    story.event(2, Action::Queue, Category::READ, (0, 8));
    let (records, tally) = story.end();
    assert_eq!(records[0].flags, RecordFlags::REMAPPED);
    assert_eq!(records[1].flags, RecordFlags::empty());
    assert_eq!(tally.remaps, 1);
}

#[test]
fn range_beyond_64_bits_is_counted_and_left_out() {
    let mut story = Story::new();
    story.event(0, Action::Queue, WRITE, (u64::MAX / 2, 8));
    let (records, tally) = story.end();
    assert!(records.is_empty());
    assert_eq!(tally.impossible_ranges, 1);
}
