//! The ring of the log's segments: head, tail and free segments.
//!
//! Segments are filled one after the other and freed in the same order, so that a version in an
//! older segment never outlives one, or a tombstone, in a younger segment.
//!
//! **Invariants**
//! - The used segments run from the tail to the head without a gap; the head is always used.
//! - Each used segment began with a later record than the one before it: a tail names one segment.
//! - A segment that is pinned (being read) is not freed.

use crate::layout::SliceLayout;
use crate::types::{Position, SegmentIndex, Sequence};

#[derive(Clone, Copy, Default)]
struct Segment {
    /// First record of the present contents.
    first: Sequence,
    pins: u32,
}

pub struct Ring {
    segments: Box<[Segment]>,
    head: SegmentIndex,
    /// Used segments, the head included.
    used: u32,
    /// Where the next record goes.
    position: Position,
    end_of_head: u64,
}

impl Ring {
    /// A ring whose used segments run from `tail` to that of `head`; the contents of segment i
    /// began with record `firsts[i]`.
    pub fn new(
        layout: &SliceLayout,
        firsts: &[Sequence],
        tail: SegmentIndex,
        head_segment: SegmentIndex,
        head: Position,
    ) -> Self {
        let count = layout.segments();
        assert_eq!(firsts.len(), count as usize);
        let used = (head_segment.0 + count - tail.0) % count + 1;
        let segment = |&first| Segment { first, pins: 0 };
        let end_of_head = layout.segment_start(head_segment).0 + layout.units_per_segment();
        assert!(head.0 <= end_of_head);
        Self {
            segments: firsts.iter().map(segment).collect(),
            head: head_segment,
            used,
            position: head,
            end_of_head,
        }
    }

    pub fn head(&self) -> SegmentIndex {
        self.head
    }

    pub fn tail(&self) -> SegmentIndex {
        self.ahead(self.head, 1 + self.free())
    }

    pub fn position(&self) -> Position {
        self.position
    }

    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.segments) as u64
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn free(&self) -> u32 {
        self.segments.len() as u32 - self.used
    }

    /// Units left in the head segment.
    pub fn room(&self) -> u64 {
        self.end_of_head - self.position.0
    }

    /// Takes units of the head segment.
    ///
    /// # Panics
    /// Where there is no room.
    pub fn advance(&mut self, units: u64) {
        assert!(units <= self.room(), "record crosses its segment");
        self.position = Position(self.position.0 + units);
    }

    /// Closes the head segment and opens the next one, whose first record will be `first`.
    ///
    /// # Panics
    /// Where no segment is free.
    pub fn open_next(&mut self, layout: &SliceLayout, first: Sequence) {
        assert!(self.free() > 0, "log ran into its own tail");
        self.head = self.after(self.head);
        self.used += 1;
        let start = layout.segment_start(self.head);
        self.position = start;
        self.end_of_head = start.0 + layout.units_per_segment();
        self.segments[self.head.0 as usize].first = first;
    }

    /// Frees the tail segment.
    ///
    /// # Panics
    /// Where it is the head, or being read.
    pub fn free_tail(&mut self) {
        assert!(self.used > 1, "the head is never freed");
        assert_eq!(self.segments[self.tail().0 as usize].pins, 0, "segment is being read");
        self.used -= 1;
    }

    pub fn after(&self, segment: SegmentIndex) -> SegmentIndex {
        self.ahead(segment, 1)
    }

    /// The segment so many further on, at most once around.
    fn ahead(&self, segment: SegmentIndex, by: u32) -> SegmentIndex {
        let (index, count) = (segment.0 + by, self.segments.len() as u32);
        SegmentIndex(if index < count { index } else { index - count })
    }

    pub fn first_record(&self, segment: SegmentIndex) -> Sequence {
        self.segments[segment.0 as usize].first
    }

    /// The oldest used segment that began with that record or a later one; the head where none did.
    pub fn first_from(&self, record: Sequence) -> SegmentIndex {
        let (tail, mut before, mut end) = (self.tail(), 0, self.used - 1);
        while before < end {
            let middle = before + (end - before) / 2;
            match self.first_record(self.ahead(tail, middle)) < record {
                true => before = middle + 1,
                false => end = middle,
            }
        }
        self.ahead(tail, before)
    }

    pub fn firsts(&self) -> Vec<Sequence> {
        self.segments.iter().map(|segment| segment.first).collect()
    }

    pub fn pin(&mut self, segment: SegmentIndex) {
        self.segments[segment.0 as usize].pins += 1;
    }

    /// Returns whether the segment is no longer being read.
    pub fn unpin(&mut self, segment: SegmentIndex) -> bool {
        let pins = &mut self.segments[segment.0 as usize].pins;
        *pins = pins.checked_sub(1).expect("unpinned more often than pinned");
        *pins == 0
    }

    /// Checks what is cheap to check only now and then; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let mut segment = self.tail();
        while segment != self.head {
            let next = self.after(segment);
            assert!(self.first_record(segment) < self.first_record(next), "a tail names two");
            segment = next;
        }
        assert!(self.position.0 <= self.end_of_head, "the log goes on behind its head");
        let mut free = (0..self.free()).map(|by| self.ahead(self.after(self.head), by));
        assert!(!free.any(|segment| self.is_pinned(segment)), "a free segment is being read");
    }

    pub fn is_pinned(&self, segment: SegmentIndex) -> bool {
        self.segments[segment.0 as usize].pins > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::ByteRange;
    use headpond_testkit::{Break, assert_trips};

    /// A ring whose only used segment has so many behind it, up to the end of the log.
    fn ring_before_the_end(behind: u32) -> (SliceLayout, Ring) {
        let layout = SliceLayout::new(ByteRange::at(0, 16 << 20), 256 << 10, 4096).unwrap();
        let count = layout.segments();
        let firsts = vec![Sequence(0); count as usize];
        let start = SegmentIndex(count - 1 - behind);
        let ring = Ring::new(&layout, &firsts, start, start, layout.segment_start(start));
        (layout, ring)
    }

    #[test]
    fn check_notices_what_is_wrong_with_a_ring() {
        let make = || {
            let (layout, mut ring) = ring_before_the_end(1);
            (5..8).for_each(|record| ring.open_next(&layout, Sequence(record)));
            ring
        };
        let breaks: [Break<Ring>; 4] = [
            ("a tail names two", |ring| ring.used += 1),
            ("a tail names two", |ring| ring.segments[0].first = Sequence(9)),
            ("behind its head", |ring| ring.position.0 = ring.end_of_head + 1),
            ("a free segment is being read", |ring| ring.pin(ring.after(ring.head()))),
        ];
        assert_trips(make, Ring::self_check, &breaks);
    }

    #[test]
    fn ring_runs_around_and_frees_in_order() {
        let (layout, mut ring) = ring_before_the_end(0);
        let start = ring.head();
        assert_eq!((ring.used(), ring.tail()), (1, start));
        ring.open_next(&layout, Sequence(5));
        assert_eq!((ring.head(), ring.tail()), (SegmentIndex(0), start));
        ring.free_tail();
        assert_eq!(ring.tail(), SegmentIndex(0));
        assert_eq!(ring.first_record(SegmentIndex(0)), Sequence(5));
        assert_eq!(ring.room(), layout.units_per_segment());
    }

    #[test]
    fn segment_of_a_record_is_found_around_the_end() {
        let (layout, mut ring) = ring_before_the_end(2);
        for index in 1..6 {
            ring.open_next(&layout, Sequence(10 * index));
        }
        for record in 0..60 {
            let mut expected = ring.tail();
            while expected != ring.head() && ring.first_record(expected) < Sequence(record) {
                expected = ring.after(expected);
            }
            assert_eq!(ring.first_from(Sequence(record)), expected, "record {record}");
        }
    }
}
