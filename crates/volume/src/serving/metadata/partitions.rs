//! Partition tables: GPT, and the older MBR with its logical partitions left out.
//!
//! **Source**: UEFI Specification 2.10, chapter 5.

use super::fields::{le32, le64};
use headpond_block::{ByteRange, SECTOR_BYTES};

/// As much of the start of a device as a table of 128 entries needs.
pub(crate) const TABLE_BYTES: u64 = 34 * SECTOR_BYTES;

const GPT_PROTECTIVE: u8 = 0xee;
const ENTRIES_MAX: u64 = 128;
const MBR_ENTRIES: usize = 446;
const GPT_HEADER: usize = SECTOR_BYTES as usize;

/// The partitions that the first bytes of a device of `size_bytes` describe, in sectors of 512
/// bytes; none where there is no table.
pub(crate) fn partitions(head: &[u8], size_bytes: u64) -> Vec<ByteRange> {
    if head.get(510..512) != Some(&[0x55, 0xaa]) {
        return Vec::new();
    }
    let entries =
        (0..4).filter_map(|at| head.get(MBR_ENTRIES + at * 16..MBR_ENTRIES + at * 16 + 16));
    let entries: Vec<&[u8]> = entries.collect();
    let found = match entries.iter().any(|entry| entry[4] == GPT_PROTECTIVE) {
        true => gpt(head).unwrap_or_default(),
        false => entries.into_iter().filter_map(mbr).collect(),
    };
    let fits = |range: &ByteRange| !range.is_empty() && range.end() <= size_bytes;
    found.into_iter().filter(fits).collect()
}

fn mbr(entry: &[u8]) -> Option<ByteRange> {
    let (first, count) = (le32(entry, 8)?, le32(entry, 12)?);
    (entry[4] != 0 && first > 0).then(|| ByteRange::at(first * SECTOR_BYTES, count * SECTOR_BYTES))
}

fn gpt(head: &[u8]) -> Option<Vec<ByteRange>> {
    if head.get(GPT_HEADER..GPT_HEADER + 8) != Some(b"EFI PART") {
        return None;
    }
    let table = usize::try_from(le64(head, GPT_HEADER + 72)?.checked_mul(SECTOR_BYTES)?).ok()?;
    let count = le32(head, GPT_HEADER + 80)?.min(ENTRIES_MAX) as usize;
    let each = le32(head, GPT_HEADER + 84)? as usize;
    if each < 128 {
        return None;
    }
    let partition = |at: usize| {
        let start = table.checked_add(at.checked_mul(each)?)?;
        let entry = head.get(start..start.checked_add(128)?)?;
        let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
        let is_used = entry[..16].iter().any(|byte| *byte != 0) && first > 0 && first <= last;
        let start = first.checked_mul(SECTOR_BYTES)?;
        let end = last.checked_add(1)?.checked_mul(SECTOR_BYTES)?;
        is_used.then(|| ByteRange::between(start, end))
    };
    Some((0..count).filter_map(partition).collect())
}
