//! What the drive has read or written and still holds: a few contiguous segments, the least
//! recently used one going first. On most drives a write changes what is held and does not drive it
//! out.

use super::layout::Sector;
use super::parameters::ReadBufferParameters;
use std::collections::VecDeque;
use std::ops::Range;

/// Where the contents of a segment came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Read,
    Written,
}

#[derive(Clone, Debug)]
struct Segment {
    range: Range<Sector>,
    origin: Origin,
}

impl Segment {
    fn holds(&self, range: &Range<Sector>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }
}

/// How many segments there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentsMax {
    pub read: usize,
    pub written: usize,
    /// Of both together.
    pub all: usize,
}

impl SegmentsMax {
    pub(super) fn new(parameters: &ReadBufferParameters) -> Self {
        let read = parameters.segments;
        let written = parameters.written_segments.unwrap_or(read);
        let all = if parameters.shares_segments { read } else { read + written };
        Self { read, written, all }
    }

    fn of(&self, origin: Origin) -> usize {
        match origin {
            Origin::Read => self.read,
            Origin::Written => self.written,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ReadBuffer {
    /// Most recently used first.
    segments: VecDeque<Segment>,
    segments_max: SegmentsMax,
    segment_sectors: u64,
}

impl ReadBuffer {
    pub(super) fn new(segments_max: SegmentsMax, segment_sectors: u64) -> Self {
        let segments = VecDeque::with_capacity(segments_max.all + 1);
        Self { segments, segments_max, segment_sectors }
    }

    /// Whether the whole range is held; marks its segment as used.
    pub(super) fn hit(&mut self, range: &Range<Sector>) -> bool {
        let holding = |origin| {
            let holds = |held: &Segment| held.origin == origin && held.holds(range);
            self.segments.iter().position(holds)
        };
        let Some(index) = holding(Origin::Written).or_else(|| holding(Origin::Read)) else {
            return false;
        };
        let segment = self.segments.remove(index).expect("found above");
        self.segments.push_front(segment);
        true
    }

    /// The segment of what was read that holds the whole range.
    pub(super) fn segment_of(&self, range: &Range<Sector>) -> Option<Range<Sector>> {
        self.read().find(|held| held.holds(range)).map(|held| held.range.clone())
    }

    /// Up to where what starts there is held.
    pub(super) fn held_until(&self, start: Sector) -> Sector {
        let holding = self.segments.iter().filter(|held| held.range.contains(&start));
        holding.map(|held| held.range.end).max().unwrap_or(start)
    }

    /// Whether what starts there goes on where a held segment ends, or within it.
    pub(super) fn is_continued_at(&self, start: Sector) -> bool {
        self.read().any(|held| (held.range.start..=held.range.end).contains(&start))
    }

    fn read(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|held| held.origin == Origin::Read)
    }

    /// Drops what was read up to the end of a range.
    pub(super) fn give_up(&mut self, range: &Range<Sector>) {
        let holding = |held: &&mut Segment| held.origin == Origin::Read && held.holds(range);
        for Segment { range: held, .. } in self.segments.iter_mut().filter(holding) {
            held.start = range.end;
        }
        self.segments.retain(|held| !held.range.is_empty());
    }

    /// Drops the segments' parts from where a write overlaps them.
    pub(super) fn forget(&mut self, range: &Range<Sector>) {
        for Segment { range: held, .. } in &mut self.segments {
            if held.start < range.end && range.start < held.end {
                held.end = range.start.max(held.start);
            }
        }
        self.segments.retain(|held| !held.range.is_empty());
    }

    /// Takes in what was read or written, behind the segment that it continues if there is one.
    pub(super) fn add(&mut self, range: Range<Sector>, origin: Origin) {
        if self.segments_max.of(origin) == 0 || range.is_empty() {
            return;
        }
        let continues = |held: &Segment| {
            let places = held.range.start..=held.range.end;
            held.origin == origin && places.contains(&range.start)
        };
        let start = match self.segments.iter().position(continues) {
            Some(index) => self.segments.remove(index).expect("found above").range.start,
            None => range.start,
        };
        let start = start.max(range.end.saturating_sub(self.segment_sectors));
        self.segments.push_front(Segment { range: start..range.end, origin });
        self.evict(origin);
    }

    fn evict(&mut self, origin: Origin) {
        let is_alike = |held: &Segment| held.origin == origin;
        if self.segments.iter().filter(|held| is_alike(held)).count() > self.segments_max.of(origin)
        {
            let last = self.segments.iter().rposition(is_alike).expect("there are too many");
            self.segments.remove(last);
        }
        self.segments.truncate(self.segments_max.all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(read: usize, written: usize, all: usize) -> ReadBuffer {
        ReadBuffer::new(SegmentsMax { read, written, all }, 100)
    }

    #[test]
    fn a_stream_extends_its_segment_and_keeps_its_newest_part() {
        let mut buffer = buffer(2, 0, 2);
        buffer.add(0..60, Origin::Read);
        buffer.add(60..120, Origin::Read);
        assert!(buffer.hit(&(50..120)));
        assert!(!buffer.hit(&(0..60)));
        assert_eq!((buffer.held_until(60), buffer.held_until(120)), (120, 120));
    }

    #[test]
    fn the_least_recently_used_segment_goes_first() {
        let mut buffer = buffer(2, 0, 2);
        buffer.add(0..10, Origin::Read);
        buffer.add(1000..1010, Origin::Read);
        assert!(buffer.hit(&(0..10)));
        buffer.add(2000..2010, Origin::Read);
        assert!(buffer.hit(&(0..10)));
        assert!(!buffer.hit(&(1000..1010)));
    }

    #[test]
    fn what_a_write_replaces_is_forgotten_with_what_lies_behind_it() {
        let mut buffer = buffer(3, 0, 3);
        buffer.add(0..10, Origin::Read);
        buffer.add(20..30, Origin::Read);
        buffer.forget(&(5..22));
        assert!(buffer.hit(&(0..5)));
        assert!(!buffer.hit(&(4..6)));
        assert!(!buffer.hit(&(22..30)));
    }

    #[test]
    fn what_was_written_has_segments_beside_or_among_those_for_reads() {
        for (all, kept) in [(3, true), (2, false)] {
            let mut buffer = buffer(2, 1, all);
            buffer.add(0..10, Origin::Read);
            buffer.add(1000..1010, Origin::Read);
            buffer.add(50..60, Origin::Written);
            buffer.add(60..70, Origin::Read);
            assert!(buffer.hit(&(50..60)), "a read goes on behind no write");
            assert!(buffer.hit(&(60..70)));
            assert_eq!(buffer.hit(&(1000..1010)), kept);
            buffer.add(80..90, Origin::Written);
            assert!(!buffer.hit(&(50..60)), "one segment for writes");
        }
    }
}
