//! The line map: where the newest version of each cached block is.
//!
//! Runs of a line that are contiguous in the log are one extent ([`extents`]); each place of the
//! log has a byte for the state of its block. So the map from block to place and the one from place
//! to block share their memory: with lines of one block 11 to 12 bytes for each 4 KiB of the log,
//! with lines of 64 KiB 1.7 to 1.8 plus the pool for fragmented lines. Checksums are separate.
//!
//! Lifecycle of a version: 1. pending, from the forming of its record, ahead of the older versions
//! of its block; 2. published when the record is written, which frees the older versions, or
//! failed; 3. dirty, written (the core has it), clean (the core has flushed); 4. free, when
//! superseded, or dropped by reclaim.
//!
//! **Invariants**
//! - Versions in a chain are in the order in which their records were formed.
//! - At most one published version of a block is mapped.
//!
//! **Not here**: I/O, the order of reclaim, which blocks to clean.

mod buckets;
#[cfg(test)]
mod check_tests;
mod class_table;
mod core_table;
mod extents;
mod heat;
mod inserting;
mod places;
mod publishing;
mod records;
mod span;
#[cfg(test)]
mod tests;
mod version;
mod waiting;

pub use class_table::ClassHeld;
pub use heat::{Asked, Bearer, FoundVersion, Heats};
pub use inserting::Insertion;
pub use span::Scattering;
pub use version::{Counts, Marks, State, Version};

use crate::eviction::{Heat, Held};
use crate::types::{BlockRun, CoreBlock, CoreLine, SlotIndex};
use class_table::ClassTable;
use core_table::CoreTable;
use extents::{EXTENT_BLOCKS_MAX, Extents, NONE, SeenExtent};
use span::Span;
use std::ops::Range;
use version::Tag;

/// One extent in the pool for so many places: scattered lines hold three times what they would
/// without a pool, in less memory than the peers take for whole ones.
const PLACES_PER_POOLED_EXTENT: u32 = 8;
/// And one for two places as long as these are not more: a small cache that is written to all over
/// holds as much then as with short lines, in less than half a megabyte.
const POOLED_EXTENTS_OF_SMALL: u32 = 1 << 14;
/// With fewer places than in 32 MiB there is so little of everything that this evens nothing out.
const PLACES_OF_SMALL: u32 = 1 << 13;

pub struct LineMap {
    extents: Extents,
    /// By place.
    checksums: Box<[u32]>,
    counts: Counts,
    held: Held,
    /// Blocks of resident lines that the core has for good.
    held_clean: u64,
    /// While there are classes.
    by_class: Option<Box<ClassTable>>,
    /// Where there are several.
    by_core: Option<Box<CoreTable>>,
    asked: Vec<Asked>,
    /// Lines that were resident until their mappings ended.
    ended: Vec<CoreLine>,
    /// Whether `asked` names residents too, and anybody looks at `ended`.
    notes_hits: bool,
    /// Where the last version went: the next may continue it.
    open: u32,
}

impl LineMap {
    /// For so many places, and lines of so many blocks of a core of `core_blocks`. The pool takes
    /// `scattered` extents that are there already, and beside them what a pool for such a log has.
    pub fn new(
        places: u32,
        line_blocks: u64,
        scattered: u32,
        reserve: u32,
        core_blocks: u64,
    ) -> Self {
        let of_small = match places {
            0..PLACES_OF_SMALL => 0,
            _ => (places / 2).min(POOLED_EXTENTS_OF_SMALL),
        };
        let wanted = (places / PLACES_PER_POOLED_EXTENT).max(of_small);
        let pool = wanted.max(2 * reserve).max(scattered.saturating_add(reserve));
        Self {
            extents: Extents::new(places, line_blocks, pool, core_blocks),
            checksums: vec![0; places as usize].into(),
            counts: Counts::default(),
            held: Held::default(),
            held_clean: 0,
            by_class: None,
            by_core: None,
            asked: Vec::new(),
            ended: Vec::new(),
            notes_hits: false,
            open: NONE,
        }
    }

    /// The core has so many blocks from now on.
    pub fn lengthen(&mut self, core_blocks: u64) {
        self.extents.lengthen(core_blocks);
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes without those of checksums and pool.
    pub fn memory_bytes(&self) -> u64 {
        self.extents.memory_bytes().0
    }

    pub fn checksum_bytes(&self) -> u64 {
        size_of_val(&*self.checksums) as u64
    }

    pub fn pool_bytes(&self) -> u64 {
        self.extents.memory_bytes().1
    }

    /// Extents for scattered lines, and how many of them are not in use.
    pub fn pool(&self) -> (u32, u32) {
        (self.extents.pool(), self.extents.pool_free())
    }

    /// Extents in use by blocks that the core lacks, or fewer: clean blocks are taken to have one
    /// each.
    pub fn unclean_extents(&self) -> u64 {
        u64::from(self.extents.linked_len()).saturating_sub(self.counts.clean)
    }

    /// Whether extents can run out: with lines of one block there is one for each place.
    pub fn has_pool(&self) -> bool {
        !self.extents.is_by_block()
    }

    /// Whether what a slot holds takes from the pool.
    pub fn is_in_pool(&self, slot: SlotIndex) -> bool {
        self.extents.at_place(slot.0).is_some_and(|at| self.extents.is_of_pool(at))
    }

    /// Whether two slots share an extent.
    pub fn share_extent(&self, one: SlotIndex, other: SlotIndex) -> bool {
        self.extents.at_place(one.0).is_some_and(|at| self.extents.at_place(other.0) == Some(at))
    }

    /// How many extents blocks that are contiguous in the log may take from the pool: all but those
    /// that are the first of a window.
    pub fn extents_in_a_row(&self, blocks: u64) -> u64 {
        match self.extents.is_by_block() || blocks == 0 {
            true => 0,
            false => blocks - (blocks - 1) / self.extents.line_blocks(),
        }
    }

    /// How many extents copies of these, which ascend by place and are written in a row, will take
    /// from the pool: neighbours of one line share one, as they do now.
    pub fn extents_of_copies(&self, versions: &[Version]) -> u64 {
        let of = |version: &Version| self.extents.at_place(version.slot.0);
        let is_shared = |pair: &&[Version]| {
            pair[0].block.0 + 1 == pair[1].block.0 && of(&pair[0]) == of(&pair[1])
        };
        let shared = versions.windows(2).filter(is_shared).count() as u64;
        self.extents_in_a_row(versions.len() as u64).saturating_sub(shared)
    }

    /// How many extents of some places are of the pool.
    pub fn pooled_in(&self, places: Range<u32>) -> u64 {
        let (mut pooled, mut last) = (0, None);
        for place in places.filter(|place| self.extents.tag(*place).is_mapped()) {
            let at = self.extents.at_place(place).filter(|at| self.extents.is_of_pool(*at));
            pooled += u64::from(at.is_some() && at != last);
            last = at.or(last);
        }
        pooled
    }

    /// How many extents a run may take from the pool.
    #[inline]
    pub fn extents_for(&self, run: BlockRun) -> u64 {
        if self.extents.is_by_block() {
            return 0;
        }
        let line = self.extents.line_blocks();
        (run.end().0 - 1) / line - run.first.0 / line + 1
    }

    /// How many extents of the pool have nothing but newest versions of blocks of a run: they are
    /// free once all of it is superseded.
    pub fn extents_within(&self, run: BlockRun) -> u64 {
        let mut count = 0;
        self.each_newest(run, |block, version| {
            let at = version.and_then(|version| self.extents.at_place(version.slot.0));
            let Some(at) = at.filter(|at| self.extents.is_of_pool(*at)) else { return };
            let span = self.extents.span(at);
            count += u64::from(span.block == block.0 && span.end_block() <= run.end().0);
        });
        count
    }

    /// The newest version of a block, pending ones included.
    #[inline]
    pub fn newest(&self, block: CoreBlock) -> Option<Version> {
        self.find(block, Tag::is_mapped)
    }

    /// The newest version of a block that is on the device: what a read gets.
    #[inline]
    pub fn published(&self, block: CoreBlock) -> Option<Version> {
        self.find(block, Tag::is_published)
    }

    /// As [`LineMap::newest`] for each block of a run, which ascend.
    pub fn each_newest(&self, run: BlockRun, visit: impl FnMut(CoreBlock, Option<Version>)) {
        self.each(run, Tag::is_mapped, visit);
    }

    /// As [`LineMap::published`] for each block of a run, which ascend.
    pub fn each_published(&self, run: BlockRun, visit: impl FnMut(CoreBlock, Option<Version>)) {
        self.each(run, Tag::is_published, visit);
    }

    #[inline]
    pub fn state(&self, slot: SlotIndex) -> State {
        self.extents.tag(slot.0).state()
    }

    /// Of what was written to a slot last, where it was computed.
    #[inline]
    pub fn checksum(&self, slot: SlotIndex) -> u32 {
        self.checksums[slot.0 as usize]
    }

    /// Of what lies at a slot that nothing is mapped to.
    pub fn set_checksum(&mut self, slot: SlotIndex, checksum: u32) {
        self.checksums[slot.0 as usize] = checksum;
    }

    #[inline]
    pub fn marks(&self, slot: SlotIndex) -> Marks {
        self.extents.tag(slot.0).marks()
    }

    /// What a slot holds; of a free one only the state means something.
    pub fn version(&self, slot: SlotIndex) -> Version {
        let tag = self.extents.tag(slot.0);
        let at = if tag.is_mapped() { self.extents.at_place(slot.0) } else { None };
        let span = at.map_or(Span::new(0, slot.0, 1, 0), |at| self.extents.span(at));
        let block = CoreBlock(span.block + u64::from(slot.0 - span.place));
        self.version_at(block, slot.0, span.unit_at(slot.0), tag)
    }

    /// Drops versions; nothing where they are free already. The older versions of their blocks, if
    /// there are any, count again.
    pub fn remove(&mut self, slot: SlotIndex, count: u32) {
        self.each_extent(slot, count, |map, at, span, places| {
            map.extents.prefetch_behind(at);
            let heat = map.heat_by(at);
            map.release_places(places, heat);
            if map.is_done(at, span) {
                map.extents.unlink_found(at);
            }
        });
    }

    /// Drops every version of a block, pending ones included; answers whether there was one.
    pub fn remove_block(&mut self, block: CoreBlock) -> bool {
        let (mut before, mut at, mut found) = (None, self.extents.first(block.0), false);
        let heat = self.heat_of(self.line_of(block));
        while at != NONE {
            let (span, next) = (self.extents.span(at), self.extents.next(at));
            if let Some(place) = span.place_of(block.0) {
                found |= self.extents.tag(place).is_mapped();
                self.release(place, heat);
            }
            self.step(&mut before, at, &span);
            at = next;
        }
        found
    }

    /// What a slot holds, where that is a version of this block.
    #[inline]
    pub fn state_of(&self, slot: SlotIndex, block: CoreBlock) -> State {
        let span = self.extents.at_place(slot.0).map(|at| self.extents.span(at));
        let is_there = span.is_some_and(|span| span.place_of(block.0) == Some(slot.0));
        if is_there { self.state(slot) } else { State::Free }
    }

    /// Moves a published version to another state.
    pub fn set_state(&mut self, slot: SlotIndex, state: State) {
        let tag = self.extents.tag(slot.0);
        assert!(tag.is_published());
        self.retag(slot.0, tag, Tag::new(state, state, tag.marks()), self.heat_at(slot));
    }

    #[inline]
    pub fn mark(&mut self, slot: SlotIndex, marks: Marks) {
        assert!(!marks.contains(Marks::REPLAYED), "known when a version is inserted");
        let tag = self.extents.tag(slot.0);
        self.extents.set_tag(slot.0, tag.with(marks));
    }

    /// Gives a mark for another one; nothing where the slot is free.
    #[inline]
    pub fn exchange(&mut self, slot: SlotIndex, taken: Marks, given: Marks) {
        assert!(!(taken | given).contains(Marks::REPLAYED), "counted");
        let tag = self.extents.tag(slot.0);
        if tag.is_mapped() {
            self.extents.set_tag(slot.0, tag.without(taken).with(given));
        }
    }

    /// Takes the mark from all versions of a block, pending ones included.
    pub fn unmark_replayed(&mut self, block: CoreBlock) {
        let mut at = self.extents.first(block.0);
        while at != NONE {
            if let Some(place) = self.extents.span(at).place_of(block.0) {
                let tag = self.extents.tag(place);
                if tag.is_mapped() {
                    // As clean as it was.
                    self.retag(place, tag, tag.without(Marks::REPLAYED), Heat::NONE);
                }
            }
            at = self.extents.next(at);
        }
    }

    /// Every version that is mapped, in the order of the log's places.
    pub fn iter(&self) -> impl Iterator<Item = Version> + '_ {
        let places = (0..self.extents.places()).map(SlotIndex);
        places.filter(|slot| self.state(*slot) != State::Free).map(|slot| self.version(slot))
    }

    /// Everything that is mapped at some places, in their order: versions that are contiguous in
    /// the log and on the core and are alike, by the first of them, and the checksums of all.
    pub fn each_mapped(&self, places: Range<u32>, mut visit: impl FnMut(Version, &[u32])) {
        let mut place = places.start;
        while place < places.end {
            if !self.extents.tag(place).is_mapped() {
                place += 1;
                continue;
            }
            let at = self.extents.at_place(place).expect("a mapped place has an extent");
            let span = self.extents.span(at);
            let stop = places.end.min(span.end_place());
            while place < stop {
                let tag = self.extents.tag(place);
                let is_other = |next: &u32| self.extents.tag(*next) != tag || span.step > 0;
                let end = (place + 1..stop).find(is_other).unwrap_or(stop);
                if tag.is_mapped() {
                    let block = CoreBlock(span.block + u64::from(place - span.place));
                    let checksums = &self.checksums[place as usize..end as usize];
                    visit(self.version_at(block, place, span.unit_at(place), tag), checksums);
                }
                place = end;
            }
        }
    }

    /// Checks the counts and chains; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let mut counts = Counts::default();
        let mut published = std::collections::BTreeSet::new();
        for version in self.iter() {
            counts.add(self.extents.tag(version.slot.0));
            if version.state != State::Pending {
                assert!(published.insert(version.block), "two published versions of a block");
            }
            let newest = self.newest(version.block).expect("a mapped block is found");
            assert_eq!(newest.block, version.block, "found is what was asked for");
            if version.marks.contains(Marks::REPLAYED) {
                let debtor = self.published(version.block).filter(|it| it.state == State::Dirty);
                let has_pending = debtor.is_some_and(|it| it.marks.contains(Marks::REPLAYED));
                assert!(has_pending, "parity is owed for what readers get");
            }
        }
        assert_eq!(counts, self.counts, "the map counts its versions");
        self.check_heat();
        self.check_classes();
        self.check_cores();
        self.extents.self_check();
    }

    #[inline(always)]
    fn find(&self, block: CoreBlock, is_wanted: impl Fn(Tag) -> bool) -> Option<Version> {
        let (place, unit, tag) = self.find_place(block, is_wanted)?;
        Some(self.version_at(block, place, unit, tag))
    }

    /// Place, unit and tag of the newest wanted version of a block.
    #[inline(always)]
    fn find_place(
        &self,
        block: CoreBlock,
        is_wanted: impl Fn(Tag) -> bool,
    ) -> Option<(u32, u8, Tag)> {
        // No closures: not every build has them in line.
        for seen in self.extents.bucket_of(block.0) {
            let place = self.place_in(seen, block, &is_wanted);
            if place.is_some() {
                return place;
            }
        }
        None
    }

    /// Of the version that an extent has, if that is wanted.
    #[inline(always)]
    fn place_in(
        &self,
        seen: SeenExtent,
        block: CoreBlock,
        is_wanted: impl Fn(Tag) -> bool,
    ) -> Option<(u32, u8, Tag)> {
        let (place, unit) = self.extents.place_of(seen, block.0)?;
        let tag = self.extents.tag(place);
        is_wanted(tag).then_some((place, unit, tag))
    }

    /// One walk for each line.
    #[inline]
    fn each(
        &self,
        run: BlockRun,
        is_wanted: impl Fn(Tag) -> bool + Copy,
        mut visit: impl FnMut(CoreBlock, Option<Version>),
    ) {
        if self.extents.is_by_block() {
            return run.blocks().for_each(|block| visit(block, self.find(block, is_wanted)));
        }
        for piece in self.lines_of(run) {
            if piece.count == 1 {
                visit(piece.first, self.find(piece.first, is_wanted));
                continue;
            }
            if self.extents.first(piece.first.0) == NONE {
                piece.blocks().for_each(|block| visit(block, None));
                continue;
            }
            let mut found = [(NONE, 0u8); EXTENT_BLOCKS_MAX as usize];
            self.find_in_line(piece, is_wanted, &mut found);
            for (block, &(place, unit)) in piece.blocks().zip(&found) {
                let version = || self.version_at(block, place, unit, self.extents.tag(place));
                visit(block, (place != NONE).then(version));
            }
        }
    }

    /// Place and unit of the newest wanted version of each block of a piece of one line.
    fn find_in_line(
        &self,
        piece: BlockRun,
        is_wanted: impl Fn(Tag) -> bool,
        found: &mut [(u32, u8)],
    ) {
        let (mut missing, mut at) = (piece.count, self.extents.first(piece.first.0));
        while at != NONE && missing > 0 {
            let span = self.extents.span(at);
            let (from, to) = overlap(&span, piece.first.0, piece.end().0);
            for block in from..to {
                let place = span.place + (block - span.block) as u32;
                let entry = &mut found[(block - piece.first.0) as usize];
                if entry.0 == NONE && is_wanted(self.extents.tag(place)) {
                    *entry = (place, span.unit_at(place));
                    missing -= 1;
                }
            }
            at = self.extents.next(at);
        }
    }

    #[inline]
    fn version_at(&self, block: CoreBlock, place: u32, unit: u8, tag: Tag) -> Version {
        Version {
            slot: SlotIndex(place),
            block,
            state: tag.state(),
            target: tag.target(),
            unit,
            marks: tag.marks(),
        }
    }

    /// A run, cut where lines meet.
    #[inline]
    pub fn lines_of(&self, run: BlockRun) -> impl Iterator<Item = BlockRun> + use<> {
        let (line, mut first, end) = (self.extents.line_blocks(), run.first.0, run.end().0);
        std::iter::from_fn(move || {
            let count = (line - first % line).min(end - first);
            let piece = BlockRun { first: CoreBlock(first), count };
            first += count;
            (count > 0).then_some(piece)
        })
    }

    /// Goes through the extents that cover some places.
    #[inline]
    fn each_extent(
        &mut self,
        slot: SlotIndex,
        count: u32,
        mut visit: impl FnMut(&mut Self, u32, &Span, Range<u32>),
    ) {
        let (mut place, end) = (slot.0, slot.0 + count);
        while place < end {
            let Some(at) = self.extents.at_place(place) else {
                place += 1;
                continue;
            };
            let span = self.extents.span(at);
            let stop = end.min(span.end_place());
            visit(self, at, &span, place..stop);
            place = stop;
        }
    }

    /// Goes on behind an extent, which is unlinked where nothing is left of it.
    #[inline]
    fn step(&mut self, before: &mut Option<u32>, at: u32, span: &Span) {
        match self.is_done(at, span) {
            true => self.extents.unlink(at, *before),
            false => *before = Some(at),
        }
    }

    /// Places of an extent were freed: whether it is to be unlinked, with nothing left of it. What
    /// has nothing published hands the mark of its line on.
    #[inline]
    fn is_done(&mut self, at: u32, span: &Span) -> bool {
        let is_vacant = self.extents.is_vacant(span);
        if self.extents.heat(at).is_resident() && self.published_of(at).is_none() {
            self.hand_on(at);
        }
        if is_vacant && self.open == at {
            self.open = NONE;
        }
        is_vacant
    }
}

/// The blocks of an extent that lie between two blocks.
#[inline]
fn overlap(span: &Span, first: u64, end: u64) -> (u64, u64) {
    (span.block.max(first), span.end_block().min(end))
}
