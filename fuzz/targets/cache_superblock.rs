//! What lies at the start of a cache device and of each slice: any bytes, and sound ones of which
//! some were changed and the checksum made right again; and the checkpoint, whose checksum is in
//! the slice header.

#![no_main]

use headpond_block::ByteRange;
use headpond_cache::format::checkpoint::{Decoder, encode_table};
use headpond_cache::format::slice_header::{self, CheckpointRef, SliceHeader};
use headpond_cache::format::superblock::{Features, SLICES_OFFSET, SUPERBLOCK_BYTES, Superblock};
use headpond_cache::{Epoch, Position, SegmentIndex, Sequence};
use headpond_fuzz::{patch, seal};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const CHECKSUM_AT: usize = 8;
const COVERED_FROM: usize = 12;
const CACHE: Uuid = Uuid::from_u128(7);

fuzz_target!(|data: &[u8]| {
    let _ = Superblock::decode(data);
    let _ = SliceHeader::decode(data, CACHE, 0);
    superblock(data);
    slice_header(data);
    if let Some((&segments, bytes)) = data.split_first() {
        checkpoint(bytes, usize::from(segments));
    }
});

/// However a checkpoint is cut into pieces, it says the same, and can be written again.
fn checkpoint(bytes: &[u8], segments: usize) {
    let decode = |piece: usize| {
        let (mut decoder, mut again) = (Decoder::new(segments), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.feed(piece, |_, run, checksums| {
                run.encode(checksums, &mut again);
                Ok(())
            })?;
        }
        decoder.finish().map(|table| (encode_table(&table), again))
    };
    let whole = decode(bytes.len().max(1));
    assert_eq!(whole, decode(7));
    if let Ok((mut written, runs)) = whole {
        written.extend(runs);
        assert_eq!(written, bytes);
    }
}

fn superblock(changes: &[u8]) {
    let mut bytes = sound_superblock().encode();
    patch(&mut bytes, changes);
    seal(&mut bytes, CHECKSUM_AT, COVERED_FROM..SUPERBLOCK_BYTES);
    if let Ok(superblock) = Superblock::decode(&bytes) {
        let again = Superblock::decode(&superblock.encode());
        assert_eq!(again.expect("what was decoded can be written"), superblock);
    }
}

fn sound_superblock() -> Superblock {
    let slice = |index: u64| ByteRange::at(SLICES_OFFSET + index * (64 << 20), 64 << 20);
    Superblock {
        features: Features::default(),
        sequence: 5,
        volume: Uuid::from_u128(6),
        cache: CACHE,
        generation: 1,
        core: Uuid::from_u128(8),
        core_bytes: 1 << 40,
        device_bytes: 1 << 30,
        segment_bytes: 1 << 20,
        line_bytes: 4096,
        unit_bytes: 512,
        slices: vec![slice(0), slice(1)],
    }
}

fn slice_header(changes: &[u8]) {
    let mut bytes = sound_slice_header().encode();
    patch(&mut bytes, changes);
    seal(&mut bytes, CHECKSUM_AT, COVERED_FROM..slice_header::HEADER_BYTES);
    if let Ok(header) = SliceHeader::decode(&bytes, CACHE, 0) {
        let again = SliceHeader::decode(&header.encode(), CACHE, 0);
        assert_eq!(again.expect("what was decoded can be written"), header);
    }
}

fn sound_slice_header() -> SliceHeader {
    SliceHeader {
        cache: CACHE,
        slice: 0,
        sequence: 3,
        epoch: Epoch(2),
        next_record: Sequence(100),
        tail: Sequence(10),
        tail_segment: SegmentIndex(1),
        head: Position(4096),
        head_segment: SegmentIndex(2),
        is_clean: false,
        checkpoint: CheckpointRef { area: 1, runs: 4, bytes: 128, checksum: 9 },
        order: None,
        reach: 12,
    }
}
