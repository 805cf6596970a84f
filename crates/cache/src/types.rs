//! Distinct types for numbers.

use headpond_block::{BLOCK_BYTES, ByteRange, SECTOR_BYTES};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU8;

/// Number of a 4 KiB block on the core device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct CoreBlock(pub u64);

/// Bits that name so many things, numbered from 0.
pub fn number_bits(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

/// Number of a line of the core, as the map keeps them: what is evicted as one. With lines of 4 KiB
/// it is that of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreLine(pub u64);

/// One place for a 4 KiB block in the log of a slice: the 4 KiB window in which the block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

/// Number of a segment of a slice's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentIndex(pub u32);

/// A position in a slice's log, counted in record units (512 B or 4 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// Number of a record; rises by one per record over the whole lifetime of a slice.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct Sequence(pub u64);

/// Open count of the log: raised by every open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Epoch(pub u64);

/// The flushed position of a log: every completed flush, and every FUA record, ends there or
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Promise {
    pub epoch: Epoch,
    pub record: Sequence,
}

impl Sequence {
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

impl CoreBlock {
    pub fn range(self, count: u64) -> ByteRange {
        ByteRange::at(self.0 * BLOCK_BYTES, count * BLOCK_BYTES)
    }
}

/// Which sectors of a block, a bit for each: some of them, and not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sectors(NonZeroU8);

const _: () = assert!(BLOCK_BYTES / SECTOR_BYTES == u8::BITS as u64);

impl Sectors {
    /// `None` for none and for all.
    pub const fn new(bits: u8) -> Option<Self> {
        match NonZeroU8::new(bits) {
            Some(some) if bits != u8::MAX => Some(Self(some)),
            _ => None,
        }
    }

    /// Those that a range within one block is made of, as bits; none where it is not made of
    /// whole ones.
    pub fn bits_of(range: ByteRange) -> u8 {
        if !range.is_aligned(SECTOR_BYTES) {
            return 0;
        }
        let first = range.start() % BLOCK_BYTES / SECTOR_BYTES;
        let count = range.len() / SECTOR_BYTES;
        (((1 << count) - 1) << first) as u8
    }

    pub fn bits(self) -> u8 {
        self.0.get()
    }

    /// Where each of them lies in a block.
    pub fn places(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let bytes = SECTOR_BYTES as usize;
        let is_in = move |sector: &usize| self.bits() >> sector & 1 != 0;
        (0..u8::BITS as usize).filter(is_in).map(move |at| at * bytes..(at + 1) * bytes)
    }
}

/// A run of neighbouring core blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockRun {
    pub first: CoreBlock,
    pub count: u64,
}

impl BlockRun {
    /// The blocks that `range` touches.
    #[inline]
    pub fn touching(range: ByteRange) -> Self {
        let outer = range.align_outward(BLOCK_BYTES);
        Self { first: CoreBlock(outer.start() / BLOCK_BYTES), count: outer.len() / BLOCK_BYTES }
    }

    pub fn blocks(self) -> impl Iterator<Item = CoreBlock> {
        (self.first.0..self.first.0 + self.count).map(CoreBlock)
    }

    /// What follows the first so many blocks.
    #[inline]
    pub fn without_first(self, count: u64) -> Self {
        Self { first: CoreBlock(self.first.0 + count), count: self.count - count }
    }

    /// In pieces of so many blocks, and what is left.
    pub fn pieces(self, most: u64) -> impl Iterator<Item = BlockRun> {
        (0..self.count).step_by(most as usize).map(move |start| {
            let count = most.min(self.count - start);
            BlockRun { first: CoreBlock(self.first.0 + start), count }
        })
    }

    pub fn end(self) -> CoreBlock {
        CoreBlock(self.first.0 + self.count)
    }

    pub fn range(self) -> ByteRange {
        self.first.range(self.count)
    }

    pub fn contains(self, block: CoreBlock) -> bool {
        (self.first..self.end()).contains(&block)
    }

    pub fn overlaps(self, other: BlockRun) -> bool {
        self.first < other.end() && other.first < self.end()
    }
}

/// Where one of several cores begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePlace {
    /// What its statistics are to be called.
    pub core: u16,
    pub first: CoreBlock,
}
