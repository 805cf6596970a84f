//! The layout of a slice on its device.
//!
//! `header copies | checkpoint area 0 | checkpoint area 1 | segments`

use crate::format::checkpoint;
use crate::format::record::DATA_BLOCKS_MAX;
use crate::format::slice_header::CHECKPOINTS_OFFSET;
use crate::types::{CoreBlock, Position, SegmentIndex, SlotIndex};
use headpond_block::{BLOCK_BYTES, ByteRange};
use std::ops::Range;

/// Fewest segments of a slice: reclaim needs some in reserve.
pub const SEGMENTS_MIN: u64 = 16;
const SEGMENTS_WANTED: u64 = 64;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENT_BYTES_MAX: u64 = 4 << 20;
const PIECE_BLOCKS_MAX: u64 = 64;
/// Positions must fit 32 bits in a checkpoint.
const POSITIONS_MAX: u64 = 1 << 32;

const LINE_BYTES_MAX: u64 = 1 << 20;

/// Whether lines can be of so many bytes: a power of two from one block to 1 MiB.
pub fn is_line_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES..=LINE_BYTES_MAX).contains(&bytes)
}

/// The cut of one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceLayout {
    slice: ByteRange,
    checkpoint_bytes: u64,
    log_offset: u64,
    segments: u32,
    line_bytes: u64,
    /// Both are powers of two, and so kept: a division takes longer than all else that is done
    /// with a position.
    segment_shift: u32,
    unit_shift: u32,
}

impl SliceLayout {
    /// Cuts `slice` into segments; `None` where it is too small or too large.
    pub fn new(slice: ByteRange, segment_bytes: u64, unit_bytes: u64) -> Option<Self> {
        assert!(segment_bytes.is_power_of_two() && BLOCK_BYTES.is_multiple_of(unit_bytes));
        let room = slice.len().checked_sub(CHECKPOINTS_OFFSET)?;
        let blocks_each = segment_bytes / BLOCK_BYTES;
        // Counting the checkpoints of all segments that would fit without any leaves a few unused.
        let most = room / segment_bytes;
        let checkpoint_bytes = checkpoint::bytes_max(most, most * blocks_each);
        let log_offset = slice.start().checked_add(CHECKPOINTS_OFFSET + 2 * checkpoint_bytes)?;
        let segments = slice.end().checked_sub(log_offset)? / segment_bytes;
        let positions = segments * (segment_bytes / unit_bytes);
        if segments < SEGMENTS_MIN || positions >= POSITIONS_MAX {
            return None;
        }
        let segments = u32::try_from(segments).ok()?;
        let line_bytes = BLOCK_BYTES;
        let sizes = Self {
            slice,
            checkpoint_bytes,
            log_offset,
            segments,
            line_bytes,
            segment_shift: segment_bytes.ilog2(),
            unit_shift: unit_bytes.ilog2(),
        };
        Some(sizes)
    }

    /// The same cut, mapped in lines of so many bytes.
    pub fn with_lines(self, line_bytes: u64) -> Self {
        assert!(is_line_size(line_bytes), "checked by plan and by decode");
        Self { line_bytes, ..self }
    }

    /// The segment size for a slice of so many bytes.
    pub fn segment_bytes_for(slice_bytes: u64) -> u64 {
        let wanted = (slice_bytes / SEGMENTS_WANTED).max(1);
        let power = 1 << wanted.ilog2();
        power.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Smallest slice that can be used, in bytes.
    pub fn slice_bytes_min() -> u64 {
        let blocks = SEGMENT_BYTES_MIN / BLOCK_BYTES;
        let segments = SEGMENTS_MIN + 6;
        CHECKPOINTS_OFFSET
            + 2 * checkpoint::bytes_max(segments, segments * blocks)
            + segments * SEGMENT_BYTES_MIN
    }

    pub fn header_offset(&self, copy: usize) -> u64 {
        self.slice.start() + crate::format::slice_header::COPY_OFFSETS[copy]
    }

    pub fn order_mark_offset(&self, copy: usize) -> u64 {
        self.slice.start() + crate::format::order_mark::COPY_OFFSETS[copy]
    }

    pub fn checkpoint(&self, area: u8) -> ByteRange {
        let start = self.slice.start() + CHECKPOINTS_OFFSET;
        ByteRange::at(start + u64::from(area) * self.checkpoint_bytes, self.checkpoint_bytes)
    }

    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Slots of the whole log.
    pub fn slots(&self) -> u32 {
        u32::try_from(u64::from(self.segments) * self.slots_per_segment()).expect("checked")
    }

    pub fn slots_per_segment(&self) -> u64 {
        self.segment_bytes() / BLOCK_BYTES
    }

    /// The places of a segment.
    pub fn places_of(&self, segment: SegmentIndex) -> Range<u32> {
        let each = self.slots_per_segment() as u32;
        segment.0 * each..(segment.0 + 1) * each
    }

    pub fn units_per_segment(&self) -> u64 {
        1 << (self.segment_shift - self.unit_shift)
    }

    pub fn units_per_block(&self) -> u64 {
        BLOCK_BYTES >> self.unit_shift
    }

    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Blocks of a line, or of a segment where that is smaller.
    pub fn line_blocks(&self) -> u64 {
        (self.line_bytes / BLOCK_BYTES).min(self.slots_per_segment())
    }

    /// Blocks from one on to the end of its line.
    pub fn rest_of_line(&self, block: CoreBlock) -> u64 {
        let line = self.line_blocks().min(PIECE_BLOCKS_MAX);
        line - block.0 % line
    }

    pub fn unit_bytes(&self) -> u64 {
        1 << self.unit_shift
    }

    /// Units that hold so many bytes.
    pub fn units_for(&self, bytes: u64) -> u64 {
        (bytes + self.unit_bytes() - 1) >> self.unit_shift
    }

    pub fn segment_bytes(&self) -> u64 {
        1 << self.segment_shift
    }

    /// Most data blocks of one record: with its descriptor it fills a power of two, and a segment
    /// holds two or more.
    pub fn record_blocks_max(&self) -> usize {
        DATA_BLOCKS_MAX.min((self.slots_per_segment() / 2) as usize) - 1
    }

    /// Longer writes are cut at multiples of this many blocks, so that little of a segment stays
    /// empty.
    pub fn piece_blocks(&self) -> u64 {
        PIECE_BLOCKS_MAX.min(self.slots_per_segment() / 4)
    }

    /// Device bytes of `len` bytes at a position.
    pub fn range_at(&self, position: Position, len: u64) -> ByteRange {
        ByteRange::at(self.log_offset + (position.0 << self.unit_shift), len)
    }

    pub fn block_at(&self, slot: SlotIndex, unit: u8) -> ByteRange {
        self.range_at(self.position_of(slot, unit), BLOCK_BYTES)
    }

    pub fn segment_range(&self, segment: SegmentIndex) -> ByteRange {
        self.range_at(self.segment_start(segment), self.segment_bytes())
    }

    pub fn segment_start(&self, segment: SegmentIndex) -> Position {
        Position(u64::from(segment.0) * self.units_per_segment())
    }

    pub fn segment_of(&self, position: Position) -> SegmentIndex {
        SegmentIndex((position.0 >> (self.segment_shift - self.unit_shift)) as u32)
    }

    pub fn segment_of_slot(&self, slot: SlotIndex) -> SegmentIndex {
        SegmentIndex(slot.0 >> (self.segment_shift - BLOCK_BYTES.ilog2()))
    }

    pub fn slots_of(&self, segment: SegmentIndex) -> impl Iterator<Item = SlotIndex> + use<> {
        self.places_of(segment).map(SlotIndex)
    }

    /// The slot of the block that starts at a position, and the unit within it.
    pub fn slot_at(&self, position: Position) -> (SlotIndex, u8) {
        let shift = BLOCK_BYTES.ilog2() - self.unit_shift;
        let unit = position.0 & (self.units_per_block() - 1);
        (SlotIndex((position.0 >> shift) as u32), unit as u8)
    }

    pub fn position_of(&self, slot: SlotIndex, unit: u8) -> Position {
        Position(u64::from(slot.0) * self.units_per_block() + u64::from(unit))
    }

    pub fn contains(&self, position: Position) -> bool {
        position.0 < u64::from(self.segments) * self.units_per_segment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_slice_is_usable() {
        let slice = ByteRange::at(1 << 20, SliceLayout::slice_bytes_min());
        let layout = SliceLayout::new(slice, SliceLayout::segment_bytes_for(slice.len()), 512);
        assert!(layout.is_some());
        let smaller = ByteRange::at(1 << 20, CHECKPOINTS_OFFSET);
        assert!(SliceLayout::new(smaller, SEGMENT_BYTES_MIN, 512).is_none());
    }

    #[test]
    fn areas_do_not_overlap() {
        for slice_bytes in [16 << 20, 64 << 20, 10 << 30] {
            let slice = ByteRange::at(1 << 20, slice_bytes);
            let layout =
                SliceLayout::new(slice, SliceLayout::segment_bytes_for(slice_bytes), 4096).unwrap();
            assert!(layout.segments() >= 32);
            assert!(layout.header_offset(1) + 4096 <= layout.checkpoint(0).start());
            assert!(layout.checkpoint(0).end() <= layout.checkpoint(1).start());
            let last = layout.segment_range(SegmentIndex(layout.segments() - 1));
            assert!(layout.checkpoint(1).end() <= layout.segment_range(SegmentIndex(0)).start());
            assert!(last.end() <= slice.end());
        }
    }

    #[test]
    fn blocks_at_any_unit_have_slots_of_their_own() {
        let layout = SliceLayout::new(ByteRange::at(0, 8 << 20), 256 << 10, 512).unwrap();
        let (first, unit) = layout.slot_at(Position(7));
        assert_eq!(layout.position_of(first, unit), Position(7));
        assert_ne!(layout.slot_at(Position(15)).0, first);
    }
}
