//! Versions whose record has been written, and those that they supersede.

use super::span::Span;
use super::{LineMap, NONE, overlap};
use crate::eviction::Heat;
use crate::types::SlotIndex;
use std::ops::Range;

impl LineMap {
    /// The record of pending versions has been written: the older versions are superseded. Answers
    /// how many there were: some may have been superseded or removed meanwhile.
    pub fn publish(&mut self, slot: SlotIndex, count: u32) -> u32 {
        if self.extents.is_by_block() && self.is_counted_whole() {
            let places = slot.0..slot.0 + count;
            return places.map(|place| u32::from(self.publish_block(place))).sum();
        }
        let mut published = 0;
        self.each_extent(slot, count, |map, at, span, places| {
            let Some(first) = map.first_pending(places.clone()) else { return };
            let line = map.extents.line_of(span.block);
            if map.by_class.is_some() {
                map.give_class(line, first);
            }
            let heat = map.take_over(at, line);
            let blocks = map.publish_places(span, places, heat);
            let has_older = map.supersede(at, span, blocks, heat);
            map.note_asked(at, span.block + u64::from(first - span.place), first, has_older);
            published += blocks.count_ones();
        });
        published
    }

    /// One place, with lines of one block: most blocks have no other version.
    #[inline]
    fn publish_block(&mut self, place: u32) -> bool {
        let tag = self.extents.tag(place);
        if !tag.is_pending() {
            return false;
        }
        let block = self.extents.block(place);
        let is_only = self.extents.next(place) == NONE;
        let heat = match is_only {
            true => Heat::NONE,
            false => self.take_over(place, self.extents.line_of(block)),
        };
        self.retag(place, tag, tag.published(), heat);
        let has_older = !is_only && self.supersede(place, &self.extents.span(place), 1, heat);
        self.note_asked(place, block, place, has_older);
        true
    }

    /// The same of copies by reclaim, which nobody has asked for.
    pub fn publish_moved(&mut self, slot: SlotIndex, count: u32) -> u32 {
        let mut published = 0;
        self.each_extent(slot, count, |map, at, span, places| {
            if map.first_pending(places.clone()).is_none() {
                return;
            }
            if map.by_class.is_some() {
                map.hand_classes_on(span, places.clone());
            }
            let heat = map.take_over(at, map.extents.line_of(span.block));
            let blocks = map.publish_places(span, places, heat);
            map.supersede(at, span, blocks, heat);
            published += blocks.count_ones();
        });
        published
    }

    #[inline]
    fn first_pending(&self, mut places: Range<u32>) -> Option<u32> {
        places.find(|place| self.extents.tag(*place).is_pending())
    }

    /// Drops the versions behind an extent in its chain of those of its blocks that are named by a
    /// bit each, of a line with this heat. Answers whether one of them was published.
    #[inline]
    fn supersede(&mut self, at: u32, newer: &Span, blocks: u64, heat: Heat) -> bool {
        let (mut before, mut at) = (Some(at), self.extents.next(at));
        let mut has_older = false;
        while at != NONE {
            let (span, next) = (self.extents.span(at), self.extents.next(at));
            let (from, to) = overlap(&span, newer.block, newer.end_block());
            if from < to {
                has_older |= self.supersede_in(&span, (from, to), newer.block, blocks, heat);
                self.step(&mut before, at, &span);
            } else {
                before = Some(at);
            }
            at = next;
        }
        has_older
    }

    /// Of the blocks of an extent from one to another.
    #[inline]
    fn supersede_in(
        &mut self,
        older: &Span,
        (from, to): (u64, u64),
        first: u64,
        blocks: u64,
        heat: Heat,
    ) -> bool {
        let place_of = |block: u64| older.place + (block - older.block) as u32;
        let all = u64::MAX >> (u64::BITS - (to - from) as u32) << (from - first);
        let is_published = |map: &Self, place: u32| map.extents.tag(place).is_published();
        let places = place_of(from)..place_of(to);
        if blocks & all == all {
            let has_older = places.clone().any(|place| is_published(self, place));
            self.release_places(places, heat);
            return has_older;
        }
        let mut has_older = false;
        for block in (from..to).filter(|block| blocks >> (block - first) & 1 == 1) {
            let place = place_of(block);
            has_older |= is_published(self, place);
            self.release(place, heat);
        }
        has_older
    }
}
