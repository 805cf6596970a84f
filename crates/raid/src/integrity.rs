//! Checksums of blocks that a scrub has verified, in pages on the member that holds the blocks.
//!
//! Each 4 KiB of a member's data area has a fixed place in the pages, whether its checksum is known
//! or not. A bitmap, not the pages, shows which checksums are valid: a region that was written to
//! since is *unsigned* (`array::integrity`).
//!
//! **Invariants**: a page of another array, member or location, or a damaged one, is ignored; so a
//! member that was replaced, or re-added under a new UUID, has no valid checksums.
//! **Not here**: reading and writing pages, and when they are valid (`array::integrity`).
//! **Source**: `docs/format.md`, "Integrity region"; `docs/decisions/0021`.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};
use uuid::Uuid;

use crate::checksum::with_hole;
use crate::superblock::{DATA_OFFSET_MIN, INTEGRITY_PAGES_OFFSET};

/// Bytes that have a checksum of their own.
pub const BLOCK_BYTES: u32 = 4096;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Checksums in a page.
pub const PAGE_SUMS: usize = (PAGE_BYTES - HEADER_BYTES) / size_of::<u32>();
/// In the place of a checksum where nothing is known.
pub const NO_SUM: u32 = 0;

const MAGIC: &[u8; 8] = b"HPCHECKS";
const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 8;
const ARRAY_AT: usize = 16;
const MEMBER_AT: usize = 32;
const NUMBER_AT: usize = 48;

/// Data begins at a multiple of this behind the pages.
const ALIGNMENT: u64 = 1 << 20;

/// The number of the page, and its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOf {
    pub array: Uuid,
    pub member: Uuid,
    pub number: u64,
}

/// The checksum of a block: CRC-32C, but never [`NO_SUM`].
pub fn sum_of(block: &[u8]) -> u32 {
    assert_eq!(block.len(), BLOCK_BYTES as usize);
    (checksum(CrcAlgorithm::Crc32Iscsi, block) as u32).max(1)
}

/// Where on a member a page lies.
pub fn page_offset(number: u64) -> u64 {
    INTEGRITY_PAGES_OFFSET + number * PAGE_BYTES as u64
}

/// Pages for a data area of so many bytes.
pub fn pages(data_bytes: u64) -> u64 {
    data_bytes.div_ceil(u64::from(BLOCK_BYTES)).div_ceil(PAGE_SUMS as u64)
}

/// The first data offset that leaves room for the pages of a data area.
pub fn data_offset_min(data_bytes: u64) -> u64 {
    page_offset(pages(data_bytes))
}

/// The data offset of members that have so many bytes.
pub fn data_offset(member_bytes: u64) -> u64 {
    data_offset_min(member_bytes.saturating_sub(DATA_OFFSET_MIN)).next_multiple_of(ALIGNMENT)
}

/// The places of the checksums of a row of strips, counted over all pages.
pub fn places(row: u64, strip_bytes: u32) -> Range<u64> {
    let blocks = u64::from(strip_bytes / BLOCK_BYTES);
    row * blocks..(row + 1) * blocks
}

/// The page that has a place, and the index in it.
pub fn page_of(place: u64) -> (u64, usize) {
    (place / PAGE_SUMS as u64, (place % PAGE_SUMS as u64) as usize)
}

/// A page as it is written.
///
/// # Panics
/// Where there are not [`PAGE_SUMS`] checksums.
pub fn encode(of: PageOf, sums: &[u32]) -> Vec<u8> {
    assert_eq!(sums.len(), PAGE_SUMS);
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ARRAY_AT..MEMBER_AT].copy_from_slice(of.array.as_bytes());
    bytes[MEMBER_AT..NUMBER_AT].copy_from_slice(of.member.as_bytes());
    bytes[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&of.number.to_le_bytes());
    sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
    let sum = with_hole(&bytes, CHECKSUM_AT);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The checksums in a page; `None` where the bytes are not this page, whole.
///
/// # Panics
/// Where `bytes` has not the size of a page.
pub fn decode(of: PageOf, bytes: &[u8]) -> Option<Vec<u32>> {
    assert_eq!(bytes.len(), PAGE_BYTES);
    let found = &bytes[CHECKSUM_AT..CHECKSUM_AT + 4];
    let is_it = bytes.starts_with(MAGIC)
        && bytes[ARRAY_AT..MEMBER_AT] == *of.array.as_bytes()
        && bytes[MEMBER_AT..NUMBER_AT] == *of.member.as_bytes()
        && bytes[NUMBER_AT..NUMBER_AT + 8] == of.number.to_le_bytes();
    let is_whole = found == with_hole(bytes, CHECKSUM_AT).to_le_bytes();
    let word = |part: &[u8]| u32::from_le_bytes(part.try_into().expect("four bytes"));
    (is_it && is_whole).then(|| bytes[HEADER_BYTES..].chunks_exact(4).map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_page() -> PageOf {
        PageOf { array: Uuid::from_u128(7), member: Uuid::from_u128(8), number: 9 }
    }

    #[test]
    fn every_block_has_a_place_of_its_own_before_the_data() {
        for (member_bytes, strip_bytes) in
            [(3 << 20, 4096), (1 << 32, 64 << 10), (1 << 44, 1 << 20)]
        {
            let start = data_offset(member_bytes);
            let rows = (member_bytes - start) / u64::from(strip_bytes);
            let last = places(rows - 1, strip_bytes).end - 1;
            assert!(page_offset(page_of(last).0 + 1) <= start, "{member_bytes}");
            assert_eq!(places(1, strip_bytes).start, places(0, strip_bytes).end);
            assert!(start.is_multiple_of(ALIGNMENT) && start <= (2 << 20) + member_bytes / 1000);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_page_tells_only_whose_it_is_and_only_whole(
            sums in prop::collection::vec(any::<u32>(), PAGE_SUMS),
            at in 0..PAGE_BYTES,
            change in 1..=255_u8,
        ) {
            let of = some_page();
            let mut bytes = encode(of, &sums);
            prop_assert_eq!(decode(of, &bytes), Some(sums));
            prop_assert_eq!(decode(PageOf { number: 8, ..of }, &bytes), None);
            prop_assert_eq!(decode(PageOf { member: Uuid::from_u128(6), ..of }, &bytes), None);
            prop_assert_eq!(decode(PageOf { array: Uuid::from_u128(6), ..of }, &bytes), None);
            bytes[at] ^= change;
            prop_assert_eq!(decode(of, &bytes), None);
        }
    }
}
