//! The blocks of one extent, its position in the log, and its continuation.
//!
//! **Not here**: look-up of extents, and their memory.

use super::extents::{EXTENT_BLOCKS_MAX, NONE};
use crate::types::{BlockRun, SlotIndex};

/// The bits that say how an extent lies; zero where there is none.
pub(super) const PLACEMENT_MASK: u64 = 15;
/// Above the units of blocks that all have one, those of blocks that each have one more than the
/// last: the last unit of a place is nobody's first.
pub(super) const UNITS: u64 = 8;

/// What an extent covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub block: u64,
    pub place: u32,
    pub len: u32,
    /// Of the first block.
    pub unit: u8,
    /// How much further on that of each next one is: nothing, or one.
    pub step: u8,
}

impl Span {
    /// All blocks have one unit.
    #[inline]
    pub fn new(block: u64, place: u32, len: u32, unit: u8) -> Self {
        Self { block, place, len, unit, step: 0 }
    }

    /// The unit of what is at a place.
    #[inline]
    pub fn unit_at(&self, place: u32) -> u8 {
        self.unit + self.step * (place - self.place) as u8
    }

    /// How an extent lies, as its word says.
    #[inline]
    pub fn lie(&self) -> u64 {
        1 + u64::from(self.unit) + u64::from(self.step) * UNITS
    }

    /// The place of a block, where the extent covers it.
    #[inline]
    pub fn place_of(&self, block: u64) -> Option<u32> {
        let index = block.wrapping_sub(self.block);
        (index < u64::from(self.len)).then(|| self.place + index as u32)
    }

    pub fn end_place(&self) -> u32 {
        self.place + self.len
    }

    pub fn end_block(&self) -> u64 {
        self.block + u64::from(self.len)
    }
}

/// Unit and step of an extent that is linked.
#[inline]
pub(super) fn are_within(word: u64) -> (u8, u8) {
    let lie = (word & PLACEMENT_MASK) as u8 - 1;
    (lie % UNITS as u8, lie / UNITS as u8)
}

/// Counts how many extents recovered blocks will take from the pool. An extent may have holes,
/// where a descriptor is or what is not needed any more.
pub struct Scattering {
    line: u64,
    window: u32,
    span: Option<Span>,
    needed: u32,
}

impl Scattering {
    pub fn new(line_blocks: u64) -> Self {
        let line = line_blocks.min(EXTENT_BLOCKS_MAX);
        Self { line, window: NONE, span: None, needed: 0 }
    }

    /// The next blocks by place, which lie in a row within one line.
    pub fn add(&mut self, slot: SlotIndex, unit: u8, run: BlockRun) {
        let next = Span::new(run.first.0, slot.0, run.count as u32, unit);
        if let Some(span) = &mut self.span
            && let Some(step) = step_to(self.line, span, &next)
        {
            *span = Span { len: next.end_place() - span.place, step, ..*span };
            return;
        }
        self.span = Some(next);
        let starts_in = slot.0 / self.line as u32;
        self.needed += u32::from(starts_in == self.window);
        self.window = starts_in;
    }

    pub fn extents(&self) -> u32 {
        self.needed
    }
}

/// The step of an extent that others go on, with holes in between or without; `None` where they do
/// not. Behind a descriptor or a hole an extent does not reach into another window: a segment may
/// begin there, and what lies in two segments would outlive the first of them and cover places that
/// are filled anew.
#[inline]
pub(super) fn step_to(line: u64, span: &Span, next: &Span) -> Option<u8> {
    if next.place < span.end_place() {
        return None;
    }
    let ahead = next.place - span.place;
    if next.block != span.block + u64::from(ahead) || next.block / line != span.block / line {
        return None;
    }
    let window = |place: u32| u64::from(place) / line;
    let is_near = window(next.place) == window(span.place);
    if next.unit == span.unit && span.step == 0 {
        return (next.place == span.end_place() || is_near).then_some(0);
    }
    let is_alone = next.len == 1 && (span.len == 1 || span.step == 1);
    (is_near && is_alone && u32::from(next.unit) == u32::from(span.unit) + ahead).then_some(1)
}
