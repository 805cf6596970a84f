//! The header of a slice: the start of its epoch and its state then.

use super::bytes::{
    decode_place, encode_place, get_u16, get_u32, get_u64, get_uuid, put_u16, put_u32, put_u64,
    put_uuid,
};
use super::{FormatError, check_block};
use crate::checksum::crc32c;
use crate::types::{Epoch, Position, SegmentIndex, Sequence};
use uuid::Uuid;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HPSLICE\0");
pub const VERSION: u32 = 2;
pub const HEADER_BYTES: usize = 4096;
/// Offsets of the two copies in the slice; a write goes to copy `sequence mod 2`.
pub const COPY_OFFSETS: [u64; 2] = [0, 64 << 10];
/// The checkpoint areas start here in the slice.
pub const CHECKPOINTS_OFFSET: u64 = 128 << 10;

const WHAT: &str = "slice header";

/// The checkpoint that replay starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Which of the two areas, 0 or 1.
    pub area: u8,
    pub runs: u64,
    pub bytes: u64,
    pub checksum: u32,
}

/// State of a slice at the start of an epoch, at a checkpoint within it, or at its clean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceHeader {
    pub cache: Uuid,
    pub slice: u16,
    pub sequence: u64,
    /// The epoch whose records follow the checkpoint; in a clean header, the epoch that ended.
    pub epoch: Epoch,
    /// First record that the checkpoint does not speak of; in a clean header, the next one.
    pub next_record: Sequence,
    pub tail: Sequence,
    pub tail_segment: SegmentIndex,
    /// Where the next record goes.
    pub head: Position,
    pub head_segment: SegmentIndex,
    /// Nothing was written after the checkpoint.
    pub is_clean: bool,
    pub checkpoint: CheckpointRef,
    /// How many segments, from that of the head on, may hold records that follow the checkpoint;
    /// 0 = all. A later header comes before a record in another one.
    pub reach: u32,
    /// As in a record, of the moment that the checkpoint speaks of, which has all that is needed to
    /// go on in that order.
    pub order: Option<Position>,
}

impl SliceHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 12, VERSION);
        put_uuid(&mut bytes, 16, self.cache);
        put_u16(&mut bytes, 32, self.slice);
        bytes[34] = u8::from(self.is_clean);
        bytes[35] = self.checkpoint.area;
        put_u64(&mut bytes, 40, self.sequence);
        put_u64(&mut bytes, 48, self.epoch.0);
        put_u64(&mut bytes, 56, self.next_record.0);
        put_u64(&mut bytes, 64, self.tail.0);
        put_u32(&mut bytes, 72, self.tail_segment.0);
        put_u32(&mut bytes, 76, self.head_segment.0);
        put_u64(&mut bytes, 80, self.head.0);
        put_u64(&mut bytes, 88, self.checkpoint.runs);
        put_u64(&mut bytes, 96, self.checkpoint.bytes);
        put_u32(&mut bytes, 104, self.checkpoint.checksum);
        put_u32(&mut bytes, 108, self.reach);
        put_u64(&mut bytes, 112, encode_place(self.order));
        let checksum = crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, checksum);
        bytes
    }

    /// What is safe to believe where the other copy, which may be newer, cannot be read.
    ///
    /// The header after a clean one begins an epoch with the same checkpoint and the same tail.
    /// That it was written, and requests were served since, is assumed. The header after an unclean
    /// one is its clean end or a later checkpoint, without which the epoch is replayed from here;
    /// or begins the next epoch, which cannot be made up for: replay notices its records. A header
    /// that is missing may have let the log go on further. The sequence stays, so that the next
    /// header goes to the other copy.
    pub fn without_successor(self) -> Self {
        let here = Self { reach: 0, ..self };
        if !self.is_clean {
            return here;
        }
        // And the policy at that time is unknown.
        let epoch = Epoch(self.epoch.0.saturating_add(1));
        Self { epoch, is_clean: false, order: None, ..here }
    }

    /// The one that lies in a place: the sequence says which of the two that is. The older one may
    /// lie over the newer.
    ///
    /// # Errors
    /// As [`Self::decode`], and where it is the other one.
    pub fn decode_at(
        bytes: &[u8],
        cache: Uuid,
        slice: u16,
        place: usize,
    ) -> Result<Self, FormatError> {
        let found = Self::decode(bytes, cache, slice)?;
        if found.sequence % 2 != place as u64 {
            let detail = "the other copy is in its place";
            return Err(FormatError::Malformed { what: WHAT, detail });
        }
        Ok(found)
    }

    /// # Errors
    /// Where the bytes are no header, a damaged one, a newer one, or one of another slice.
    pub fn decode(bytes: &[u8], cache: Uuid, slice: u16) -> Result<Self, FormatError> {
        check(bytes)?;
        if get_uuid(bytes, 16) != cache || get_u16(bytes, 32) != slice {
            return Err(FormatError::Elsewhere { what: WHAT, detail: "another cache or slice" });
        }
        if bytes[35] > 1 {
            return Err(FormatError::Malformed { what: WHAT, detail: "no such checkpoint area" });
        }
        let checkpoint = CheckpointRef {
            area: bytes[35],
            runs: get_u64(bytes, 88),
            bytes: get_u64(bytes, 96),
            checksum: get_u32(bytes, 104),
        };
        Ok(Self {
            cache,
            slice,
            sequence: get_u64(bytes, 40),
            epoch: Epoch(get_u64(bytes, 48)),
            next_record: Sequence(get_u64(bytes, 56)),
            tail: Sequence(get_u64(bytes, 64)),
            tail_segment: SegmentIndex(get_u32(bytes, 72)),
            head: Position(get_u64(bytes, 80)),
            head_segment: SegmentIndex(get_u32(bytes, 76)),
            is_clean: bytes[34] & 1 != 0,
            checkpoint,
            reach: get_u32(bytes, 108),
            order: decode_place(get_u64(bytes, 112)),
        })
    }
}

fn check(bytes: &[u8]) -> Result<(), FormatError> {
    let version = check_block(WHAT, bytes, MAGIC, HEADER_BYTES)?;
    if version != VERSION {
        return Err(FormatError::Version { what: WHAT, found: version, known: VERSION });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_survives_the_round_trip_and_no_flipped_bit(
            numbers in prop::array::uniform8(any::<u64>()), is_clean: bool, bit in 0usize..4096 * 8,
        ) {
            let checkpoint = CheckpointRef {
                area: 1, runs: numbers[0], bytes: numbers[1], checksum: numbers[2] as u32,
            };
            let cache = Uuid::from_u128(9);
            let header = SliceHeader {
                cache, slice: 2, sequence: numbers[3], epoch: Epoch(numbers[4]),
                next_record: Sequence(numbers[5]), tail: Sequence(numbers[6]),
                tail_segment: SegmentIndex(numbers[7] as u32), head: Position(numbers[0]),
                head_segment: SegmentIndex(numbers[1] as u32), is_clean, checkpoint,
                reach: numbers[2] as u32,
                order: is_clean.then_some(Position(numbers[3] / 2)),
            };
            let mut bytes = header.encode();
            prop_assert_eq!(SliceHeader::decode(&bytes, cache, 2), Ok(header));
            prop_assert!(SliceHeader::decode(&bytes, cache, 3).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(SliceHeader::decode(&bytes, cache, 2).is_err());
        }
    }
}
