//! Headpond's own recordings: as found, and as a sealed block behind a sealed header.

#![no_main]

use headpond_fuzz::{read_trace, seal, sized, stamp};
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 32;
const BLOCK_HEADER_BYTES: usize = 24;

fuzz_target!(|data: &[u8]| {
    read_trace(data.to_vec());
    let mut bytes = header();
    bytes.extend(block(data));
    read_trace(bytes);
});

fn header() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    stamp(&mut bytes, b"HPTRACE\0\x02");
    seal(&mut bytes, 28, 0..28);
    bytes
}

/// A block with the kind and the number of records that `data` begins with.
fn block(data: &[u8]) -> Vec<u8> {
    let (head, payload) = data.split_at(data.len().min(3));
    let head = sized(head, 3);
    let mut bytes = vec![0; BLOCK_HEADER_BYTES];
    stamp(&mut bytes, b"HPBK");
    bytes[4] = head[0] % 4;
    bytes[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[12..14].copy_from_slice(&head[1..3]);
    bytes[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = crc_fast::crc32_iscsi(&[&bytes[..20], payload].concat());
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    bytes.extend(payload);
    bytes
}
