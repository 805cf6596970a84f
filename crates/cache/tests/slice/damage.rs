//! What an open makes of metadata that was damaged, or forged, at rest.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{CORE_BYTES, EXPECTED, options};
use headpond_block::{BlockDevice, Buffer, ByteRange, Runtime};
use headpond_cache::format::checkpoint;
use headpond_cache::format::slice_header::{
    CHECKPOINTS_OFFSET, COPY_OFFSETS, HEADER_BYTES, SliceHeader,
};
use headpond_cache::format::superblock::{self, Superblock};
use headpond_cache::{
    CreateOptions, OpenError, Position, Recovery, Slice, SliceConfig, create, load,
    write_superblock,
};

/// Writes version `byte` of some blocks, each with a promise.
async fn write(slice: &Slice, byte: u8, blocks: impl Iterator<Item = u64>) {
    let device: &dyn BlockDevice = slice;
    for index in blocks {
        device.write(index * 4096, block(byte)).await.unwrap();
    }
    device.flush().await.unwrap();
}

/// What the device holds at the offset of each copy of the header of slice 0.
async fn header_range(bench: &Bench, copy: usize) -> std::ops::Range<usize> {
    let slice = load(&*bench.cache).await.unwrap().slices[0];
    let start = (slice.start() + COPY_OFFSETS[copy]) as usize;
    start..start + HEADER_BYTES
}

/// Flips a bit in the copy of the header that was written last, which has this sequence.
async fn damage_header(bench: &Bench, sequence: usize) {
    let range = header_range(bench, sequence % 2).await;
    let memory = bench.cache.memory().slice(range);
    let mut bytes = memory.to_vec();
    assert_eq!(bytes[40], sequence as u8, "the sequence that is meant");
    bytes[3000] ^= 1;
    memory.copy_from(&bytes);
}

/// Opens as the next life does after a power cut, or after a stop.
async fn reopen(bench: &Bench) -> Result<(Slice, Recovery), OpenError> {
    let superblock = load(&*bench.cache).await?;
    Slice::open(bench.foundation(), &superblock, EXPECTED, 0, nop()).await
}

/// A first life that stops, and a second one that overwrites every other block and is cut.
async fn two_lives(bench: &Bench) {
    let first = bench.open(nop()).await;
    write(&first, 1, 0..8).await;
    first.stop().await.unwrap();
    write(&bench.open(nop()).await, 2, (0..8).step_by(2)).await;
}

async fn assert_newest(slice: &Slice) {
    for index in 0..8 {
        let expected = if index % 2 == 0 { 2 } else { 1 };
        assert_eq!(byte_at(slice, index * 4096).await.unwrap(), expected, "block {index}");
    }
}

#[test]
fn newer_header_that_rots_after_a_clean_one_costs_nothing_that_was_promised() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        two_lives(&bench).await;
        damage_header(&bench, 4).await;
        let (slice, recovery) = reopen(&bench).await.unwrap();
        assert!(!recovery.was_clean);
        assert_newest(&slice).await;
        drop(slice);
        let (slice, _) = reopen(&bench).await.unwrap();
        assert_newest(&slice).await;
    });
}

#[test]
fn clean_blocks_of_a_header_whose_successor_rotted_are_read_from_the_core() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let first = bench.open(nop()).await;
        write(&first, 1, 0..8).await;
        first.flush_dirty().await.unwrap();
        first.stop().await.unwrap();
        drop(bench.open(nop()).await);
        // As a write that went past the cache, in a life of which no record is left.
        bench.core.memory().fill(7);
        damage_header(&bench, 4).await;
        let (slice, _) = reopen(&bench).await.unwrap();
        assert_eq!(byte_at(&slice, 0).await.unwrap(), 7);
    });
}

#[test]
fn older_header_is_refused_where_records_of_a_later_life_are_in_the_log() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        two_lives(&bench).await;
        let third = bench.open(nop()).await;
        write(&third, 3, 0..8).await;
        damage_header(&bench, 5).await;
        let before = bench.cache.memory().to_vec();
        let refused = reopen(&bench).await.map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, OpenError::StaleHeader { slice: 0, expected: 3, found: 2, .. }),
            "{refused}"
        );
        assert!(bench.cache.memory().to_vec() == before, "a refusal changes nothing");
    });
}

#[test]
fn older_header_serves_where_the_newer_one_saw_no_records() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        two_lives(&bench).await;
        drop(bench.open(nop()).await);
        damage_header(&bench, 5).await;
        assert_newest(&reopen(&bench).await.unwrap().0).await;
    });
}

#[test]
fn clean_header_that_rots_leaves_the_state_of_a_power_cut() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        two_lives(&bench).await;
        reopen(&bench).await.unwrap().0.stop().await.unwrap();
        damage_header(&bench, 6).await;
        let (slice, recovery) = reopen(&bench).await.unwrap();
        assert!(!recovery.was_clean);
        assert_newest(&slice).await;
    });
}

/// As a slice is that takes a checkpoint after so many bytes of log.
fn with_checkpoints(every_bytes: u64) -> SliceConfig {
    SliceConfig { checkpoint_every_bytes: every_bytes, ..nop() }
}

/// Flips a bit in every copy of a block that holds this byte alone.
fn damage_blocks_of(bench: &Bench, byte: u8) -> usize {
    let memory = bench.cache.memory();
    let mut bytes = memory.to_vec();
    let is_it = |block: &&mut [u8]| block.iter().all(|found| *found == byte);
    let damaged = bytes.chunks_mut(4096).filter(is_it).map(|block| block[77] ^= 1).count();
    memory.copy_from(&bytes);
    damaged
}

/// Two versions of a block that the core lacks, both promised; a checkpoint, and then the newer one
/// of another block.
async fn promised_around_a_checkpoint(bench: &Bench) {
    let first = bench.open(with_checkpoints(1)).await;
    write(&first, 1, 0..2).await;
    write(&first, 2, 0..1).await;
    let before = first.stats().counters.checkpoints;
    let mut other = 100;
    while first.stats().counters.checkpoints == before {
        write(&first, 9, other..other + 4).await;
        other += 4;
        assert!(other < 1000, "no checkpoint");
    }
    write(&first, 3, 1..2).await;
    // Its promise is in a record that follows.
    write(&first, 9, 100..101).await;
}

/// The swarm did not see replay ignore its promises any more: with checkpoints, the records that it
/// damaged were seldom among those that are replayed.
#[test]
fn promised_version_that_rots_is_an_error_before_the_checkpoint_and_after_it() {
    for (byte, index, lost_blocks) in [(2, 0, 0), (3, 1, 1)] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            promised_around_a_checkpoint(&bench).await;
            assert_eq!(damage_blocks_of(&bench, byte), 1);
            for life in 0..2 {
                let superblock = load(&*bench.cache).await.unwrap();
                let config = with_checkpoints(1);
                let opened = Slice::open(bench.foundation(), &superblock, EXPECTED, 0, config);
                let (slice, recovery) = opened.await.unwrap();
                // What replay reads is lost there and then; of the rest only a read can tell.
                assert_eq!(recovery.lost_blocks, lost_blocks, "block {index}, life {life}");
                let read = byte_at(&slice, index * 4096).await;
                assert!(read.is_err(), "block {index}, life {life}: {read:?}");
                assert_eq!(byte_at(&slice, 100 * 4096).await.unwrap(), 9);
            }
            let slice = bench.open(with_checkpoints(1)).await;
            write(&slice, 4, index..index + 1).await;
            assert_eq!(byte_at(&slice, index * 4096).await.unwrap(), 4, "heals");
        });
    }
}

/// What both copies of the header hold.
async fn headers(bench: &Bench) -> [Vec<u8>; 2] {
    let memory = bench.cache.memory();
    let [first, second] = [header_range(bench, 0).await, header_range(bench, 1).await];
    [memory.slice(first).to_vec(), memory.slice(second).to_vec()]
}

#[test]
fn log_that_ran_on_by_a_header_that_was_lost_is_read_whole() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let superblock = load(&*bench.cache).await.unwrap();
        let slice = bench.open(with_checkpoints(5 << 20)).await;
        let newest = |copies: &[Vec<u8>; 2]| {
            let decode = |copy: &Vec<u8>| SliceHeader::decode(copy, superblock.cache, 0).unwrap();
            copies.iter().map(decode).max_by_key(|header| header.sequence).unwrap()
        };
        let mut history = vec![headers(&bench).await];
        let mut version = 0;
        loop {
            version += 1;
            write(&slice, version as u8, 0..60).await;
            let now = headers(&bench).await;
            if newest(&now).sequence > newest(history.last().unwrap()).sequence {
                history.push(now);
            }
            let checkpoints = slice.stats().counters.checkpoints;
            assert!(checkpoints < 3, "another checkpoint came before the log ran beyond");
            let opened = slice.stats().counters.log_bytes / u64::from(superblock.segment_bytes);
            if checkpoints == 2 && opened >= 20 + 38 {
                break;
            }
        }
        drop(slice);
        // The header of the second checkpoint never came to the disk.
        let lost = newest(history.last().unwrap()).sequence;
        let copy = (lost % 2) as usize;
        let place = bench.cache.memory().slice(header_range(&bench, copy).await);
        place.copy_from(&history[history.len() - 2][copy]);
        assert_eq!(newest(&headers(&bench).await).sequence, lost - 1);
        let (slice, _) = reopen(&bench).await.unwrap();
        for index in 0..60 {
            assert_eq!(byte_at(&slice, index * 4096).await.unwrap(), version as u8);
        }
    });
}

#[test]
fn new_cache_is_clean() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        assert!(reopen(&bench).await.unwrap().1.was_clean);
    });
}

/// A cache that was stopped with a few blocks, and where its newest header lies: the one with
/// sequence 3, whose checkpoint went to area 1.
async fn stopped(runtime: &Runtime) -> (Bench, Superblock, Buffer) {
    let bench = Bench::new(runtime).await;
    let first = bench.open(nop()).await;
    write(&first, 1, 0..8).await;
    first.stop().await.unwrap();
    let superblock = load(&*bench.cache).await.unwrap();
    let place = bench.cache.memory().slice(header_range(&bench, 1).await);
    (bench, superblock, place)
}

#[test]
fn checkpoint_that_gives_two_blocks_one_place_is_refused() {
    simulate(async |runtime| {
        let (bench, superblock, place) = stopped(&runtime).await;
        let mut header = SliceHeader::decode(&place.to_vec(), superblock.cache, 0).unwrap();
        let log_bytes = superblock.slices[0].len() - CHECKPOINTS_OFFSET;
        let segments = log_bytes / u64::from(superblock.segment_bytes);
        let blocks = segments * u64::from(superblock.segment_bytes) / 4096;
        let area_bytes = checkpoint::bytes_max(segments, blocks);
        let area = u64::from(header.checkpoint.area) * area_bytes;
        let start = (superblock.slices[0].start() + CHECKPOINTS_OFFSET + area) as usize;
        let memory = bench.cache.memory().slice(start..start + header.checkpoint.bytes as usize);
        let mut bytes = memory.to_vec();
        let (end, last) = (bytes.len(), bytes.len() - checkpoint::RUN_BYTES - 4);
        // The last run, of one block as all are, gets the position of the one before.
        bytes.copy_within(last - 8..last - 4, end - 8);
        memory.copy_from(&bytes);
        header.checkpoint.checksum = crc_fast::crc32_iscsi(&bytes);
        place.copy_from(&header.encode());
        let refused = reopen(&bench).await.map(|_| ()).unwrap_err();
        assert!(
            matches!(&refused, OpenError::Checkpoint { detail, .. } if detail.contains("overlap")),
            "{refused}"
        );
    });
}

/// The log would write over it next.
#[test]
fn a_block_ahead_of_the_head_is_refused() {
    simulate(async |runtime| {
        let (bench, superblock, place) = stopped(&runtime).await;
        let sound = SliceHeader::decode(&place.to_vec(), superblock.cache, 0).unwrap();
        let header = SliceHeader { head: Position(sound.head.0 - 2), ..sound };
        place.copy_from(&header.encode());
        let refused = reopen(&bench).await.map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("in the log's free space"), "{refused}");
        place.copy_from(&sound.encode());
        reopen(&bench).await.unwrap();
    });
}

#[test]
fn superblock_whose_sizes_do_not_fit_each_other_is_refused() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let sound = load(&*bench.cache).await.unwrap();
        let (slice, end) = (sound.slices[0], sound.slices[0].end());
        let forged = [
            Superblock { segment_bytes: 1 << 26, ..sound.clone() },
            Superblock { slices: vec![ByteRange::at(0, end)], ..sound.clone() },
            Superblock { slices: vec![slice, slice], ..sound.clone() },
            Superblock { line_bytes: 12_288, ..sound.clone() },
            Superblock { core_bytes: CORE_BYTES + 1, ..sound.clone() },
            Superblock { core_bytes: 1 << 60, ..sound.clone() },
            Superblock {
                slices: vec![ByteRange::at(u64::MAX - (1 << 18) + 1, (1 << 18) - 4096)],
                device_bytes: u64::MAX,
                ..sound.clone()
            },
        ];
        for superblock in forged {
            for offset in superblock::COPY_OFFSETS {
                let memory = bench.cache.memory().slice(offset as usize..offset as usize + 4096);
                memory.copy_from(&superblock.encode());
            }
            let refused = load(&*bench.cache).await.unwrap_err();
            assert!(matches!(refused, OpenError::NoCache { .. }), "{superblock:?}");
        }
    });
}

/// Found by the swarm (seed 1795301533000402): a misdirected write put the older copy of the header
/// over the newer one, and the slice went back to what that one knew.
#[test]
fn a_header_in_the_place_of_the_other_copy_takes_no_slice_back() {
    for newer in 0..2 {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            two_lives(&bench).await;
            let older = header_range(&bench, 1 - newer).await;
            let place = header_range(&bench, newer).await;
            let bytes = bench.cache.memory().slice(older).to_vec();
            bench.cache.memory().slice(place).copy_from(&bytes);
            match reopen(&bench).await {
                Ok((slice, _)) => assert_newest(&slice).await,
                Err(error) => assert!(matches!(error, OpenError::StaleHeader { .. }), "{error}"),
            }
        });
    }
}

/// Found by the swarm (seed 1795305044000929): the device had lost half of the superblock of a
/// cache that was attached after another one, and the one before was taken for the newer.
#[test]
fn a_superblock_of_the_cache_before_is_not_the_newer_one() {
    for copy in superblock::COPY_OFFSETS {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let place = copy as usize..copy as usize + superblock::SUPERBLOCK_BYTES;
            let before = bench.cache.memory().slice(place.clone()).to_vec();
            let again = CreateOptions { generation: 3, ..options(4096) };
            create(&*bench.cache, &again).await.unwrap();
            bench.cache.memory().slice(place).copy_from(&before);
            let mut found = load(&*bench.cache).await.unwrap();
            assert_eq!(found.generation, 3, "the copy at {copy} is the older cache's");
            for _ in superblock::COPY_OFFSETS {
                write_superblock(&*bench.cache, &mut found).await.unwrap();
            }
            assert_eq!(load(&*bench.cache).await.unwrap(), found);
        });
    }
}
