//! What the drive has read or written and still holds: a few contiguous segments, the least
//! recently used one going first. On most drives a write changes what is held and does not drive it
//! out.

use super::layout::Sector;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct ReadBuffer {
    /// Most recently used first.
    segments: VecDeque<Range<Sector>>,
    segments_max: usize,
    segment_sectors: u64,
}

impl ReadBuffer {
    pub(super) fn new(segments_max: usize, segment_sectors: u64) -> Self {
        Self { segments: VecDeque::with_capacity(segments_max), segments_max, segment_sectors }
    }

    /// Whether the whole range is held; marks its segment as used.
    pub(super) fn hit(&mut self, range: &Range<Sector>) -> bool {
        let holds = |held: &Range<Sector>| held.start <= range.start && range.end <= held.end;
        let Some(index) = self.segments.iter().position(holds) else { return false };
        let segment = self.segments.remove(index).expect("found above");
        self.segments.push_front(segment);
        true
    }

    /// The segment that holds the whole range.
    pub(super) fn segment_of(&self, range: &Range<Sector>) -> Option<Range<Sector>> {
        let holds = |held: &&Range<Sector>| held.start <= range.start && range.end <= held.end;
        self.segments.iter().find(holds).cloned()
    }

    /// Whether what starts there goes on where a held segment ends, or within it.
    pub(super) fn is_continued_at(&self, start: Sector) -> bool {
        self.segments.iter().any(|held| (held.start..=held.end).contains(&start))
    }

    /// Drops the segments' parts from where a write overlaps them.
    pub(super) fn forget(&mut self, range: &Range<Sector>) {
        for held in &mut self.segments {
            if held.start < range.end && range.start < held.end {
                held.end = range.start.max(held.start);
            }
        }
        self.segments.retain(|held| !held.is_empty());
    }

    /// Takes in what was read, behind the segment that it continues if there is one.
    pub(super) fn add(&mut self, range: Range<Sector>) {
        if self.segments_max == 0 || range.is_empty() {
            return;
        }
        let continues = |held: &Range<Sector>| (held.start..=held.end).contains(&range.start);
        let start = match self.segments.iter().position(continues) {
            Some(index) => self.segments.remove(index).expect("found above").start,
            None => range.start,
        };
        let start = start.max(range.end.saturating_sub(self.segment_sectors));
        self.segments.push_front(start..range.end);
        self.segments.truncate(self.segments_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_extends_its_segment_and_keeps_its_newest_part() {
        let mut buffer = ReadBuffer::new(2, 100);
        buffer.add(0..60);
        buffer.add(60..120);
        assert!(buffer.hit(&(50..120)));
        assert!(!buffer.hit(&(0..60)));
    }

    #[test]
    fn the_least_recently_used_segment_goes_first() {
        let mut buffer = ReadBuffer::new(2, 100);
        buffer.add(0..10);
        buffer.add(1000..1010);
        assert!(buffer.hit(&(0..10)));
        buffer.add(2000..2010);
        assert!(buffer.hit(&(0..10)));
        assert!(!buffer.hit(&(1000..1010)));
    }

    #[test]
    fn what_a_write_replaces_is_forgotten_with_what_lies_behind_it() {
        let mut buffer = ReadBuffer::new(3, 100);
        buffer.add(0..10);
        buffer.add(20..30);
        buffer.forget(&(5..22));
        assert!(buffer.hit(&(0..5)));
        assert!(!buffer.hit(&(4..6)));
        assert!(!buffer.hit(&(22..30)));
    }
}
