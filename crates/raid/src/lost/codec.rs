//! The list of lost blocks as bytes.

use headpond_block::ByteRange;
use thiserror::Error;
use uuid::Uuid;

use super::{COPY_BYTES, COPY_OFFSETS, GROUP_BLOCKS, GROUPS_MAX, LostBlocks};
use crate::checksum;
use crate::superblock::{DATA_OFFSET_MIN, INTENT_BYTES, INTENT_OFFSET};

const MAGIC: &[u8; 8] = b"HPLOSTBK";
const VERSION: u32 = 1;
/// What is written is a multiple of this.
const PAGE_BYTES: usize = 4096;

/// Bytes before the groups.
pub const HEADER_BYTES: usize = 64;
pub(super) const GROUP_BYTES: usize = 16;

/// Where each field lies; see `docs/format.md`.
mod at {
    pub const CHECKSUM: usize = 8;
    pub const VERSION: usize = 12;
    pub const ARRAY: usize = 16;
    pub const SEQUENCE: usize = 32;
    pub const BLOCK_BYTES: usize = 40;
    pub const GROUPS: usize = 44;
}

const _: () = assert!(INTENT_OFFSET + INTENT_BYTES <= COPY_OFFSETS[0]);
const _: () = assert!(COPY_OFFSETS[0] + COPY_BYTES as u64 <= COPY_OFFSETS[1]);
const _: () = assert!(COPY_OFFSETS[1] + COPY_BYTES as u64 <= DATA_OFFSET_MIN);

/// Why bytes are no list of lost blocks that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("it holds no list of lost blocks")]
    Foreign,
    #[error("its checksum is {found:#010x} where {expected:#010x} was expected")]
    Checksum { expected: u32, found: u32 },
    #[error("it belongs to array {found}")]
    OtherArray { found: Uuid },
    #[error("its field `{field}` has the invalid value {value}")]
    Field { field: &'static str, value: u64 },
}

/// The list as it is written, in whole pages.
pub fn encode(array: Uuid, sequence: u64, list: &LostBlocks) -> Vec<u8> {
    assert!(list.groups.len() <= GROUPS_MAX);
    let used = HEADER_BYTES + list.groups.len() * GROUP_BYTES;
    let mut bytes = vec![0; used.next_multiple_of(PAGE_BYTES)];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, MAGIC);
    put(at::VERSION, &VERSION.to_le_bytes());
    put(at::ARRAY, array.as_bytes());
    put(at::SEQUENCE, &sequence.to_le_bytes());
    put(at::BLOCK_BYTES, &list.block_bytes.to_le_bytes());
    put(at::GROUPS, &(list.groups.len() as u32).to_le_bytes());
    for (index, (group, bits)) in list.groups.iter().enumerate() {
        let offset = HEADER_BYTES + index * GROUP_BYTES;
        put(offset, &group.to_le_bytes());
        put(offset + 8, &bits.to_le_bytes());
    }
    let sum = checksum::with_hole(&bytes[..used], at::CHECKSUM);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The list of an array of `array_bytes` in a whole copy, and its sequence.
///
/// # Errors
/// Where it is none, or damaged, or another array's.
///
/// # Panics
/// Where `bytes` has not the size of a copy.
pub fn decode(
    bytes: &[u8],
    array: Uuid,
    array_bytes: u64,
) -> Result<(u64, LostBlocks), DecodeError> {
    assert_eq!(bytes.len(), COPY_BYTES);
    if !bytes.starts_with(MAGIC) {
        return Err(DecodeError::Foreign);
    }
    let impossible = |field, value| DecodeError::Field { field, value };
    let count = u32_at(bytes, at::GROUPS) as usize;
    if count > GROUPS_MAX {
        return Err(impossible("groups", count as u64));
    }
    let used = &bytes[..HEADER_BYTES + count * GROUP_BYTES];
    let (found, expected) = (u32_at(used, at::CHECKSUM), checksum::with_hole(used, at::CHECKSUM));
    if found != expected {
        return Err(DecodeError::Checksum { expected, found });
    }
    let version = u32_at(used, at::VERSION);
    if version != VERSION {
        return Err(impossible("version", version.into()));
    }
    let found = Uuid::from_bytes(array_at(used, at::ARRAY));
    if found != array {
        return Err(DecodeError::OtherArray { found });
    }
    let block_bytes = u32_at(used, at::BLOCK_BYTES);
    if !matches!(block_bytes, 512 | 4096) {
        return Err(impossible("logical block", block_bytes.into()));
    }
    let mut list = LostBlocks::new(block_bytes);
    let groups_end = array_bytes.div_ceil(GROUP_BLOCKS * u64::from(block_bytes));
    for entry in used[HEADER_BYTES..].chunks_exact(GROUP_BYTES) {
        let (group, bits) = (u64_at(entry, 0), u64_at(entry, 8));
        let is_next = list.groups.last_key_value().is_none_or(|(last, _)| *last < group);
        if group >= groups_end || !is_next {
            return Err(impossible("group", group));
        }
        if bits == 0 {
            return Err(impossible("blocks", bits));
        }
        list.groups.insert(group, bits);
    }
    let end = list.ranges().last().map_or(0, ByteRange::end);
    if end > array_bytes {
        return Err(impossible("end", end));
    }
    Ok((u64_at(used, at::SEQUENCE), list))
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("the slice has N bytes")
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ARRAY: Uuid = Uuid::from_u128(5);
    const ARRAY_BYTES: u64 = 1 << 30;

    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(COPY_BYTES, 0);
        bytes
    }

    fn lists() -> impl Strategy<Value = LostBlocks> {
        let ranges = prop::collection::vec((0_u64..ARRAY_BYTES / 4096 - 200, 1_u64..200), 0..40);
        (prop::sample::select(vec![512_u32, 4096]), ranges).prop_map(|(block_bytes, ranges)| {
            let range = |(start, count): &(u64, u64)| {
                ByteRange::at(start * u64::from(block_bytes), count * u64::from(block_bytes))
            };
            let mut list = LostBlocks::new(block_bytes);
            list.insert(&ranges.iter().map(range).collect::<Vec<_>>()).unwrap();
            list
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn encoding_and_decoding_round_trip(list in lists(), sequence in any::<u64>()) {
            let bytes = padded(encode(ARRAY, sequence, &list));
            prop_assert_eq!(decode(&bytes, ARRAY, ARRAY_BYTES), Ok((sequence, list)));
        }

        #[test]
        fn every_changed_byte_is_noticed(
            list in lists(), at in any::<prop::sample::Index>(), change in 1..=255_u8,
        ) {
            let mut bytes = padded(encode(ARRAY, 7, &list));
            let at = at.index(HEADER_BYTES + list.groups.len() * GROUP_BYTES);
            bytes[at] ^= change;
            prop_assert!(decode(&bytes, ARRAY, ARRAY_BYTES).is_err());
        }

        #[test]
        fn a_wrong_field_under_a_right_checksum_never_panics(
            list in lists(), at in 12_usize..256, value in any::<u8>(),
        ) {
            let mut bytes = padded(encode(ARRAY, 7, &list));
            bytes[at] = value;
            let count = (u32_at(&bytes, at::GROUPS) as usize).min(GROUPS_MAX);
            let used = HEADER_BYTES + count * GROUP_BYTES;
            let sum = checksum::with_hole(&bytes[..used], at::CHECKSUM);
            bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
            if let Ok((_, list)) = decode(&bytes, ARRAY, ARRAY_BYTES) {
                prop_assert!(list.ranges().all(|range| range.end() <= ARRAY_BYTES));
            }
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let with_magic = [MAGIC, bytes.as_slice()].concat();
            prop_assert!(decode(&padded(bytes), ARRAY, ARRAY_BYTES).is_err());
            let _ = decode(&padded(with_magic), ARRAY, ARRAY_BYTES);
        }
    }

    #[test]
    fn the_list_of_another_array_is_refused() {
        let bytes = padded(encode(ARRAY, 1, &LostBlocks::new(512)));
        let found = decode(&bytes, Uuid::from_u128(6), ARRAY_BYTES);
        assert_eq!(found, Err(DecodeError::OtherArray { found: ARRAY }));
    }

    #[test]
    fn blocks_past_the_end_of_the_array_are_impossible() {
        let mut list = LostBlocks::new(512);
        list.insert(&[ByteRange::at(1 << 20, 512)]).unwrap();
        let bytes = padded(encode(ARRAY, 1, &list));
        assert!(decode(&bytes, ARRAY, (1 << 20) + 512).is_ok());
        let found = decode(&bytes, ARRAY, 1 << 20);
        assert!(matches!(found, Err(DecodeError::Field { field: "group", .. })));
    }
}
