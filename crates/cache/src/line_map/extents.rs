//! The memory of the line map: extents, their look-up by line and by place, and a state byte per
//! place.
//!
//! An extent is a run of neighbouring blocks of one core line that are contiguous in the log: those
//! of one request, or each in a record of its own, with a short descriptor in between; those of
//! reclaim and recovery may have holes. The log is cut into *windows* as long as a line, and there
//! is one extent for each window: the first one that starts in it. Others that start there come
//! from a pool, which is as large as it was made. With lines of one block a window has one place,
//! an extent one block, and there is no pool: then the state byte is in the extent itself. The mark
//! of a resident line is in one of its extents, its *bearer*.
//!
//! **Invariants**
//! - An extent is within one line and one segment, and has a mapped place.
//! - Extents are in the bucket of their line, newest first, and its head has the mark of each.
//! - Where an extent covers a place, no other one does.
//! - A line has at most one bearer.
//!
//! **Not here**: transitions between the states of places.

#[cfg(test)]
mod check_tests;
mod side_by_side;

use super::buckets::Buckets;
use super::records::Records;
use super::span::{PLACEMENT_MASK, Span, UNITS, are_within};
use super::version::Tag;
use crate::eviction::Heat;
use crate::types::{CoreLine, number_bits};
use std::ops::Range;

pub(super) const NONE: u32 = u32::MAX;
/// Most blocks of one extent. No longer piece of a request goes into a record, so that longer
/// lines would save nothing.
pub(super) const EXTENT_BLOCKS_MAX: u64 = 64;

/// An extent's word: how it lies, zero where it is not linked, of a bearer the heat of its line,
/// then with lines of one block the place's tag, with longer ones the first place within the window
/// and the length less one, and above these the block.
const HEAT_SHIFT: u32 = 4;
const HEAT_MASK: u64 = 15 << HEAT_SHIFT;
const TAG_SHIFT: u32 = 8;
const TAG_BITS: u32 = 8;
const TAG_MASK: u64 = 0xff << TAG_SHIFT;
const OFFSET_SHIFT: u32 = 8;
/// Blocks have no longer numbers.
const BLOCK_BITS_MAX: u32 = 40;

/// How many extents ahead it is looked for where one is found.
const EXTENTS_PREFETCHED: u32 = 8;

/// Where an extent of the pool starts: the others tell by their number.
#[derive(Clone, Copy)]
struct Link {
    window: u32,
    /// The next one that starts in the same window, or the next free one.
    next: u32,
}

/// An extent, and its word as it is.
#[derive(Clone, Copy)]
pub(super) struct SeenExtent {
    pub at: u32,
    word: u64,
}

pub(super) struct Extents {
    /// Log2 of the blocks of a line, or of the longest extent.
    shift: u32,
    windows: u32,
    /// One for each window, then the pool.
    extents: Records,
    /// Log2 of what the block is multiplied by in a word.
    block_shift: u32,
    /// By place; empty with lines of one block.
    tags: Box<[Tag]>,
    buckets: Buckets,
    /// Of the pool.
    links: Box<[Link]>,
    /// By window: the newest extent of the pool that starts there.
    scattered: Box<[u32]>,
    free: u32,
    free_len: u32,
    linked_len: u32,
}

impl Extents {
    /// For `places`, a multiple of the lines' length, with lines of `line_blocks` or of the longest
    /// extent, so many extents in the pool, and a core of `core_blocks`.
    pub fn new(places: u32, line_blocks: u64, pool: u32, core_blocks: u64) -> Self {
        let shift = line_blocks.min(EXTENT_BLOCKS_MAX).ilog2();
        let (windows, pool) = (places >> shift, if shift == 0 { 0 } else { pool });
        assert!(places > 0 && u64::from(places) + u64::from(pool) < u64::from(NONE));
        assert_eq!(windows << shift, places, "windows fill the log");
        let block_shift = TAG_SHIFT + TAG_BITS.max(2 * shift);
        let word_bits = block_shift + number_bits(core_blocks);
        let extents = Records::new((windows + pool) as usize, word_bits);
        let buckets = Buckets::new(windows, extents.record_bytes(), pool);
        let long = |count: u32| if shift == 0 { 0 } else { count as usize };
        let links = (0..pool).map(|index| Link {
            window: NONE,
            next: if index + 1 < pool { windows + index + 1 } else { NONE },
        });
        Self {
            shift,
            windows,
            extents,
            block_shift,
            tags: vec![Tag::FREE; long(places)].into(),
            buckets,
            links: links.collect(),
            scattered: vec![NONE; long(windows)].into(),
            free: if pool > 0 { windows } else { NONE },
            free_len: pool,
            linked_len: 0,
        }
    }

    /// The core has so many blocks from now on.
    pub fn lengthen(&mut self, core_blocks: u64) {
        self.extents.widen(self.block_shift + number_bits(core_blocks));
    }

    pub fn places(&self) -> u32 {
        self.windows << self.shift
    }

    /// Blocks of the longest extent.
    #[inline]
    pub fn line_blocks(&self) -> u64 {
        1 << self.shift
    }

    pub fn is_by_block(&self) -> bool {
        self.shift == 0
    }

    pub fn pool(&self) -> u32 {
        self.links.len() as u32
    }

    pub fn pool_free(&self) -> u32 {
        self.free_len
    }

    /// Extents that are in use, those of the pool included.
    pub fn linked_len(&self) -> u32 {
        self.linked_len
    }

    pub fn is_of_pool(&self, at: u32) -> bool {
        at >= self.windows
    }

    /// Bytes of everything but the pool, and of the pool.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let (heads_of_map, heads_of_pool) = self.buckets.memory_bytes();
        let each = self.extents.record_bytes();
        let pool = self.links.len() * (each + size_of::<Link>())
            + self.scattered.len() * size_of::<u32>()
            + heads_of_pool;
        let map = self.windows as usize * each + self.tags.len() + heads_of_map;
        (map as u64, pool as u64)
    }

    /// The newest extent in the bucket of a block's line, where there may be one of that line.
    #[inline]
    pub fn first(&self, block: u64) -> u32 {
        self.buckets.first(block >> self.shift)
    }

    /// A block will be looked for soon: brings the head of its bucket near, and one step later the
    /// first extent there.
    #[inline]
    pub fn prefetch(&self, block: u64, step: u32) {
        match step {
            0 => self.buckets.prefetch(self.bucket(block)),
            _ => self.extents.prefetch(self.first(block)),
        }
    }

    /// Extents are looked for in their order, and it is the turn of this one.
    #[inline]
    pub fn prefetch_behind(&self, at: u32) {
        let ahead = at + EXTENTS_PREFETCHED;
        if (ahead as usize) < self.extents.len() {
            self.prefetch(self.block(ahead), 0);
        }
    }

    #[inline]
    pub fn next(&self, at: u32) -> u32 {
        self.extents.next(at)
    }

    /// The first block of an extent.
    #[inline]
    pub fn block(&self, at: u32) -> u64 {
        self.extents.word(at) >> self.block_shift
    }

    #[inline]
    pub fn span(&self, at: u32) -> Span {
        let word = self.extents.word(at);
        let (block, (unit, step)) = (word >> self.block_shift, are_within(word));
        Span { block, place: self.start(at, word), len: self.len_in(word), unit, step }
    }

    /// The extents in the bucket of a block's line, newest first, where there may be one of that
    /// line.
    #[inline(always)]
    pub fn bucket_of(&self, block: u64) -> impl Iterator<Item = SeenExtent> + '_ {
        let mut next = self.first(block);
        std::iter::from_fn(move || {
            let at = next;
            if at == NONE {
                return None;
            }
            let word;
            (word, next) = self.extents.both(at);
            Some(SeenExtent { at, word })
        })
    }

    /// Place and unit of a block, where an extent covers it.
    #[inline]
    pub fn place_of(&self, SeenExtent { at, word }: SeenExtent, block: u64) -> Option<(u32, u8)> {
        let index = block.wrapping_sub(word >> self.block_shift);
        if index >= u64::from(self.len_in(word)) {
            return None;
        }
        let (unit, step) = are_within(word);
        Some((self.start(at, word) + index as u32, unit + step * index as u8))
    }

    /// The first place of an extent with this word.
    #[inline]
    fn start(&self, at: u32, word: u64) -> u32 {
        if self.shift == 0 {
            return at;
        }
        let window = if at < self.windows { at } else { self.link_of_pool(at).window };
        let within = self.line_blocks() - 1;
        (window << self.shift) + (word >> OFFSET_SHIFT & within) as u32
    }

    #[inline]
    fn len_in(&self, word: u64) -> u32 {
        // With lines of one block the mask leaves nothing.
        (word >> self.len_shift() & (self.line_blocks() - 1)) as u32 + 1
    }

    #[inline]
    fn len_shift(&self) -> u32 {
        OFFSET_SHIFT + self.shift
    }

    #[inline]
    pub fn tag(&self, place: u32) -> Tag {
        if self.shift == 0 {
            return Tag((self.extents.word(place) >> TAG_SHIFT) as u8);
        }
        self.tags[place as usize]
    }

    #[inline]
    pub fn set_tag(&mut self, place: u32, tag: Tag) {
        if self.shift == 0 {
            let word = self.extents.word(place) & !TAG_MASK;
            self.extents.set_word(place, word | u64::from(tag.0) << TAG_SHIFT);
        } else {
            self.tags[place as usize] = tag;
        }
    }

    #[inline]
    pub fn set_tags(&mut self, places: Range<u32>, tag: Tag) {
        match self.shift {
            0 => places.for_each(|place| self.set_tag(place, tag)),
            _ => self.tags[places.start as usize..places.end as usize].fill(tag),
        }
    }

    /// The tag of some places, where all have the same one.
    #[inline]
    pub fn common_tag(&self, places: Range<u32>) -> Option<Tag> {
        let first = self.tag(places.start);
        if places.len() == 1 {
            return Some(first);
        }
        let is_common = match self.shift {
            0 => places.skip(1).all(|place| self.tag(place) == first),
            _ => {
                let tags = &self.tags[places.start as usize..places.end as usize];
                tags.iter().all(|tag| *tag == first)
            }
        };
        is_common.then_some(first)
    }

    /// The heat of the line of an extent that is its bearer; of another one, none.
    #[inline]
    pub fn heat(&self, at: u32) -> Heat {
        heat_in(self.extents.word(at))
    }

    /// With lines of one block: of some places those that are mapped, their tags and marks.
    #[inline]
    pub fn marks_by_block(
        &self,
        places: Range<u32>,
    ) -> impl Iterator<Item = (u32, Tag, Heat)> + '_ {
        assert!(self.shift == 0);
        places.filter_map(|place| {
            let word = self.extents.word(place);
            let tag = Tag((word >> TAG_SHIFT) as u8);
            tag.is_mapped().then(|| (place, tag, heat_in(word)))
        })
    }

    /// Whether an extent is the bearer of a line.
    #[inline]
    pub fn bears(&self, SeenExtent { word, .. }: SeenExtent, line: CoreLine) -> bool {
        heat_in(word).is_resident() && self.line_of(word >> self.block_shift) == line
    }

    #[inline]
    pub fn bearer(&self, line: CoreLine) -> Option<u32> {
        for seen in self.bucket_of(line.0 << self.shift) {
            if self.bears(seen, line) {
                return Some(seen.at);
            }
        }
        None
    }

    #[inline]
    pub fn set_heat(&mut self, at: u32, heat: Heat) {
        let word = self.extents.word(at) & !HEAT_MASK;
        self.extents.set_word(at, word | u64::from(heat.bits()) << HEAT_SHIFT);
    }

    /// The line of a block.
    #[inline]
    pub fn line_of(&self, block: u64) -> CoreLine {
        CoreLine(block >> self.shift)
    }

    /// The extents of a line, newest first.
    #[inline]
    pub fn of_line(&self, line: CoreLine) -> impl Iterator<Item = u32> + '_ {
        let is_of_it = move |seen: &SeenExtent| self.line_of(seen.word >> self.block_shift) == line;
        self.bucket_of(line.0 << self.shift).filter(is_of_it).map(|seen| seen.at)
    }

    /// All extents that are linked, in no order.
    pub fn linked_ones(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.extents.len() as u32).filter(|at| self.is_linked(*at))
    }

    /// How many extents there are.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// The extent that covers a place.
    #[inline]
    pub fn at_place(&self, place: u32) -> Option<u32> {
        let window = place >> self.shift;
        if self.shift == 0 {
            return self.is_linked(window).then_some(window);
        }
        // An extent is no longer than a window.
        self.in_window(window, place).or_else(|| self.in_window(window.checked_sub(1)?, place))
    }

    /// Puts a new extent, whose places have this tag, in front of all others of its line.
    ///
    /// # Panics
    /// Where the pool is empty, and where the extent leaves its line.
    #[inline]
    pub fn link(&mut self, span: Span, tag: Tag) -> u32 {
        let line = self.line_blocks();
        assert!(span.block >> BLOCK_BITS_MAX == 0 && u64::from(span.unit) < UNITS && span.len > 0);
        assert!(span.block % line + u64::from(span.len) <= line, "extent leaves its line");
        let window = span.place >> self.shift;
        let at = if self.is_linked(window) { self.take_from_pool(window) } else { window };
        let offset = span.place - (window << self.shift);
        let mut word = span.block << self.block_shift | span.lie();
        if self.shift > 0 {
            word |= u64::from(offset) << OFFSET_SHIFT;
            word |= u64::from(span.len - 1) << self.len_shift();
            self.set_tags(span.place..span.end_place(), tag);
        } else {
            word |= u64::from(tag.0) << TAG_SHIFT;
        }
        let bucket = self.bucket(span.block);
        self.extents.set(at, word, self.buckets.head(bucket));
        self.buckets.push(span.block >> self.shift, at);
        self.linked_len += 1;
        at
    }

    /// Makes an extent longer, up to the end of `more`, whose places have this tag.
    #[inline]
    pub fn extend(&mut self, at: u32, more: Span, tag: Tag, step: u8) {
        let span = Span { step, ..self.span(at) };
        let len = more.end_place() - span.place;
        assert!(span.block % self.line_blocks() + u64::from(len) <= self.line_blocks());
        assert!(u64::from(span.unit) + u64::from(step) < UNITS);
        let mask = (self.line_blocks() - 1) << self.len_shift() | PLACEMENT_MASK;
        let word = self.extents.word(at) & !mask;
        self.extents.set_word(at, word | u64::from(len - 1) << self.len_shift() | span.lie());
        self.set_tags(more.place..more.end_place(), tag);
    }

    /// Takes an extent out of its bucket, in which `before` stands in front of it.
    pub fn unlink(&mut self, at: u32, before: Option<u32>) {
        let next = self.next(at);
        match before {
            Some(before) => self.extents.set_next(before, next),
            None => {
                let bucket = self.bucket(self.block(at));
                assert_eq!(self.buckets.head(bucket), at, "first of its bucket");
                self.buckets.set_head(bucket, next);
            }
        }
        self.extents.set(at, 0, NONE);
        self.linked_len -= 1;
        if at >= self.windows {
            self.return_to_pool(at);
        }
    }

    /// Takes an extent out of its bucket.
    pub fn unlink_found(&mut self, at: u32) {
        let bucket = self.bucket(self.block(at));
        let (mut before, mut other, mut marks) = (None, self.buckets.head(bucket), 0);
        while other != at {
            let (word, next) = self.extents.both(other);
            marks |= self.buckets.mark(word >> self.block_shift >> self.shift);
            (before, other) = (Some(other), next);
        }
        let is_last = self.next(at) == NONE;
        self.unlink(at, before);
        if is_last {
            self.buckets.set_marks(bucket, marks);
        }
    }

    /// All extents, in no order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.linked_ones().map(|at| self.span(at))
    }

    /// Whether no place of an extent is mapped.
    #[inline]
    pub fn is_vacant(&self, span: &Span) -> bool {
        if self.shift == 0 {
            return !self.tag(span.place).is_mapped();
        }
        let places = span.place as usize..span.end_place() as usize;
        // Places are mostly freed in ascending order.
        !self.tags[places].iter().rev().any(|tag| tag.is_mapped())
    }

    /// Checks what links the extents; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let (mut linked, mut covered) = (0, std::collections::BTreeSet::new());
        for bucket in 0..self.buckets.len() {
            let mut at = self.buckets.head(bucket);
            while at != NONE {
                let span = self.span(at);
                assert_eq!(self.bucket(span.block), bucket, "an extent in another's bucket");
                let is_marked = self.buckets.is_marked(bucket, span.block >> self.shift);
                assert!(is_marked, "a bucket knows its lines");
                assert!(!self.is_vacant(&span), "an extent without a mapped place");
                assert_eq!(self.at_place(span.place), Some(at), "an extent is found by place");
                for place in span.place..span.end_place() {
                    assert!(covered.insert(place), "two extents cover a place");
                }
                (linked, at) = (linked + 1, self.next(at));
            }
        }
        let is_covered = |place: &u32| covered.contains(place) || !self.tag(*place).is_mapped();
        assert!((0..self.places()).all(|place| is_covered(&place)), "mapped without an extent");
        let used = (0..self.windows).filter(|window| self.is_linked(*window)).count() as u32;
        assert_eq!(linked, used + self.pool() - self.free_len, "what is in use is linked");
        assert_eq!(linked, self.linked_len, "linked extents are counted");
        let (mut at, mut free) = (self.free, 0);
        while at != NONE {
            assert!(!self.is_linked(at), "a free extent is linked");
            (free, at) = (free + 1, self.link_of_pool(at).next);
        }
        assert_eq!(free, self.free_len, "free extents are counted");
    }

    #[inline]
    pub fn is_linked(&self, at: u32) -> bool {
        self.extents.word(at) & PLACEMENT_MASK != 0
    }

    #[inline]
    fn in_window(&self, window: u32, place: u32) -> Option<u32> {
        let covers = |at: u32| {
            let span = self.span(at);
            span.place <= place && place < span.end_place()
        };
        if self.is_linked(window) && covers(window) {
            return Some(window);
        }
        let mut at = self.scattered[window as usize];
        while at != NONE && !covers(at) {
            at = self.link_of_pool(at).next;
        }
        (at != NONE).then_some(at)
    }

    fn link_of_pool(&self, at: u32) -> Link {
        self.links[(at - self.windows) as usize]
    }

    fn take_from_pool(&mut self, window: u32) -> u32 {
        let at = self.free;
        assert!(at != NONE, "more extents than were admitted");
        let next = self.scattered[window as usize];
        let link = &mut self.links[(at - self.windows) as usize];
        self.free = std::mem::replace(link, Link { window, next }).next;
        self.free_len -= 1;
        self.scattered[window as usize] = at;
        at
    }

    fn return_to_pool(&mut self, at: u32) {
        let Link { window, next } = self.link_of_pool(at);
        if self.scattered[window as usize] == at {
            self.scattered[window as usize] = next;
        } else {
            let mut before = self.scattered[window as usize];
            while self.link_of_pool(before).next != at {
                before = self.link_of_pool(before).next;
            }
            self.links[(before - self.windows) as usize].next = next;
        }
        self.links[(at - self.windows) as usize] = Link { window: NONE, next: self.free };
        self.free = at;
        self.free_len += 1;
    }

    #[inline]
    fn bucket(&self, block: u64) -> usize {
        self.buckets.of(block >> self.shift)
    }
}

#[inline]
fn heat_in(word: u64) -> Heat {
    Heat::from_bits((word >> HEAT_SHIFT) as u8)
}
