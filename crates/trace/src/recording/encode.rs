//! Encodes blocks.

use super::*;
use crate::record::TraceRecord;

/// The file's first bytes.
pub(super) fn header(started_unix_ns: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    out[16..24].copy_from_slice(&started_unix_ns.to_le_bytes());
    let crc = crc32c(&[&out[..28]]);
    out[28..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The header of a block with this payload.
pub(super) fn block_header(kind: u8, records: u32, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a block's payload is bounded");
    let mut out = [0; BLOCK_HEADER_BYTES];
    out[..4].copy_from_slice(BLOCK_MAGIC);
    out[4] = kind;
    out[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[12..16].copy_from_slice(&records.to_le_bytes());
    let crc = crc32c(&[&out[..16], payload]);
    out[16..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Appends `record` to a payload, told against the record before it.
pub(super) fn record(out: &mut Vec<u8>, before: &TraceRecord, record: &TraceRecord) {
    let origin = |r: &TraceRecord| (r.device, r.process, r.queue);
    let origin_follows = origin(before) != origin(record);
    let flags_follow = before.flags != record.flags;
    let length_as_before = before.length_bytes == record.length_bytes;
    let mut tag = record.op.index() as u8;
    for (holds, bit) in [
        (origin_follows, ORIGIN_FOLLOWS),
        (record.dispatched_ns.is_some(), DISPATCH_FOLLOWS),
        (record.completed_ns.is_some(), COMPLETION_FOLLOWS),
        (flags_follow, FLAGS_FOLLOW),
        (length_as_before, LENGTH_AS_BEFORE),
    ] {
        tag |= if holds { bit } else { 0 };
    }
    out.push(tag);
    varint(out, zigzag(record.issued_ns.wrapping_sub(before.issued_ns)));
    varint(out, zigzag(record.offset_bytes.wrapping_sub(before.end_bytes())));
    if !length_as_before {
        varint(out, record.length_bytes);
    }
    if flags_follow {
        varint(out, u64::from(record.flags.bits()));
    }
    if origin_follows {
        varint(out, u64::from(record.device));
        varint(out, u64::from(record.process));
        varint(out, u64::from(record.queue));
    }
    for time in [record.dispatched_ns, record.completed_ns].into_iter().flatten() {
        varint(out, time.saturating_sub(record.issued_ns));
    }
}

/// Appends one name to a payload.
pub(super) fn name(out: &mut Vec<u8>, kind: u8, id: u32, name: &str) {
    let bytes = &name.as_bytes()[..name.floor_char_boundary(usize::from(u16::MAX))];
    out.push(kind);
    out.extend(id.to_le_bytes());
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
