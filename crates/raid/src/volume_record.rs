//! A text of the layer above, kept on every member: the volume's settings and history.
//!
//! **Invariants**: bytes become a text only where magic, checksum, version, array and length are
//! valid.
//! **Not here**: what the text says (the layer above), and when it is written
//! (`array::volume_record`).
//! **Source**: `docs/format.md`, "Volume record".

use headpond_block::ByteRange;
use uuid::Uuid;

use crate::checksum;
use crate::superblock::{COPY_OFFSETS as SUPERBLOCKS, INTENT_OFFSET, SUPERBLOCK_BYTES};

const MAGIC: &[u8; 8] = b"HPVOLREC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
/// What is written is a multiple of this.
const PAGE_BYTES: usize = 4096;

/// Where the two copies begin, by the parity of their sequence.
pub const COPY_OFFSETS: [u64; 2] = [72 << 10, 100 << 10];
/// Bytes set aside for a copy.
pub const COPY_BYTES: usize = 28 << 10;
/// Longest text.
pub const TEXT_BYTES_MAX: usize = COPY_BYTES - HEADER_BYTES;
/// Both copies.
pub(crate) const AREA: ByteRange = ByteRange::at(COPY_OFFSETS[0], 2 * COPY_BYTES as u64);

const _: () = assert!(SUPERBLOCKS[1] + SUPERBLOCK_BYTES as u64 <= COPY_OFFSETS[0]);
const _: () = assert!(COPY_OFFSETS[0] + COPY_BYTES as u64 == COPY_OFFSETS[1]);
const _: () = assert!(AREA.end() <= INTENT_OFFSET);

/// Where each field lies.
mod at {
    pub const CHECKSUM: usize = 8;
    pub const VERSION: usize = 12;
    pub const ARRAY: usize = 16;
    pub const SEQUENCE: usize = 32;
    pub const LENGTH: usize = 40;
}

/// A text, as one of its writes left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Of the writes; the highest counts.
    pub sequence: u64,
    pub text: Vec<u8>,
}

impl VolumeRecord {
    /// The record as it is written, in whole pages.
    ///
    /// # Panics
    /// Where the text is longer than [`TEXT_BYTES_MAX`].
    pub fn encode(&self, array: Uuid) -> Vec<u8> {
        assert!(self.text.len() <= TEXT_BYTES_MAX, "the layer above checks the length");
        let used = HEADER_BYTES + self.text.len();
        let mut bytes = vec![0; used.next_multiple_of(PAGE_BYTES)];
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(0, MAGIC);
        put(at::VERSION, &VERSION.to_le_bytes());
        put(at::ARRAY, array.as_bytes());
        put(at::SEQUENCE, &self.sequence.to_le_bytes());
        put(at::LENGTH, &(self.text.len() as u32).to_le_bytes());
        put(HEADER_BYTES, &self.text);
        let sum = checksum::with_hole(&bytes[..used], at::CHECKSUM);
        bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record in a whole copy; `None` where there is none of this array, or a damaged one.
    pub fn decode(bytes: &[u8], array: Uuid) -> Option<VolumeRecord> {
        let length = u32_at(bytes, at::LENGTH) as usize;
        if !bytes.starts_with(MAGIC) || length > TEXT_BYTES_MAX {
            return None;
        }
        let used = bytes.get(..HEADER_BYTES + length)?;
        let is_valid = u32_at(used, at::CHECKSUM) == checksum::with_hole(used, at::CHECKSUM)
            && u32_at(used, at::VERSION) == VERSION
            && used[at::ARRAY..at::ARRAY + 16] == *array.as_bytes();
        let sequence = u64::from_le_bytes(used[at::SEQUENCE..][..8].try_into().expect("eight"));
        is_valid.then(|| VolumeRecord { sequence, text: used[HEADER_BYTES..].to_vec() })
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARRAY: Uuid = Uuid::from_u128(7);

    fn copy_of(record: &VolumeRecord) -> Vec<u8> {
        let mut bytes = record.encode(ARRAY);
        bytes.resize(COPY_BYTES, 0);
        bytes
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was_written(
            sequence: u64, text in prop::collection::vec(any::<u8>(), 0..TEXT_BYTES_MAX)
        ) {
            let record = VolumeRecord { sequence, text };
            prop_assert_eq!(VolumeRecord::decode(&copy_of(&record), ARRAY), Some(record));
        }

        #[test]
        fn no_damaged_bit_is_read(bit in 0..(8 * (HEADER_BYTES + 5))) {
            let record = VolumeRecord { sequence: 3, text: b"hello".to_vec() };
            let mut bytes = copy_of(&record);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(VolumeRecord::decode(&bytes, ARRAY), None);
        }

        #[test]
        fn no_bytes_are_taken_for_a_length_beyond_the_copy(length: u32) {
            let mut bytes = copy_of(&VolumeRecord { sequence: 3, text: b"hello".to_vec() });
            bytes[at::LENGTH..at::LENGTH + 4].copy_from_slice(&length.to_le_bytes());
            prop_assert_eq!(VolumeRecord::decode(&bytes, ARRAY).is_some(), length == 5);
        }
    }

    #[test]
    fn the_longest_text_fits_and_that_of_another_array_is_none() {
        let record = VolumeRecord { sequence: 1, text: vec![b'x'; TEXT_BYTES_MAX] };
        let bytes = copy_of(&record);
        assert_eq!(bytes.len(), COPY_BYTES);
        assert_eq!(VolumeRecord::decode(&bytes, Uuid::from_u128(8)), None);
        assert_eq!(VolumeRecord::decode(&[0; COPY_BYTES], ARRAY), None);
    }
}
