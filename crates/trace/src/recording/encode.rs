//! Encodes blocks.

use super::*;
use crate::format::Lacks;

/// The file's first bytes.
pub(super) fn header(started_unix_ns: u64, lacks: Lacks) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&lacks.bits().to_le_bytes());
    out[16..24].copy_from_slice(&started_unix_ns.to_le_bytes());
    let crc = crc32c(&[&out[..28]]);
    out[28..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The header of a block of `payload`, which unpacks to so many bytes.
pub(super) fn block_header(
    (kind, packing): (u8, u8),
    records: u32,
    unpacked_bytes: usize,
    payload: &[u8],
) -> [u8; BLOCK_HEADER_BYTES] {
    assert!(payload.len().max(unpacked_bytes) <= PAYLOAD_BYTES_MAX, "a block's payload is bounded");
    let mut out = [0; BLOCK_HEADER_BYTES];
    out[..4].copy_from_slice(BLOCK_MAGIC);
    (out[4], out[5]) = (kind, packing);
    out[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[12..16].copy_from_slice(&records.to_le_bytes());
    out[16..20].copy_from_slice(&(unpacked_bytes as u32).to_le_bytes());
    let crc = crc32c(&[&out[..20], payload]);
    out[20..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Appends one name to a payload.
pub(super) fn name(out: &mut Vec<u8>, kind: u8, id: u32, name: &str) {
    let bytes = &name.as_bytes()[..name.floor_char_boundary(usize::from(u16::MAX))];
    out.push(kind);
    out.extend(id.to_le_bytes());
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}
