//! CRC-32C (Castagnoli) of blocks and metadata.

use headpond_block::{BLOCK_BYTES, Buffer, Buffers};

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// What of this processor computes checksums, for a report.
pub fn checksum_kernel() -> String {
    crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi)
}

/// The checksum of bytes that come in pieces.
pub(crate) struct Running(crc_fast::Digest);

impl Running {
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// The checksum of one buffer; zero where it has no payload.
pub(crate) fn crc32c_of_buffer(buffer: &Buffer) -> u32 {
    // SAFETY: nothing writes to these bytes while they are read. No client can write to the memory
    // of a `Buffer` (decision 0042), the program does not write to that of a write in flight, and
    // the callers check a read when it has been answered.
    let bytes = unsafe { buffer.as_slice() };
    if bytes.is_empty() { 0 } else { crc32c(bytes) }
}

/// The checksum of one block, however it is cut into parts; zero where any of it has no payload.
pub(crate) fn crc32c_of_block(block: &Buffers) -> u32 {
    match block.as_single() {
        Some(single) => crc32c_of_buffer(single),
        None if block.is_payload_free() => 0,
        None => crc32c(&block.to_vec()),
    }
}

/// Adds the checksum of each 4 KiB block of `buffers`, however they are cut into parts; zero where
/// any part of the block has no payload. Such a block is known by its mark, not by this zero, which
/// real data may have too.
pub(crate) fn push_block_checksums(buffers: &Buffers, into: &mut Vec<u32>) {
    let block_bytes = BLOCK_BYTES as usize;
    if let Some(single) = buffers.as_single() {
        if single.is_payload_free() {
            into.extend((0..single.len() / block_bytes).map(|_| 0));
            return;
        }
        // SAFETY: as in `crc32c_of_buffer`.
        let bytes = unsafe { single.as_slice() };
        into.extend(bytes.chunks_exact(block_bytes).map(crc32c));
        return;
    }
    for block in 0..buffers.len_bytes() / block_bytes {
        let part = buffers.slice(block * block_bytes..(block + 1) * block_bytes);
        into.push(crc32c_of_block(&part));
    }
}
