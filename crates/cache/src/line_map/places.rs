//! Places change what they are, and the counts with them: many at once where they are alike, as the
//! places of a line mostly are that was written whole.
//!
//! **Not here**: extents and chains.

use super::LineMap;
use super::extents::Span;
use super::version::Tag;
use crate::eviction::Heat;
use std::ops::Range;

impl LineMap {
    /// Answers which blocks of the extent have been published, a bit for each.
    #[inline]
    pub(super) fn publish_places(&mut self, span: &Span, places: Range<u32>) -> u64 {
        if let Some(tag) = self.extents.common_tag(places.clone())
            && tag.is_pending()
            && self.is_counted_whole()
        {
            // Who is pending is not resident.
            self.recount_all(places.len() as u64, tag, tag.published());
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
            self.retag(place, tag, tag.published());
            blocks |= 1 << (place - span.place);
        }
        blocks
    }

    /// Whether nobody counts blocks by something else than their state.
    #[inline]
    fn is_counted_whole(&self) -> bool {
        self.by_class.is_none() && self.by_core.is_none()
    }

    #[inline]
    pub(super) fn release_places(&mut self, places: Range<u32>) {
        if let Some(tag) = self.extents.common_tag(places.clone())
            && self.is_counted_whole()
            && self.extents.common_heat(places.clone()) == Some(Heat::NONE)
        {
            if tag.is_mapped() {
                self.recount_all(places.len() as u64, tag, Tag::FREE);
                self.extents.set_tags(places, Tag::FREE);
            }
            return;
        }
        places.for_each(|place| self.release(place));
    }

    #[inline]
    pub(super) fn release(&mut self, place: u32) {
        let tag = self.extents.tag(place);
        if tag.is_mapped() {
            self.cool(place);
            self.recount(place, tag, Tag::FREE);
            if let Some(table) = &mut self.by_class {
                table.release(place, tag);
            }
            self.extents.set_tag(place, Tag::FREE);
        }
    }

    #[inline]
    pub(super) fn retag(&mut self, place: u32, old: Tag, new: Tag) {
        self.recount(place, old, new);
        if let Some(table) = &mut self.by_class {
            table.retag(place, old, new);
        }
        if old.is_clean() != new.is_clean() && self.extents.heat(place).is_resident() {
            self.held_clean =
                self.held_clean + u64::from(new.is_clean()) - u64::from(old.is_clean());
        }
        self.extents.set_tag(place, new);
    }

    #[inline]
    pub(super) fn assert_free(&self, place: u32, len: u32) {
        let is_free = self.extents.common_tag(place..place + len) == Some(Tag::FREE);
        assert!(is_free, "slot is still in use");
    }
}
