//! Decodes blocks: bytes in, records or a reason out; nothing is believed.

use thiserror::Error;

use super::*;
use crate::names::Names;
use crate::record::{Op, RecordFlags, TraceRecord};

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    #[error("no block starts here")]
    Magic,
    #[error("the block claims more than a block may hold")]
    Oversized,
    #[error("the block is cut: {needed_bytes} bytes needed")]
    Short { needed_bytes: usize },
    #[error("the checksum is {found:#010x}, the content gives {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("the block is of the unknown kind {0}")]
    Kind(u8),
    #[error("the content ends in the middle of an entry or holds an impossible one")]
    Content,
}

/// What a block held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Records were appended.
    Records,
    /// Names were noted.
    Names,
    /// The end, with the number of records the file should hold.
    End { records: u64 },
}

/// Decodes the block at the start of `bytes`; its records go to `records`, its names to `names`.
/// Returns the block's kind and its length.
///
/// # Errors
/// [`BlockError`]; `records` then holds what it held before.
pub fn decode_block(
    bytes: &[u8],
    records: &mut Vec<TraceRecord>,
    names: &mut Names,
) -> Result<(BlockKind, usize), BlockError> {
    let header =
        bytes.first_chunk::<BLOCK_HEADER_BYTES>().ok_or_else(|| short_or_foreign(bytes))?;
    if &header[..4] != BLOCK_MAGIC {
        return Err(BlockError::Magic);
    }
    let payload_bytes = u32_at(header, 8) as usize;
    let count = u32_at(header, 12) as usize;
    if payload_bytes > PAYLOAD_BYTES_MAX || count > BLOCK_RECORDS_MAX {
        return Err(BlockError::Oversized);
    }
    let total = BLOCK_HEADER_BYTES + payload_bytes;
    let payload =
        bytes.get(BLOCK_HEADER_BYTES..total).ok_or(BlockError::Short { needed_bytes: total })?;
    let (found, computed) = (u32_at(header, 16), crc32c(&[&header[..16], payload]));
    if found != computed {
        return Err(BlockError::Checksum { found, computed });
    }
    let kind = match header[4] {
        KIND_RECORDS => decode_records(payload, count, records)?,
        KIND_NAMES => decode_names(payload, names)?,
        KIND_END => {
            let count = payload.try_into().map_err(|_| BlockError::Content)?;
            BlockKind::End { records: u64::from_le_bytes(count) }
        }
        kind => return Err(BlockError::Kind(kind)),
    };
    Ok((kind, total))
}

fn short_or_foreign(bytes: &[u8]) -> BlockError {
    let known = bytes.len().min(BLOCK_MAGIC.len());
    if bytes[..known] == BLOCK_MAGIC[..known] {
        BlockError::Short { needed_bytes: BLOCK_HEADER_BYTES }
    } else {
        BlockError::Magic
    }
}

fn decode_records(
    payload: &[u8],
    count: usize,
    records: &mut Vec<TraceRecord>,
) -> Result<BlockKind, BlockError> {
    let kept = records.len();
    let mut input = Input { rest: payload };
    let mut before = TraceRecord::new(0, Op::Read, 0, 0);
    for _ in 0..count {
        match input.record(&before) {
            Some(record) => {
                records.push(record);
                before = record;
            }
            None => {
                records.truncate(kept);
                return Err(BlockError::Content);
            }
        }
    }
    if !input.rest.is_empty() {
        records.truncate(kept);
        return Err(BlockError::Content);
    }
    Ok(BlockKind::Records)
}

fn decode_names(payload: &[u8], names: &mut Names) -> Result<BlockKind, BlockError> {
    let mut input = Input { rest: payload };
    while !input.rest.is_empty() {
        let (kind, id, name) = input.name().ok_or(BlockError::Content)?;
        match kind {
            NAME_PROCESS => names.set_process(id, name),
            NAME_DEVICE => {
                names.device_index(name);
            }
            _ => return Err(BlockError::Content),
        }
    }
    Ok(BlockKind::Names)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn record(&mut self, before: &TraceRecord) -> Option<TraceRecord> {
        let tag = self.take(1)?[0];
        let issued_ns = before.issued_ns.wrapping_add(unzigzag(self.varint()?));
        let offset_bytes = before.end_bytes().wrapping_add(unzigzag(self.varint()?));
        let length_bytes =
            if tag & LENGTH_AS_BEFORE != 0 { before.length_bytes } else { self.varint()? };
        offset_bytes.checked_add(length_bytes)?;
        let mut record = TraceRecord { issued_ns, offset_bytes, length_bytes, ..*before };
        record.op = *Op::ALL.get(usize::from(tag & 0b111))?;
        if tag & FLAGS_FOLLOW != 0 {
            record.flags = RecordFlags::from_bits(u16::try_from(self.varint()?).ok()?)?;
        }
        if tag & ORIGIN_FOLLOWS != 0 {
            record.device = u16::try_from(self.varint()?).ok()?;
            record.process = u32::try_from(self.varint()?).ok()?;
            record.queue = u16::try_from(self.varint()?).ok()?;
        }
        record.dispatched_ns = self.time_after(issued_ns, tag & DISPATCH_FOLLOWS != 0)?;
        record.completed_ns = self.time_after(issued_ns, tag & COMPLETION_FOLLOWS != 0)?;
        Some(record)
    }

    /// The outer `None` is damage, the inner one a time that is not known.
    fn time_after(&mut self, issued_ns: u64, follows: bool) -> Option<Option<u64>> {
        if !follows {
            return Some(None);
        }
        Some(Some(issued_ns.checked_add(self.varint()?)?))
    }

    fn name(&mut self) -> Option<(u8, u32, &'a str)> {
        let kind = self.take(1)?[0];
        let id = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        let name = std::str::from_utf8(self.take(usize::from(length))?).ok()?;
        Some((kind, id, name))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}
