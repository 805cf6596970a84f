//! The superblock of a cache device: identity of the cache, its volume, and the layout of its
//! slices.

use super::bytes::{get_u16, get_u32, get_u64, get_uuid, put_u16, put_u32, put_u64, put_uuid};
use super::{FormatError, check_block};
use crate::checksum::crc32c;
use crate::layout::{SliceLayout, is_line_size};
use headpond_block::{BLOCK_BYTES, ByteRange};
use uuid::Uuid;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HPCACHE\0");
pub const VERSION: u32 = 1;
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Offsets of the two copies; a write goes to copy `sequence mod 2`.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// The first slice starts here at the earliest.
pub const SLICES_OFFSET: u64 = 1 << 20;
pub const SLICES_MAX: usize = 64;
/// Largest core: its blocks have 40-bit numbers.
pub const CORE_BYTES_MAX: u64 = 1 << 52;

const WHAT: &str = "cache superblock";
const TABLE_AT: usize = 256;

/// Incompat: entries of records and runs of checkpoints say of which class their blocks are, and
/// runs which mark their lines have. Every cache that is made has it; of others neither is kept.
pub const KEEPS_CLASSES: u64 = 1;
/// Incompat: records and checkpoints may have parts of blocks. Every cache that is made has it; in
/// others a write of part of a block reads the rest first.
pub const KEEPS_PARTS: u64 = 2;
/// Incompat: records, checkpoints and headers of slices say where epochs of flushes end, and how
/// far the core has come. Every cache that is made has it; in others that order ends with a stop.
pub const KEEPS_ORDER: u64 = 4;
/// Incompat: runs of checkpoints say which blocks came from clients, all of them. Every cache that
/// is made has it; in others that is forgotten with a stop.
pub const KEEPS_GIVEN: u64 = 8;
/// What a cache has that is made now.
pub const INCOMPAT: u64 = KEEPS_CLASSES | KEEPS_PARTS | KEEPS_ORDER | KEEPS_GIVEN;

/// Feature flags; unknown ones are ignored, forbid writing, or forbid use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    pub compat: u64,
    pub ro_compat: u64,
    pub incompat: u64,
}

/// What a cache belongs to and how it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub features: Features,
    pub sequence: u64,
    pub volume: Uuid,
    pub cache: Uuid,
    /// Must equal the generation on the core's label.
    pub generation: u64,
    pub core: Uuid,
    /// When the cache was made; the core may have grown since.
    pub core_bytes: u64,
    pub device_bytes: u64,
    pub segment_bytes: u32,
    pub line_bytes: u32,
    /// Alignment of records: 512 or 4096.
    pub unit_bytes: u32,
    pub slices: Vec<ByteRange>,
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.slices.len() <= SLICES_MAX);
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 12, VERSION);
        put_u64(&mut bytes, 16, self.features.compat);
        put_u64(&mut bytes, 24, self.features.ro_compat);
        put_u64(&mut bytes, 32, self.features.incompat);
        put_u64(&mut bytes, 40, self.sequence);
        put_uuid(&mut bytes, 48, self.volume);
        put_uuid(&mut bytes, 64, self.cache);
        put_u64(&mut bytes, 80, self.generation);
        put_uuid(&mut bytes, 88, self.core);
        put_u64(&mut bytes, 104, self.core_bytes);
        put_u64(&mut bytes, 112, self.device_bytes);
        put_u32(&mut bytes, 120, self.segment_bytes);
        put_u32(&mut bytes, 124, self.line_bytes);
        put_u32(&mut bytes, 128, self.unit_bytes);
        put_u16(&mut bytes, 132, self.slices.len() as u16);
        for (index, slice) in self.slices.iter().enumerate() {
            put_u64(&mut bytes, TABLE_AT + 16 * index, slice.start());
            put_u64(&mut bytes, TABLE_AT + 16 * index + 8, slice.len());
        }
        let checksum = crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, checksum);
        bytes
    }

    /// # Errors
    /// Where the bytes are no superblock, a damaged one, or one that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check(bytes)?;
        let malformed = |detail| FormatError::Malformed { what: WHAT, detail };
        let device_bytes = get_u64(bytes, 112);
        let superblock = Self {
            features: features(bytes),
            sequence: get_u64(bytes, 40),
            volume: get_uuid(bytes, 48),
            cache: get_uuid(bytes, 64),
            generation: get_u64(bytes, 80),
            core: get_uuid(bytes, 88),
            core_bytes: get_u64(bytes, 104),
            device_bytes,
            segment_bytes: get_u32(bytes, 120),
            line_bytes: get_u32(bytes, 124),
            unit_bytes: get_u32(bytes, 128),
            slices: slices(bytes, device_bytes).map_err(malformed)?,
        };
        superblock.check_sizes().map_err(malformed)?;
        Ok(superblock)
    }

    /// Whether classes and marks are kept over a stop.
    pub fn keeps_classes(&self) -> bool {
        self.features.incompat & KEEPS_CLASSES != 0
    }

    /// Whether the log may have parts of blocks.
    pub fn keeps_parts(&self) -> bool {
        self.features.incompat & KEEPS_PARTS != 0
    }

    /// Whether the order of the flushes outlives a stop.
    pub fn keeps_order(&self) -> bool {
        self.features.incompat & KEEPS_ORDER != 0
    }

    /// Whether it is known over a stop which blocks came from clients.
    pub fn keeps_given(&self) -> bool {
        self.features.incompat & KEEPS_GIVEN != 0
    }

    /// How a slice is cut; `None` where there is no such slice.
    ///
    /// # Panics
    /// Where the sizes do not fit each other: those that were planned or decoded do.
    pub fn layout(&self, slice: usize) -> Option<SliceLayout> {
        let (segment_bytes, unit_bytes) = (self.segment_bytes.into(), self.unit_bytes.into());
        let layout = SliceLayout::new(*self.slices.get(slice)?, segment_bytes, unit_bytes);
        Some(layout.expect("checked by plan and by decode").with_lines(self.line_bytes.into()))
    }

    /// Whether the sizes are possible and fit each other; says what does not.
    fn check_sizes(&self) -> Result<(), &'static str> {
        let Self { unit_bytes, segment_bytes, core_bytes, .. } = *self;
        if !is_line_size(u64::from(self.line_bytes)) {
            return Err("lines are no power of two from 4 KiB to 1 MiB");
        }
        if !(1..=CORE_BYTES_MAX).contains(&core_bytes) || !core_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err("impossible core size");
        }
        if !matches!(unit_bytes, 512 | 4096) {
            return Err("record unit is neither 512 nor 4096");
        }
        if !segment_bytes.is_power_of_two() || !(1 << 16..=1 << 26).contains(&segment_bytes) {
            return Err("impossible segment size");
        }
        let fits = |&slice: &ByteRange| {
            SliceLayout::new(slice, segment_bytes.into(), unit_bytes.into()).is_some()
        };
        if self.slices.iter().all(fits) { Ok(()) } else { Err("a slice does not fit its segments") }
    }
}

/// The table of slices, which rise and do not overlap.
fn slices(bytes: &[u8], device_bytes: u64) -> Result<Vec<ByteRange>, &'static str> {
    let count = usize::from(get_u16(bytes, 132));
    if !(1..=SLICES_MAX).contains(&count) {
        return Err("impossible number of slices");
    }
    let mut slices = Vec::with_capacity(count);
    let mut free_from = SLICES_OFFSET;
    for index in 0..count {
        let at = TABLE_AT + 16 * index;
        let slice = ByteRange::new(get_u64(bytes, at), get_u64(bytes, at + 8))
            .filter(|slice| slice.is_aligned(BLOCK_BYTES) && slice.end() <= device_bytes)
            .ok_or("slice outside the device")?;
        if slice.start() < free_from {
            return Err("slices overlap");
        }
        free_from = slice.end();
        slices.push(slice);
    }
    Ok(slices)
}

fn features(bytes: &[u8]) -> Features {
    Features {
        compat: get_u64(bytes, 16),
        ro_compat: get_u64(bytes, 24),
        incompat: get_u64(bytes, 32),
    }
}

fn check(bytes: &[u8]) -> Result<(), FormatError> {
    let version = check_block(WHAT, bytes, MAGIC, SUPERBLOCK_BYTES)?;
    if version > VERSION {
        return Err(FormatError::Version { what: WHAT, found: version, known: VERSION });
    }
    let features = features(bytes);
    let unknown = features.incompat & !INCOMPAT | features.ro_compat;
    if unknown != 0 {
        return Err(FormatError::Features { what: WHAT, unknown });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example() -> Superblock {
        Superblock {
            features: Features { incompat: KEEPS_CLASSES, ..Features::default() },
            sequence: 4,
            volume: Uuid::from_u128(1),
            cache: Uuid::from_u128(2),
            generation: 3,
            core: Uuid::from_u128(4),
            core_bytes: 1 << 40,
            device_bytes: 1 << 30,
            segment_bytes: 1 << 20,
            line_bytes: 4096,
            unit_bytes: 512,
            slices: vec![ByteRange::at(1 << 20, 1 << 28), ByteRange::at(1 << 29, 1 << 28)],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(Superblock::decode(&example().encode()).unwrap(), example());
    }

    #[test]
    fn unknown_incompat_feature_is_refused_and_named() {
        let features = Features { incompat: 1 << 9, ..Features::default() };
        let newer = Superblock { features, ..example() };
        let refused = Superblock::decode(&newer.encode());
        assert_eq!(refused, Err(FormatError::Features { what: WHAT, unknown: 1 << 9 }));
    }

    #[test]
    fn sizes_that_do_not_fit_each_other_are_refused() {
        const NOT_A_LINE: &str = "lines are no power of two from 4 KiB to 1 MiB";
        let one = |start, len| vec![ByteRange::at(start, len)];
        let wrong = [
            (
                Superblock { segment_bytes: 1 << 26, ..example() },
                "a slice does not fit its segments",
            ),
            (Superblock { slices: one(0, 1 << 28), ..example() }, "slices overlap"),
            (Superblock { line_bytes: 12_288, ..example() }, NOT_A_LINE),
            (Superblock { line_bytes: 2048, ..example() }, NOT_A_LINE),
            (Superblock { line_bytes: 2 << 20, ..example() }, NOT_A_LINE),
            (Superblock { core_bytes: CORE_BYTES_MAX + 4096, ..example() }, "impossible core size"),
        ];
        for (superblock, detail) in wrong {
            let refused = Superblock::decode(&superblock.encode());
            assert_eq!(refused, Err(FormatError::Malformed { what: WHAT, detail }));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(bit in 0usize..4096 * 8) {
            let mut bytes = example().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Superblock::decode(&bytes).is_err());
        }
    }
}
