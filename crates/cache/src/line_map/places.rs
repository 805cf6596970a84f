//! State changes of places and of the counts: in bulk where they are equal, as places of a
//! completely written line mostly are.
//!
//! **Not here**: extents and chains.

use super::LineMap;
use super::span::Span;
use super::version::{Marks, State, Tag};
use crate::eviction::Heat;
use crate::types::{CoreBlock, SlotIndex};
use std::ops::Range;

impl LineMap {
    /// Answers which blocks of the extent, whose line has this heat, have been published, a bit for
    /// each.
    #[inline]
    pub(super) fn publish_places(&mut self, span: &Span, places: Range<u32>, heat: Heat) -> u64 {
        if let Some(tag) = self.extents.common_tag(places.clone())
            && tag.is_pending()
            && self.is_counted_whole()
        {
            self.recount_all(places.len() as u64, tag, tag.published());
            self.hold(heat, tag, tag.published(), places.len() as u64);
            self.extents.set_tags(places.clone(), tag.published());
            return u64::MAX >> (u64::BITS - places.len() as u32) << (places.start - span.place);
        }
        let mut blocks = 0u64;
        for place in places {
            let tag = self.extents.tag(place);
            if !tag.is_mapped() {
                continue;
            }
            assert!(tag.is_pending(), "published twice, now {:?}", tag.state());
            self.retag(place, tag, tag.published(), heat);
            blocks |= 1 << (place - span.place);
        }
        blocks
    }

    /// Whether nobody counts blocks by something else than their state.
    #[inline]
    pub(super) fn is_counted_whole(&self) -> bool {
        self.by_class.is_none() && self.by_core.is_none()
    }

    /// Of a line with this heat.
    #[inline]
    pub(super) fn release_places(&mut self, places: Range<u32>, heat: Heat) {
        if let Some(tag) = self.extents.common_tag(places.clone())
            && self.is_counted_whole()
        {
            if tag.is_mapped() {
                self.recount_all(places.len() as u64, tag, Tag::FREE);
                self.hold(heat, tag, Tag::FREE, places.len() as u64);
                self.extents.set_tags(places, Tag::FREE);
            }
            return;
        }
        places.for_each(|place| self.release(place, heat));
    }

    #[inline]
    pub(super) fn release(&mut self, place: u32, heat: Heat) {
        let tag = self.extents.tag(place);
        if tag.is_mapped() {
            self.hold(heat, tag, Tag::FREE, 1);
            self.recount(place, tag, Tag::FREE);
            if let Some(table) = &mut self.by_class {
                table.release(place, tag);
            }
            self.extents.set_tag(place, Tag::FREE);
        }
    }

    #[inline]
    pub(super) fn retag(&mut self, place: u32, old: Tag, new: Tag, heat: Heat) {
        self.hold(heat, old, new, 1);
        self.recount(place, old, new);
        if let Some(table) = &mut self.by_class {
            table.retag(place, old, new);
        }
        self.extents.set_tag(place, new);
    }

    /// Moves published blocks that are contiguous, here and on the core, from one state to another:
    /// those of them that are in that state, and still in these places.
    pub fn move_on(&mut self, first: CoreBlock, places: Range<u32>, from: State, to: State) {
        if self.extents.is_by_block() {
            for (place, block) in places.zip(first.0..) {
                let tag = self.extents.tag(place);
                if tag.state() == from && self.extents.block(place) == block {
                    let moved = Tag::new(to, to, tag.marks());
                    self.retag(place, tag, moved, self.extents.heat(place));
                }
            }
            return;
        }
        let mut place = places.start;
        while place < places.end {
            let Some(at) = self.extents.at_place(place) else {
                place += 1;
                continue;
            };
            let span = self.extents.span(at);
            let stop = span.end_place().min(places.end);
            // Both go up in step: where one block is in its place, so are the others.
            if span.place_of(first.0 + u64::from(place - places.start)) == Some(place) {
                self.move_places(place..stop, self.heat_by(at), from, to);
            }
            place = stop;
        }
    }

    /// The core has a dirty version, which nobody cleans any more; `false`, and nothing has
    /// happened, where it is not dirty any more, or not there.
    #[inline]
    pub fn end_cleaning(&mut self, slot: SlotIndex, block: CoreBlock) -> bool {
        if self.state_of(slot, block) != State::Dirty {
            return false;
        }
        let tag = self.extents.tag(slot.0);
        let written =
            Tag::new(State::Written, State::Written, tag.without(Marks::CLEANING).marks());
        self.retag(slot.0, tag, written, self.heat_at(slot));
        true
    }

    /// Of one line, with this heat.
    #[inline]
    fn move_places(&mut self, places: Range<u32>, heat: Heat, from: State, to: State) {
        if let Some(tag) = self.extents.common_tag(places.clone())
            && self.is_counted_whole()
        {
            if tag.state() == from {
                let moved = Tag::new(to, to, tag.marks());
                self.recount_all(places.len() as u64, tag, moved);
                self.hold(heat, tag, moved, places.len() as u64);
                self.extents.set_tags(places, moved);
            }
            return;
        }
        for place in places {
            let tag = self.extents.tag(place);
            if tag.state() == from {
                self.retag(place, tag, Tag::new(to, to, tag.marks()), heat);
            }
        }
    }

    #[inline]
    pub(super) fn assert_free(&self, place: u32, len: u32) {
        let is_free = self.extents.common_tag(place..place + len) == Some(Tag::FREE);
        assert!(is_free, "slot is still in use");
    }
}
