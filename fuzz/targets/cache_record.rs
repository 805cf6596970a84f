//! A record's descriptor: any bytes, and a sound one of which some bytes were changed, with length
//! and checksum made right again.

#![no_main]

use headpond_cache::format::record::{Draft, EntryKind, Header, Promises, decode};
use headpond_cache::{ClassKey, CoreBlock, Epoch, Position, Sequence};
use headpond_fuzz::{patch, seal};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const CHECKSUM_AT: usize = 8;
const COVERED_FROM: usize = 12;
const LENGTH_AT: usize = 72;
const CACHE: Uuid = Uuid::from_u128(7);
const SLICE: u16 = 3;
const POSITION: Position = Position(99);

fuzz_target!(|data: &[u8]| {
    let _ = decode(data, CACHE, SLICE, POSITION);
    let Some((&blocks, changes)) = data.split_first() else { return };
    let mut bytes = sound(u64::from(blocks % 32));
    let len = bytes.len();
    patch(&mut bytes, changes);
    bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    seal(&mut bytes, CHECKSUM_AT, COVERED_FROM..len);
    if let Ok(record) = decode(&bytes, CACHE, SLICE, POSITION) {
        let with_data = record.entries.iter().filter(|entry| entry.kind.carries_data());
        let blocks: usize = with_data.map(|entry| entry.count as usize).sum();
        assert_eq!(record.checksums.len(), blocks, "a checksum for each block of data");
    }
});

/// A descriptor of data, reinserted data and a tombstone, after another one.
fn sound(blocks: u64) -> Vec<u8> {
    let mut draft = Draft::default();
    draft.push(CoreBlock(5), EntryKind::Dirty, None, ClassKey(2));
    draft.advance();
    for block in 0..blocks {
        let birth = (block % 4 == 3).then_some(Sequence(block + 1));
        draft.push(CoreBlock(block * 3 / 2), EntryKind::Dirty, birth, ClassKey::UNKNOWN);
        draft.checksums.push(block as u32);
    }
    draft.push(CoreBlock(1000), EntryKind::Tombstone, None, ClassKey::UNKNOWN);
    let mut promises = Promises::default();
    promises.add(Sequence(99));
    let header = Header {
        cache: CACHE,
        slice: SLICE,
        epoch: Epoch(2),
        sequence: Sequence(100),
        tail: Sequence(1),
        flush_mark: Sequence(99),
        position: POSITION,
        promises,
        is_behind_an_end: true,
        order: Some(POSITION),
    };
    let mut bytes = vec![0; draft.encoded_bytes(draft.checksums.len())];
    draft.encode(&header, &mut bytes);
    bytes
}
