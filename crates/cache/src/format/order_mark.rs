//! The core's position in the flush order: rewritten after every epoch.
//!
//! It is stored next to the slice's headers, and needs no space in the log: a full log waits for
//! the cleaner, which waits for this.

use super::bytes::{get_u16, get_u64, get_uuid, put_u16, put_u32, put_u64, put_uuid};
use super::{FormatError, check_block};
use crate::checksum::crc32c;
use crate::types::{Epoch, Position, Sequence};
use uuid::Uuid;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HPORDER\0");
pub const VERSION: u32 = 1;
pub const MARK_BYTES: usize = 4096;
/// Offsets of the two copies in the slice; a write goes to copy `sequence mod 2`.
pub const COPY_OFFSETS: [u64; 2] = [32 << 10, 96 << 10];

const WHAT: &str = "flush order mark";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderMark {
    pub cache: Uuid,
    pub slice: u16,
    /// That the place is of.
    pub epoch: Epoch,
    /// Of the marks of this epoch.
    pub sequence: u64,
    /// Everything before it in the log is durable on the core.
    pub place: Position,
    /// The next record, when it was written: a segment that began later is another one.
    pub next_record: Sequence,
}

impl OrderMark {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; MARK_BYTES];
        put_u64(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 12, VERSION);
        put_uuid(&mut bytes, 16, self.cache);
        put_u16(&mut bytes, 32, self.slice);
        put_u64(&mut bytes, 40, self.epoch.0);
        put_u64(&mut bytes, 48, self.sequence);
        put_u64(&mut bytes, 56, self.place.0);
        put_u64(&mut bytes, 64, self.next_record.0);
        let checksum = crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, checksum);
        bytes
    }

    /// # Errors
    /// Where the bytes are no mark, a damaged one, a newer one, or one of another slice.
    pub fn decode(bytes: &[u8], cache: Uuid, slice: u16) -> Result<Self, FormatError> {
        let version = check_block(WHAT, bytes, MAGIC, MARK_BYTES)?;
        if version != VERSION {
            return Err(FormatError::Version { what: WHAT, found: version, known: VERSION });
        }
        if get_uuid(bytes, 16) != cache || get_u16(bytes, 32) != slice {
            return Err(FormatError::Elsewhere { what: WHAT, detail: "another cache or slice" });
        }
        Ok(Self {
            cache,
            slice,
            epoch: Epoch(get_u64(bytes, 40)),
            sequence: get_u64(bytes, 48),
            place: Position(get_u64(bytes, 56)),
            next_record: Sequence(get_u64(bytes, 64)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn mark_survives_the_round_trip_and_no_flipped_bit(
            numbers in prop::array::uniform4(any::<u64>()), bit in 0usize..MARK_BYTES * 8,
        ) {
            let cache = Uuid::from_u128(9);
            let mark = OrderMark {
                cache, slice: 2, epoch: Epoch(numbers[0]), sequence: numbers[1],
                place: Position(numbers[2]), next_record: Sequence(numbers[3]),
            };
            let mut bytes = mark.encode();
            prop_assert_eq!(OrderMark::decode(&bytes, cache, 2), Ok(mark));
            prop_assert!(OrderMark::decode(&bytes, cache, 3).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(OrderMark::decode(&bytes, cache, 2).is_err());
        }
    }
}
