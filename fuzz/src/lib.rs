//! What the fuzz targets share.
//!
//! **Not here**: property tests on arbitrary bytes; every codec has its own, because those run
//! wherever `cargo test` runs.

use std::io::Cursor;

use headpond_trace::{Damage, Demand, ReadOptions, TraceFormat, TraceReader};

/// How gzip, zstd and xz begin.
const COMPRESSED: [&[u8]; 3] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"\xfd7zXZ\0"];

/// Puts the right CRC-32C of `covered` at `at`, so that the fuzzer reaches what lies behind the
/// check. Shorter inputs stay as they are.
pub fn seal(bytes: &mut [u8], at: usize, covered: std::ops::Range<usize>) {
    if covered.end <= bytes.len() && at + 4 <= bytes.len() {
        let sum = crc_fast::crc32_iscsi(&bytes[covered]);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Changes single bytes of something sound: three bytes of `data` each name a place and a value.
pub fn patch(bytes: &mut [u8], data: &[u8]) {
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = change[2];
    }
}

/// Puts `magic` at the start of `bytes`, where there is room for it.
pub fn stamp(bytes: &mut [u8], magic: &[u8]) {
    if let Some(start) = bytes.get_mut(..magic.len()) {
        start.copy_from_slice(magic);
    }
}

/// `data` cut or padded with zeros to `len` bytes.
pub fn sized(data: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = data[..data.len().min(len)].to_vec();
    bytes.resize(len, 0);
    bytes
}

/// Reads `bytes` as a trace to its end, once stopping at damage and once skipping it.
///
/// Compressed input is left alone: what comes out of it is bounded by the reader's buffer, not by
/// its length, and the decompressors have fuzzers of their own.
///
/// # Panics
/// Where a reader yields more records than it may: a block of a recording holds 8192 in a few
/// bytes.
pub fn read_trace(bytes: Vec<u8>) {
    read(bytes, None);
}

/// The same, told which format it is.
///
/// # Panics
/// As [`read_trace`].
pub fn read_trace_as(bytes: Vec<u8>, format: TraceFormat) {
    read(bytes, Some(format));
}

fn read(bytes: Vec<u8>, format: Option<TraceFormat>) {
    if COMPRESSED.iter().any(|magic| bytes.starts_with(magic)) {
        return;
    }
    for damage in [Damage::Fail, Damage::Skip] {
        let (len, input) = (bytes.len(), Box::new(Cursor::new(bytes.clone())));
        let options = ReadOptions { damage, demand: Demand::References, format };
        if let Ok(reader) = TraceReader::from_input("fuzz", input, options) {
            assert!(reader.flatten().count() <= len * 8192, "a block takes a byte or more");
        }
    }
}
