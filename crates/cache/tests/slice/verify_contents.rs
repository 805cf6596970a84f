//! What a slice says of the core's contents to whoever doubts them: that alone which a client gave
//! it whole, and the core has.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use headpond_block::{BLOCK_BYTES, BlockDevice, Buffer, ByteRange, Request};
use headpond_cache::{Mode, Slice, SliceConfig};

const HOT: u64 = 7;

async fn verified(slice: &Slice, index: u64) -> Option<u32> {
    let range = ByteRange::at(index * BLOCK_BYTES, BLOCK_BYTES);
    let checksums = slice.core_checksums(range).await;
    assert_eq!(checksums.len(), 1);
    checksums[0]
}

fn checksum(byte: u8) -> Option<u32> {
    let kind = crc_fast::CrcAlgorithm::Crc32Iscsi;
    Some(crc_fast::checksum(kind, &[byte; 4096]) as u32)
}

async fn write(slice: &Slice, index: u64, byte: u8) {
    (slice as &dyn BlockDevice).write(index * BLOCK_BYTES, block(byte)).await.unwrap();
}

async fn write_sector(slice: &Slice, index: u64) {
    let sector = Buffer::from_slice(&[9; 512]);
    (slice as &dyn BlockDevice).write(index * BLOCK_BYTES + 512, sector).await.unwrap();
}

#[test]
fn what_a_client_gave_is_vouched_for_once_the_core_has_it() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        write(&slice, 1, 5).await;
        assert_eq!(verified(&slice, 1).await, None, "the core lacks it");
        slice.flush_dirty().await.unwrap();
        assert_eq!(verified(&slice, 1).await, checksum(5));
        write(&slice, 1, 6).await;
        assert_eq!(verified(&slice, 1).await, None, "the core has what came before");
        slice.set_config(SliceConfig { mode: Mode::WriteThrough, ..nop() }).unwrap();
        write(&slice, 2, 7).await;
        assert_eq!(verified(&slice, 2).await, checksum(7));
        for request in [Request::discard, Request::write_zeroes] {
            write(&slice, 3, 8).await;
            assert_eq!(verified(&slice, 3).await, checksum(8));
            slice.submit(request(ByteRange::at(3 * BLOCK_BYTES, BLOCK_BYTES))).await.unwrap();
            assert_eq!(verified(&slice, 3).await, None);
        }
        let past = SliceConfig { mode: Mode::PassThrough, ..nop() };
        write(&slice, 4, 8).await;
        slice.set_config(past).unwrap();
        write(&slice, 4, 9).await;
        assert_eq!(verified(&slice, 4).await, None);
    });
}

#[test]
fn what_was_read_from_the_core_or_completed_from_there_is_not_vouched_for() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(SliceConfig { mode, ..nop() }).await;
            // Block 1 is read, 2 is read and then written to in part, 3 is written to in part.
            for index in [1, 2] {
                byte_at(&slice, index * BLOCK_BYTES).await.unwrap();
            }
            runtime.sleep(std::time::Duration::from_secs(1)).await;
            for index in [2, 3] {
                write_sector(&slice, index).await;
            }
            slice.flush_dirty().await.unwrap();
            for index in [1, 2, 3] {
                assert_eq!(verified(&slice, index).await, None, "block {index} in {mode:?}");
            }
        });
    }
}

#[test]
fn reclaim_and_a_clean_stop_keep_what_is_known_and_a_crash_does_not() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        write(&slice, HOT, 5).await;
        slice.flush_dirty().await.unwrap();
        let mut index = 100;
        while slice.stats().counters.reinserted_blocks < 100 {
            index += 1;
            assert!(index < 100_000, "nothing is reclaimed");
            write(&slice, index % 3000, index as u8).await;
            byte_at(&slice, HOT * BLOCK_BYTES).await.unwrap();
            if index.is_multiple_of(100) {
                slice.flush_dirty().await.unwrap();
            }
        }
        assert_eq!(verified(&slice, HOT).await, checksum(5));
        slice.stop().await.unwrap();
        let slice = bench.open(nop()).await;
        assert!(slice.stats().clean_bytes > 0, "it is all there");
        assert_eq!(byte_at(&slice, HOT * BLOCK_BYTES).await.unwrap(), 5);
        assert_eq!(verified(&slice, HOT).await, checksum(5));
        drop(slice);
        let slice = bench.open(nop()).await;
        assert_eq!(byte_at(&slice, HOT * BLOCK_BYTES).await.unwrap(), 5);
        assert_eq!(verified(&slice, HOT).await, None);
    });
}
