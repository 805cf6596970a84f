//! The heat of blocks: what the map keeps for the policy of eviction.
//!
//! It stands at the place of the published version, and goes over to the next one: with a hit,
//! where the next one was written, and without, where reclaim moved the block.
//!
//! **Invariants**
//! - Only published versions are resident.

use super::extents::{Extents, Span};
use super::{LineMap, State, Tag};
use crate::eviction::{Group, Heat, Held, Residents};
use crate::types::{BlockRun, CoreBlock, SlotIndex};

/// Blocks that were published because somebody asked for them, and that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub run: BlockRun,
    pub slot: SlotIndex,
    /// They were resident before.
    pub is_hit: bool,
}

impl LineMap {
    #[inline]
    pub fn heat_at(&self, slot: SlotIndex) -> Heat {
        self.extents.heat(slot.0)
    }

    /// Marks blocks that are published and lie in a row.
    #[inline]
    pub fn set_heats_at(&mut self, slot: SlotIndex, count: u64, heat: Heat) {
        let places = slot.0..slot.0 + count as u32;
        let is_plain =
            self.by_class.is_none() && self.extents.common_heat(places.clone()) == Some(Heat::NONE);
        match self.extents.common_tag(places.clone()).filter(|_| is_plain) {
            Some(tag) => {
                self.held.add_many(heat, count);
                self.held_clean += if tag.is_clean() && heat.is_resident() { count } else { 0 };
                self.extents.set_heats(places, heat);
            }
            None => places.for_each(|place| self.set_heat_at(SlotIndex(place), heat)),
        }
    }

    /// How many of so many places, from one on, hold none that is resident.
    #[inline]
    pub fn cold_from(&self, slot: SlotIndex, count: u64) -> u64 {
        let places = slot.0..slot.0 + count as u32;
        if self.extents.common_heat(places.clone()) == Some(Heat::NONE) {
            return count;
        }
        let is_cold = |place: &u32| !self.extents.heat(*place).is_resident();
        places.take_while(is_cold).count() as u64
    }

    #[inline]
    pub fn set_heat_at(&mut self, slot: SlotIndex, heat: Heat) {
        let (before, tag) = (self.extents.heat(slot.0), self.extents.tag(slot.0));
        self.held.subtract(before);
        self.held.add(heat);
        if let Some(table) = &mut self.by_class {
            table.reheat(slot.0, before, heat);
        }
        if tag.is_clean() {
            self.held_clean += u64::from(heat.is_resident());
            self.held_clean -= u64::from(before.is_resident());
        }
        self.extents.set_heat(slot.0, heat);
    }

    /// A hit of a resident block.
    #[inline]
    pub fn warm(&mut self, slot: SlotIndex, heat: Heat) {
        debug_assert!(heat.is_resident());
        if !heat.is_hottest() {
            self.extents.set_heat(slot.0, heat.warmer());
        }
    }

    /// A version on its way to its place is a copy by reclaim.
    pub fn mark_moved(&mut self, slot: SlotIndex) {
        self.moving += 1;
        self.extents.set_heat(slot.0, Heat::MOVED);
    }

    /// Whether a version on its way to its place is one.
    pub fn is_moved(&self, slot: SlotIndex) -> bool {
        self.moving > 0 && self.extents.heat(slot.0) == Heat::MOVED
    }

    /// Residents that the core has for good.
    pub fn held_clean(&self) -> u64 {
        self.held_clean
    }

    /// Bytes for the heat, where it has no place in the map itself.
    pub fn heat_bytes(&self) -> u64 {
        self.extents.heat_bytes()
    }

    /// Whether residents that are published are noted, beside the others.
    pub fn note_hits(&mut self, wanted: bool) {
        self.notes_hits = wanted;
    }

    /// What has been published since this was called last. The memory goes back by
    /// [`LineMap::return_asked`].
    pub fn take_asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    pub fn return_asked(&mut self, mut asked: Vec<Asked>) {
        asked.clear();
        self.asked = asked;
    }

    /// Which of an extent's blocks, named by a bit each, reclaim has moved.
    #[inline]
    pub(super) fn moved_of(&mut self, span: &Span, blocks: u64) -> u64 {
        let mut moved = 0;
        if self.moving == 0 {
            return moved;
        }
        for index in bits(blocks) {
            let place = span.place + index;
            if self.extents.heat(place) == Heat::MOVED {
                self.cool(place);
                moved |= 1 << index;
            }
        }
        moved
    }

    #[inline]
    pub(super) fn note_asked(&mut self, span: &Span, blocks: u64) {
        let mut left = blocks;
        while left != 0 {
            let first = left.trailing_zeros();
            let len = (left >> first).trailing_ones();
            let slot = SlotIndex(span.place + first);
            let cold = self.cold_from(slot, len.into()) as u32;
            let is_hit = cold == 0;
            let len = if is_hit { self.warm_from(slot, len) } else { cold };
            if !is_hit || self.notes_hits {
                let block = CoreBlock(span.block + u64::from(first));
                let run = BlockRun { first: block, count: len.into() };
                self.asked.push(Asked { run, slot, is_hit });
            }
            left &= !(u64::MAX >> (u64::BITS - len) << first);
        }
    }

    /// How many of so many places, from one on, hold residents.
    #[inline]
    fn warm_from(&self, slot: SlotIndex, count: u32) -> u32 {
        let is_warm = |place: &u32| self.extents.heat(*place).is_resident();
        (slot.0..slot.0 + count).take_while(is_warm).count() as u32
    }

    /// The heat goes from an older version to a newer one.
    #[inline]
    pub(super) fn hand_over(&mut self, older: u32, newer: u32, is_moved: bool) {
        if self.by_class.is_some() {
            self.hand_class_over(older, newer, is_moved);
        }
        let heat = self.extents.heat(older);
        if heat.is_resident() {
            self.held_clean -= u64::from(self.extents.tag(older).is_clean());
            self.held_clean += u64::from(self.extents.tag(newer).is_clean());
            self.extents.set_heat(older, Heat::NONE);
            self.extents.set_heat(newer, if is_moved { heat } else { heat.warmer() });
        }
    }

    /// A place is about to be freed.
    #[inline]
    pub(super) fn cool(&mut self, place: u32) {
        let heat = self.extents.heat(place);
        if heat != Heat::NONE {
            self.moving -= u32::from(heat == Heat::MOVED);
            self.set_heat_at(SlotIndex(place), Heat::NONE);
        }
    }

    pub(super) fn check_heat(&self) {
        let (mut held, mut held_clean, mut moving) = (Held::default(), 0, 0);
        for slot in (0..self.extents.places()).map(SlotIndex) {
            let heat = self.heat_at(slot);
            let state = self.state(slot);
            let is_published = !matches!(state, State::Free | State::Pending);
            assert!(is_published || !heat.is_resident(), "resident before it is published");
            assert!(state != State::Free || heat == Heat::NONE, "what is free has no heat");
            held.add(heat);
            moving += u32::from(heat == Heat::MOVED);
            held_clean += u64::from(heat.is_resident() && state == State::Clean);
        }
        let found = (self.held, self.held_clean, self.moving);
        assert_eq!((held, held_clean, moving), found);
    }
}

impl Residents for LineMap {
    fn heat(&self, block: CoreBlock, group: Group) -> Heat {
        let place = self.published_place(block).filter(|place| self.is_in(group, *place));
        place.map_or(Heat::NONE, |place| self.extents.heat(place))
    }

    fn change(&mut self, block: CoreBlock, group: Group, change: fn(Heat) -> Heat) -> Heat {
        let Some(place) = self.published_place(block) else { return Heat::NONE };
        if !self.is_in(group, place) {
            return Heat::NONE;
        }
        let before = self.extents.heat(place);
        if before.is_resident() {
            self.set_heat_at(SlotIndex(place), change(before));
        }
        before
    }

    #[inline]
    fn held(&self, group: Group) -> Held {
        self.held_by(group)
    }

    fn foresee(&self, block: CoreBlock, step: u32) {
        self.extents.foresee(block.0, step);
    }
}

impl LineMap {
    /// How many blocks are resident, of whatever class.
    pub fn residents(&self) -> u64 {
        self.held.all
    }

    #[inline]
    fn is_in(&self, group: Group, place: u32) -> bool {
        self.by_class.as_ref().is_none_or(|table| table.group(place) == group)
    }

    #[inline]
    fn published_place(&self, block: CoreBlock) -> Option<u32> {
        let is_published = |place: &u32| Tag::is_published(self.extents.tag(*place));
        places_of(&self.extents, block).find(is_published)
    }
}

/// The places of all versions of a block, newest first.
fn places_of(extents: &Extents, block: CoreBlock) -> impl Iterator<Item = u32> + '_ {
    let mut at = extents.first(block.0);
    std::iter::from_fn(move || {
        while at != super::NONE {
            let span = extents.span(at);
            at = extents.next(at);
            if let Some(place) = span.place_of(block.0) {
                return Some(place);
            }
        }
        None
    })
}

/// The places of the bits that are set.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let index = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        index
    })
}
