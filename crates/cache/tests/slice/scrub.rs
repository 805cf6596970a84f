//! A scrub finds what rotted on the cache device, and nothing else.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::small_cleaning;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, RequestKind};
use headpond_cache::{BlockRun, CoreBlock, ScrubError, ScrubReport, Slice, SliceConfig};
use std::time::Duration;

/// Core blocks with this byte, dirty.
async fn write(slice: &Slice, byte: u8, first: u64, count: u64) {
    let device: &dyn BlockDevice = slice;
    for index in first..first + count {
        device.write(index * 4096, block(byte)).await.unwrap();
    }
}

/// Flips a bit in each block of the cache device that is full of `byte`.
fn rot(bench: &Bench, byte: u8) -> usize {
    let memory = bench.cache.memory();
    let mut bytes = memory.to_vec();
    let mut rotten = 0;
    for page in bytes.chunks_exact_mut(4096).filter(|page| page.iter().all(|it| *it == byte)) {
        page[77] ^= 1;
        rotten += 1;
    }
    memory.copy_from(&bytes);
    rotten
}

#[test]
fn rotten_blocks_are_dropped_where_the_core_has_them_and_reported_where_not() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        write(&slice, 1, 0, 40).await;
        slice.flush_dirty().await.unwrap();
        write(&slice, 2, 100, 3).await;
        write(&slice, 3, 200, 5).await;
        assert_eq!(slice.scrub().await.unwrap(), ScrubReport { blocks: 48, ..Default::default() });
        assert_eq!((rot(&bench, 1), rot(&bench, 2)), (40, 3));
        let report = slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.dropped_blocks), (48, 40));
        assert_eq!(report.lost, [BlockRun { first: CoreBlock(100), count: 3 }]);
        for (index, expected) in [(0, Some(1)), (39, Some(1)), (101, None), (204, Some(3))] {
            assert_eq!(byte_at(&slice, index * 4096).await.ok(), expected, "block {index}");
        }
        write(&slice, 4, 100, 3).await;
        let report = slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.dropped_blocks, report.lost.len()), (8, 0, 0));
        let again = bench.open(nop()).await;
        assert_eq!(byte_at(&again, 0).await.unwrap(), 1, "what was dropped never comes back");
    });
}

#[test]
fn unreadable_blocks_take_no_neighbours_with_them() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        let data = headpond_block::Buffer::from_slice(&[5; 16 * 4096]);
        device.write(0, data).await.unwrap();
        slice.flush_dirty().await.unwrap();
        let memory = bench.cache.memory().to_vec();
        let page = memory.chunks_exact(4096).position(|page| page.iter().all(|it| *it == 5));
        let offset = page.expect("it is in the log") as u64 * 4096;
        let only = headpond_block::ByteRange::at(offset + 3 * 4096, 4096);
        let unreadable = FaultRule::on(RequestKind::Read, Fault::Media);
        bench.cache_faults.add(FaultRule { range: Some(only), ..unreadable });
        let report = slice.scrub().await.unwrap();
        assert_eq!((report.blocks, report.dropped_blocks, report.lost.len()), (16, 1, 0));
        assert_eq!(byte_at(device, 3 * 4096).await.unwrap(), 5, "the core has it");
    });
}

#[test]
fn a_scrub_goes_on_beside_writes_and_reclaim_and_only_one_at_a_time() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(SliceConfig { cleaning: small_cleaning(), ..nop() }).await;
        write(&slice, 1, 0, 500).await;
        let slow = Fault::Delay(Duration::from_micros(300));
        bench.cache_faults.add(FaultRule::on(RequestKind::Read, slow));
        let other = slice.clone();
        let scrub = runtime.spawn(async move { other.scrub().await });
        runtime.sleep(Duration::from_micros(100)).await;
        assert!(matches!(slice.scrub().await, Err(ScrubError::Busy)));
        for round in 0..12 {
            write(&slice, round, 0, 500).await;
        }
        let report = scrub.await.unwrap();
        assert_eq!((report.dropped_blocks, report.lost.len(), report.is_partial), (0, 0, false));
        assert!(slice.stats().scrubbing.is_none());
        runtime.sleep(Duration::from_millis(1)).await;
        slice.self_check();
    });
}
