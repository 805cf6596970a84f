//! Residency marks and hit counts of lines, for the eviction policy.
//!
//! A resident line has its mark in one of its extents, the bearer. A newly published extent takes
//! the mark over, because look-ups find it first. When nothing of the bearer is published any more,
//! the mark moves to another extent of the line, or the line is no longer resident.
//!
//! **Invariants**
//! - A line has at most one bearer.
//! - A bearer has a published version.

use super::{LineMap, Marks, State, Tag, Version};
use crate::eviction::{Group, Heat, Held, Residents};
use crate::types::{CoreBlock, CoreLine, SlotIndex};
use std::ops::Range;

/// Blocks of one line that were published for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// One of them, and where it is.
    pub block: CoreBlock,
    pub slot: SlotIndex,
    /// The line is resident, and had one of them before.
    pub is_hit: bool,
}

/// The extent that has the mark of a resident line, for as long as the map stays as it is.
#[derive(Clone, Copy)]
pub struct Bearer(u32);

/// What a reader finds of a block: a version, but for its checksum, which lies elsewhere.
#[derive(Clone, Copy)]
pub struct FoundVersion {
    pub block: CoreBlock,
    pub slot: SlotIndex,
    pub unit: u8,
    pub state: State,
    pub marks: Marks,
    /// Of its line, if that is resident.
    pub bearer: Option<Bearer>,
}

impl FoundVersion {
    #[inline]
    fn new(block: CoreBlock, (place, unit, tag): (u32, u8, Tag), bearer: Option<u32>) -> Self {
        let (slot, bearer) = (SlotIndex(place), bearer.map(Bearer));
        Self { block, slot, unit, state: tag.state(), marks: tag.marks(), bearer }
    }

    pub fn is_payload_free(&self) -> bool {
        self.marks.contains(Marks::PAYLOAD_FREE)
    }
}

/// The marks of lines that were resident, in another life or for another policy. They are of one
/// map, and of no use once its extents have changed.
#[derive(Default)]
pub struct Heats {
    /// By extent; none where no line was resident.
    heats: Vec<Heat>,
    residents: u64,
}

impl Heats {
    /// How many lines were resident.
    pub fn residents(&self) -> u64 {
        self.residents
    }

    /// Of the line of which something is at a place.
    pub fn of(&self, map: &LineMap, slot: SlotIndex) -> Heat {
        self.find(map, slot).map_or(Heat::NONE, |at| self.heats[at as usize])
    }

    /// The line of which something is at a place, behind everything that was told before, was
    /// resident.
    pub fn add(&mut self, map: &LineMap, slot: SlotIndex, heat: Heat) {
        match self.find(map, slot) {
            // With what is newest of a line it queues, and for the class of that it counts.
            Some(older) => self.heats[older as usize] = Heat::NONE,
            None => self.residents += 1,
        }
        let at = map.extents.at_place(slot.0).expect("a place in use");
        self.heats.resize(map.extents.len(), Heat::NONE);
        self.heats[at as usize] = heat;
    }

    /// The extent that has the mark of the line of which something is at a place.
    fn find(&self, map: &LineMap, slot: SlotIndex) -> Option<u32> {
        let is_heated = |at: &u32| self.heats[*at as usize].is_resident();
        let at = map.extents.at_place(slot.0).filter(|_| self.residents > 0)?;
        if map.extents.is_by_block() || is_heated(&at) {
            return Some(at).filter(is_heated);
        }
        map.extents.of_line(map.extents.line_of(map.extents.block(at))).find(is_heated)
    }
}

impl LineMap {
    #[inline]
    pub fn line_of(&self, block: CoreBlock) -> CoreLine {
        self.extents.line_of(block.0)
    }

    pub fn line_blocks(&self) -> u64 {
        self.extents.line_blocks()
    }

    /// That of the line of which something is at a place.
    #[inline]
    pub fn heat_at(&self, slot: SlotIndex) -> Heat {
        self.extents.at_place(slot.0).map_or(Heat::NONE, |at| self.heat_by(at))
    }

    /// That of the line of an extent.
    #[inline]
    pub(super) fn heat_by(&self, at: u32) -> Heat {
        self.bearer_by(at).map_or(Heat::NONE, |at| self.extents.heat(at))
    }

    #[inline]
    pub fn heat_of(&self, line: CoreLine) -> Heat {
        self.extents.bearer(line).map_or(Heat::NONE, |at| self.extents.heat(at))
    }

    /// Of the line of which something is at a place.
    #[inline]
    pub fn bearer_at(&self, slot: SlotIndex) -> Option<Bearer> {
        self.extents.at_place(slot.0).and_then(|at| self.bearer_by(at)).map(Bearer)
    }

    /// Of the line of an extent.
    #[inline]
    fn bearer_by(&self, at: u32) -> Option<u32> {
        if self.extents.heat(at).is_resident() {
            return Some(at);
        }
        match self.extents.is_by_block() {
            true => None,
            false => self.extents.bearer(self.extents.line_of(self.extents.block(at))),
        }
    }

    /// What [`LineMap::published`] and [`LineMap::bearer_at`] say, by one walk.
    #[inline]
    pub fn found(&self, block: CoreBlock) -> Option<FoundVersion> {
        if self.extents.is_by_block() {
            let place = self.find_place(block, Tag::is_published)?;
            let bearer = self.extents.heat(place.0).is_resident().then_some(place.0);
            return Some(FoundVersion::new(block, place, bearer));
        }
        let line = self.line_of(block);
        let (mut place, mut bearer) = (None, None);
        for seen in self.extents.bucket_of(block.0) {
            if place.is_none() {
                place = self.place_in(seen, block, Tag::is_published);
            }
            if bearer.is_none() && self.extents.bears(seen, line) {
                bearer = Some(seen.at);
            }
            if place.is_some() && bearer.is_some() {
                break;
            }
        }
        place.map(|place| FoundVersion::new(block, place, bearer))
    }

    /// A block will be looked for: brings the head of its bucket near.
    #[inline]
    pub fn prefetch_head(&self, block: CoreBlock) {
        self.extents.prefetch(block.0, 0);
    }

    /// The same of what is found first there, once the head is near.
    #[inline]
    pub fn prefetch_extent(&self, block: CoreBlock) {
        self.extents.prefetch(block.0, 1);
    }

    pub fn version_of(&self, found: &FoundVersion) -> Version {
        self.version_at(found.block, found.slot.0, found.unit, self.extents.tag(found.slot.0))
    }

    /// The line of which something is at a place is resident from now on, for the class of that.
    ///
    /// # Panics
    /// Where it was.
    #[inline]
    pub fn admit(&mut self, slot: SlotIndex, heat: Heat) {
        let at = self.extents.at_place(slot.0).expect("a place in use");
        debug_assert!(!self.heat_by(at).is_resident());
        if let Some(table) = &mut self.by_class {
            table.stand_for(at, slot.0);
        }
        self.set_mark(at, heat);
    }

    /// A line is not resident from now on.
    pub fn cool(&mut self, line: CoreLine) {
        if let Some(at) = self.extents.bearer(line) {
            self.set_mark(at, Heat::NONE);
        }
    }

    /// Nobody is resident from now on; who was, is answered.
    pub fn take_heats(&mut self) -> Heats {
        let residents = std::mem::take(&mut self.held).all;
        if residents == 0 {
            return Heats::default();
        }
        let mut heats = vec![Heat::NONE; self.extents.len()];
        for at in 0..self.extents.len() as u32 {
            if self.extents.is_linked(at) && self.extents.heat(at).is_resident() {
                heats[self.newest_beside(at) as usize] = self.extents.heat(at);
                self.extents.set_heat(at, Heat::NONE);
            }
        }
        self.held_clean = 0;
        if let Some(table) = &mut self.by_class {
            table.cool_all();
        }
        Heats { heats, residents }
    }

    /// A hit of a line.
    #[inline]
    pub fn warm(&mut self, Bearer(at): Bearer) {
        let heat = self.extents.heat(at);
        if !heat.is_hottest() {
            self.extents.set_heat(at, heat.warmer());
        }
    }

    /// Whether anything of a line is mapped.
    pub fn has_line(&self, line: CoreLine) -> bool {
        self.extents.of_line(line).next().is_some()
    }

    /// Blocks of resident lines that the core has for good.
    pub fn held_clean(&self) -> u64 {
        self.held_clean
    }

    /// How many lines are resident, of whatever class.
    pub fn residents(&self) -> u64 {
        self.held.all
    }

    /// Whether hits of lines that are resident are noted, beside those that are not, and lines of
    /// which the last mapping ends.
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

    /// A line that was resident until its mappings ended, since this was called last.
    #[inline]
    pub fn take_ended(&mut self) -> Option<CoreLine> {
        self.ended.pop()
    }

    /// Everything that is mapped at some places: its state, and the mark of its line.
    pub fn each_place(&self, places: Range<u32>, mut visit: impl FnMut(SlotIndex, State, Heat)) {
        if self.extents.is_by_block() {
            return self.extents.marks_by_block(places).for_each(|(place, tag, heat)| {
                visit(SlotIndex(place), tag.state(), heat);
            });
        }
        let mut place = places.start;
        while place < places.end {
            let Some(at) = self.extents.at_place(place) else {
                place += 1;
                continue;
            };
            let stop = places.end.min(self.extents.span(at).end_place());
            let heat = self.heat_by(at);
            for place in place..stop {
                let tag = self.extents.tag(place);
                if tag.is_mapped() {
                    visit(SlotIndex(place), tag.state(), heat);
                }
            }
            place = stop;
        }
    }

    /// The lines whose newest published extent starts at some places, in their order: the last
    /// block of that, and where it is.
    pub fn each_line(&self, places: Range<u32>, visit: impl FnMut(SlotIndex, CoreBlock)) {
        self.each_published_extent(places, |at| self.is_newest(at), visit);
    }

    /// Those of them that have a mark: a look at nothing but the marks and what lies there.
    pub fn each_heated(
        &self,
        places: Range<u32>,
        before: &Heats,
        visit: impl FnMut(SlotIndex, CoreBlock),
    ) {
        let is_heated = |at: u32| before.heats[at as usize].is_resident();
        self.each_published_extent(places, is_heated, visit);
    }

    fn each_published_extent(
        &self,
        places: Range<u32>,
        is_wanted: impl Fn(u32) -> bool,
        mut visit: impl FnMut(SlotIndex, CoreBlock),
    ) {
        let mut place = places.start;
        while place < places.end {
            let Some(at) = self.extents.at_place(place) else {
                place += 1;
                continue;
            };
            let span = self.extents.span(at);
            if let Some(last) = self.published_of(at)
                && is_wanted(at)
            {
                visit(SlotIndex(last), CoreBlock(span.block + u64::from(last - span.place)));
            }
            place = span.end_place();
        }
    }

    /// How many lines have something published.
    pub fn lines(&self) -> u64 {
        let is_counted = |at: &u32| self.published_of(*at).is_some() && self.is_newest(*at);
        self.extents.linked_ones().filter(is_counted).count() as u64
    }

    /// Whether an extent with something published is the newest such of its line.
    fn is_newest(&self, at: u32) -> bool {
        self.newest_beside(at) == at
    }

    /// The newest extent with something published of the line of one, or that one where there is
    /// none. Whoever asks goes through the extents in their order.
    fn newest_beside(&self, at: u32) -> u32 {
        if self.extents.is_by_block() {
            return at;
        }
        self.extents.prefetch_behind(at);
        let line = self.extents.line_of(self.extents.block(at));
        let newest = self.extents.of_line(line).find(|at| self.published_of(*at).is_some());
        newest.unwrap_or(at)
    }

    /// The last place of an extent where something is published.
    #[inline]
    pub(super) fn published_of(&self, at: u32) -> Option<u32> {
        let span = self.extents.span(at);
        let mut places = (span.place..span.end_place()).rev();
        places.find(|place| self.extents.tag(*place).is_published())
    }

    /// An extent is about to be published: its line's mark is there from now on. Answers it.
    #[inline]
    pub(super) fn take_over(&mut self, at: u32, line: CoreLine) -> Heat {
        let Some(bearer) = self.extents.bearer(line) else { return Heat::NONE };
        let heat = self.extents.heat(bearer);
        if bearer != at {
            self.pass_on(bearer, at, heat);
        }
        heat
    }

    /// Blocks were published, some of which the cache had before, or not. If their line is
    /// resident, the extent where they are is its bearer.
    #[inline]
    pub(super) fn note_asked(&mut self, at: u32, block: u64, place: u32, has_older: bool) {
        let is_resident = self.extents.heat(at).is_resident();
        let is_hit = is_resident && has_older;
        if is_resident != is_hit {
            // What is added to a line that is there is no hit: whoever reads or writes it piece by
            // piece asks for it once.
            return;
        }
        if is_hit {
            self.warm(Bearer(at));
        }
        if !is_hit || self.notes_hits {
            self.asked.push(Asked { block: CoreBlock(block), slot: SlotIndex(place), is_hit });
        }
    }

    /// Nothing of a bearer is published any more.
    pub(super) fn hand_on(&mut self, at: u32) {
        let heat = self.extents.heat(at);
        let line = self.extents.line_of(self.extents.block(at));
        let is_heir = |other: &u32| *other != at && self.published_of(*other).is_some();
        let heir = self.extents.of_line(line).find(is_heir);
        let Some(heir) = heir else {
            if self.notes_hits {
                self.ended.push(line);
            }
            return self.set_mark(at, Heat::NONE);
        };
        self.pass_on(at, heir, heat);
    }

    #[inline]
    fn pass_on(&mut self, from: u32, to: u32, heat: Heat) {
        self.extents.set_heat(from, Heat::NONE);
        self.extents.set_heat(to, heat);
        if let Some(table) = &mut self.by_class {
            table.hand_on(from, to);
        }
    }

    /// Changes the mark of a bearer, or makes an extent one, or none.
    #[inline]
    pub(super) fn set_mark(&mut self, at: u32, heat: Heat) {
        let before = self.extents.heat(at);
        self.held.subtract(before);
        self.held.add(heat);
        if let Some(table) = &mut self.by_class {
            table.reheat(at, before, heat);
        }
        if before.is_resident() != heat.is_resident() {
            let clean = self.clean_beside(at);
            match heat.is_resident() {
                true => self.held_clean += clean,
                false => self.held_clean -= clean,
            }
        }
        self.extents.set_heat(at, heat);
    }

    /// Clean blocks of the line of an extent.
    #[inline]
    fn clean_beside(&self, at: u32) -> u64 {
        if self.extents.is_by_block() {
            return u64::from(self.extents.tag(at).is_clean());
        }
        let clean_of = |at| {
            let span = self.extents.span(at);
            let places = span.place..span.end_place();
            places.filter(|place| self.extents.tag(*place).is_clean()).count() as u64
        };
        let line = self.extents.line_of(self.extents.block(at));
        self.extents.of_line(line).map(clean_of).sum()
    }

    /// What was clean at a place of a line, or becomes it.
    #[inline]
    pub(super) fn hold(&mut self, heat: Heat, old: Tag, new: Tag, count: u64) {
        if heat.is_resident() && old.is_clean() != new.is_clean() {
            match new.is_clean() {
                true => self.held_clean += count,
                false => self.held_clean -= count,
            }
        }
    }

    pub(super) fn check_heat(&self) {
        let (mut held, mut held_clean) = (Held::default(), 0);
        let mut lines = std::collections::BTreeSet::new();
        for at in self.extents.linked_ones() {
            let (span, heat) = (self.extents.span(at), self.extents.heat(at));
            held.add(heat);
            if heat.is_resident() {
                assert!(lines.insert(self.extents.line_of(span.block)), "two bearers of a line");
                held_clean += self.clean_beside(at);
                assert!(self.published_of(at).is_some(), "a bearer without anything published");
            } else {
                assert_eq!(heat, Heat::NONE, "a mark of a line that is not resident");
            }
        }
        assert_eq!((held, held_clean), (self.held, self.held_clean), "residents are counted");
    }
}

impl Residents for LineMap {
    fn heat(&self, line: CoreLine, group: Group) -> Heat {
        let at = self.extents.bearer(line).filter(|at| self.is_in(group, *at));
        at.map_or(Heat::NONE, |at| self.extents.heat(at))
    }

    fn change(&mut self, line: CoreLine, group: Group, change: fn(Heat) -> Heat) -> Heat {
        let Some(at) = self.extents.bearer(line).filter(|at| self.is_in(group, *at)) else {
            return Heat::NONE;
        };
        let before = self.extents.heat(at);
        self.set_mark(at, change(before));
        before
    }

    #[inline]
    fn held(&self, group: Group) -> Held {
        self.held_by(group)
    }

    fn prefetch(&self, line: CoreLine, step: u32) {
        self.extents.prefetch(line.0 * self.extents.line_blocks(), step);
    }
}

impl LineMap {
    #[inline]
    fn is_in(&self, group: Group, at: u32) -> bool {
        self.by_class.as_ref().is_none_or(|table| table.group_of_line(at) == group)
    }
}
