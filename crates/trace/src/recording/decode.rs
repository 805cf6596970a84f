//! Decodes blocks: bytes in, records or an error out; the input is untrusted.

use std::io;

use thiserror::Error;

use super::*;
use crate::names::Names;
use crate::record::TraceRecord;

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    #[error("no block starts here")]
    Magic,
    #[error("the block's size exceeds the maximum")]
    Oversized,
    #[error("the block is truncated: {needed_bytes} bytes needed")]
    Short { needed_bytes: usize },
    #[error("the checksum is {found:#010x}, computed {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("the block is of the unknown kind {0}")]
    Kind(u8),
    #[error("the content does not unpack to the {unpacked_bytes} bytes it claims")]
    Packing { unpacked_bytes: usize },
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

/// Decodes blocks, one after another.
pub struct BlockDecoder {
    unpacker: zstd::bulk::Decompressor<'static>,
    unpacked: Vec<u8>,
}

impl BlockDecoder {
    /// # Errors
    /// Where there is no memory for a decompressor.
    pub fn new() -> io::Result<Self> {
        let unpacked = Vec::with_capacity(PAYLOAD_BYTES_MAX);
        Ok(Self { unpacker: zstd::bulk::Decompressor::new()?, unpacked })
    }

    /// Decodes the block at the start of `bytes`; its records go to `records`, its names to
    /// `names`. Returns the block's kind and its length.
    ///
    /// # Errors
    /// [`BlockError`]; `records` then holds what it held before.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        records: &mut Vec<TraceRecord>,
        names: &mut Names,
    ) -> Result<(BlockKind, usize), BlockError> {
        let (header, payload) = checked_block(bytes)?;
        let count = u32_at(header, 12) as usize;
        let unpacked_bytes = u32_at(header, 16) as usize;
        let content = self.unpack(header[5], payload, unpacked_bytes)?;
        let kind = match header[4] {
            KIND_RECORDS => {
                columns::decode(content, count, records).ok_or(BlockError::Content)?;
                BlockKind::Records
            }
            KIND_NAMES => decode_names(content, names)?,
            KIND_END => {
                let count = content.try_into().map_err(|_| BlockError::Content)?;
                BlockKind::End { records: u64::from_le_bytes(count) }
            }
            kind => return Err(BlockError::Kind(kind)),
        };
        Ok((kind, BLOCK_HEADER_BYTES + payload.len()))
    }

    fn unpack<'a>(
        &'a mut self,
        packing: u8,
        payload: &'a [u8],
        unpacked_bytes: usize,
    ) -> Result<&'a [u8], BlockError> {
        let wrong = BlockError::Packing { unpacked_bytes };
        let content = match packing {
            PACKING_PLAIN => payload,
            PACKING_ZSTD => {
                self.unpacked.clear();
                let unpacked = self.unpacker.decompress_to_buffer(payload, &mut self.unpacked);
                unpacked.map_err(|_| wrong)?;
                &self.unpacked
            }
            _ => return Err(wrong),
        };
        if content.len() == unpacked_bytes { Ok(content) } else { Err(wrong) }
    }
}

/// The header and the payload of the block at the start of `bytes`, once they fit together.
fn checked_block(bytes: &[u8]) -> Result<(&[u8; BLOCK_HEADER_BYTES], &[u8]), BlockError> {
    let header =
        bytes.first_chunk::<BLOCK_HEADER_BYTES>().ok_or_else(|| short_or_foreign(bytes))?;
    if &header[..4] != BLOCK_MAGIC {
        return Err(BlockError::Magic);
    }
    let [payload_bytes, count, unpacked_bytes] = [8, 12, 16].map(|at| u32_at(header, at) as usize);
    if payload_bytes.max(unpacked_bytes) > PAYLOAD_BYTES_MAX || count > BLOCK_RECORDS_MAX {
        return Err(BlockError::Oversized);
    }
    let total = BLOCK_HEADER_BYTES + payload_bytes;
    let payload =
        bytes.get(BLOCK_HEADER_BYTES..total).ok_or(BlockError::Short { needed_bytes: total })?;
    let (found, computed) = (u32_at(header, 20), crc32c(&[&header[..20], payload]));
    if found != computed {
        return Err(BlockError::Checksum { found, computed });
    }
    Ok((header, payload))
}

fn short_or_foreign(bytes: &[u8]) -> BlockError {
    let known = bytes.len().min(BLOCK_MAGIC.len());
    if bytes[..known] == BLOCK_MAGIC[..known] {
        BlockError::Short { needed_bytes: BLOCK_HEADER_BYTES }
    } else {
        BlockError::Magic
    }
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
    fn name(&mut self) -> Option<(u8, u32, &'a str)> {
        let kind = self.take(1)?[0];
        let id = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        let name = std::str::from_utf8(self.take(usize::from(length))?).ok()?;
        Some((kind, id, name))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }
}
